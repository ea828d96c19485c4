//! Which path means what. Pure.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::backend::{ContainerRef, Metrics, PodRef};

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The log of a container.
    Logs(ContainerRef),
    /// A command in a container, with streams.
    Exec(ContainerRef),
    /// The streams of a container's own process.
    Attach(ContainerRef),
    /// A command in a container, its output as one text.
    Run(ContainerRef),
    /// Ports of a Pod.
    PortForward(PodRef),
    /// The Pods bound to this node.
    Pods,
    /// The Pods that really run.
    RunningPods,
    /// What is used, as JSON.
    Summary,
    /// What is used, for metrics-server.
    ResourceMetrics,
    /// Other metrics.
    Metrics(Metrics),
    /// All checks, or the one that is named.
    Health(Option<String>),
    /// What the agent was configured with.
    Config,
    /// A checkpoint of a container.
    Checkpoint,
    /// Log files of the host.
    HostLogs,
}

/// A part of the API. Rights are asked for by these, also where nothing is served: who may not look into one is not told what is
/// missing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// What runs in a container or reaches into it: exec, attach, run and port-forward.
    Inside,
    /// `/metrics`.
    Metrics,
    /// `/stats`.
    Stats,
    /// `/logs`: of the host, not of containers.
    HostLogs,
    /// `/checkpoint`.
    Checkpoint,
    /// `/pods` and `/runningpods`.
    Pods,
    /// `/healthz`.
    Health,
    /// `/configz`.
    Config,
    /// `/statusz`.
    Status,
    /// `/flagz`.
    Flags,
    /// Everything else, logs of containers among it.
    Rest,
}

impl Area {
    /// By the first segment of a path, decoded.
    fn named(first: &str) -> Self {
        match first {
            "exec" | "attach" | "portForward" | "run" => Self::Inside,
            "metrics" => Self::Metrics,
            "stats" => Self::Stats,
            "logs" => Self::HostLogs,
            "checkpoint" => Self::Checkpoint,
            "pods" | "runningpods" => Self::Pods,
            "healthz" => Self::Health,
            "configz" => Self::Config,
            "statusz" => Self::Status,
            "flagz" => Self::Flags,
            _ => Self::Rest,
        }
    }
}

