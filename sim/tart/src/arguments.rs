//! A command line read as swift-argument-parser reads it, errors included.

use crate::failure::Failure;
use std::collections::BTreeMap;

/// An option of a command.
#[derive(Debug)]
pub(crate) struct Opt {
    /// All spellings, the long one first.
    pub(crate) names: &'static [&'static str],
    /// What its value is called in errors; none for a flag.
    pub(crate) value: Option<&'static str>,
}

/// What a command takes.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    /// Names of the positional arguments; all are required.
    pub(crate) positional: &'static [&'static str],
    /// The last positional repeats.
    pub(crate) repeats: bool,
    /// Everything after the first positional is taken as it is.
    pub(crate) passes: bool,
    pub(crate) options: &'static [Opt],
}

pub(crate) const fn flag(names: &'static [&'static str]) -> Opt {
    Opt { names, value: None }
}

pub(crate) const fn value(names: &'static [&'static str], called: &'static str) -> Opt {
    Opt {
        names,
        value: Some(called),
    }
}

/// A command line, understood.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) positional: Vec<String>,
    options: BTreeMap<&'static str, Vec<String>>,
}

impl Parsed {
    /// Whether a flag was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The last value of an option.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name)?.last().map(String::as_str)
    }

    /// Every value of an option.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.options.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// A positional argument; parsing made sure that it is there.
    pub(crate) fn at(&self, index: usize) -> &str {
        self.positional.get(index).map_or("", String::as_str)
    }
}

impl Spec {
    pub(crate) fn wrong(&self, text: impl Into<String>) -> Failure {
        Failure::Usage {
            text: text.into(),
            command: Some(self.name),
            usage: self.usage,
        }
    }

    pub(crate) fn parse(&self, words: &[String]) -> Result<Parsed, Failure> {
        let mut parsed = Parsed::default();
        let mut surplus = Vec::new();
        let mut words = words.iter();
        let mut only_positional = false;
        while let Some(word) = words.next() {
            let passing = self.passes && !parsed.positional.is_empty();
            if passing || only_positional || !word.starts_with('-') || word == "-" {
                if passing || self.repeats || parsed.positional.len() < self.positional.len() {
                    parsed.positional.push(word.clone());
                } else {
                    surplus.push(word.clone());
                }
                continue;
            }
            if word == "--" {
                only_positional = true;
                continue;
            }
            let (name, attached) = match word.split_once('=') {
                Some((name, rest)) if name.starts_with("--") => (name, Some(rest.to_owned())),
                _ => (word.as_str(), None),
            };
            let Some(option) = self.options.iter().find(|option| option.names.contains(&name)) else {
                return Err(self.wrong(format!("Unknown option '{name}'")));
            };
            let canonical = option.names.first().copied().unwrap_or_default();
            let given = match (option.value, attached) {
                (None, None) => String::new(),
                (None, Some(extra)) => {
                    return Err(self.wrong(format!(
                        "The option '{name}' does not take any value, but '{extra}' was specified."
                    )));
                }
                (Some(_), Some(given)) => given,
                (Some(called), None) => match words.next() {
                    // Parsing stops at the next dash: a value that begins with one has to be attached.
                    Some(next) if !next.starts_with('-') || next.len() == 1 => next.clone(),
                    _ => return Err(self.wrong(format!("Missing value for '{name} <{called}>'"))),
                },
            };
            parsed.options.entry(canonical).or_default().push(given);
        }
        match surplus.as_slice() {
            [] => {}
            [one] => return Err(self.wrong(format!("Unexpected argument '{one}'"))),
            many => {
                let quoted: Vec<_> = many.iter().map(|word| format!("'{word}'")).collect();
                return Err(self.wrong(format!("{} unexpected arguments: {}", many.len(), quoted.join(", "))));
            }
        }
        if let Some(missing) = self.positional.get(parsed.positional.len()) {
            let dots = if self.repeats { " ..." } else { "" };
            return Err(self.wrong(format!("Missing expected argument '<{missing}>{dots}'")));
        }
        Ok(parsed)
    }

    /// A number among the options.
    pub(crate) fn number<T: std::str::FromStr>(
        &self,
        parsed: &Parsed,
        name: &'static str,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = parsed.get(name) else { return Ok(None) };
        let called = self
            .options
            .iter()
            .find(|option| option.names.contains(&name))
            .and_then(|option| option.value)
            .unwrap_or("value");
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.wrong(format!("The value '{text}' is invalid for '{name} <{called}>'"))),
        }
    }

    /// One of a few words among the options.
    pub(crate) fn choice<'a>(
        &self,
        parsed: &'a Parsed,
        name: &'static str,
        choices: &[&'static str],
    ) -> Result<Option<&'a str>, Failure> {
        let Some(text) = parsed.get(name) else { return Ok(None) };
        if choices.contains(&text) {
            return Ok(Some(text));
        }
        let quoted: Vec<_> = choices.iter().map(|word| format!("'{word}'")).collect();
        Err(self.wrong(format!(
            "The value '{text}' is invalid for '{name} <{}>'. Please provide one of {}.",
            name.trim_start_matches('-'),
            quoted.join(" and ")
        )))
    }
}
