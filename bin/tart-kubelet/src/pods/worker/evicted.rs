//! A Pod that has to go because of the disk.

use jiff::Timestamp;
use russet_pod::facts::Why;
use russet_pod::lifecycle;

use super::Worker;

impl Worker {
    /// Begins the end of the Pod if others say that it has to go. One that ends already is given less time for it.
    pub(super) fn heed(&mut self) {
        let why = self.evictions.borrow_and_update().get(&self.uid).cloned();
        let Some(why) = why else { return };
        let record = &mut self.kept.record;
        if record.finished {
            return;
        }
        let Some(ending) = lifecycle::evicted(&self.pod, &record.facts, why.clone(), Timestamp::now()) else {
            return;
        };
        record.facts.ending = Some(ending);
        self.host.shop.meters.evicted();
        if let Why::Evicted { message } | Why::Exceeded { message } = &why {
            self.tell_once("Evicted", message);
        }
    }
}
