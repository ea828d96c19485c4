//! What an answer that says no means.

use std::time::Duration;

use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::Value;

use crate::censor::Censor;
use crate::error::{BadArgument, Denied, Keeper, Kind, Quota};
use crate::retry::rate_limit_wait;
use crate::wire::null_is_default;

/// The union of all error bodies of the API. Everything is optional: proxies in front of it answer as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    #[serde(rename = "type")]
    type_: Option<String>,
    message: Option<String>,
    resource: Option<String>,
    resource_id: Option<String>,
    current_state: Option<String>,
    precondition: Option<String>,
    help_message: Option<String>,
    method: Option<String>,
    reason: Option<String>,
    reset_seconds: Option<f64>,
    #[serde(deserialize_with = "null_is_default")]
    details: Vec<Detail>,
    /// The old Instance API: texts by field, and trees of those where a field has fields of its own.
    fields: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Detail {
    argument_name: Option<String>,
    reason: Option<String>,
    help_message: Option<String>,
    resource: Option<String>,
    action: Option<String>,
    quota: Option<u64>,
    current: Option<u64>,
}

/// The kind of a refusal, from the type in the body if there is one, else from the status.
pub(crate) fn refusal(status: u16, headers: &HeaderMap, body: &[u8], censor: &Censor<'_>) -> Kind {
    let body: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Option<String>| censor.clean(value.as_deref().unwrap_or_default());
    let resource = text(&body.resource);
    let id = text(&body.resource_id);
    match (body.type_.as_deref().unwrap_or_default(), status) {
        ("too_many_requests" | "rate_limited", _) | (_, 429) => {
            let in_body = body.reset_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
            Kind::RateLimited {
                after: rate_limit_wait(retry_after(headers).or(in_body)),
                by: Keeper::Scaleway,
            }
        }
        // The state of the API itself: nothing in the body changes what can be done about it.
        (_, 500..) => Kind::Unavailable {
            status: Some(status),
            message: text(&body.message),
        },
        ("invalid_arguments", _) => Kind::InvalidArguments {
            details: body
                .details
                .iter()
                .map(|d| BadArgument {
                    name: text(&d.argument_name),
                    reason: text(&d.reason),
                    help: text(&d.help_message),
                })
                .collect(),
        },
        ("invalid_request_error", _) => {
            let mut details = Vec::new();
            fields("", &body.fields, censor, &mut details);
            if details.is_empty() {
                // Where no field is at fault it is the state of the thing: "server should be running".
                Kind::PreconditionFailed {
                    precondition: text(&body.message),
                    help: text(&body.help_message),
                }
            } else {
                Kind::InvalidArguments { details }
            }
        }
        ("quotas_exceeded", _) => Kind::QuotaExceeded {
            quotas: body
                .details
                .iter()
                .map(|d| Quota {
                    resource: text(&d.resource),
                    quota: d.quota.unwrap_or_default(),
                    current: d.current.unwrap_or_default(),
                })
                .collect(),
        },
        ("transient_state", _) => Kind::TransientState {
            resource,
            id,
            state: text(&body.current_state),
        },
        ("not_found" | "unknown_resource", _) => Kind::NotFound { resource, id },
        ("locked", _) | (_, 423) => Kind::Locked { resource, id },
        ("permissions_denied", _) => Kind::PermissionDenied {
            what: body
                .details
                .iter()
                .map(|d| Denied {
                    resource: text(&d.resource),
                    action: text(&d.action),
                })
                .collect(),
        },
        ("out_of_stock", _) => Kind::OutOfStock { resource },
        ("resource_expired", _) => Kind::Expired { resource, id },
        ("denied_authentication", _) => Kind::Unauthenticated {
            reason: [text(&body.method), text(&body.reason)].join(" ").trim().to_owned(),
        },
        ("precondition_failed", _) | (_, 412) => Kind::PreconditionFailed {
            precondition: text(&body.precondition),
            help: text(&body.help_message),
        },
        (_, 401) => Kind::Unauthenticated {
            reason: text(&body.message),
        },
        (_, 403) => Kind::PermissionDenied { what: Vec::new() },
        (_, 404) => Kind::NotFound { resource, id },
        ("conflict", _) | (_, 409) => Kind::Conflict {
            message: text(&body.message),
        },
        (_, 410) => Kind::Expired { resource, id },
        _ => Kind::Unexpected {
            status,
            message: text(&body.message),
        },
    }
}

