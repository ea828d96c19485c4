//! Which path means what. Pure.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::backend::{ContainerRef, Metrics, PodRef};

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Logs(ContainerRef),
    Exec(ContainerRef),
    Attach(ContainerRef),
    Run(ContainerRef),
    PortForward(PodRef),
    Pods,
    RunningPods,
    Summary,
    ResourceMetrics,
    Metrics(Metrics),
    /// All checks, or the one that is named.
    Health(Option<String>),
    Config,
    Checkpoint,
    HostLogs,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoute {
    NotFound,
    WrongMethod,
}

pub(super) fn route(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let segments: Vec<String> = path
        .strip_prefix('/')
        .ok_or(NoRoute::NotFound)?
        .split('/')
        .map(|segment| {
            percent_decode_str(segment)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
        })
        .collect::<Result<_, _>>()
        .map_err(|_| NoRoute::NotFound)?;
    let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    // Go's servers serve most of these with and without the last slash.
    if segments.len() > 1 && segments.last() == Some(&"") {
        segments.pop();
    }
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(NoRoute::NotFound);
    }
    let route = match *segments.as_slice() {
        ["containerLogs", namespace, pod, container] => Route::Logs(one(namespace, pod, None, container)),
        ["exec", namespace, pod, container] => Route::Exec(one(namespace, pod, None, container)),
        ["exec", namespace, pod, uid, container] => Route::Exec(one(namespace, pod, Some(uid), container)),
        ["attach", namespace, pod, container] => Route::Attach(one(namespace, pod, None, container)),
        ["attach", namespace, pod, uid, container] => Route::Attach(one(namespace, pod, Some(uid), container)),
        ["run", namespace, pod, container] => Route::Run(one(namespace, pod, None, container)),
        ["run", namespace, pod, uid, container] => Route::Run(one(namespace, pod, Some(uid), container)),
        ["portForward", namespace, pod] => Route::PortForward(whole(namespace, pod, None)),
        ["portForward", namespace, pod, uid] => Route::PortForward(whole(namespace, pod, Some(uid))),
        ["pods"] => Route::Pods,
        ["runningpods"] => Route::RunningPods,
        ["stats", "summary"] => Route::Summary,
        ["metrics"] => Route::Metrics(Metrics::Agent),
        ["metrics", "resource"] => Route::ResourceMetrics,
        ["metrics", "cadvisor"] => Route::Metrics(Metrics::Cadvisor),
        ["metrics", "probes"] => Route::Metrics(Metrics::Probes),
        ["metrics", "slis"] => Route::Metrics(Metrics::Slis),
        ["healthz"] => Route::Health(None),
        ["healthz", check] => Route::Health(Some(check.to_owned())),
        ["configz"] => Route::Config,
        ["checkpoint", _, _, _] => Route::Checkpoint,
        ["logs", ..] => Route::HostLogs,
        _ => return Err(NoRoute::NotFound),
    };
    let allowed = match route {
        Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => *method == Method::GET || *method == Method::POST,
        Route::Run(_) | Route::Checkpoint => *method == Method::POST,
        _ => *method == Method::GET,
    };
    if allowed { Ok(route) } else { Err(NoRoute::WrongMethod) }
}

fn whole(namespace: &str, name: &str, uid: Option<&str>) -> PodRef {
    PodRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.map(str::to_owned),
    }
}

fn one(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> ContainerRef {
    ContainerRef {
        pod: whole(namespace, pod, uid),
        container: container.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_stands_between_pod_and_container() {
        let Ok(Route::Exec(with)) = route(&Method::POST, "/exec/ns/p/u-1/c") else {
            panic!("no exec");
        };
        assert_eq!(with, one("ns", "p", Some("u-1"), "c"));
        assert_eq!(
            route(&Method::GET, "/exec/ns/p/c"),
            Ok(Route::Exec(one("ns", "p", None, "c")))
        );
        assert_eq!(
            route(&Method::POST, "/portForward/ns/p"),
            Ok(Route::PortForward(whole("ns", "p", None)))
        );
    }

    #[test]
    fn the_last_slash_does_not_matter() {
        assert_eq!(route(&Method::GET, "/pods/"), Ok(Route::Pods));
        assert_eq!(route(&Method::GET, "/runningpods/"), Ok(Route::RunningPods));
        assert_eq!(
            route(&Method::GET, "/healthz/ping"),
            Ok(Route::Health(Some("ping".to_owned())))
        );
    }

    #[test]
    fn unknown_paths_and_wrong_methods_differ() {
        for path in [
            "/",
            "",
            "/stats/",
            "/exec/ns/p",
            "/exec//p/c",
            "/metrics/x",
            "/statusz",
            "/exec/ns/p/%ff",
        ] {
            assert_eq!(route(&Method::GET, path), Err(NoRoute::NotFound), "{path}");
        }
        assert_eq!(route(&Method::POST, "/pods"), Err(NoRoute::WrongMethod));
        assert_eq!(route(&Method::GET, "/run/a/b/c"), Err(NoRoute::WrongMethod));
        assert_eq!(route(&Method::DELETE, "/exec/a/b/c"), Err(NoRoute::WrongMethod));
    }
}
