//! Paths. A key is whatever stands in the last segment, decoded once; it is never a file name, so `..` is just two bytes.

use super::head::Method;
use crate::scope::{self, decode};
use std::borrow::Cow;

/// Longest key, decoded.
pub const MAX_KEY: usize = 1024;

/// A path template; the label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Route {
    /// Xcode compilation cache.
    Xcode,
    /// A key-value document is written.
    KeyValuePut,
    /// A key-value document is read.
    KeyValueGet,
    /// Gradle build cache.
    Gradle,
    /// An upload in parts begins.
    ModuleStart,
    /// A part.
    ModulePart,
    /// An upload in parts ends.
    ModuleComplete,
    /// A module is read.
    Module,
    /// A namespace is emptied.
    Clean,
    /// Nx.
    Nx,
    /// Metro.
    Metro,
    /// The process lives.
    Up,
    /// The node may get traffic.
    Ready,
    /// The rollout gate's view.
    Rollout,
    /// The mesh's view.
    Cluster,
    /// Metrics.
    Metrics,
    /// None of the above.
    Unknown,
}

impl Route {
    /// All routes, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Xcode,
        Self::KeyValuePut,
        Self::KeyValueGet,
        Self::Gradle,
        Self::ModuleStart,
        Self::ModulePart,
        Self::ModuleComplete,
        Self::Module,
        Self::Clean,
        Self::Nx,
        Self::Metro,
        Self::Up,
        Self::Ready,
        Self::Rollout,
        Self::Cluster,
        Self::Metrics,
        Self::Unknown,
    ];

    /// The template, as dashboards know it.
    pub fn template(self) -> &'static str {
        match self {
            Self::Xcode => "/api/cache/cas/{id}",
            Self::KeyValuePut => "/api/cache/keyvalue",
            Self::KeyValueGet => "/api/cache/keyvalue/{cas_id}",
            Self::Gradle => "/api/cache/gradle/{cache_key}",
            Self::ModuleStart => "/api/cache/module/start",
            Self::ModulePart => "/api/cache/module/part",
            Self::ModuleComplete => "/api/cache/module/complete",
            Self::Module => "/api/cache/module/{id}",
            Self::Clean => "/api/cache/clean",
            Self::Nx => "/v1/cache/{hash}",
            Self::Metro => "/api/metro/cache/{cache_key}",
            Self::Up => "/up",
            Self::Ready => "/ready",
            Self::Rollout => "/status/rollout",
            Self::Cluster => "/status/cluster",
            Self::Metrics => "/metrics",
            Self::Unknown => "unmatched",
        }
    }

    /// Answered whatever the state of the node, and to anyone.
    pub fn is_probe(self) -> bool {
        matches!(
            self,
            Self::Up | Self::Ready | Self::Rollout | Self::Cluster | Self::Metrics
        )
    }

    /// The methods for `Allow`.
    pub fn allow(self) -> &'static str {
        match self {
            Self::Xcode => "GET, HEAD, POST",
            Self::KeyValuePut => "PUT",
            Self::Gradle | Self::Nx | Self::Metro => "GET, HEAD, PUT",
            Self::ModuleStart | Self::ModulePart | Self::ModuleComplete => "POST",
            Self::Clean => "DELETE",
            _ => "GET, HEAD",
        }
    }

    /// Whether the route has that method.
    pub fn has(self, method: Method) -> bool {
        match self {
            Self::Xcode => method.reads() || method == Method::Post,
            Self::KeyValuePut => method == Method::Put,
            Self::Gradle | Self::Nx | Self::Metro => method.reads() || method == Method::Put,
            Self::ModuleStart | Self::ModulePart | Self::ModuleComplete => method == Method::Post,
            Self::Clean => method == Method::Delete,
            Self::Unknown => true,
            _ => method.reads(),
        }
    }
}

/// The route of a path and the segment that is its key, still encoded.
pub fn find(path: &str) -> (Route, &str) {
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

/// Decodes a key segment.
pub fn key(segment: &str) -> Result<Cow<'_, str>, scope::Error> {
    let key = decode(segment)?;
    if key.is_empty() || key.len() > MAX_KEY {
        Err(scope::Error::Malformed)
    } else {
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(find(path), (route, key), "{path}");
        }
    }

    #[test]
    fn route_numbers_are_positions() {
        for (index, route) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, index);
        }
    }

    #[test]
    fn keys_are_decoded_once_and_bounded() {
        assert_eq!(key("%252e").unwrap(), "%2e");
        assert!(key("%ff").is_err());
        assert!(key(&"a".repeat(MAX_KEY + 1)).is_err());
    }
}
