//! Fields of the Pod itself: the downward API.

use super::Error;
use crate::objects::Context;
use crate::spec;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The value of a field.
pub(crate) fn field(context: &Context<'_>, path: &str) -> Result<String, Error> {
    let (meta, spec) = (&context.pod.metadata, context.pod.spec.as_ref());
    let text = |text: Option<&str>| Ok(text.unwrap_or_default().to_owned());
    match path {
        "metadata.name" => text(meta.name.as_deref()),
        "metadata.namespace" => text(meta.namespace.as_deref()),
        "metadata.uid" => text(meta.uid.as_deref()),
        "metadata.labels" => Ok(lines(meta.labels.as_ref())),
        "metadata.annotations" => Ok(lines(meta.annotations.as_ref())),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_deref())),
        "spec.serviceAccountName" => text(spec.map(spec::service_account)),
        "status.hostIP" => addresses(context.host_ips.get(..1).unwrap_or_default(), "status.hostIP"),
        "status.hostIPs" => addresses(context.host_ips, "status.hostIPs"),
        "status.podIP" => addresses(context.pod_ips.get(..1).unwrap_or_default(), "status.podIP"),
        "status.podIPs" => addresses(context.pod_ips, "status.podIPs"),
        _ => {
            let (map, key) = if let Some(key) = subscript(path, "metadata.labels") {
                (meta.labels.as_ref(), key)
            } else if let Some(key) = subscript(path, "metadata.annotations") {
                (meta.annotations.as_ref(), key)
            } else {
                return Err(Error::Field(path.to_owned()));
            };
            text(map.and_then(|map| map.get(key)).map(String::as_str))
        }
    }
}

fn subscript<'a>(path: &'a str, map: &str) -> Option<&'a str> {
    path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")
}

fn addresses(addresses: &[IpAddr], field: &'static str) -> Result<String, Error> {
    if addresses.is_empty() {
        return Err(Error::NoAddress(field));
    }
    let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    Ok(addresses.join(","))
}

/// A map as a file of the downward API has it: a line `key="value"` each, the value quoted as in Go.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => result.push_str("\\\""),
            '\\' => result.push_str("\\\\"),
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            '\u{7}' => result.push_str("\\a"),
            '\u{8}' => result.push_str("\\b"),
            '\u{b}' => result.push_str("\\v"),
            '\u{c}' => result.push_str("\\f"),
            letter if letter.is_control() && u32::from(letter) < 0x80 => {
                // Writing to a String cannot fail.
                let _ = write!(result, "\\x{:02x}", u32::from(letter));
            }
            letter => result.push(letter),
        }
    }
    result.push('"');
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::json;

    #[test]
    fn every_field_of_the_downward_api_has_its_value() {
        let pod = pod(json!({"containers": [], "nodeName": "mac1", "serviceAccountName": "runner"}));
        let (host_ips, pod_ips) = (
            ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            ["192.168.64.2".parse().unwrap()],
        );
        let context = Context {
            pod: &pod,
            host_ips: &host_ips,
            pod_ips: &pod_ips,
            allocatable: &BTreeMap::new(),
        };
        let cases = [
            ("metadata.name", "job"),
            ("metadata.namespace", "ci"),
            ("metadata.uid", "0b5d7f3c"),
            ("metadata.labels['app']", "x"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['note']", "two\nlines"),
            ("metadata.labels", "app=\"x\""),
            ("metadata.annotations", "note=\"two\\nlines\""),
            ("spec.nodeName", "mac1"),
            ("spec.serviceAccountName", "runner"),
            ("status.hostIP", "10.0.0.1"),
            ("status.hostIPs", "10.0.0.1,fd00::1"),
            ("status.podIP", "192.168.64.2"),
            ("status.podIPs", "192.168.64.2"),
        ];
        for (path, value) in cases {
            assert_eq!(field(&context, path).as_deref(), Ok(value), "{path}");
        }
        let found = field(&context, "spec.secrets").unwrap_err().to_string();
        assert_eq!(found, "unsupported fieldPath: spec.secrets");
    }

    #[test]
    fn an_address_that_is_not_known_yet_is_no_empty_text() {
        let pod = pod(json!({"containers": []}));
        let context = Context {
            pod: &pod,
            host_ips: &[],
            pod_ips: &[],
            allocatable: &BTreeMap::new(),
        };
        assert_eq!(field(&context, "status.podIP"), Err(Error::NoAddress("status.podIP")));
    }

    #[test]
    fn quoted_values_read_back_as_json_does() {
        for text in ["plain", "a\"b\\c", "tab\there", "ü€", "new\nline\r"] {
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
        assert_eq!(quoted("\u{1b}"), "\"\\x1b\"");
    }
}
