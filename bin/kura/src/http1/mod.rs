//! The hand-written HTTP/1.1 path.
//!
//! A general library costs two to four times what the kernel charges for a small hit: it spawns, boxes, copies and writes the
//! header apart from the body. This engine does one thing, in order, on the thread that owns the socket:
//!
//! ```text
//! read → find the end of the head → parse → plan (route, scope, trust, index) → one write (or sendfile) → again
//!                                              └ body wanted: stream it into the store → one write
//! ```
//!
//! It understands strictly less than HTTP/1.1 allows: what two readers could understand differently is refused with 400 and
//! the connection is closed, with TLS ([`socket`]) as without. HTTP/2 is left to `hyper` (see [`crate::http::library`]); both
//! engines run the same handlers.

pub mod body;
pub mod chunked;
pub mod connection;
pub mod head_end;
pub mod parser;
pub mod response;
pub mod socket;
pub mod wait;
