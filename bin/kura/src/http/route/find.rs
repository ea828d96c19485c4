//! From a path to its route, its scope and its key.

use super::Route;

/// Who a request is about, as its route says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// The query names tenant and namespace.
    Query,
    /// The account of the node.
    Account,
    /// A project of that account; still encoded.
    Project(&'a str),
    /// The project is Turborepo's team, which the query names.
    Team,
}

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The template.
    pub route: Route,
    /// The scope.
    pub whose: Whose<'a>,
    /// The part of the path that is the key, still encoded.
    pub key: &'a str,
}

/// The project of tools that name none.
pub const DEFAULT_PROJECT: &str = "default";

/// The route of a path.
pub fn find(path: &str) -> Found<'_> {
    if let Some(found) = tools(path) {
        return found;
    }
    let (route, key) = contract(path);
    let whose = match route {
        Route::Nx | Route::Metro => Whose::Account,
        _ => Whose::Query,
    };
    Found { route, whose, key }
}

/// The tools' routes.
fn tools(path: &str) -> Option<Found<'_>> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
    let found = |route, whose, key| Some(Found { route, whose, key });
    let route = match first {
        "v8" => {
            let (route, key) = match rest.strip_prefix("artifacts")? {
                "" => (Route::TurboQuery, ""),
                "/status" => (Route::TurboStatus, ""),
                "/events" => (Route::TurboEvents, ""),
                other => one_segment(Route::Turbo, other.strip_prefix('/')?),
            };
            return found(route, Whose::Team, key);
        }
        // The paths of other caches' servers, so that they can be replaced without touching their clients.
        "ac" => return found(Route::BazelAction, Whose::Project(DEFAULT_PROJECT), rest),
        "cas" => return found(Route::BazelBlob, Whose::Project(DEFAULT_PROJECT), rest),
        "gradle" => Route::GradlePath,
        "bazel" => Route::BazelBlob,
        "ccache" => Route::Ccache,
        "sccache" => Route::Sccache,
        "maven" => Route::Maven,
        "go" => Route::Go,
        "generic" => Route::Generic,
        _ => return None,
    };
    let (project, key) = rest.split_once('/')?;
    let (route, key) = match route {
        Route::GradlePath | Route::Go => one_segment(route, key),
        Route::BazelBlob => match key.split_once('/')? {
            ("ac", hash) => (Route::BazelAction, hash),
            ("cas", hash) => (Route::BazelBlob, hash),
            _ => return None,
        },
        // The folder of the project itself is something WebDAV asks about.
        Route::Sccache => (route, key),
        _ if key.is_empty() => return None,
        _ => (route, key),
    };
    found(route, Whose::Project(project), key)
}

/// The routes of the original contract, and the segment that is their key.
fn contract(path: &str) -> (Route, &str) {
    if let Some(rest) = path.strip_prefix("/api/cache/") {
        let exact = match rest {
            "keyvalue" => Route::KeyValuePut,
            "clean" => Route::Clean,
            "module/start" => Route::ModuleStart,
            "module/part" => Route::ModulePart,
            "module/complete" => Route::ModuleComplete,
            _ => Route::Unknown,
        };
        if exact != Route::Unknown {
            return (exact, "");
        }
        let Some((family, key)) = rest.split_once('/') else {
            return (Route::Unknown, "");
        };
        let route = match family {
            "gradle" => Route::Gradle,
            "cas" => Route::Xcode,
            "keyvalue" => Route::KeyValueGet,
            "module" => Route::Module,
            _ => Route::Unknown,
        };
        return one_segment(route, key);
    }
    if let Some(key) = path.strip_prefix("/v1/cache/") {
        return one_segment(Route::Nx, key);
    }
    if let Some(key) = path.strip_prefix("/api/metro/cache/") {
        return one_segment(Route::Metro, key);
    }
    let route = match path {
        "/up" => Route::Up,
        "/ready" => Route::Ready,
        "/status/rollout" => Route::Rollout,
        "/status/cluster" => Route::Cluster,
        "/metrics" => Route::Metrics,
        "/version" => Route::Version,
        _ => Route::Unknown,
    };
    (route, "")
}

