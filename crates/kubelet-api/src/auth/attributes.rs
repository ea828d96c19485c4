//! Which right a request needs.

use http::Method;

use crate::request::Area;

/// A right on this node: `verb` on any one of `nodes/<subresource>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// `get`, `create` and so on.
    pub verb: &'static str,
    /// Asked for in this order; one is enough.
    pub subresources: &'static [&'static str],
}

impl Attributes {
    /// For a request, by where its route lies and not by its path, which can be spelled in many ways. Everything that runs or reaches
    /// into a container needs `create`, whatever its method: a WebSocket upgrade is a GET, and the right to look at a node must not
    /// be the right to run commands on it.
    pub fn of(area: Area, method: &Method) -> Self {
        let subresources: &[&str] = match area {
            Area::Metrics => &["metrics"],
            Area::Stats => &["stats"],
            Area::HostLogs => &["log"],
            Area::Checkpoint => &["checkpoint"],
            Area::Pods => &["pods", "proxy"],
            Area::Health => &["healthz", "proxy"],
            Area::Config => &["configz", "proxy"],
            Area::Status => &["statusz"],
            Area::Flags => &["configz"],
            Area::Inside | Area::Rest => &["proxy"],
        };
        let verb = match (area, method.as_str()) {
            (Area::Inside, _) | (_, "POST") => "create",
            (_, "PUT") => "update",
            (_, "PATCH") => "patch",
            (_, "DELETE") => "delete",
            _ => "get",
        };
        Self { verb, subresources }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::request::Route;

    fn rights(method: &Method, path: &str) -> Attributes {
        let area = Route::find(path).map_or_else(|area| area, |route| route.area());
        Attributes::of(area, method)
    }

    #[test]
    fn rights_are_those_of_a_stock_kubelet() {
        let of = |method: Method, path| {
            let attributes = rights(&method, path);
            (attributes.verb, attributes.subresources)
        };
        assert_eq!(of(Method::GET, "/metrics/resource"), ("get", &["metrics"][..]));
        assert_eq!(of(Method::GET, "/stats/summary"), ("get", &["stats"][..]));
        assert_eq!(of(Method::GET, "/runningpods/"), ("get", &["pods", "proxy"][..]));
        assert_eq!(of(Method::GET, "/healthz/ping"), ("get", &["healthz", "proxy"][..]));
        assert_eq!(of(Method::GET, "/flagz"), ("get", &["configz"][..]));
        assert_eq!(of(Method::GET, "/logs/x"), ("get", &["log"][..]));
        assert_eq!(of(Method::GET, "/containerLogs/a/b/c"), ("get", &["proxy"][..]));
        assert_eq!(of(Method::POST, "/checkpoint/a/b/c"), ("create", &["checkpoint"][..]));
        // Paths that only begin alike are others.
        assert_eq!(of(Method::GET, "/metricsx"), ("get", &["proxy"][..]));
    }

    /// With `get` on nodes/proxy alone a stock kubelet lets a WebSocket run any command on the node.
    #[test]
    fn a_get_that_runs_commands_needs_more_than_get() {
        for path in ["/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c"] {
            assert_eq!(rights(&Method::GET, path).verb, "create");
        }
    }

    const WORDS: &[&str] = &[
        "exec",
        "attach",
        "run",
        "portForward",
        "containerLogs",
        "pods",
        "metrics",
        "resource",
        "stats",
        "summary",
        "healthz",
        "logs",
    ];

    /// The words of the API, and others.
    fn segment() -> impl Strategy<Value = String> {
        prop_oneof![
            prop::sample::select(WORDS).prop_map(str::to_owned),
            "[A-Za-z0-9._~%/ é-]{1,8}",
        ]
    }

    proptest! {
        /// Rights were read from the path as it was sent, and the route from the path decoded: with `get` alone, a WebSocket to
        /// `/%65xec/...` was found to ask for nothing in particular, and ran a command.
        #[test]
        fn rights_of_a_path_are_those_of_its_decoded_form(
            segments in vec((segment(), vec(any::<bool>(), 32)), 1..6),
            slash in any::<bool>(),
        ) {
            let must = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-._~".contains(&byte);
            let spell = |all: bool| {
                let mut path = String::new();
                for (segment, chosen) in &segments {
                    path.push('/');
                    for (byte, chosen) in segment.bytes().zip(chosen.iter().cycle()) {
                        if must(byte) || (all && *chosen) {
                            write!(path, "%{byte:02x}").unwrap();
                        } else {
                            path.push(char::from(byte));
                        }
                    }
                }
                if slash {
                    path.push('/');
                }
                path
            };
            let (plain, disguised) = (spell(false), spell(true));
            prop_assert_eq!(Route::find(&plain), Route::find(&disguised));
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                prop_assert_eq!(rights(&method, &plain), rights(&method, &disguised));
            }
        }
    }
}