impl Route {
    /// What a path leads to, or the area in which it leads to nothing. Each segment is decoded once, here and nowhere else.
    pub fn find(path: &str) -> Result<Self, Area> {
        let decoded: Result<Vec<Cow<'_, str>>, _> = path
            .strip_prefix('/')
            .ok_or(Area::Rest)?
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8())
            .collect();
        // Bytes that are no text name nothing.
        let decoded = decoded.map_err(|_| Area::Rest)?;
        let mut segments: Vec<&str> = decoded.iter().map(AsRef::as_ref).collect();
        // Go's servers serve most of these with and without the last slash.
        if segments.len() > 1 && segments.last() == Some(&"") {
            segments.pop();
        }
        let nothing = Area::named(segments.first().copied().unwrap_or_default());
        if segments.iter().any(|segment| segment.is_empty()) {
            return Err(nothing);
        }
        Ok(match *segments.as_slice() {
            ["containerLogs", namespace, pod, container] => Self::Logs(one(namespace, pod, None, container)),
            ["exec", namespace, pod, container] => Self::Exec(one(namespace, pod, None, container)),
            ["exec", namespace, pod, uid, container] => Self::Exec(one(namespace, pod, Some(uid), container)),
            ["attach", namespace, pod, container] => Self::Attach(one(namespace, pod, None, container)),
            ["attach", namespace, pod, uid, container] => Self::Attach(one(namespace, pod, Some(uid), container)),
            ["run", namespace, pod, container] => Self::Run(one(namespace, pod, None, container)),
            ["run", namespace, pod, uid, container] => Self::Run(one(namespace, pod, Some(uid), container)),
            ["portForward", namespace, pod] => Self::PortForward(whole(namespace, pod, None)),
            ["portForward", namespace, pod, uid] => Self::PortForward(whole(namespace, pod, Some(uid))),
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["stats", "summary"] => Self::Summary,
            ["metrics"] => Self::Metrics(Metrics::Agent),
            ["metrics", "resource"] => Self::ResourceMetrics,
            ["metrics", "cadvisor"] => Self::Metrics(Metrics::Cadvisor),
            ["metrics", "probes"] => Self::Metrics(Metrics::Probes),
            ["metrics", "slis"] => Self::Metrics(Metrics::Slis),
            ["healthz"] => Self::Health(None),
            ["healthz", check] => Self::Health(Some(check.to_owned())),
            ["configz"] => Self::Config,
            ["checkpoint", _, _, _] => Self::Checkpoint,
            ["logs", ..] => Self::HostLogs,
            _ => return Err(nothing),
        })
    }

    /// Where it lies: from what it does, not from how it was spelled.
    pub fn area(&self) -> Area {
        match self {
            Self::Exec(_) | Self::Attach(_) | Self::Run(_) | Self::PortForward(_) => Area::Inside,
            Self::Logs(_) => Area::Rest,
            Self::Pods | Self::RunningPods => Area::Pods,
            Self::Summary => Area::Stats,
            Self::ResourceMetrics | Self::Metrics(_) => Area::Metrics,
            Self::Health(_) => Area::Health,
            Self::Config => Area::Config,
            Self::Checkpoint => Area::Checkpoint,
            Self::HostLogs => Area::HostLogs,
        }
    }

    /// Whether it can be asked for in this way.
    pub fn takes(&self, method: &Method) -> bool {
        match self {
            Self::Exec(_) | Self::Attach(_) | Self::PortForward(_) => *method == Method::GET || *method == Method::POST,
            Self::Run(_) | Self::Checkpoint => *method == Method::POST,
            _ => *method == Method::GET,
        }
    }
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
        let found = Route::find("/exec/ns/p/u-1/c");
        assert_eq!(found, Ok(Route::Exec(one("ns", "p", Some("u-1"), "c"))));
        assert_eq!(Route::find("/exec/ns/p/c"), Ok(Route::Exec(one("ns", "p", None, "c"))));
        let found = Route::find("/portForward/ns/p");
        assert_eq!(found, Ok(Route::PortForward(whole("ns", "p", None))));
    }

    #[test]
    fn the_last_slash_does_not_matter() {
        assert_eq!(Route::find("/pods/"), Ok(Route::Pods));
        assert_eq!(Route::find("/runningpods/"), Ok(Route::RunningPods));
        assert_eq!(Route::find("/healthz/ping"), Ok(Route::Health(Some("ping".to_owned()))));
    }

    #[test]
    fn paths_to_nothing_still_lie_somewhere() {
        for (path, area) in [
            ("/", Area::Rest),
            ("", Area::Rest),
            ("*", Area::Rest),
            ("/nothing", Area::Rest),
            ("//exec/ns/p/c", Area::Rest),
            ("/stats/", Area::Stats),
            ("/exec/ns/p", Area::Inside),
            ("/exec//p/c", Area::Inside),
            ("/%65xec/ns/p", Area::Inside),
            ("/metrics/x", Area::Metrics),
            ("/metricsx", Area::Rest),
            ("/statusz", Area::Status),
            ("/flagz", Area::Flags),
            ("/exec/ns/p/%ff", Area::Rest),
        ] {
            assert_eq!(Route::find(path), Err(area), "{path}");
        }
    }

    #[test]
    fn segments_are_decoded_once_and_a_slash_in_one_does_not_cut_it() {
        assert_eq!(Route::find("/%65xec/n%73/p/c"), Route::find("/exec/ns/p/c"));
        assert_eq!(Route::find("/%2565xec/ns/p/c"), Err(Area::Rest));
        assert_eq!(Route::find("/exec%2Fns%2Fp%2Fc"), Err(Area::Rest));
    }

    #[test]
    fn routes_differ_in_the_methods_they_take() {
        let takes = |method: Method, path| Route::find(path).unwrap().takes(&method);
        assert!(takes(Method::GET, "/pods") && !takes(Method::POST, "/pods"));
        assert!(takes(Method::POST, "/run/a/b/c") && !takes(Method::GET, "/run/a/b/c"));
        assert!(takes(Method::GET, "/exec/a/b/c") && takes(Method::POST, "/exec/a/b/c"));
        assert!(!takes(Method::DELETE, "/exec/a/b/c"));
    }
}
