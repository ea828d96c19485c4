//! The Remote Execution API of a cache: what the specification promises to Bazel, Buck2, moon and the others.
//!
//! References are to the comments of `remote_execution.proto` (REAPI) and `bytestream.proto` (ByteStream), which are the specification.

mod actions;
mod batch;
mod bytestream;
mod capabilities;
mod compressed;
mod find;
mod hostile;
pub mod raw;
mod reflection;
mod resume;
mod secure;
pub mod target;
mod tree;
mod trust;

pub use target::Target;

use super::Check;

/// Every check.
pub fn all() -> impl Iterator<Item = &'static Check<Target>> {
    const SUITES: &[&[Check<Target>]] = &[
        capabilities::CHECKS,
        reflection::CHECKS,
        find::CHECKS,
        batch::CHECKS,
        bytestream::CHECKS,
        resume::CHECKS,
        compressed::CHECKS,
        actions::CHECKS,
        tree::CHECKS,
        hostile::CHECKS,
        trust::CHECKS,
    ];
    SUITES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: BTreeSet<_> = super::all().map(|check| check.name).collect();
        assert_eq!(names.len(), super::all().count());
        assert!(names.iter().all(|name| name.starts_with("reapi-")), "{names:?}");
    }
}
