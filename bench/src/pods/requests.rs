//! What nodes ask of the API server, counted along its audit log.

use crate::fleet::audit::Line;
use crate::fleet::tail::Tail;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

const NODE: &str = "system:node:";

/// Counts by node and by what was asked, such as `patch leases`.
pub(crate) type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// All requests of nodes so far.
#[derive(Debug)]
pub(crate) struct Requests {
    tail: Tail,
    counts: Counts,
}

impl Requests {
    /// Counts from the beginning of this log.
    pub(crate) fn follow(path: PathBuf) -> Result<Self> {
        Ok(Self {
            tail: Tail::follow(path)?,
            counts: Counts::new(),
        })
    }

    /// Everything up to now.
    pub(crate) fn read(&mut self) -> Result<&Counts> {
        for line in self.tail.lines()? {
            self.count(&line);
        }
        Ok(&self.counts)
    }

    fn count(&mut self, line: &str) {
        let Some(line) = Line::parse(line) else { return };
        let Some(node) = line.user().strip_prefix(NODE) else {
            return;
        };
        // A watch is written down when it begins and when it ends.
        if line.verb == "watch" && line.stage != "ResponseStarted" {
            return;
        }
        let what = line.what();
        if let Some(counts) = self.counts.get_mut(node) {
            *counts.entry(what).or_default() += 1;
        } else {
            self.counts.insert(node.to_owned(), BTreeMap::from([(what, 1)]));
        }
    }
}

/// What came between the two, of all nodes together.
pub(crate) fn between(before: &Counts, after: &Counts) -> BTreeMap<String, usize> {
    let mut sum = BTreeMap::new();
    for (node, counts) in after {
        for (what, count) in counts {
            let known = before.get(node).and_then(|counts| counts.get(what)).copied();
            let more = count.saturating_sub(known.unwrap_or_default());
            if more > 0 {
                *sum.entry(what.clone()).or_default() += more;
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::audit::is_write;
    use std::io::Write as _;

    #[test]
    fn only_nodes_are_counted_and_a_watch_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut line = |user: &str, verb: &str, stage: &str| {
            let object = r#""objectRef":{"resource":"pods","subresource":"status"}"#;
            let user = format!(r#""user":{{"username":"{user}"}}"#);
            writeln!(file, r#"{{"verb":"{verb}","stage":"{stage}",{user},{object}}}"#).unwrap();
        };
        line("system:node:mac-1", "patch", "ResponseComplete");
        let mut requests = Requests::follow(path).unwrap();
        let before = requests.read().unwrap().clone();
        line("system:node:mac-1", "patch", "ResponseComplete");
        line("system:node:mac-2", "patch", "ResponseComplete");
        line("system:node:mac-2", "watch", "ResponseStarted");
        line("system:node:mac-2", "watch", "ResponseComplete");
        line("admin", "patch", "ResponseComplete");
        let counts = between(&before, requests.read().unwrap());
        let wanted = [("patch pods/status".to_owned(), 2), ("watch pods/status".to_owned(), 1)];
        assert_eq!(counts, BTreeMap::from(wanted));
        assert!(is_write("patch pods/status") && !is_write("watch pods"));
    }
}
