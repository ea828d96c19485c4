//! Values as words of bash.

/// The value as one word that bash takes literally. Only NUL cannot be carried; callers refuse it.
pub(crate) fn word(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('\'');
    for part in value.split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(before) => {
                quoted.push_str(before);
                quoted.push_str("'\\''");
            }
            None => quoted.push_str(part),
        }
    }
    quoted.push('\'');
    quoted
}
