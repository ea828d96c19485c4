//! Paths and queries of the kubelet API: what is performed and which right it needs do not depend on how they are spelled, whatever
//! reaches into a container needs more than looking, and what is decoded is what a second decoder reads.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use percent_encoding::percent_decode_str;
use russet_kubelet_api::auth::Attributes;
use russet_kubelet_api::request::{Area, Query, Route};

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
const INSIDE: [&str; 4] = ["exec", "attach", "run", "portForward"];

/// The same text with each byte of it encoded.
fn spelled_out(text: &str, plus: bool) -> String {
    let text = if plus { text.replace('+', " ") } else { text.to_owned() };
    percent_decode_str(&text).map(|byte| format!("%{byte:02X}")).collect()
}

fn area(found: &Result<Route, Area>) -> Area {
    match found {
        Ok(route) => route.area(),
        Err(area) => *area,
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };

    let found = Route::find(path);
    let segments: Vec<String> = path.split('/').map(|segment| spelled_out(segment, false)).collect();
    let spelled = segments.join("/");
    assert_eq!(Route::find(&spelled), found, "{path:?} {spelled:?}");
    let second = path.strip_prefix('/').unwrap_or_default().split('/').next();
    let second = percent_decode_str(second.unwrap_or_default()).decode_utf8_lossy();
    let inside = INSIDE.contains(&second.as_ref());
    for method in &METHODS {
        let rights = Attributes::of(area(&found), method);
        assert!(!rights.subresources.is_empty());
        if found.is_ok() {
            assert_eq!(area(&found) == Area::Inside, inside, "{path:?}");
        }
        if found.is_ok() && inside {
            assert_eq!(
                (rights.verb, rights.subresources),
                ("create", &["proxy"][..]),
                "{path:?}"
            );
        }
    }

    let Some(query) = query else {
        return;
    };
    let pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let spelled: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", spelled_out(name, true), spelled_out(value, true)))
        .collect();
    let parsed = Query::parse(Some(query));
    assert_eq!(Query::parse(Some(&spelled.join("&"))), parsed, "{query:?}");
    let Ok(parsed) = parsed else {
        return;
    };
    let lossy = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    for (name, _) in &pairs {
        let name = lossy(name);
        let theirs: Vec<String> = pairs
            .iter()
            .filter(|(other, _)| lossy(other) == name)
            .map(|(_, value)| lossy(value))
            .collect();
        assert_eq!(parsed.all(&name).collect::<Vec<_>>(), theirs);
        assert_eq!(parsed.get(&name), theirs.first().map(String::as_str));
    }
});
