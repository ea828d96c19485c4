//! Usage events: how many bytes went in and out, per namespace and protocol, for the control plane.
//!
//! Counts gather in windows. A closed window becomes events in an outbox on disk, from which they are delivered until the
//! control plane has accepted them; it drops what it already knows by event id, so delivering twice is harmless. The window
//! still open when the process ends is closed early and kept too; of a process that is killed, what was last flushed. Windows begin with the process and not at round seconds, so
//! the next process cannot reuse an id.

mod delivery;

pub use delivery::{Outbox, deliver};

use crate::blob::Kind;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Which way bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To a client.
    Download,
    /// From a client.
    Upload,
}

/// How a client spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// One of the HTTP protocols.
    Http,
    /// The Remote Execution API.
    Grpc,
}

impl Protocol {
    fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

type Bucket = (Direction, Protocol, Kind, Box<str>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sum {
    bytes: u64,
    requests: u64,
}

/// The counts of the window that is open.
#[derive(Debug)]
pub struct Ledger {
    open: Option<Mutex<HashMap<Bucket, Sum>>>,
    max_buckets: usize,
}

/// One closed counter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the control plane's")]
pub struct Event {
    event_id: String,
    tenant_id: String,
    namespace_id: String,
    window_start_unix_seconds: u64,
    window_seconds: u64,
    node_id: String,
    region: String,
    traffic_plane: String,
    direction: String,
    operation: String,
    protocol: String,
    artifact_kind: String,
    bytes: u64,
    request_count: u64,
}

/// Who reports.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// Name of the node.
    pub node_id: String,
    /// The account.
    pub tenant_id: String,
    /// The region.
    pub region: String,
}

impl Ledger {
    /// A ledger nobody reads: counting costs nothing.
    pub fn off() -> Self {
        Self {
            open: None,
            max_buckets: 0,
        }
    }

    /// A ledger with at most that many counters per window.
    pub fn on(max_buckets: usize) -> Self {
        Self {
            open: Some(Mutex::default()),
            max_buckets,
        }
    }

    /// Whether anybody reads it.
    pub fn is_on(&self) -> bool {
        self.open.is_some()
    }

    /// Counts one request.
    pub fn add(&self, direction: Direction, protocol: Protocol, kind: Kind, namespace: &str, bytes: u64) {
        let Some(open) = &self.open else { return };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let full = open.len() >= self.max_buckets;
        let bucket = (direction, protocol, kind, Box::from(namespace));
        let sum = if full {
            match open.get_mut(&bucket) {
                Some(sum) => sum,
                None => return,
            }
        } else {
            open.entry(bucket).or_default()
        };
        sum.bytes += bytes;
        sum.requests += 1;
    }

    /// What the open window would say if it were closed now; it stays open.
    pub fn so_far(&self, reporter: &Reporter, start: u64, seconds: u64) -> Vec<Event> {
        let Some(open) = &self.open else { return Vec::new() };
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter()
            .map(|(bucket, sum)| event(reporter, start, seconds, bucket, *sum))
            .collect()
    }

    /// Closes the window that began at `start` and lasted `seconds`.
    pub fn close(&self, reporter: &Reporter, start: u64, seconds: u64) -> Vec<Event> {
        let Some(open) = &self.open else { return Vec::new() };
        let counts = std::mem::take(&mut *open.lock().unwrap_or_else(PoisonError::into_inner));
        counts
            .into_iter()
            .map(|(bucket, sum)| event(reporter, start, seconds, &bucket, sum))
            .collect()
    }
}

fn event(reporter: &Reporter, start: u64, seconds: u64, bucket: &Bucket, sum: Sum) -> Event {
    let (direction, protocol, kind, namespace) = bucket;
    let protocol = protocol.word();
    let (direction, operation) = match direction {
        Direction::Download => ("egress", "download"),
        Direction::Upload => ("ingress", "upload"),
    };
    // Key-value documents belong to Xcode's cache.
    let artifact_kind = if *kind == Kind::KeyValue {
        "xcode"
    } else {
        kind.producer()
    };
    let marker = if *kind == Kind::KeyValue {
        "xcode-keyvalue"
    } else {
        artifact_kind
    };
    Event {
        event_id: format!(
            "{}:{start}:{}:{namespace}:public:{direction}:{operation}:{protocol}:{marker}",
            reporter.node_id, reporter.tenant_id
        ),
        tenant_id: reporter.tenant_id.clone(),
        namespace_id: namespace.to_string(),
        window_start_unix_seconds: start,
        window_seconds: seconds,
        node_id: reporter.node_id.clone(),
        region: reporter.region.clone(),
        traffic_plane: "public".to_owned(),
        direction: direction.to_owned(),
        operation: operation.to_owned(),
        protocol: protocol.to_owned(),
        artifact_kind: artifact_kind.to_owned(),
        bytes: sum.bytes,
        request_count: sum.requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> Reporter {
        Reporter {
            node_id: "node-1".to_owned(),
            tenant_id: "acme".to_owned(),
            region: "eu".to_owned(),
        }
    }

    #[test]
    fn a_window_becomes_one_event_per_counter() {
        let ledger = Ledger::on(10);
        ledger.add(Direction::Download, Protocol::Http, Kind::Gradle, "ios", 100);
        ledger.add(Direction::Download, Protocol::Http, Kind::Gradle, "ios", 50);
        let events = ledger.close(&reporter(), 1000, 60);
        assert_eq!(events.len(), 1);
        let id = "node-1:1000:acme:ios:public:egress:download:http:gradle";
        assert_eq!(events[0].event_id, id);
        assert_eq!((events[0].bytes, events[0].request_count), (150, 2));
        let again = ledger.close(&reporter(), 1060, 60);
        assert!(again.is_empty(), "closing empties the window");
    }

    #[test]
    fn what_was_stored_by_one_protocol_and_read_by_another_is_told_apart() {
        let ledger = Ledger::on(10);
        ledger.add(Direction::Download, Protocol::Http, Kind::Cas, "ios", 1);
        ledger.add(Direction::Download, Protocol::Grpc, Kind::Cas, "ios", 2);
        let mut events = ledger.close(&reporter(), 1, 1);
        events.sort_by_key(|event| event.bytes);
        let told: Vec<_> = events.iter().map(|event| event.protocol.as_str()).collect();
        assert_eq!(told, ["http", "grpc"]);
        assert_ne!(events[0].event_id, events[1].event_id);
    }

    #[test]
    fn a_flood_of_namespaces_is_bounded() {
        let ledger = Ledger::on(2);
        for name in ["a", "b", "c", "a"] {
            ledger.add(Direction::Upload, Protocol::Http, Kind::Nx, name, 1);
        }
        let events = ledger.close(&reporter(), 1, 1);
        assert_eq!(events.len(), 2);
        assert_eq!(events.iter().map(|event| event.request_count).sum::<u64>(), 3);
    }
}
