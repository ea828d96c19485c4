//! What happens once an artifact has left: its egress is measured, and whoever is told about traffic is told.
//!
//! Bytes count when a socket has taken them. A client that goes away in the middle of a gigabyte is charged for what it got.

use super::service::Service;
use crate::analytics::Action;
use crate::blob::Kind;
use crate::tools::{Place, Tool};
use crate::usage::{Direction, Protocol};
use std::time::Duration;

/// What is known about an artifact on its way out. Making one allocates only if somebody is to be told.
#[derive(Debug)]
pub struct Receipt {
    kind: Kind,
    protocol: Protocol,
    place: Option<Place>,
    told: Option<Box<Told>>,
}

#[derive(Debug)]
struct Told {
    namespace: Box<str>,
    key: Box<[u8]>,
}

impl Service {
    /// The receipt of an artifact that is about to be sent.
    pub fn receipt(&self, kind: Kind, tool: Option<Tool>, namespace: &str, key: &[u8]) -> Receipt {
        let shared = &self.shared;
        let analytics = shared.analytics.wants(kind, namespace);
        let told = (analytics || shared.usage.is_on()).then(|| {
            Box::new(Told {
                namespace: namespace.into(),
                key: if analytics { key.into() } else { Box::default() },
            })
        });
        Receipt {
            kind,
            protocol: if tool == Some(Tool::Reapi) {
                Protocol::Grpc
            } else {
                Protocol::Http
            },
            place: tool.map(|tool| shared.tools.place(tool, namespace)),
            told,
        }
    }

    /// `sent` of `wanted` bytes have left, `took` after the request was understood.
    pub fn sent(&self, receipt: Receipt, sent: u64, wanted: u64, took: Duration) {
        self.shard.egress(receipt.kind, sent, sent == wanted, took);
        if let Some(place) = receipt.place {
            self.shared.tools.sent(place, sent);
        }
        if let Some(told) = receipt.told
            && sent > 0
        {
            let Told { namespace, key } = *told;
            self.shared
                .usage
                .add(Direction::Download, receipt.protocol, receipt.kind, &namespace, sent);
            self.shared
                .analytics
                .tell(Action::Download, receipt.kind, &namespace, &key, sent);
        }
    }
}
