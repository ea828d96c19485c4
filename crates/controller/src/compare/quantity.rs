//! Quantities (`500m`, `1Gi`, `2e3`), compared by value.

use serde_json::Value;

/// Whether two values, numbers or strings, are the same quantity. False when either is no quantity at all.
pub fn same_quantity(a: &Value, b: &Value) -> bool {
    let nanos = |value: &Value| match value {
        Value::String(text) => parse_nanos(text),
        Value::Number(number) => parse_nanos(&number.to_string()),
        _ => None,
    };
    matches!((nanos(a), nanos(b)), (Some(a), Some(b)) if a == b)
}

/// The value in billionths, rounded away from zero as Kubernetes does. `None` when it is no quantity or does not fit.
fn parse_nanos(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (multiplier, exponent) = suffix_of(suffix)?;
    let power = exponent - scale + 9;
    let scaled = mantissa.checked_mul(multiplier)?;
    let value = if power >= 0 {
        scaled.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)?
    } else {
        let divisor = 10_i128.checked_pow(power.unsigned_abs())?;
        scaled.checked_add(divisor - 1)? / divisor
    };
    Some(if negative { -value } else { value })
}

/// A suffix as a factor and a power of ten.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => (1, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_amount_written_differently_is_the_same() {
        for (a, b) in [
            (json!("1000m"), json!("1")),
            (json!(1), json!("1")),
            (json!("0.5"), json!("500m")),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1e3"), json!("1k")),
            (json!("1E3"), json!("1000")),
            (json!("1.5Gi"), json!("1536Mi")),
            (json!("-1"), json!("-1000m")),
            (json!(".5"), json!("500m")),
            (json!("0"), json!("0m")),
        ] {
            assert!(same_quantity(&a, &b), "{a} {b}");
        }
    }

    #[test]
    fn different_amounts_and_words_are_not() {
        for (a, b) in [
            (json!("1"), json!("1m")),
            (json!("1G"), json!("1Gi")),
            (json!("one"), json!("one")),
            (json!(""), json!("")),
            (json!("1 Gi"), json!("1Gi")),
            (json!("."), json!("0")),
            (json!(true), json!(1)),
            (json!("1e999"), json!("1e999")),
        ] {
            assert!(!same_quantity(&a, &b), "{a} {b}");
        }
    }
}
