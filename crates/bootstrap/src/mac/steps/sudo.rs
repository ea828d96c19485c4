//! Root without a password, so that the password is needed once.

use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;
use crate::ssh::Output;

/// The step.
pub(in crate::mac) fn step(user: &str) -> Step {
    let rule = format!("{user} ALL=(ALL) NOPASSWD: ALL\n");
    Step::new(
        "sudo",
        vec![Resource::text(
            format!("/etc/sudoers.d/{user}-nopasswd"),
            Mode::root("-r--r-----"),
            rule,
        )],
    )
}

/// Whether sudo did nothing because it wants a password.
pub(in crate::mac) fn asks(output: &Output) -> bool {
    output.stderr.contains("a password is required")
}

/// Whether it did nothing because the password is wrong.
pub(in crate::mac) fn refused(output: &Output) -> bool {
    ["incorrect password", "Sorry, try again", "no password was provided"]
        .iter()
        .any(|text| output.stderr.contains(text))
}
