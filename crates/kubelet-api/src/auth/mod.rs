//! Who may ask, decided by the apiserver as for a stock kubelet.
//!
//! ```text
//! client certificate of the cluster's CA ─┐
//! bearer token ─► TokenReview (2 min) ────┴─► User ─► SubjectAccessReview on nodes/<subresource> (yes 5 min, no 30 s)
//! ```
//!
//! Nobody is anonymous. The answers are kept as long as a stock kubelet keeps them, so a right that was taken away may hold that
//! long.

mod attributes;
mod cache;
mod certificate;
mod gate;
mod review;

pub use self::attributes::Attributes;
pub(crate) use self::certificate::Presented;
pub(crate) use self::gate::{Denied, Gate};
pub use self::review::{KubeReviewer, ReviewError, Reviewer};

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid, when the apiserver knows one.
    pub uid: Option<String>,
    /// The groups, `system:authenticated` among them.
    pub groups: Vec<String>,
    /// What else the apiserver knows, passed on when it is asked for rights.
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// The group of everybody who is somebody.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
