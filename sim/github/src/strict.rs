//! Bodies and queries that are read to the last field: what nobody asked for is an error.

use crate::refusal::Refusal;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields of a JSON body.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn new(body: Value) -> Result<Self, Refusal> {
        match body {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Refusal::new(400, "Body should be a JSON object")),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<Value, Refusal> {
        self.take(name)
            .ok_or_else(|| Refusal::new(422, format!("Invalid input: object is missing required key: {name}")))
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Refusal::invalid(format!("For '{name}', {other} is not a string."))),
        }
    }

    pub(crate) fn finish(self) -> Result<(), Refusal> {
        match self.0.keys().next() {
            Some(name) => Err(Refusal::invalid(format!("\"{name}\" is not a permitted key."))),
            None => Ok(()),
        }
    }
}

/// The query of a request.
#[derive(Debug)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn new(query: &str) -> Result<Self, Refusal> {
        let mut values = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if values.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Refusal::invalid(format!("\"{name}\" is given more than once.")));
            }
        }
        Ok(Self(values))
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number > 0);
        number
            .map(Some)
            .ok_or_else(|| Refusal::invalid(format!("For '{name}', \"{text}\" is not a positive number.")))
    }

    pub(crate) fn finish(self) -> Result<(), Refusal> {
        match self.0.keys().next() {
            Some(name) => Err(Refusal::invalid(format!("\"{name}\" is not a permitted key."))),
            None => Ok(()),
        }
    }
}
