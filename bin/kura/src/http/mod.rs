//! The HTTP surface: what requests mean, independent of who reads them from a socket.
//!
//! [`service::Service::plan`] turns a head into a [`service::Plan`]: an answer, or a body that is wanted and where it goes. It
//! is synchronous and allocates nothing for a hit, so the hand-written engine ([`crate::http1`]) answers without leaving its
//! thread; the library engine ([`library`]) runs the same code for HTTP/2.

pub mod body;
pub mod check;
pub mod digest;
pub mod egress;
pub mod head;
pub mod library;
pub mod range;
pub mod receive;
pub mod reply;
pub mod route;
pub mod routes;
pub mod service;
pub mod span;
pub mod voice;
