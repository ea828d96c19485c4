//! `chown` and `ls` of a Mac without root. The kernel knows one user there and cannot give a file away, so whose it is stands in an
//! extended attribute: `chown` writes it, and `ls -ld` tells it. A file without one is root's, as a new file of root would be.
//!
//! It is what scripts see, and no more: nobody is kept from a file by it.

use super::Said;
use super::bsd::linux;
use crate::macos::inside::{self, Desk};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

const ATTRIBUTE: &str = "user.sim-mac.owner";
const ROOT: &str = "root:wheel";
/// An owner is two short names.
const LONGEST: usize = 256;

/// `chown [-R] owner[:group] file...`
pub(super) fn chown(desk: &Desk) -> Said {
    let words = desk.words();
    let (deep, rest) = match words.as_slice() {
        ["-R", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let [owner, paths @ ..] = rest else {
        return Said::unknown(1, "usage: chown [-fhnvx] [-R [-H | -L | -P]] owner[:group] file ...\n");
    };
    if paths.is_empty() || owner.starts_with('-') {
        return Said::unknown(1, "usage: chown [-fhnvx] [-R [-H | -L | -P]] owner[:group] file ...\n");
    }
    let owner = match Owner::parse(owner, &accounts("/etc/passwd"), &accounts("/etc/group")) {
        Ok(owner) => owner,
        Err(error) => return Said::err(1, format!("chown: {error}\n")),
    };
    let mut said = Said::silent();
    for path in paths {
        let given = if inside::claimed_uid() == 0 {
            give(Path::new(path), &owner, deep)
        } else {
            Err(Errno::PERM.into())
        };
        if let Err(error) = given {
            said.code = 1;
            said.err = format!("{}chown: {path}: {error}\n", said.err);
        }
    }
    said
}

/// `ls`, which tells the owner of one file; a list is left as Linux has it.
pub(super) fn ls(desk: &Desk) -> Said {
    let mut said = linux("ls", &desk.args);
    let (flags, paths): (Vec<&str>, Vec<&str>) = desk.words().into_iter().partition(|word| word.starts_with('-'));
    let flags = flags.concat();
    if let ([path], true, true) = (paths.as_slice(), flags.contains('l'), flags.contains('d'))
        && let Some(owner) = owner_of(Path::new(path))
    {
        said.out = told(&String::from_utf8_lossy(&said.out), &owner).into_bytes();
    }
    said
}

/// The names of a file such as /etc/passwd.
fn accounts(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(':').next());
    names.map(str::to_owned).collect()
}

/// Whom a file is given to; what is not named stays.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    user: Option<String>,
    group: Option<String>,
}

impl Owner {
    fn parse(text: &str, users: &[String], groups: &[String]) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let known = |name: &str, all: &[String], kind: &str| match name {
            "" => Ok(None),
            name if all.iter().any(|known| known == name) => Ok(Some(name.to_owned())),
            name => Err(format!("{name}: illegal {kind} name")),
        };
        Ok(Self {
            user: known(user, users, "user")?,
            group: known(group, groups, "group")?,
        })
    }

    /// What a file that was somebody's is afterwards.
    fn over(&self, before: &str) -> String {
        let (user, group) = before.split_once(':').unwrap_or(("root", "wheel"));
        let (user, group) = (
            self.user.as_deref().unwrap_or(user),
            self.group.as_deref().unwrap_or(group),
        );
        format!("{user}:{group}")
    }
}

fn give(path: &Path, owner: &Owner, deep: bool) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    // A link can have no attribute, and nobody asks whose it is.
    if deep && meta.is_symlink() {
        return Ok(());
    }
    let now = owner.over(owner_of(path).as_deref().unwrap_or(ROOT));
    let kept = match rustix::fs::setxattr(path, ATTRIBUTE, now.as_bytes(), XattrFlags::empty()) {
        // What is root's needs no attribute, where a disk has none.
        Err(Errno::OPNOTSUPP) if now == ROOT => Ok(()),
        other => other,
    };
    kept?;
    if deep && meta.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner, deep)?;
        }
    }
    Ok(())
}

fn owner_of(path: &Path) -> Option<String> {
    let mut buffer = vec![0; LONGEST];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, buffer.as_mut_slice()).ok()?;
    buffer.truncate(length);
    String::from_utf8(buffer).ok()
}

/// A line of `ls -l` with another owner in it.
fn told(line: &str, owner: &str) -> String {
    let mut rest = line;
    let mut fields = Vec::new();
    for _ in 0..4 {
        let trimmed = rest.trim_start();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (field, after) = trimmed.split_at(end);
        fields.push(field);
        rest = after;
    }
    match fields.as_slice() {
        [mode, links, _, group] if !group.is_empty() => format!("{mode} {links} {}{rest}", owner.replace(':', " ")),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_owner_is_somebody_the_mac_knows() {
        let (users, groups) = (names(&["root", "m1"]), names(&["wheel", "staff"]));
        let parse = |text: &str| Owner::parse(text, &users, &groups);
        assert_eq!(parse("m1:staff").unwrap().over(ROOT), "m1:staff");
        assert_eq!(parse("m1").unwrap().over(ROOT), "m1:wheel");
        assert_eq!(parse(":staff").unwrap().over("m1:wheel"), "m1:staff");
        assert_eq!(parse("nobody").unwrap_err(), "nobody: illegal user name");
        assert_eq!(parse("m1:nobody").unwrap_err(), "nobody: illegal group name");
    }

    #[test]
    fn only_the_owner_of_a_line_changes() {
        let line = "drwx------  2 root wheel 4096 Nov 18 13:00 /Users/m1/two  words\n";
        assert_eq!(
            told(line, "m1:staff"),
            "drwx------ 2 m1 staff 4096 Nov 18 13:00 /Users/m1/two  words\n"
        );
        assert_eq!(told("ls: no\n", "m1:staff"), "ls: no\n");
    }

    #[test]
    fn what_was_given_away_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let owner = |user: &str| Owner {
            user: Some(user.to_owned()),
            group: None,
        };
        if give(dir.path(), &owner("m1"), true).is_err() {
            // This disk keeps no attributes; `russet up` has stand-ins there.
            return;
        }
        assert_eq!(owner_of(&file).as_deref(), Some("m1:wheel"));
        give(&file, &owner("root"), false).unwrap();
        assert_eq!(owner_of(&file).as_deref(), Some(ROOT));
    }
}
