//! What the kernel lets run. [facts 2]
//!
//! Overwriting a program in place while it executes poisons the file: whatever is executed from that inode later is killed,
//! though its signature is valid, until another inode takes its name. Programs that launchd starts are run from a copy, kept by
//! content and shared by all Macs, since Linux refuses to write to a file that is being executed, and macOS does not.
//!
//! Only what launchd starts is checked: a program that a shell starts is run by Linux, which knows no signatures.

use super::signing::{self, Inspected};
use super::tree::{Identity, Stamp, Tree};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// What the kernel remembers about files.
#[derive(Debug, Default)]
pub(super) struct Amfi {
    /// Files in execution, with what they looked like when they were started. They are held open, so that their inode is not
    /// given to another file meanwhile.
    executing: HashMap<Identity, Executing>,
    poisoned: HashMap<Identity, File>,
    seen: HashMap<Identity, (Stamp, Inspected)>,
    /// Processes that were killed for their signature.
    pub(super) kills: u32,
}

#[derive(Debug)]
struct Executing {
    file: File,
    stamp: Stamp,
    count: u32,
}

/// What happens to an attempt to execute a file.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It runs, from this copy; none for a script, which is run where it is.
    Runs {
        copy: Option<String>,
        cdhash: Option<String>,
        file: Option<Identity>,
    },
    Killed,
}

impl Amfi {
    /// Judges a program, and counts it as executing if it may run.
    pub(super) fn execute(&mut self, tree: &Tree, program: &str, copies: &Path) -> io::Result<Verdict> {
        let meta = tree.meta(program).ok_or(io::ErrorKind::NotFound)?;
        let identity = meta.identity;
        self.look_at(identity);
        if self.poisoned.contains_key(&identity) {
            return Ok(Verdict::Killed);
        }
        let mut file = tree.open_read(program)?;
        let inspected = self.inspect(identity, meta.stamp, &mut file)?;
        if inspected.signature == signing::Signature::NoCode {
            return Ok(Verdict::Runs {
                copy: None,
                cdhash: None,
                file: None,
            });
        }
        if !inspected.signature.runs() {
            return Ok(Verdict::Killed);
        }
        let copy = keep(&file, &inspected.digest, program, copies)?;
        let cdhash = inspected.signature.cdhash().map(str::to_owned);
        self.executing
            .entry(identity)
            .or_insert(Executing {
                file,
                stamp: meta.stamp,
                count: 0,
            })
            .count += 1;
        Ok(Verdict::Runs {
            copy: Some(copy),
            cdhash,
            file: Some(identity),
        })
    }

    /// The signature of a program, without executing it.
    pub(super) fn cdhash(&mut self, tree: &Tree, program: &str) -> Option<String> {
        let meta = tree.meta(program)?;
        let mut file = tree.open_read(program).ok()?;
        let inspected = self.inspect(meta.identity, meta.stamp, &mut file).ok()?;
        inspected.signature.cdhash().map(str::to_owned)
    }

    fn inspect(&mut self, identity: Identity, stamp: Stamp, file: &mut File) -> io::Result<Inspected> {
        match self.seen.get(&identity) {
            Some((seen, inspected)) if *seen == stamp => Ok(inspected.clone()),
            _ => {
                let inspected = signing::inspect(file)?;
                self.seen.insert(identity, (stamp, inspected.clone()));
                Ok(inspected)
            }
        }
    }

    /// A process of this file ended.
    pub(super) fn ended(&mut self, identity: Identity) {
        self.look_at(identity);
        if let Some(executing) = self.executing.get_mut(&identity) {
            executing.count = executing.count.saturating_sub(1);
            if executing.count == 0 {
                self.executing.remove(&identity);
            }
        }
    }

    /// Notices that a file was written to while it executes.
    fn look_at(&mut self, identity: Identity) {
        let Some(executing) = self.executing.get(&identity) else {
            return;
        };
        if Tree::stamp_of(&executing.file).is_some_and(|now| now != executing.stamp)
            && let Ok(file) = executing.file.try_clone()
        {
            self.poisoned.insert(identity, file);
        }
    }

    /// A reboot forgets what was executing, and what was poisoned with it. [guess]
    pub(super) fn reboot(&mut self) {
        self.executing.clear();
        self.poisoned.clear();
    }
}

/// Keeps a copy by content, under the name of the program, and says where it is inside. Another process writes it: while this one had
/// it open to write, any process it starts at that moment would have it open too, and Linux would not execute it.
fn keep(file: &File, digest: &str, program: &str, copies: &Path) -> io::Result<String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let folder = copies.join(digest);
    let target = folder.join(name);
    if !target.exists() {
        std::fs::create_dir_all(&folder)?;
        let temporary = folder.join(format!(".{name}.{}", std::process::id()));
        let status = Command::new("cp")
            .args(["--", "/dev/stdin"])
            .arg(&temporary)
            .stdin(file.try_clone()?)
            .status()?;
        if !status.success() {
            return Err(io::Error::other("a program could not be copied"));
        }
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&temporary, &target)?;
    }
    Ok(format!("{}/{digest}/{name}", super::system::EXECUTABLES))
}
