//! Parts of sentences about calls that failed.

use std::fmt;

/// A text, or another where there is none.
pub fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// What went wrong, with status and message as far as there are any.
pub fn no_answer(f: &mut fmt::Formatter<'_>, what: &str, status: Option<u16>, message: &str) -> fmt::Result {
    f.write_str(what)?;
    if let Some(status) = status {
        write!(f, ", status {status}")?;
    }
    if !message.is_empty() {
        write!(f, ", {message}")?;
    }
    Ok(())
}
