//! Counters at one moment, and what came between two.

use super::writes::{Counts, Writer, Writes};
use anyhow::{Context, Result};
use russet::process;
use russet_stages::macs::Fleet;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Count {
    at: Instant,
    cpu: Duration,
    memory: u64,
    writes: BTreeMap<Writer, Counts>,
    calls: Calls,
}

/// Calls to Scaleway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// About one host.
    pub(crate) own: Counts,
    /// Lists that all Machines share: hosts, images, prices, keys.
    pub(crate) shared: Counts,
}

/// Parameters by which a list is one Machine's.
const NARROWING: [&str; 3] = ["tags", "server_id", "resource_id"];

impl Calls {
    fn add(&mut self, method: &str, path: &str, query: &str) {
        let is_id = |part: &str| part.len() == 36 && part.bytes().filter(|byte| *byte == b'-').count() == 4;
        let parts: Vec<&str> = path.split('/').collect();
        let last = parts.last().copied().unwrap_or_default();
        let what = match parts.iter().rposition(|part| is_id(part)) {
            Some(at) if at + 1 == parts.len() => {
                format!(
                    "{method} {}/{{id}}",
                    parts.get(at.saturating_sub(1)).copied().unwrap_or_default()
                )
            }
            _ => format!("{method} {last}"),
        };
        // A list for one Machine is no list that all share, and neither is an order.
        let narrowed = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| NARROWING.contains(name));
        let what = match narrowed {
            Some((name, _)) => format!("{what}?{name}"),
            None => what,
        };
        let orders = method == "POST" && last == "servers";
        let kind = if orders || narrowed.is_some() || parts.iter().any(|part| is_id(part)) {
            &mut self.own
        } else {
            &mut self.shared
        };
        *kind.entry(what).or_default() += 1;
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            own: difference(&before.own, &self.own),
            shared: difference(&before.shared, &self.shared),
        }
    }
}

impl Count {
    pub(crate) fn take(fleet: &Fleet, writes: &mut Writes) -> Result<Self> {
        let pid = fleet.provider_pid().context("the provider does not run any more")?;
        let usage = process::usage(pid).context("the provider's use could not be read")?;
        let mut calls = Calls::default();
        for entry in fleet.sim.handle().journal() {
            calls.add(&entry.method, &entry.path, &entry.query);
        }
        Ok(Self {
            at: Instant::now(),
            cpu: usage.cpu,
            memory: usage.memory,
            writes: writes.read()?.clone(),
            calls,
        })
    }

    /// What the provider used so far, for people who wait.
    pub(crate) fn sentence(&self) -> String {
        let sum = |counts: &Counts| counts.values().sum::<usize>();
        format!(
            "{:.1} s of processor time, {} MiB, {} calls and {} of the poll, {} writes",
            self.cpu.as_secs_f64(),
            self.memory >> 20,
            sum(&self.calls.own),
            sum(&self.calls.shared),
            self.provider_writes()
        )
    }

    /// Writes of the provider so far.
    pub(crate) fn provider_writes(&self) -> usize {
        self.writes
            .get(&Writer::Provider)
            .map_or(0, |counts| counts.values().sum())
    }
}

/// What a stage took.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// At its end.
    pub(crate) memory: u64,
    pub(crate) writes: BTreeMap<Writer, Counts>,
    pub(crate) calls: Calls,
}

impl Stage {
    pub(crate) fn between(before: &Count, after: &Count) -> Self {
        let none = Counts::new();
        let writes = after.writes.iter().map(|(writer, counts)| {
            let old = before.writes.get(writer).unwrap_or(&none);
            (*writer, difference(old, counts))
        });
        Self {
            wall: after.at.saturating_duration_since(before.at),
            cpu: after.cpu.saturating_sub(before.cpu),
            memory: after.memory,
            writes: writes.collect(),
            calls: after.calls.since(&before.calls),
        }
    }

    pub(crate) fn written_by(&self, writer: Writer) -> usize {
        self.writes.get(&writer).map_or(0, |counts| counts.values().sum())
    }
}

fn difference(before: &Counts, after: &Counts) -> Counts {
    let since = |(name, count): (&String, &usize)| {
        let more = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, usize)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn only_what_came_since_is_counted() {
        let since = difference(
            &counts(&[("GET a", 2), ("GET b", 1)]),
            &counts(&[("GET a", 5), ("GET b", 1), ("PUT c", 1)]),
        );
        assert_eq!(since, counts(&[("GET a", 3), ("PUT c", 1)]));
    }

    #[test]
    fn calls_about_a_host_are_told_from_those_that_all_share() {
        let id = "2d9c0b1e-1111-4222-8333-444455556666";
        let base = "/apple-silicon/v1alpha1/zones/fr-par-1/servers";
        let mut calls = Calls::default();
        let project = format!("project_id={id}&page=1");
        calls.add("GET", base, &project);
        calls.add("GET", "/apple-silicon/v1alpha1/zones/fr-par-1/os", "");
        calls.add("GET", &format!("{base}/{id}"), "");
        calls.add("PATCH", &format!("{base}/{id}"), "");
        calls.add("POST", &format!("{base}/{id}/reinstall"), "");
        calls.add("POST", base, "");
        calls.add("GET", base, &format!("{project}&tags=machine%3D1"));
        assert_eq!(calls.shared, counts(&[("GET servers", 1), ("GET os", 1)]));
        let own = [
            ("GET servers/{id}", 1),
            ("PATCH servers/{id}", 1),
            ("POST reinstall", 1),
            ("POST servers", 1),
            ("GET servers?tags", 1),
        ];
        assert_eq!(calls.own, counts(&own));
    }
}
