//! What the server counted, from its own metrics.

use std::{collections::BTreeMap, ops::Sub, time::Duration};

use crate::Error;

const READS: &str = "kura_artifact_reads_total_total";
const WRITES: &str = "kura_artifact_writes_total_total";

/// Reads and writes of artifacts, of some producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub hits: u64,
    pub misses: u64,
    /// Artifacts stored.
    pub stored: u64,
    /// Artifacts offered that were there already.
    pub known: u64,
}

impl Counts {
    /// Asks the server.
    pub async fn fetch(base: &str, producers: &[&str]) -> Result<Self, Error> {
        let url = format!("{}/metrics", base.trim_end_matches('/'));
        let failed = |detail: String| Error::Metrics {
            url: url.clone(),
            detail,
        };
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(20))
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let answer = client.get(&url).send().await.map_err(|error| failed(cause(&error)))?;
        if !answer.status().is_success() {
            return Err(failed(format!("it answered {}", answer.status())));
        }
        let text = answer.text().await.map_err(|error| failed(cause(&error)))?;
        Ok(Self::parse(&text, producers))
    }

    fn parse(text: &str, producers: &[&str]) -> Self {
        let mut counts = Self::default();
        for line in text.lines() {
            let Some((name, labels, value)) = sample(line) else {
                continue;
            };
            if !labels
                .get("producer")
                .is_some_and(|producer| producers.contains(producer))
            {
                continue;
            }
            let slot = match (name, labels.get("result").copied()) {
                (READS, Some("hit")) => &mut counts.hits,
                (READS, Some("miss")) => &mut counts.misses,
                (WRITES, Some("created")) => &mut counts.stored,
                (WRITES, Some("exists")) => &mut counts.known,
                _ => continue,
            };
            *slot += value;
        }
        counts
    }
}

impl Sub for Counts {
    type Output = Self;

    /// What happened since.
    fn sub(self, before: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            stored: self.stored.saturating_sub(before.stored),
            known: self.known.saturating_sub(before.known),
        }
    }
}

/// `name{label="value",…} 12`
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, u64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    let labels = labels
        .split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    Some((name, labels, value.trim().parse().ok()?))
}

/// The innermost reason: what people can act on.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_producers_asked_for_are_counted() {
        let text = "# HELP kura_artifact_reads_total_total x\n\
            kura_artifact_reads_total_total{producer=\"gradle\",result=\"hit\"} 3\n\
            kura_artifact_reads_total_total{producer=\"gradle\",result=\"miss\"} 2\n\
            kura_artifact_reads_total_total{producer=\"nx\",result=\"hit\"} 9\n\
            kura_artifact_writes_total_total{producer=\"gradle\",result=\"created\"} 4\n\
            kura_artifact_writes_total_total{producer=\"gradle\",result=\"exists\"} 1\n\
            kura_artifact_write_bytes_total_total{producer=\"gradle\",result=\"created\"} 4096\n";
        let counts = Counts::parse(text, &["gradle"]);
        assert_eq!(
            counts,
            Counts {
                hits: 3,
                misses: 2,
                stored: 4,
                known: 1
            }
        );
        assert_eq!((Counts::parse(text, &["gradle", "nx"]) - counts).hits, 9);
    }
}
