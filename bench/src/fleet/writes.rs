//! Who wrote what to the API server, counted along its audit log.
//!
//! A thousand Macs renew a hundred Leases a second, so the log is read once, as it grows, and never as a whole; it is followed when it
//! is exchanged for a new one.

use super::audit::Line;
use super::tail::Tail;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Counts by what was done.
pub(crate) type Counts = BTreeMap<String, usize>;

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Writer {
    Provider,
    Core,
    Macs,
    Others,
}

impl Writer {
    fn of(user: &str, provider: &str) -> Self {
        if user == provider {
            Self::Provider
        } else if user.ends_with(":capi-manager") || user.ends_with(":capi-remote") {
            Self::Core
        } else if user.starts_with("system:node:") || user.starts_with("system:bootstrap:") {
            Self::Macs
        } else {
            Self::Others
        }
    }
}

/// All writes so far.
#[derive(Debug)]
pub(crate) struct Writes {
    tail: Tail,
    provider: String,
    counts: BTreeMap<Writer, Counts>,
}

impl Writes {
    /// Counts from the beginning of this log.
    pub(crate) fn follow(path: PathBuf, provider: &str) -> Result<Self> {
        Ok(Self {
            tail: Tail::follow(path)?,
            provider: provider.to_owned(),
            counts: BTreeMap::new(),
        })
    }

    /// Everything up to now, by writer.
    pub(crate) fn read(&mut self) -> Result<&BTreeMap<Writer, Counts>> {
        for line in self.tail.lines()? {
            self.count(&line);
        }
        Ok(&self.counts)
    }

    fn count(&mut self, line: &str) {
        let Some(line) = Line::parse(line).filter(Line::is_write) else {
            return;
        };
        let what = line.what();
        let writer = Writer::of(line.user(), &self.provider);
        *self.counts.entry(writer).or_default().entry(what).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;

    fn line(user: &str, verb: &str) -> String {
        format!(r#"{{"verb":"{verb}","user":{{"username":"{user}"}},"objectRef":{{"resource":"things"}}}}"#)
    }

    fn total(log: &mut Writes, by: Writer) -> usize {
        log.read().unwrap().get(&by).map_or(0, |counts| counts.values().sum())
    }

    /// The log of a thousand Macs outgrew its limit in the middle of a run, and the counts began anew from nothing.
    #[test]
    fn a_log_is_followed_as_it_grows_and_when_it_is_exchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::create(&path).unwrap();
        writeln!(file, "{}", line("us", "patch")).unwrap();
        write!(file, "{}", &line("us", "create")[..20]).unwrap();
        let mut writes = Writes::follow(path.clone(), "us").unwrap();
        assert_eq!(total(&mut writes, Writer::Provider), 1, "half a line does not count");
        writeln!(file, "{}", &line("us", "create")[20..]).unwrap();
        assert_eq!(total(&mut writes, Writer::Provider), 2);

        writeln!(file, "{}", line("system:node:mac-1", "patch")).unwrap();
        std::fs::rename(&path, dir.path().join("old.jsonl")).unwrap();
        let mut file = File::create(&path).unwrap();
        writeln!(file, "{}", line("us", "get")).unwrap();
        writeln!(file, "{}", line("us", "delete")).unwrap();
        assert_eq!(total(&mut writes, Writer::Provider), 3, "reads are no writes");
        assert_eq!(total(&mut writes, Writer::Macs), 1, "the end of the old one");
    }

    #[test]
    fn writers_are_told_apart_by_their_names() {
        let of = |user| Writer::of(user, "system:serviceaccount:p:capi-provider");
        assert_eq!(of("system:serviceaccount:p:capi-provider"), Writer::Provider);
        assert_eq!(of("system:serviceaccount:capi-system:capi-manager"), Writer::Core);
        assert_eq!(of("system:serviceaccount:default:capi-remote"), Writer::Core);
        assert_eq!(of("system:bootstrap:abcdef"), Writer::Macs);
        assert_eq!(of("system:apiserver"), Writer::Others);
    }
}
