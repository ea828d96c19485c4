//! What each tool does by its own nature when the cache is not there for it, as seen on the wire and written down in
//! `docs/clients.md`. A build breaks only where the tool itself insists.

use russet_clients::Tool;

/// Exit codes, and what the rows need to know about a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Work the tool claims to take from a warm cache; `None` if it does not say.
    pub(crate) claims: Option<u64>,
    /// Artifacts the server serves to a warm build at least.
    pub(crate) hits: u64,
    /// With credentials nobody knows.
    pub(crate) wrong_credentials: i32,
    /// The server answers 503 to whatever [`unavailable`] names.
    pub(crate) unavailable: i32,
    /// The server is killed at this request of a cold build, and how the build ends.
    pub(crate) killed_at: u32,
    pub(crate) killed: i32,
    /// Whether it notices wrong bytes by itself and goes on without. Maven takes them, Nx and Metro give up; there the server's own
    /// checksums are all there is.
    pub(crate) checks_bodies: bool,
}

const HARMLESS: Expected = Expected {
    claims: Some(2),
    hits: 2,
    wrong_credentials: 0,
    unavailable: 0,
    killed_at: 2,
    killed: 0,
    checks_bodies: true,
};

pub(crate) fn of(tool: Tool) -> Expected {
    match tool {
        Tool::Gradle => Expected {
            claims: Some(1),
            hits: 1,
            ..HARMLESS
        },
        // A module is one hit, made of two files.
        Tool::Maven => Expected {
            claims: Some(1),
            checks_bodies: false,
            ..HARMLESS
        },
        // A manifest and a result each.
        Tool::Ccache => Expected { hits: 4, ..HARMLESS },
        // Its server tries the cache when it starts and does not start without. Killed after that, it shrugs.
        Tool::Sccache => Expected {
            wrong_credentials: 2,
            unavailable: 2,
            killed_at: 4,
            ..HARMLESS
        },
        // An action and its output each.
        Tool::Bazel => Expected {
            hits: 4,
            // It checks outputs by their digest, but believes any action result that parses.
            checks_bodies: false,
            ..HARMLESS
        },
        // A refusal of its first question, what the server can do, would be exit code 34. Ours answers that to anybody.
        Tool::BazelGrpc => Expected {
            hits: 4,
            killed_at: 3,
            checks_bodies: false,
            ..HARMLESS
        },
        // A read that is neither a hit nor a miss ends the run.
        Tool::Nx => Expected {
            wrong_credentials: 1,
            unavailable: 1,
            killed: 1,
            checks_bodies: false,
            ..HARMLESS
        },
        Tool::Turborepo => Expected {
            killed_at: 3,
            ..HARMLESS
        },
        Tool::Metro => Expected {
            claims: None,
            wrong_credentials: 1,
            unavailable: 1,
            killed: 1,
            checks_bodies: false,
            ..HARMLESS
        },
        Tool::Moon => Expected {
            killed_at: 3,
            checks_bodies: false,
            ..HARMLESS
        },
        Tool::Go => Expected {
            claims: None,
            hits: 10,
            killed_at: 20,
            ..HARMLESS
        },
    }
}

/// Whether the "server" is unavailable for this request. Mostly for all; two tools are spared what tells nothing new.
pub(crate) fn unavailable(tool: Tool, method: &str, path: &str) -> bool {
    match tool {
        // A 503 costs half a minute per object; one object is enough to see that it does no more.
        Tool::Maven => method == "GET",
        // Refused at the first call it is the same as an absent server.
        Tool::BazelGrpc | Tool::Moon => !path.ends_with("/GetCapabilities"),
        _ => true,
    }
}

/// What sccache writes and reads when it starts. Spoilt, it does not start, which is the row about an absent server again.
pub(crate) fn is_a_start_check(path: &str) -> bool {
    path.ends_with("/.sccache_check")
}
