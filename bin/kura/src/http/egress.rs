//! What happens once an artifact has left: its egress is measured, and whoever is told about traffic is told.
//!
//! Bytes count when a socket has taken them. A client that goes away in the middle of a gigabyte is charged for what it got.

use super::service::Service;
use crate::analytics::Action;
use crate::blob::Kind;
use crate::usage::Direction;
use std::time::Duration;

/// What is known about an artifact on its way out. Making one allocates only if somebody is to be told.
#[derive(Debug)]
pub struct Receipt {
    kind: Kind,
    told: Option<Box<Told>>,
}

#[derive(Debug)]
struct Told {
    namespace: Box<str>,
    key: Box<[u8]>,
}

impl Service {
    /// The receipt of an artifact that is about to be sent.
    pub fn receipt(&self, kind: Kind, namespace: &str, key: &[u8]) -> Receipt {
        let shared = &self.shared;
        let analytics = shared.analytics.wants(kind, namespace);
        let told = (analytics || shared.usage.is_on()).then(|| {
            Box::new(Told {
                namespace: namespace.into(),
                key: if analytics { key.into() } else { Box::default() },
            })
        });
        Receipt { kind, told }
    }

    /// `sent` of `wanted` bytes have left, `took` after the request was understood.
    pub fn sent(&self, receipt: Receipt, sent: u64, wanted: u64, took: Duration) {
        self.shard.egress(receipt.kind, sent, sent == wanted, took);
        if let Some(told) = receipt.told
            && sent > 0
        {
            let Told { namespace, key } = *told;
            self.shared
                .usage
                .add(Direction::Download, receipt.kind, &namespace, sent);
            self.shared
                .analytics
                .tell(Action::Download, receipt.kind, &namespace, &key, sent);
        }
    }
}
