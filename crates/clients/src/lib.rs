//! Real build tools as clients of the cache: how each is obtained, set up against a cache, run, and read.
//!
//! ```text
//! Tool ── Kit::ensure ──► Kit (programs) ── Workshop::new ──► a tiny project ── build(Target) ──► Build
//!         parts::Store     toolchains         tools/<name>.rs    cold local state    exit code, what the tool claims, output
//! ```
//!
//! Used twice: `russet cache try <tool>` shows a user that the cache works with the tool, and `conformance/tests/clients` holds the cache
//! to what each tool needs of it. Neither may guess, so hits are always reported twice: as the tool claims them (`Claim`)
//! and as the server counted them (`Counts`).
//!
//! Secrets: a token reaches a tool by its environment or by a file of mode 0600, never by an argument; a test looks at every plan.
//! Nothing is left behind: a build's processes form a group that ends with it, servers of tools (Bazel, sccache) are stopped when
//! the workshop is dropped and give up by themselves after a minute without work.

mod counts;
mod error;
mod kit;
mod plan;
mod run;
mod settings;
mod target;
mod tool;
mod tools;
mod workshop;

pub use crate::{
    counts::Counts,
    error::Error,
    kit::Kit,
    plan::Claim,
    run::Exit,
    settings::Settings,
    target::Target,
    tool::Tool,
    workshop::{Build, Workshop},
};
