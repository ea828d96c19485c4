//! Server reflection, by the library's own service: tools that list and call services by name need nothing else.

use super::body::Body;
use super::status::Status;
use hyper::body::Incoming;
use russet_reapi::proto::DESCRIPTORS;
use std::convert::Infallible;
use std::fmt;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

type Server = BoxCloneSyncService<http::Request<Incoming>, http::Response<tonic::body::Body>, Infallible>;

/// Both versions of the service that are in use.
pub(super) struct Reflection {
    v1: Option<Server>,
    v1alpha: Option<Server>,
}

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reflection")
    }
}

impl Default for Reflection {
    fn default() -> Self {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .include_reflection_service(true)
        };
        Self {
            v1: builder().build_v1().ok().map(Server::new),
            v1alpha: builder().build_v1alpha().ok().map(Server::new),
        }
    }
}

impl Reflection {
    pub(super) async fn respond(&self, parts: http::request::Parts, incoming: Incoming) -> http::Response<Body> {
        let alpha = parts.uri.path().starts_with("/grpc.reflection.v1alpha.");
        let server = if alpha { &self.v1alpha } else { &self.v1 };
        let Some(server) = server.clone() else {
            return Status::unimplemented("unknown service or method").into_response();
        };
        match server.oneshot(http::Request::from_parts(parts, incoming)).await {
            Ok(response) => response.map(Body::Generated),
            Err(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_are_whole() {
        let reflection = Reflection::default();
        assert!(reflection.v1.is_some() && reflection.v1alpha.is_some());
    }
}
