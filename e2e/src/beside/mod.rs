//! Our kubelet beside a stock one: the same Pods on both, in one cluster, and what is told about them compared.
//!
//! ```text
//!   Case (a Pod, and what is done to it) ──▶ stock kubelet, containerd ──▶ Views ─▶ aspects ─┐
//!                                        └─▶ tart-kubelet, VMs ─────────▶ Views ─▶ aspects ─┴▶ differences ─▶ document
//! ```
//!
//! Every write of a Pod's status is seen through a watch and becomes a [`View`]. Kubelets put several news into one write or
//! spread one over two, as their timing has it, so the two are not compared write by write: each aspect of a Pod (its phase,
//! a condition, the state of a container) is a sequence of its own, and these have to be the same.
//!
//! Nothing here depends on time. Scripts wait for files, and are let go when the watch has seen what they wait with.

mod case;
mod cases;
mod differences;
mod document;
mod fresh;
mod justified;
mod view;

pub use case::{Case, IMAGE, LATE_IMAGE, Moment, OTHER_IMAGE, Step, VOLUME};
pub use cases::all;
pub use differences::{Chance, Difference, compare, same_again};
pub use document::document;
pub use fresh::is_fresh;
pub use justified::JUSTIFIED;
pub use view::{View, aspects};
