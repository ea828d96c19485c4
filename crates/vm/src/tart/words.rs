//! Sentences of `tart` that mean something, all in one place (facts/macos-host.md 6.1, 6.3).
//!
//! Only where there is no exit code, no JSON and no file that says the same.

use crate::runtime::{How, StartFailure};
use crate::supervise::Finished;

/// The line that says what went wrong. Warnings that may precede any error, and the usage that follows one, say nothing.
pub(super) fn first_useful(stderr: &str) -> String {
    let useful = |line: &&str| {
        !line.is_empty()
            && !["Failed to perform garbage collection", "Usage:", "See 'tart"]
                .iter()
                .any(|noise| line.starts_with(noise))
    };
    let line = stderr
        .lines()
        .map(str::trim)
        .find(useful)
        .unwrap_or("it did not say why");
    let line = line.strip_prefix("Error: ").unwrap_or(line);
    line.chars().take(300).collect()
}

pub(super) fn is_missing(code: Option<i32>, stderr: &str) -> bool {
    code == Some(2) && stderr.contains("does not exist")
}

/// `tart fqn` of a tag that is not in the cache.
pub(super) fn is_uncached(code: Option<i32>, stderr: &str) -> bool {
    is_missing(code, stderr) || code == Some(1) && stderr.contains("point to a digest")
}

/// `tart ip` of a guest that has none yet.
pub(super) fn is_no_address(stderr: &str) -> bool {
    stderr.contains("no IP address found")
}

pub(super) fn is_running(stderr: &str) -> bool {
    stderr
        .lines()
        .any(|line| line.starts_with("VM \"") && line.ends_with("\" is running"))
}

/// Four spellings were seen in the field.
pub(super) fn is_no_space(stderr: &str) -> bool {
    [
        "isn’t enough space",
        "isn't enough space",
        "database or disk is full",
        "No space left on device",
    ]
    .iter()
    .any(|words| stderr.contains(words))
}

pub(super) fn is_unauthorized(stderr: &str) -> bool {
    stderr.contains("AuthFailed(")
        || stderr.contains("code: 401")
        || stderr.contains("code: 403")
        || stderr.contains("invalid credentials")
}

pub(super) fn is_unknown_image(stderr: &str) -> bool {
    stderr.contains("UnexpectedHTTPStatusCode(") && stderr.contains("code: 404")
}

pub(super) fn is_unsuitable(stderr: &str) -> bool {
    stderr.contains("LessThanMinimalResourcesError") || stderr.contains("should be larger than the current disk size")
}

/// How gRPC says that a call did not come to its end.
const BROKEN: [&str; 5] = [
    "unavailable (14)",
    "internal error (13)",
    "cancelled (1)",
    "deadline exceeded (4)",
    "unknown (2)",
];