fn one_segment(route: Route, key: &str) -> (Route, &str) {
    if key.is_empty() || key.contains('/') {
        (Route::Unknown, "")
    } else {
        (route, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_name_their_project_in_the_path() {
        let project = Whose::Project("ios");
        for (path, route, whose, key) in [
            ("/gradle/ios/k", Route::GradlePath, project, "k"),
            ("/bazel/ios/ac/h", Route::BazelAction, project, "h"),
            ("/bazel/ios/cas/h", Route::BazelBlob, project, "h"),
            ("/ac/h", Route::BazelAction, Whose::Project("default"), "h"),
            ("/cas/h", Route::BazelBlob, Whose::Project("default"), "h"),
            ("/v8/artifacts", Route::TurboQuery, Whose::Team, ""),
            ("/v8/artifacts/status", Route::TurboStatus, Whose::Team, ""),
            ("/v8/artifacts/events", Route::TurboEvents, Whose::Team, ""),
            ("/v8/artifacts/0123", Route::Turbo, Whose::Team, "0123"),
            ("/ccache/ios/ab/cd", Route::Ccache, project, "ab/cd"),
            ("/sccache/ios/", Route::Sccache, project, ""),
            ("/sccache/ios/pre/a", Route::Sccache, project, "pre/a"),
            ("/maven/ios/v1/g/a", Route::Maven, project, "v1/g/a"),
            ("/go/ios/00", Route::Go, project, "00"),
            ("/generic/ios/a/b", Route::Generic, project, "a/b"),
            ("/generic/i%2Fs/a", Route::Generic, Whose::Project("i%2Fs"), "a"),
        ] {
            assert_eq!(find(path), Found { route, whose, key }, "{path}");
        }
        for path in [
            "/gradle/ios/",
            "/gradle/ios",
            "/gradle/ios/a/b",
            "/bazel/ios",
            "/bazel/ios/x/h",
            "/generic/ios/",
            "/go/ios/",
            "/v8/artifactsx",
            "/v8/artifacts/",
            "/v8/artifacts/a/b",
            "/ac",
            "/maven//",
        ] {
            assert_eq!(find(path).route, Route::Unknown, "{path}");
        }
    }

    #[test]
    fn paths_find_their_routes() {
        for (path, route, key) in [
            ("/api/cache/cas/0~abc=", Route::Xcode, "0~abc="),
            ("/api/cache/keyvalue", Route::KeyValuePut, ""),
            ("/api/cache/keyvalue/k", Route::KeyValueGet, "k"),
            ("/api/cache/gradle/k", Route::Gradle, "k"),
            ("/api/cache/gradle/..", Route::Gradle, ".."),
            ("/api/cache/gradle/%2e%2e%2f", Route::Gradle, "%2e%2e%2f"),
            ("/api/cache/module/start", Route::ModuleStart, ""),
            ("/api/cache/module/part", Route::ModulePart, ""),
            ("/api/cache/module/complete", Route::ModuleComplete, ""),
            ("/api/cache/module/id", Route::Module, "id"),
            ("/api/cache/clean", Route::Clean, ""),
            ("/v1/cache/h", Route::Nx, "h"),
            ("/api/metro/cache/h", Route::Metro, "h"),
            ("/up", Route::Up, ""),
            ("/ready", Route::Ready, ""),
            ("/version", Route::Version, ""),
            ("/status/rollout", Route::Rollout, ""),
            ("/status/cluster", Route::Cluster, ""),
            ("/metrics", Route::Metrics, ""),
            ("/", Route::Unknown, ""),
            ("/up/", Route::Unknown, ""),
            ("/api/cache/gradle/", Route::Unknown, ""),
            ("/api/cache/gradle/a/b", Route::Unknown, ""),
            ("/api/cache/gradle/../clean", Route::Unknown, ""),
            ("//api/cache/clean", Route::Unknown, ""),
            ("/_internal/anything", Route::Unknown, ""),
        ] {
            let found = find(path);
            assert_eq!((found.route, found.key), (route, key), "{path}");
        }
    }
}
