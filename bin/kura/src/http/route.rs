//! Paths. A key is whatever stands in the last segment, decoded once; it is never a file name, so `..` is just two bytes.
//!
//! The routes of the original contract name their scope in the query; the tools' routes name their project in the path, since a
//! tool is configured with a URL and nothing else.

mod find;

pub use find::{DEFAULT_PROJECT, Found, Whose, find};

use super::head::Method;
use super::voice::{Asked, Voice};
use crate::scope::{self, decode};
use crate::tools::Tool;
use russet_identity::Access;
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
    /// Gradle build cache, project in the path.
    GradlePath,
    /// An action result, by HTTP.
    BazelAction,
    /// A content-addressed blob, by HTTP.
    BazelBlob,
    /// Turborepo asks whether caching is on.
    TurboStatus,
    /// Turborepo reports hits and misses.
    TurboEvents,
    /// Turborepo asks about several artifacts.
    TurboQuery,
    /// A Turborepo artifact.
    Turbo,
    /// ccache.
    Ccache,
    /// sccache.
    Sccache,
    /// Maven's build-cache extension.
    Maven,
    /// Go.
    Go,
    /// Anything.
    Generic,
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
    /// What was built.
    Version,
    /// None of the above.
    Unknown,
}

impl Route {
    /// All routes, in the order of their numbers.
    pub const ALL: [Self; 30] = [
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
        Self::GradlePath,
        Self::BazelAction,
        Self::BazelBlob,
        Self::TurboStatus,
        Self::TurboEvents,
        Self::TurboQuery,
        Self::Turbo,
        Self::Ccache,
        Self::Sccache,
        Self::Maven,
        Self::Go,
        Self::Generic,
        Self::Up,
        Self::Ready,
        Self::Rollout,
        Self::Cluster,
        Self::Metrics,
        Self::Version,
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
            Self::GradlePath => "/gradle/{project}/{key}",
            Self::BazelAction => "/bazel/{project}/ac/{hash}",
            Self::BazelBlob => "/bazel/{project}/cas/{hash}",
            Self::TurboStatus => "/v8/artifacts/status",
            Self::TurboEvents => "/v8/artifacts/events",
            Self::TurboQuery => "/v8/artifacts",
            Self::Turbo => "/v8/artifacts/{hash}",
            Self::Ccache => "/ccache/{project}/{key}",
            Self::Sccache => "/sccache/{project}/{key}",
            Self::Maven => "/maven/{project}/{path}",
            Self::Go => "/go/{project}/{action}",
            Self::Generic => "/generic/{project}/{key}",
            Self::Up => "/up",
            Self::Ready => "/ready",
            Self::Rollout => "/status/rollout",
            Self::Cluster => "/status/cluster",
            Self::Metrics => "/metrics",
            Self::Version => "/version",
            Self::Unknown => "unmatched",
        }
    }

    /// Answered whatever the state of the node, and to anyone.
    pub fn is_probe(self) -> bool {
        matches!(
            self,
            Self::Up | Self::Ready | Self::Rollout | Self::Cluster | Self::Metrics | Self::Version
        )
    }

    /// The methods for `Allow`.
    pub fn allow(self) -> &'static str {
        match self {
            Self::Xcode => "GET, HEAD, POST",
            Self::KeyValuePut => "PUT",
            Self::Gradle | Self::Nx | Self::Metro => "GET, HEAD, PUT",
            Self::Sccache => "GET, HEAD, PUT, OPTIONS, PROPFIND, MKCOL",
            Self::TurboStatus => "GET, HEAD, OPTIONS",
            Self::TurboEvents | Self::TurboQuery => "POST, OPTIONS",
            _ if self.is_path_scoped() || self == Self::Turbo => "GET, HEAD, PUT, OPTIONS",
            Self::ModuleStart | Self::ModulePart | Self::ModuleComplete => "POST",
            Self::Clean => "DELETE",
            _ => "GET, HEAD",
        }
    }

    /// Whether the route has that method.
    pub fn has(self, method: Method) -> bool {
        let name = match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Propfind => "PROPFIND",
            Method::Mkcol => "MKCOL",
            Method::Other => return self == Self::Unknown,
        };
        self == Self::Unknown || self.allow().split(", ").any(|allowed| allowed == name)
    }

    /// What a caller must be allowed to do. Turborepo's reports and questions change nothing.
    pub fn access(self, method: Method) -> Access {
        let reads = method.reads()
            || matches!(method, Method::Propfind | Method::Options)
            || matches!(self, Self::TurboEvents | Self::TurboQuery);
        if reads { Access::Read } else { Access::Write }
    }

    /// The same, for the wording of refusals.
    pub fn asked(self, method: Method) -> Asked {
        match self.access(method) {
            Access::Read => Asked::Read,
            Access::Write => Asked::Write,
        }
    }

    /// How refusals are worded.
    pub fn voice(self) -> Voice {
        match self {
            Self::Nx => Voice::Nx,
            Self::TurboStatus | Self::TurboEvents | Self::TurboQuery | Self::Turbo => Voice::Turborepo,
            Self::Metro => Voice::Tool,
            _ if self.is_path_scoped() => Voice::Tool,
            _ => Voice::Api,
        }
    }

    /// Whose traffic it is.
    pub fn tool(self) -> Option<Tool> {
        Some(match self {
            Self::Xcode | Self::KeyValueGet | Self::KeyValuePut => Tool::Xcode,
            Self::Module | Self::ModuleStart | Self::ModulePart | Self::ModuleComplete => Tool::Module,
            Self::Gradle | Self::GradlePath => Tool::Gradle,
            Self::Nx => Tool::Nx,
            Self::Metro => Tool::Metro,
            Self::BazelAction | Self::BazelBlob => Tool::Bazel,
            Self::TurboStatus | Self::TurboEvents | Self::TurboQuery | Self::Turbo => Tool::Turborepo,
            Self::Ccache => Tool::Ccache,
            Self::Sccache => Tool::Sccache,
            Self::Maven => Tool::Maven,
            Self::Go => Tool::Go,
            Self::Generic => Tool::Generic,
            _ => return None,
        })
    }

    fn is_path_scoped(self) -> bool {
        matches!(
            self,
            Self::GradlePath
                | Self::BazelAction
                | Self::BazelBlob
                | Self::Ccache
                | Self::Sccache
                | Self::Maven
                | Self::Go
                | Self::Generic
        )
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

/// Decodes a key of several segments. A client that tidies its paths could not ask for `a/../b` or `a//b` again, and one that
/// does not must not be able to store what others see under a different name; so these are refused.
pub fn deep_key(path: &str) -> Result<Cow<'_, str>, scope::Error> {
    let key = key(path)?;
    let tidy = |segment: &str| !segment.is_empty() && segment != "." && segment != "..";
    if key.split('/').all(tidy) && !key.chars().any(char::is_control) {
        Ok(key)
    } else {
        Err(scope::Error::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_keys_have_one_spelling() {
        assert_eq!(deep_key("a/b%20c/d").unwrap(), "a/b c/d");
        for bad in [
            "",
            "a//b",
            "/a",
            "a/",
            "a/../b",
            "./a",
            "a/%2e%2e/b",
            "a/%2E",
            "a%00b",
            "a%0ab",
            "%ff",
        ] {
            assert!(deep_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn methods_and_their_list_agree() {
        assert!(Route::Sccache.has(Method::Propfind) && !Route::Maven.has(Method::Propfind));
        assert!(Route::TurboQuery.has(Method::Post) && !Route::Turbo.has(Method::Post));
        assert!(Route::Unknown.has(Method::Other) && !Route::Gradle.has(Method::Options));
        assert_eq!(Route::TurboEvents.access(Method::Post), Access::Read);
        assert_eq!(Route::Sccache.access(Method::Mkcol), Access::Write);
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
