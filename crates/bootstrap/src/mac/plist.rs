//! Property lists of launchd jobs.

use std::fmt::Write as _;

/// A value of a property list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u32),
    True,
    List(Vec<Self>),
    Keys(Vec<(&'static str, Self)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Value {
    pub(super) fn list<T: Into<Self>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    fn write(&self, text: &mut String, depth: usize) {
        let pad = "\t".repeat(depth);
        match self {
            Self::Text(value) => {
                let _ = writeln!(text, "{pad}<string>{}</string>", escape(value));
            }
            Self::Number(value) => {
                let _ = writeln!(text, "{pad}<integer>{value}</integer>");
            }
            Self::True => {
                let _ = writeln!(text, "{pad}<true/>");
            }
            Self::List(items) => {
                let _ = writeln!(text, "{pad}<array>");
                for item in items {
                    item.write(text, depth + 1);
                }
                let _ = writeln!(text, "{pad}</array>");
            }
            Self::Keys(pairs) => {
                let _ = writeln!(text, "{pad}<dict>");
                for (key, value) in pairs {
                    let _ = writeln!(text, "{pad}\t<key>{}</key>", escape(key));
                    value.write(text, depth + 1);
                }
                let _ = writeln!(text, "{pad}</dict>");
            }
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // XML 1.0 has no way to write most control characters.
            '\t' | '\n' | '\r' => escaped.push(character),
            control if control.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}

/// The text of a property list.
pub(super) fn render(keys: Vec<(&'static str, Value)>) -> String {
    let mut text = String::from(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n",
        "<plist version=\"1.0\">\n",
    ));
    Value::Keys(keys).write(&mut text, 0);
    text.push_str("</plist>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_become_markup() {
        let text = render(vec![(
            "ProgramArguments",
            Value::list(["a</string><string>b", "c & d"]),
        )]);
        assert!(
            text.contains("<string>a&lt;/string&gt;&lt;string&gt;b</string>"),
            "{text}"
        );
        assert!(text.contains("<string>c &amp; d</string>"), "{text}");
    }
}
