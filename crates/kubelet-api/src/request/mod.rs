//! What a request asks for: its path and its query, read once.
//!
//! ```text
//! path ─► Route::find ─┬─ the Area it lies in ─► which right it needs
//!                      └─ the Route ───────────► what is performed
//! ```
//!
//! Both come out of the same reading, so no spelling of a path can be judged as one thing and performed as another. Public for the
//! fuzz target that says so.

mod query;
mod route;

pub use self::query::Query;
pub use self::route::{Area, Route};
