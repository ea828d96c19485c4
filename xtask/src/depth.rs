//! How deep a run of the gate goes. Suites that enumerate (crash points, schedules, kill positions) play the tenth that the commit's hash
//! draws, or all of it with `DEPTH=full`; `russet_draw` in their test programs reads what is set here.

use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub(crate) struct DepthArgs {
    /// `draw`: suites that enumerate play the share that the commit draws; `full`: everything
    #[arg(long, env = "DEPTH", default_value = "draw")]
    depth: Depth,
    /// Repeat the draw of this commit
    #[arg(long, env = "DRAW", value_name = "HASH")]
    draw: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Depth {
    Draw,
    Full,
}

impl DepthArgs {
    /// The hash that draws; `None` plays everything.
    pub(crate) fn seed(&self, root: &Path) -> Option<String> {
        match self.depth {
            Depth::Full => None,
            Depth::Draw => self.draw.clone().or_else(|| commit(root)),
        }
    }
}

/// The commit that is checked out. Without git the suites are played whole.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root)
        .output()
        .ok()?;
    let hash = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !hash.is_empty()).then_some(hash)
}

/// What test programs read of a draw. Property tests get their seed from it, too, so that `DRAW` repeats these.
pub(crate) fn environment(seed: Option<&str>) -> Vec<(&'static str, String)> {
    match seed {
        None => vec![("DEPTH", "full".to_owned())],
        Some(seed) => {
            let number = seed
                .bytes()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            vec![
                ("DEPTH", "draw".to_owned()),
                ("DRAW", seed.to_owned()),
                ("PROPTEST_RNG_SEED", number.to_string()),
            ]
        }
    }
}