/// Whether `tart exec` failed before or beside the program in the guest: its own last words stand where the program's would. They are
/// taken to the letter, since a program may end with the same code and nearly the same words.
pub(super) fn is_lost_line(vm: &str, code: Option<i32>, output: &str) -> bool {
    let last = output
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    match code {
        Some(1) => {
            let is = |status: &&str| {
                let rest = last.strip_prefix("Error: ").and_then(|said| said.strip_prefix(*status));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            let unreachable = last.starts_with("Failed to connect to the VM using its control socket: ")
                && last.ends_with("is the Tart Guest Agent running?");
            unreachable || BROKEN.iter().any(is)
        }
        Some(2) => {
            last == format!("VM \"{vm}\" is not running") || last == format!("the specified VM \"{vm}\" does not exist")
        }
        _ => false,
    }
}

/// What `tart run` says last when the guest is down.
const END: &str = "guest has stopped the virtual machine";

/// How a VM ended, from the exit of `tart run` and what it said. The exit alone does not tell: after a crash it is 0.
pub(super) fn how(finished: Option<Finished>, output: &str) -> How {
    let Some(finished) = finished else { return How::Unknown };
    if let Some(signal) = finished.signal {
        return How::Killed(signal);
    }
    if finished.code != Some(0) {
        return How::Failed(start_failure(output));
    }
    for line in output.lines().rev().map(str::trim) {
        match line.strip_prefix(END) {
            // In order, and yet half done: a Pod whose host went down must not have succeeded.
            Some("") if finished.told => return How::Stopped,
            Some("") => return How::ShutDown,
            Some(rest) => {
                let why = rest.strip_prefix(" due to error: ").unwrap_or(rest);
                return How::Crashed(why.chars().take(300).collect());
            }
            None if line == "Stopping VM..." => return How::Stopped,
            None => {}
        }
    }
    How::Unknown
}

fn start_failure(output: &str) -> StartFailure {
    let line = |words: &str| {
        output
            .lines()
            .map(str::trim)
            .find(|line| line.contains(words))
            .map(str::to_owned)
    };
    if let Some(line) = line("exceeds the system limit") {
        return StartFailure::TooMany(line);
    }
    if output.contains("Failed to create new HostKey") || output.contains("VZErrorDomain Code=-9") {
        return StartFailure::NoGuiSession;
    }
    if output.contains("is already running!") || output.contains("Failed to lock auxiliary storage") {
        return StartFailure::RunsAlready;
    }
    if output.contains("does not exist") || output.contains("VM is missing") {
        return StartFailure::Damaged(first_useful(output));
    }
    StartFailure::Other(first_useful(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, signal: Option<i32>) -> Finished {
        Finished {
            code,
            signal,
            told: false,
            at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_exit_of_0_is_a_success_only_if_the_guest_shut_down() {
        let zero = Some(exit(Some(0), None));
        assert_eq!(how(zero, "x\nguest has stopped the virtual machine\n"), How::ShutDown);
        let crash = "guest has stopped the virtual machine due to error: Error Domain=VZErrorDomain Code=1";
        let found = how(zero, crash);
        assert_eq!(found, How::Crashed("Error Domain=VZErrorDomain Code=1".into()));
        assert_eq!(how(zero, "Stopping VM...\n"), How::Stopped);
        assert_eq!(how(zero, ""), How::Unknown);
        assert_eq!(how(None, "guest has stopped the virtual machine\n"), How::Unknown);
        let found = how(Some(exit(None, Some(9))), "guest has stopped the virtual machine\n");
        assert_eq!(found, How::Killed(9));
    }

    /// A guest that is asked to shut down prints the same as one that is done.
    #[test]
    fn a_guest_that_shut_down_because_its_host_did_was_not_done() {
        let told = |code, signal| {
            Some(Finished {
                told: true,
                ..exit(code, signal)
            })
        };
        let zero = told(Some(0), None);
        assert_eq!(how(zero, "guest has stopped the virtual machine\n"), How::Stopped);
        assert_eq!(how(zero, "Stopping VM...\n"), How::Stopped);
        let crash = "guest has stopped the virtual machine due to error: panic\n";
        assert_eq!(how(zero, crash), How::Crashed("panic".into()));
        assert_eq!(how(told(None, Some(9)), ""), How::Killed(9));
    }

    #[test]
    fn a_full_disk_is_known_by_what_a_clone_and_what_a_pull_says() {
        let clone = "Error: “disk.img” couldn’t be copied to “DA30BDDE-FD5B-4469-ADD8-9E5454BDFEC8” because there isn’t \
                     enough space.\n";
        let pull = "*** Terminating app due to uncaught exception 'NSFileHandleOperationException', reason: \
                    '*** -[NSConcreteFileHandle writeData:]: No space left on device'\n";
        assert!(is_no_space(clone) && is_no_space(pull));
        for other in [
            "",
            "the specified VM \"x\" does not exist\n",
            "Error: “disk.img” couldn’t be copied to “x” because you don’t have permission to access “tmp”.\n",
            "new disk size of 40 GB should be larger than the current disk size of 50 GB\n",
        ] {
            assert!(!is_no_space(other), "{other}");
        }
    }

    #[test]
    fn a_vm_that_did_not_start_has_a_reason_with_a_name() {
        let failed = |text: &str| match how(Some(exit(Some(1), None)), text) {
            How::Failed(failure) => failure.reason(),
            other => panic!("{other:?}"),
        };
        let found = failed("The number of VMs exceeds the system limit (other running VMs: a, b)");
        assert_eq!(found, "TooManyVMs");
        let found = failed("Error: Error Domain=VZErrorDomain Code=-9 \"…\"");
        assert_eq!(found, "NoGuiSession");
        let found = failed("Error: Error Domain=VZErrorDomain Code=2 \"Failed to lock auxiliary storage.\"");
        assert_eq!(found, "RunsAlready");
        assert_eq!(failed("Error: the specified VM \"x\" does not exist"), "VMDamaged");
        assert_eq!(failed("Error: something new"), "StartFailed");
    }

    /// `tart exec` ends with 1 or 2 when the line to the guest breaks, as does many a program. `echo db is not running; exit 2` in a
    /// container was taken for the end of its VM, and in a probe for no answer.
    #[test]
    fn a_broken_line_is_told_from_a_program_that_failed() {
        for (code, lost) in [
            (1, "output\nError: unavailable (14): Transport became inactive\n"),
            (1, "Error: internal error (13)\n"),
            (
                1,
                "Failed to connect to the VM using its control socket: refused, is the Tart Guest Agent running?\n",
            ),
            (2, "VM \"x\" is not running\n"),
            (2, "the specified VM \"x\" does not exist\n"),
        ] {
            assert!(is_lost_line("x", Some(code), lost), "{lost}");
            assert!(!is_lost_line("x", Some(3), lost), "{lost}");
        }
        for (code, failed) in [
            (1, ""),
            (1, "Error: unavailable"),
            (1, "Error: unavailable (141)\n"),
            (1, "Error: unavailable (14): one\nError: two\n"),
            (1, "Error: the connection was lost\n"),
            (1, "is the Tart Guest Agent running?\n"),
            (2, "db is not running\n"),
            (2, "VM \"y\" is not running\n"),
            (2, "file does not exist\n"),
        ] {
            assert!(!is_lost_line("x", Some(code), failed), "{failed}");
        }
    }

    #[test]
    fn a_tag_that_is_not_here_is_no_failure() {
        let said = "OCI storage error: ghcr.io/acme/mac:v1 is not a digest and doesn't point to a digest\n";
        assert!(is_uncached(Some(1), said));
        assert!(!is_uncached(Some(1), "OCI storage error: something else\n"));
    }

    #[test]
    fn the_useful_line_is_neither_a_warning_nor_the_usage() {
        let text = "Failed to perform garbage collection: no\n\nError: Unknown option '--x'\nUsage: tart get <name>\n  See 'tart get --help' for more information.\n";
        assert_eq!(first_useful(text), "Unknown option '--x'");
        assert_eq!(first_useful("\n"), "it did not say why");
    }
}
