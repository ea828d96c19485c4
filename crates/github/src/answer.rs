//! What an answer that says no means.

use std::time::Duration;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use russet_telemetry::Scrubber;
use serde::Deserialize;

use crate::call::Call;
use crate::error::{Kind, Limit, PERMISSION};

/// Longest text of GitHub's that is kept.
const MAX_TEXT: usize = 300;
/// The wait GitHub asks of those whom it tells no other.
const DEFAULT_WAIT: Duration = Duration::from_mins(1);
/// A wait longer than this is not believed: the hourly limit is over after an hour.
const MAX_WAIT: Duration = Duration::from_mins(65);

/// The body of a refusal. Everything is optional: proxies in front of GitHub answer as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    message: Option<String>,
    documentation_url: Option<String>,
}

/// The kind of a refusal. `now` is our time, in which waits are told.
pub(crate) fn refusal(
    call: &Call,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    scrubber: &Scrubber,
) -> Kind {
    let body: Body = serde_json::from_slice(body).unwrap_or_default();
    let message = clean(body.message.as_deref().unwrap_or_default(), scrubber);
    if let Some((limit, wait)) = limited(status, headers, &body, now) {
        let until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        return Kind::RateLimited { until, limit };
    }
    match status {
        401 => Kind::BadCredentials {
            bearer: call.endpoint.bearer,
        },
        403 => Kind::PermissionDenied {
            what: header(headers, "x-accepted-github-permissions")
                .map_or_else(|| PERMISSION.to_owned(), |needed| clean(needed, scrubber)),
        },
        404 => Kind::NotFound {
            what: call.path.clone(),
        },
        409 => Kind::Conflict { message },
        400 | 422 => Kind::Invalid { message },
        500.. => Kind::Server {
            status: Some(status),
            message,
        },
        _ => Kind::Unexpected { status, message },
    }
}

/// Whether a limit was reached, and how long to wait. GitHub says so with 403 as well as with 429, and a secondary limit may
/// come without any header of its own; then the link to the page about limits is all there is to tell it by.
fn limited(status: u16, headers: &HeaderMap, body: &Body, now: Timestamp) -> Option<(Limit, Duration)> {
    if status != 403 && status != 429 {
        return None;
    }
    let spent = header(headers, "x-ratelimit-remaining") == Some("0");
    let asked = header(headers, RETRY_AFTER.as_str()).and_then(|text| text.parse().ok().map(Duration::from_secs));
    let link = body.documentation_url.as_deref().unwrap_or_default();
    if !(spent || asked.is_some() || status == 429 || link.contains("rate-limits")) {
        return None;
    }
    // The end of the hour is told in GitHub's time, so its own `Date` is what to measure from.
    let reset = || {
        let reset: i64 = header(headers, "x-ratelimit-reset")?.parse().ok()?;
        let wait = reset.checked_sub(date(headers).unwrap_or(now).as_second())?;
        Some(Duration::from_secs(wait.try_into().unwrap_or_default()))
    };
    let limit = if spent { Limit::Primary } else { Limit::Secondary };
    let wait = asked.or_else(|| reset().filter(|_| spent)).unwrap_or(DEFAULT_WAIT);
    Some((limit, wait.min(MAX_WAIT)))
}

/// GitHub's time.
pub(crate) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new()
        .parse_timestamp(header(headers, DATE.as_str())?)
        .ok()
}

/// How far GitHub's clock is ahead of ours.
pub(crate) fn skew(theirs: Timestamp, ours: Timestamp) -> SignedDuration {
    theirs.duration_since(ours)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// A text that is not ours, on one line, short and without secrets.
pub(crate) fn clean(text: &str, scrubber: &Scrubber) -> String {
    let mut text = scrubber.scrub(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Method;
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::call::{Bearer, Effect, Endpoint};

    static ENDPOINT: Endpoint = Endpoint {
        name: "test",
        method: Method::GET,
        effect: Effect::Read,
        bearer: Bearer::Installation,
        success: 200,
    };

    fn kind(status: u16, headers: &[(&'static str, &str)], body: &str) -> Kind {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        let call = Call::new(&ENDPOINT, "/x".to_owned());
        refusal(&call, status, &headers, body.as_bytes(), now(), &Scrubber::new())
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn limit_of(kind: Kind) -> (Limit, i64) {
        match kind {
            Kind::RateLimited { until, limit } => (limit, until.as_second() - now().as_second()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_spent_hour_ends_when_github_says() {
        let headers = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000120")];
        assert_eq!(limit_of(kind(403, &headers, "{}")), (Limit::Primary, 120));
        assert_eq!(limit_of(kind(429, &headers, "{}")), (Limit::Primary, 120));
    }

    #[test]
    fn the_end_of_the_hour_is_measured_on_githubs_clock() {
        let headers = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700003720"),
            ("date", "Tue, 14 Nov 2023 23:13:20 GMT"),
        ];
        assert_eq!(limit_of(kind(403, &headers, "{}")), (Limit::Primary, 120));
    }

    #[test]
    fn a_secondary_limit_is_known_by_any_of_its_signs() {
        let left = ("x-ratelimit-remaining", "4290");
        let wait = [left, ("retry-after", "17")];
        assert_eq!(limit_of(kind(403, &wait, "{}")), (Limit::Secondary, 17));
        assert_eq!(limit_of(kind(429, &[left], "")), (Limit::Secondary, 60));
        let link = r#"{"documentation_url":"https://docs.github.com/rest/overview/x#about-secondary-rate-limits"}"#;
        let reset = [left, ("x-ratelimit-reset", "1700003000")];
        assert_eq!(limit_of(kind(403, &reset, link)), (Limit::Secondary, 60));
    }

    #[test]
    fn a_403_that_is_no_limit_names_the_permission() {
        let headers = [
            ("x-ratelimit-remaining", "4290"),
            (
                "x-accepted-github-permissions",
                "organization_self_hosted_runners=write",
            ),
        ];
        let what = "organization_self_hosted_runners=write".to_owned();
        assert_eq!(kind(403, &headers, "{}"), Kind::PermissionDenied { what });
        let what = PERMISSION.to_owned();
        assert_eq!(kind(403, &[], "<html>"), Kind::PermissionDenied { what });
    }

    #[test]
    fn a_text_is_short_and_on_one_line() {
        let body = format!(r#"{{"message":"a\n\n b{}"}}"#, "é".repeat(400));
        let Kind::Invalid { message } = kind(422, &[], &body) else {
            panic!("not invalid")
        };
        assert!(message.starts_with("a bé") && message.len() < 310, "{message}");
    }

    proptest! {
        #[test]
        fn no_wait_is_absurd(status in 400_u16..600, remaining in "[0-9a-z]{0,3}", reset in "-?[0-9]{0,20}", after in "[0-9]{0,20}") {
            let headers = [
                ("x-ratelimit-remaining", remaining.as_str()),
                ("x-ratelimit-reset", &reset),
                ("retry-after", &after),
            ];
            if let Kind::RateLimited { until, .. } = kind(status, &headers, "{}") {
                prop_assert!(until >= now() && until.duration_since(now()).unsigned_abs() <= MAX_WAIT);
            }
        }
    }
}
