//! Reading arguments so that nothing passes unseen.
//!
//! A reader hands out arguments by name and remembers every mistake; [`Query::finish`] and [`Fields::finish`] then also
//! name whatever nobody asked for. A client that misspells a filter gets 400, not the unfiltered list.

use crate::call::decode;
use crate::ids::Id;
use crate::refusal::{Argument, Reason, Refusal};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Mistakes found so far.
#[derive(Debug, Default)]
struct Mistakes(Vec<Argument>);

impl Mistakes {
    fn add(&mut self, name: &str, reason: Reason, help: impl Into<String>) {
        self.0.push(Argument {
            name: name.to_owned(),
            reason,
            help: help.into(),
        });
    }

    fn finish(self) -> Result<(), Refusal> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Refusal::Arguments(self.0))
        }
    }

    fn id(&mut self, name: &str, text: Option<String>) -> Option<Id> {
        let text = text?;
        text.parse()
            .map_err(|error: crate::ids::BadId| self.add(name, Reason::Format, error.to_string()))
            .ok()
    }
}

/// The query of a request.
#[derive(Debug)]
pub(crate) struct Query {
    values: BTreeMap<String, Vec<String>>,
    mistakes: Mistakes,
}

impl Query {
    pub(crate) fn new(query: &str) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut mistakes = Mistakes::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(&name.replace('+', " ")), decode(&value.replace('+', " "))) {
                (Some(name), Some(value)) => values.entry(name).or_default().push(value),
                _ => mistakes.add(name, Reason::Format, "percent-encoding is broken"),
            }
        }
        Self { values, mistakes }
    }

    /// A parameter that may be given several times.
    pub(crate) fn many(&mut self, name: &str) -> Vec<String> {
        self.values.remove(name).unwrap_or_default()
    }

    /// A parameter that may be given once.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let mut values = self.many(name);
        if values.len() > 1 {
            self.mistakes.add(name, Reason::Constraint, "given more than once");
        }
        values.pop()
    }

    pub(crate) fn id(&mut self, name: &str) -> Option<Id> {
        let text = self.text(name);
        self.mistakes.id(name, text)
    }

    pub(crate) fn ids(&mut self, name: &str) -> Vec<Id> {
        let texts = self.many(name);
        texts
            .into_iter()
            .filter_map(|text| self.mistakes.id(name, Some(text)))
            .collect()
    }

    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.text(name)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                self.mistakes
                    .add(name, Reason::Format, format!("{other:?} is not a boolean"));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, name: &str) -> Option<u32> {
        let text = self.text(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.refuse(name, Reason::Format, format!("{text:?} is not a number"));
        }
        number
    }

    /// One of a few words; the first is the default.
    pub(crate) fn choice(&mut self, name: &str, words: &[&'static str]) -> &'static str {
        let default = words.first().copied().unwrap_or_default();
        let Some(text) = self.text(name) else { return default };
        words.iter().copied().find(|word| *word == text).unwrap_or_else(|| {
            self.mistakes
                .add(name, Reason::Constraint, format!("must be one of {}", words.join(", ")));
            default
        })
    }

    /// Records a mistake the reader cannot see by itself.
    pub(crate) fn refuse(&mut self, name: &str, reason: Reason, help: impl Into<String>) {
        self.mistakes.add(name, reason, help);
    }

    pub(crate) fn finish(mut self) -> Result<(), Refusal> {
        for name in std::mem::take(&mut self.values).into_keys() {
            self.mistakes.add(&name, Reason::Unknown, "no such query parameter");
        }
        self.mistakes.finish()
    }
}

/// The fields of a JSON body.
#[derive(Debug)]
pub(crate) struct Fields {
    values: Map<String, Value>,
    mistakes: Mistakes,
}

impl Fields {
    pub(crate) fn new(body: Value) -> Result<Self, Refusal> {
        match body {
            Value::Object(values) => Ok(Self {
                values,
                mistakes: Mistakes::default(),
            }),
            _ => Err(Refusal::argument("body", Reason::Format, "must be a JSON object")),
        }
    }

    /// A field; null counts as not given.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            _ => self.wrong(name, "must be a string"),
        }
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required(&mut self, name: &str) -> String {
        let text = self.text(name).unwrap_or_default();
        if text.is_empty() {
            self.refuse(name, Reason::Required, "cannot be empty");
        }
        text
    }

    pub(crate) fn id(&mut self, name: &str) -> Option<Id> {
        let text = self.text(name);
        self.mistakes.id(name, text)
    }

    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.value(name)? {
            Value::Bool(flag) => Some(flag),
            _ => self.wrong(name, "must be a boolean"),
        }
    }

    pub(crate) fn number(&mut self, name: &str) -> Option<u64> {
        match self.value(name)?.as_u64() {
            Some(number) => Some(number),
            None => self.wrong(name, "must be a whole number that is not negative"),
        }
    }

    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let texts = value.as_array().and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        texts.unwrap_or_else(|| self.wrong(name, "must be a list of strings").unwrap_or_default())
    }

    /// A list that may be left as it is: none if it is not given.
    pub(crate) fn some_texts(&mut self, name: &str) -> Option<Vec<String>> {
        let given = self.values.get(name).is_some_and(|value| !value.is_null());
        let texts = self.texts(name);
        given.then_some(texts)
    }

    /// Whether a field is given as null, which is not the same as not given.
    pub(crate) fn cleared(&mut self, name: &str) -> bool {
        let null = self.values.get(name).is_some_and(Value::is_null);
        if null {
            self.values.remove(name);
        }
        null
    }

    pub(crate) fn ids(&mut self, name: &str) -> Vec<Id> {
        let texts = self.texts(name);
        texts
            .into_iter()
            .filter_map(|text| self.mistakes.id(name, Some(text)))
            .collect()
    }

    /// One of a few words.
    pub(crate) fn choice(&mut self, name: &str, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text(name)?;
        let found = words.iter().copied().find(|word| *word == text);
        if found.is_none() {
            self.refuse(name, Reason::Constraint, format!("must be one of {}", words.join(", ")));
        }
        found
    }

    /// A field the real API knows and the emulator cannot honour.
    pub(crate) fn not_emulated(&mut self, name: &str) {
        if self.value(name).is_some() {
            self.refuse(name, Reason::Constraint, "the emulator does not have this");
        }
    }

    pub(crate) fn refuse(&mut self, name: &str, reason: Reason, help: impl Into<String>) {
        self.mistakes.add(name, reason, help);
    }

    fn wrong<T>(&mut self, name: &str, help: &str) -> Option<T> {
        self.refuse(name, Reason::Format, help);
        None
    }

    pub(crate) fn finish(mut self) -> Result<(), Refusal> {
        for name in std::mem::take(&mut self.values).into_iter().map(|(name, _)| name) {
            self.mistakes.add(&name, Reason::Unknown, "no such field");
        }
        self.mistakes.finish()
    }
}
