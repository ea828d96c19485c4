//! `$(NAME)` in values, commands and arguments.

/// Puts the values of variables in. `$$` is a dollar; what is unknown or not closed stays as it is written.
pub fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            result.push('$');
            rest = escaped;
        } else if let Some((name, beyond)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let value = value(name).unwrap_or_else(|| format!("$({name})"));
            result.push_str(&value);
            rest = beyond;
        } else {
            result.push('$');
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(text: &str) -> String {
        expand(text, |name| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("$(A)".to_owned()),
            "" => Some("empty".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in_and_the_rest_stays() {
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(NO)", "$(NO)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$"),
            ("$()", "empty"),
            ("$(B)", "$(A)"),
            ("$((A))", "$((A))"),
            ("$ü(A)", "$ü(A)"),
            ("${A}", "${A}"),
            ("--$(A)=$(A)$$", "--1=1$"),
        ];
        for (text, result) in cases {
            assert_eq!(filled(text), result, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_is_left_alone(text in "[^$]*") {
            prop_assert_eq!(filled(&text), text);
        }

        #[test]
        fn doubling_every_dollar_gives_the_text_back(text in ".*") {
            prop_assert_eq!(filled(&text.replace('$', "$$")), text);
        }
    }
}
