//! Path and query: a parameter that decides whose data it is occurs once in whatever spelling, or the query is refused, and what is
//! decoded is what a second decoder reads.
#![no_main]

use kura::http::route;
use kura::scope::{Query, decode};
use libfuzzer_sys::fuzz_target;

const TENANT: [&str; 2] = ["tenant_id", "account_handle"];
const NAMESPACE: [&str; 2] = ["namespace_id", "project_handle"];

/// The values of a parameter under any of its names, by a decoder that never refuses.
fn values(query: &str, names: [&str; 2]) -> Vec<String> {
    let lossy = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| names.contains(&lossy(name).as_str()))
        .map(|(_, value)| lossy(value))
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (path, query) = text.split_once('?').unwrap_or((text, text));
    let segment = route::find(path).key;
    if let Ok(key) = route::key(segment) {
        assert!(!key.is_empty() && key.len() <= route::MAX_KEY);
        assert_eq!(percent_encoding::percent_decode_str(segment).decode_utf8_lossy(), key);
    }
    if let Ok(decoded) = decode(text) {
        assert_eq!(percent_encoding::percent_decode_str(text).decode_utf8_lossy(), decoded);
    }
    let Ok(parsed) = Query::parse(query) else {
        return;
    };
    let (tenants, namespaces) = (values(query, TENANT), values(query, NAMESPACE));
    assert!(
        tenants.len() <= 1 && namespaces.len() <= 1,
        "two values for one parameter: {query}"
    );
    if let Ok(scope) = parsed.scope() {
        assert_eq!(
            tenants.first().map(|tenant| tenant.to_lowercase()).as_deref(),
            Some(scope.account())
        );
        if let Some(project) = scope.project() {
            let project = project.rsplit('/').next().unwrap_or_default();
            assert!(
                namespaces
                    .first()
                    .is_some_and(|namespace| namespace.to_lowercase().ends_with(project))
            );
        }
    }
});