/// The complaints of the old Instance API, `volumes.0.size` for a field of a field.
fn fields(path: &str, value: &Value, censor: &Censor<'_>, details: &mut Vec<BadArgument>) {
    match value {
        Value::Object(children) => {
            for (name, child) in children {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                fields(&path, child, censor, details);
            }
        }
        Value::Null => {}
        told => {
            let help = match told {
                Value::String(text) => text.clone(),
                Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
                _ => String::new(),
            };
            details.push(BadArgument {
                name: censor.clean(path),
                reason: "constraint".to_owned(),
                help: censor.clean(&help),
            });
        }
    }
}

/// The wait a `Retry-After` asks for. A date is measured against the `Date` of the same answer, so that it does not matter
/// what our own clock says.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let parse = |text: &str| rfc2822::parse(text).ok().map(|zoned| zoned.timestamp());
    let until = parse(text)?;
    let from = parse(headers.get(DATE)?.to_str().ok()?)?;
    Some(Duration::try_from(until.duration_since(from)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use russet_telemetry::{Scrubber, Secret};

    use super::*;

    fn told(status: u16, headers: &HeaderMap, body: &str, scrubber: &Scrubber) -> Kind {
        refusal(status, headers, body.as_bytes(), &Censor { scrubber, sent: &[] })
    }

    fn of(status: u16, body: &str) -> Kind {
        told(status, &HeaderMap::new(), body, &Scrubber::new())
    }

    #[expect(clippy::too_many_lines, reason = "one table, one row per type of error")]
    #[test]
    fn every_type_of_error_has_its_kind() {
        let id = || "11111111-1111-1111-1111-111111111111".to_owned();
        let table = [
            (
                400,
                r#"{"type":"invalid_arguments","details":[{"argument_name":"os_id","reason":"constraint","help_message":"no such OS"}]}"#,
                Kind::InvalidArguments {
                    details: vec![BadArgument {
                        name: "os_id".into(),
                        reason: "constraint".into(),
                        help: "no such OS".into(),
                    }],
                },
            ),
            (
                400,
                r#"{"type":"invalid_request_error","message":"Validation Error","fields":{"image":["required key not provided"]}}"#,
                Kind::InvalidArguments {
                    details: vec![BadArgument {
                        name: "image".into(),
                        reason: "constraint".into(),
                        help: "required key not provided".into(),
                    }],
                },
            ),
            (
                403,
                r#"{"type":"quotas_exceeded","details":[{"resource":"apple_silicon_m2l","quota":3,"current":3}]}"#,
                Kind::QuotaExceeded {
                    quotas: vec![Quota {
                        resource: "apple_silicon_m2l".into(),
                        quota: 3,
                        current: 3,
                    }],
                },
            ),
            (
                409,
                r#"{"type":"transient_state","resource":"server","resource_id":"11111111-1111-1111-1111-111111111111","current_state":"reinstalling"}"#,
                Kind::TransientState {
                    resource: "server".into(),
                    id: id(),
                    state: "reinstalling".into(),
                },
            ),
            (
                404,
                r#"{"type":"not_found","resource":"server","resource_id":"11111111-1111-1111-1111-111111111111"}"#,
                Kind::NotFound {
                    resource: "server".into(),
                    id: id(),
                },
            ),
            (
                404,
                r#"{"type":"unknown_resource","message":"\"11111111\" not found"}"#,
                Kind::NotFound {
                    resource: String::new(),
                    id: String::new(),
                },
            ),
            (
                423,
                r#"{"type":"locked","resource":"server","resource_id":"11111111-1111-1111-1111-111111111111"}"#,
                Kind::Locked {
                    resource: "server".into(),
                    id: id(),
                },
            ),
            (
                403,
                r#"{"type":"permissions_denied","details":[{"resource":"ssh_key","action":"list"}]}"#,
                Kind::PermissionDenied {
                    what: vec![Denied {
                        resource: "ssh_key".into(),
                        action: "list".into(),
                    }],
                },
            ),
            (
                412,
                r#"{"type":"out_of_stock","resource":"M2-L"}"#,
                Kind::OutOfStock {
                    resource: "M2-L".into(),
                },
            ),
            (
                410,
                r#"{"type":"resource_expired","resource":"server","resource_id":"11111111-1111-1111-1111-111111111111"}"#,
                Kind::Expired {
                    resource: "server".into(),
                    id: id(),
                },
            ),
            (
                401,
                r#"{"type":"denied_authentication","method":"api_key","reason":"expired"}"#,
                Kind::Unauthenticated {
                    reason: "api_key expired".into(),
                },
            ),
            (
                412,
                r#"{"type":"precondition_failed","precondition":"deletable_at","help_message":"not before tomorrow"}"#,
                Kind::PreconditionFailed {
                    precondition: "deletable_at".into(),
                    help: "not before tomorrow".into(),
                },
            ),
        ];
        for (status, body, wanted) in table {
            assert_eq!(of(status, body), wanted, "{body}");
        }
    }

    /// Complaints about a field of a field once made the whole body unreadable, and nobody was told what was wrong.
    #[test]
    fn the_old_instance_api_complains_about_fields_of_fields() {
        let kind = of(
            400,
            r#"{"type":"invalid_request_error","fields":{"image":"unknown","volumes":{"0":{"size":["too small","too odd"]}},"name":null}}"#,
        );
        let Kind::InvalidArguments { details } = kind else {
            panic!("{kind:?}")
        };
        let told: Vec<_> = details.iter().map(|d| (d.name.as_str(), d.help.as_str())).collect();
        assert_eq!(told, [("image", "unknown"), ("volumes.0.size", "too small, too odd")]);
    }

    #[test]
    fn the_old_instance_api_means_the_state_when_it_names_no_field() {
        for fields in ["", r#","fields":null"#, r#","fields":{}"#] {
            let body = format!(r#"{{"type":"invalid_request_error","message":"server should be running"{fields}}}"#);
            let wanted = Kind::PreconditionFailed {
                precondition: "server should be running".into(),
                help: String::new(),
            };
            assert_eq!(of(400, &body), wanted);
        }
    }

    #[test]
    fn a_status_without_a_body_is_understood() {
        assert!(matches!(of(401, ""), Kind::Unauthenticated { .. }));
        assert!(matches!(of(403, "<html>"), Kind::PermissionDenied { .. }));
        assert!(matches!(of(404, "{}"), Kind::NotFound { .. }));
        assert!(matches!(of(409, "{}"), Kind::Conflict { .. }));
        assert!(matches!(of(502, "<html>"), Kind::Unavailable { status: Some(502), .. }));
        assert!(matches!(of(418, "{}"), Kind::Unexpected { status: 418, .. }));
    }

    #[test]
    fn a_wait_is_read_from_seconds_from_a_date_and_from_the_body() {
        let wait = |retry: Option<&'static str>, date: Option<&'static str>, body: &str| {
            let mut headers = HeaderMap::new();
            retry.map(|value| headers.insert(RETRY_AFTER, HeaderValue::from_static(value)));
            date.map(|value| headers.insert(DATE, HeaderValue::from_static(value)));
            match told(429, &headers, body, &Scrubber::new()) {
                Kind::RateLimited { after, .. } => after.as_secs(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(wait(Some("17"), None, ""), 17);
        let date = Some("Sun, 15 Nov 2026 10:00:00 GMT");
        assert_eq!(wait(Some("Sun, 15 Nov 2026 10:00:40 GMT"), date, ""), 40);
        assert_eq!(wait(Some("Sun, 15 Nov 2026 09:00:00 GMT"), date, ""), 0);
        assert_eq!(
            wait(Some("soon"), None, r#"{"help_message":"slow down","reset_seconds":9}"#),
            9
        );
        assert_eq!(wait(None, None, r#"{"limit":{"quota":5,"window_seconds":1}}"#), 2);
        assert_eq!(wait(Some("99999999"), None, ""), 300);
    }

    #[test]
    fn a_key_repeated_by_the_api_is_not_repeated_by_us() {
        let scrubber = Scrubber::new().with(&Secret::from("canary-key"));
        let kind = told(
            401,
            &HeaderMap::new(),
            r#"{"message":"token canary-key is unknown"}"#,
            &scrubber,
        );
        let Kind::Unauthenticated { reason } = kind else {
            panic!("{kind:?}")
        };
        assert_eq!(reason, "token [redacted] is unknown");
    }
}
