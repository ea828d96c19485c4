//! Events and the phase metric: what people hear about a machine besides its status.

use kube::Resource as _;
use kube::runtime::events::{Event, EventType};
use russet_api::ScalewayAppleSiliconMachineStatus as Status;
use russet_api::machine::Phase;
use tracing::debug;

use super::{Context, Mac};
use crate::surroundings::key;

impl Context {
    /// Something went as it should.
    pub(super) async fn good_news(&self, mac: &Mac, reason: &str, note: String) {
        self.tell(mac, EventType::Normal, reason, note).await;
    }

    /// Something did not.
    pub(super) async fn bad_news(&self, mac: &Mac, reason: &str, note: String) {
        self.tell(mac, EventType::Warning, reason, note).await;
    }

    async fn tell(&self, mac: &Mac, type_: EventType, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // An event that is lost is no reason to do anything twice.
        if let Err(error) = self.recorder.publish(&event, &mac.object_ref(&())).await {
            debug!(%error, reason, "an event could not be written");
        }
    }

    /// Shows the phase to whoever scrapes.
    pub(super) fn show_phase(&self, mac: &Mac, status: &Status) {
        let phase = status.phase.clone().unwrap_or(Phase::Pending);
        let fleet = mac.spec.fleet_name.as_deref().unwrap_or_default();
        let failure = status.failure_reason.as_deref().unwrap_or_default();
        self.parts.metrics.phase(&key(mac), fleet, phase.as_str(), failure);
    }
}
