//! Which right a request needs.

use http::Method;

/// A right on this node: `verb` on any one of `nodes/<subresource>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// `get`, `create` and so on.
    pub verb: &'static str,
    /// Asked for in this order; one is enough.
    pub subresources: &'static [&'static str],
}

impl Attributes {
    /// For a request. Everything that runs or reaches into a container needs `create`, whatever its method: a WebSocket upgrade is
    /// a GET, and the right to look at a node must not be the right to run commands on it.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let subresources: &[&str] = match first {
            "metrics" => &["metrics"],
            "stats" => &["stats"],
            "logs" => &["log"],
            "checkpoint" => &["checkpoint"],
            "pods" | "runningpods" => &["pods", "proxy"],
            "healthz" => &["healthz", "proxy"],
            "configz" => &["configz", "proxy"],
            "statusz" => &["statusz"],
            "flagz" => &["configz"],
            _ => &["proxy"],
        };
        let verb = match (first, method.as_str()) {
            ("exec" | "attach" | "portForward" | "run", _) | (_, "POST") => "create",
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
    use super::*;

    #[test]
    fn rights_are_those_of_a_stock_kubelet() {
        let of = |method: Method, path| {
            let attributes = Attributes::of(&method, path);
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
            assert_eq!(Attributes::of(&Method::GET, path).verb, "create");
        }
    }
}
