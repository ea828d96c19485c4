//! Query strings, as Go's servers read them.

use percent_encoding::percent_decode_str;

use crate::refusal::Refusal;

/// Names and values in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of the part behind the question mark.
    pub fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// All values of a name, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Present and neither empty, `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false"))
    }

    /// A whole number, at least `least`.
    pub fn number(&self, name: &str, least: u64) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(Refusal::Unprocessable(format!(
                "{name} must be a whole number, {least} or more, not {text:?}"
            ))),
        }
    }
}

fn decode(text: &str) -> Result<String, Refusal> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Refusal::Invalid("the query is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_keep_their_order_and_plus_is_a_space() {
        let query = Query::parse(Some("command=sh&command=-c&command=echo+a%26b&tty=1&input=0")).unwrap();
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a&b"]);
        assert!(query.flag("tty"));
        assert!(!query.flag("input"));
        assert!(!query.flag("output"));
    }

    #[test]
    fn numbers_outside_their_range_are_named() {
        let query = Query::parse(Some("tailLines=-1&limitBytes=0&sinceSeconds=5")).unwrap();
        assert_eq!(query.number("sinceSeconds", 1), Ok(Some(5)));
        assert_eq!(query.number("absent", 1), Ok(None));
        let refusal = query.number("limitBytes", 1).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Invalid request: limitBytes must be a whole number, 1 or more, not \"0\""
        );
        assert!(query.number("tailLines", 0).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert!(Query::parse(Some("command=%ff")).is_err());
    }
}
