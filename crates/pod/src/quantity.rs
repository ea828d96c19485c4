//! Quantities of Kubernetes (`1500m`, `2Gi`, `1e3`) as numbers one can add and divide.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Nano-units in one.
const NANO: i128 = 1_000_000_000;

/// An amount, exact to a billionth as in Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no quantity; write a number with an optional suffix, such as 500m, 2 or 4Gi")]
pub struct BadQuantity(pub String);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Whole units.
    pub fn units(units: u64) -> Self {
        Self(i128::from(units) * NANO)
    }

    /// Reads a quantity. Digits beyond a billionth are rounded up, away from nothing.
    pub fn parse(text: &str) -> Result<Self, BadQuantity> {
        read(text).ok_or_else(|| BadQuantity(text.to_owned()))
    }

    /// Reads a quantity of an object; what the API server let through and we cannot read counts as nothing.
    pub fn of(quantity: &Quantity) -> Self {
        Self::parse(&quantity.0).unwrap_or_default()
    }

    /// The sum, never beyond what can be counted.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// In units, rounded up.
    pub fn value(self) -> i64 {
        narrow(self.0, NANO)
    }

    /// In thousandths, rounded up.
    pub fn milli(self) -> i64 {
        narrow(self.0, NANO / 1000)
    }
}

/// Reads a list of resources.
pub fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, Amount> {
    list.into_iter()
        .flatten()
        .map(|(name, quantity)| (name.clone(), Amount::of(quantity)))
        .collect()
}

fn narrow(nanos: i128, unit: i128) -> i64 {
    let up = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
}

fn read(text: &str) -> Option<Amount> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (numerator, denominator) = scale(suffix)?;
    let whole = whole.checked_mul(NANO)?.checked_mul(numerator)?;
    // More digits than this are below a billionth of anything that has a suffix.
    let digits: String = fraction.chars().take(18).collect();
    let part: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let part = part.checked_mul(NANO)?.checked_mul(numerator)?;
    let tens = 10_i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let nanos = round_up(whole, denominator)?.checked_add(round_up(part, tens.checked_mul(denominator)?)?)?;
    Some(Amount(if negative { -nanos } else { nanos }))
}

fn round_up(value: i128, by: i128) -> Option<i128> {
    value.checked_add(by.checked_sub(1)?)?.checked_div(by)
}

/// A suffix as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let ten = |power: u32| 10_i128.checked_pow(power);
    Some(match suffix {
        "n" => (1, NANO),
        "u" => (1, ten(6)?),
        "m" => (1, ten(3)?),
        "" => (1, 1),
        "k" => (ten(3)?, 1),
        "M" => (ten(6)?, 1),
        "G" => (ten(9)?, 1),
        "T" => (ten(12)?, 1),
        "P" => (ten(15)?, 1),
        "E" => (ten(18)?, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = ten(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_suffix_has_its_value() {
        let values = [
            ("1", 1000),
            ("1500m", 1500),
            ("2k", 2_000_000),
            ("1Ki", 1_024_000),
            ("0.5Gi", 536_870_912_000),
            ("1e3", 1_000_000),
            ("1E-1", 100),
            (".5", 500),
            ("-1", -1000),
            ("+3", 3000),
            ("1n", 1),
            ("2u", 1),
        ];
        for (text, milli) in values {
            assert_eq!(Amount::parse(text).unwrap().milli(), milli, "{text}");
        }
        assert_eq!(Amount::parse("1Ei").unwrap().value(), 1 << 60);
    }

    proptest! {
        #[test]
        fn no_text_brings_the_reader_down(text in ".*") {
            let _ = Amount::parse(&text);
        }

        #[test]
        fn whole_numbers_read_back(units in 0..=i64::MAX, suffix in prop_oneof![Just(""), Just("e0"), Just(".0")]) {
            prop_assert_eq!(Amount::parse(&format!("{units}{suffix}")).unwrap().value(), units);
        }

        #[test]
        fn a_number_and_its_thousandths_are_the_same(milli in 0..1_000_000_000_i64) {
            prop_assert_eq!(Amount::parse(&format!("{milli}m")).unwrap().milli(), milli);
            let (whole, part) = (milli / 1000, milli % 1000);
            prop_assert_eq!(Amount::parse(&format!("{whole}.{part:03}")).unwrap().milli(), milli);
        }
    }

    #[test]
    fn parts_round_up_as_in_kubernetes() {
        assert_eq!(Amount::parse("100m").unwrap().value(), 1);
        assert_eq!(Amount::parse("1.0001").unwrap().milli(), 1001);
    }

    #[test]
    fn what_is_no_number_is_refused_in_words() {
        for text in [
            "",
            "Gi",
            "1.2.3",
            "1 Gi",
            "one",
            "1Zi",
            "1e",
            "99999999999999999999999999999999999999999999",
        ] {
            let refusal = Amount::parse(text).unwrap_err().to_string();
            assert!(refusal.contains("such as 500m"), "{text}: {refusal}");
        }
    }
}
