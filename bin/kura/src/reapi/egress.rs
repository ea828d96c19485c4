//! Bytes of blobs that leave in an answer, counted when they have left and not when they were promised.

use crate::http::egress::Receipt;
use crate::http::service::Service;
use std::time::Instant;

/// What is counted when an answer is over, however that comes about.
#[derive(Debug)]
pub(super) struct Egress {
    service: Service,
    receipt: Option<Receipt>,
    since: Instant,
    sent: u64,
    is_whole: bool,
}

impl Egress {
    pub(super) fn new(service: &Service, receipt: Receipt) -> Self {
        Self {
            service: service.clone(),
            receipt: Some(receipt),
            since: Instant::now(),
            sent: 0,
            is_whole: false,
        }
    }

    /// So many bytes were handed to the connection.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// That was all.
    pub(super) fn end(&mut self) {
        self.is_whole = true;
        self.settle();
    }

    fn settle(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            let wanted = if self.is_whole { self.sent } else { u64::MAX };
            self.service.sent(receipt, self.sent, wanted, self.since.elapsed());
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.settle();
    }
}
