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
mod justified;
mod view;

pub(crate) use case::{Case, IMAGE, LATE_IMAGE, Moment, OTHER_IMAGE, Step, VOLUME};
pub(crate) use cases::all;
pub(crate) use differences::{compare, same_again};
pub(crate) use justified::JUSTIFIED;
pub(crate) use view::{View, aspects};

macro_rules! facts {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::tests::$name)),*]
    };
}

/// What holds of the comparison itself; these are tests without a cluster.
pub(crate) const FACTS: &[(&str, fn())] = facts![
    cases::there_are_enough_and_each_is_a_pod_with_a_name_of_its_own,
    differences::a_difference_has_to_be_listed_and_a_listed_one_has_to_be_seen,
    differences::what_depends_on_chance_need_not_be_seen_and_must_be_listed,
    differences::where_a_stock_kubelet_tells_what_it_likes_ours_does_not,
    differences::what_is_excused_is_excused_in_its_aspect_only,
    differences::ours_tells_the_same_again_or_what_is_listed_as_chance,
    differences::of_a_pod_that_is_not_taken_on_the_phases_say_it_all,
    differences::an_aspect_that_only_one_tells_of_is_a_difference,
    differences::differences_are_of_cases_that_there_are_and_say_why,
    document::the_document_is_the_one_in_the_repository,
    view::an_aspect_is_told_once_for_as_long_as_it_stays,
    view::an_end_that_a_restart_followed_is_told_by_the_last_state_only,
];
