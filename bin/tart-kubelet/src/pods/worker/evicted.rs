//! A Pod that has to go because of the disk.

use jiff::Timestamp;
use russet_pod::evict::GRACE;
use russet_pod::facts::{Ending, Why};
use russet_pod::lifecycle;

use super::Worker;

impl Worker {
    /// Begins the end of the Pod if others say that it has to go. One that ends already goes on with that.
    pub(super) fn heed(&mut self) {
        let why = self.evictions.borrow_and_update().get(&self.uid).cloned();
        let Some(why) = why else { return };
        let record = &mut self.kept.record;
        let over = record.finished || record.facts.ending.is_some();
        if over || lifecycle::outcome(&self.pod, &record.facts).is_some() {
            return;
        }
        record.facts.ending = Some(Ending::new(why.clone(), GRACE, Timestamp::now()));
        self.host.shop.meters.evicted();
        if let Why::Evicted { message } | Why::Exceeded { message } = &why {
            self.tell_once("Evicted", message);
        }
    }
}
