//! The cache contract over HTTP: what honest clients rely on ([`checks`]) and what attackers must not get ([`poison`]).

mod checks;
mod h2;
mod poison;
pub mod server;
pub mod tokens;
pub mod wire;

pub use checks::tools::{Entry, entries};
pub use server::{Caller, Credentials, Dialect, Server, Transport};

use super::Check;

type Suite = &'static [Check<Server>];

/// Every check, honest ones first.
pub fn all() -> impl Iterator<Item = &'static Check<Server>> {
    checks::SUITES.iter().chain(poison::SUITES).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_what_it_proves() {
        let mut names = BTreeSet::new();
        for check in all() {
            assert!(names.insert(check.name), "{} is listed twice", check.name);
            let told = !check.proves.is_empty() && !check.reference.is_empty();
            assert!(told, "{}", check.name);
        }
        assert!(names.len() > 90, "{} checks", names.len());
    }

    #[test]
    fn every_attack_says_what_a_naive_server_does() {
        for check in poison::SUITES.iter().copied().flatten() {
            assert!(check.name.starts_with("poison-"), "{}", check.name);
            assert!(check.naive.is_some_and(|naive| !naive.is_empty()), "{}", check.name);
        }
    }
}
