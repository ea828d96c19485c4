//! The two streams. A reader that is gone is no reason to fail: the real one is line-buffered and does not look either.

use std::io::Write as _;

/// A line on standard output.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// A line on standard error.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// JSON as Foundation's encoder prints it: `"Key" : value`, two spaces, `/` escaped [guess], and `[\n\n]` for nothing.
pub(crate) fn foundation_json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    render(value, 0, &mut text);
    text
}

fn render(value: &serde_json::Value, depth: usize, text: &mut String) {
    use serde_json::Value;
    let indent = |text: &mut String, depth: usize| (0..depth).for_each(|_| text.push_str("  "));
    match value {
        Value::Array(items) => {
            text.push_str("[\n");
            for (index, item) in items.iter().enumerate() {
                indent(text, depth + 1);
                render(item, depth + 1, text);
                text.push_str(if index + 1 < items.len() { ",\n" } else { "" });
            }
            text.push('\n');
            indent(text, depth);
            text.push(']');
        }
        Value::Object(fields) => {
            text.push_str("{\n");
            for (index, (key, item)) in fields.iter().enumerate() {
                indent(text, depth + 1);
                text.push_str(&escaped(key));
                text.push_str(" : ");
                render(item, depth + 1, text);
                text.push_str(if index + 1 < fields.len() { ",\n" } else { "\n" });
            }
            indent(text, depth);
            text.push('}');
        }
        Value::String(word) => text.push_str(&escaped(word)),
        plain => text.push_str(&plain.to_string()),
    }
}

fn escaped(word: &str) -> String {
    serde_json::Value::from(word).to_string().replace('/', "\\/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_looks_as_foundation_prints_it_and_says_the_same() {
        let value = json!([{ "Name": "a/b", "Running": false }, { "Disk": 50 }]);
        let text = foundation_json(&value);
        assert_eq!(
            text,
            "[\n  {\n    \"Name\" : \"a\\/b\",\n    \"Running\" : false\n  },\n  {\n    \"Disk\" : 50\n  }\n]"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(foundation_json(&json!([])), "[\n\n]");
    }
}
