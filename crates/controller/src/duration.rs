//! Durations as Go programs write them (`15s`, `1m30s`, `500ms`), since our flags replace those of Go programs.

use std::time::Duration;

/// Why a duration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write for example 15s, 1m30s or 500ms")]
pub struct Error(String);

/// Parses a non-negative Go duration.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let refuse = || Error(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refuse)?;
        let (number, after) = rest.split_at_checked(digits).ok_or_else(refuse)?;
        let unit_len = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, remaining) = after.split_at_checked(unit_len).ok_or_else(refuse)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(refuse()),
        };
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| refuse())?;
        total = total.checked_add(part).ok_or_else(refuse)?;
        rest = remaining;
    }
    if text.trim().is_empty() {
        Err(refuse())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_parse() {
        for (text, millis) in [
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            ("0", 0),
            ("2h3m4s", 7_384_000),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "",
            "15",
            "s",
            "-1s",
            "1d",
            "1s2",
            "ten",
            "1..2s",
            "99999999999999999999h",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains("for example"), "{text}");
        }
    }
}
