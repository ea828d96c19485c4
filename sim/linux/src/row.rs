//! A server as the emulated Scaleway describes it, in `/_sim/boxes` and `/_sim/box-events`.

pub use russet_sim_scaleway::{BoxKind as Kind, Filesystem, LinuxBox as Row, Power, PrivateLeg};

/// Short, valid in file, host and interface names, and different for all servers of a test.
pub(crate) fn tag(row: &Row) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    let digest = sha2::Sha256::digest(row.server_id.as_str());
    digest.iter().take(5).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
