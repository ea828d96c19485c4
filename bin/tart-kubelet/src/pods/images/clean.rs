//! Images that go: after a day without anybody, and earlier when the disk is nearly full. What goes is decided in
//! [`russet_vm::retain`]; here it is found out who needs what, and done.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use russet_api::labels::GOLDEN_PREFIX;
use russet_node::{Resident, ResidentImage};
use russet_pod::spec;
use russet_pod::status::Phase;
use russet_vm::retain::{self, Inventory, Needs};
use russet_vm::{Error, GoldenKey, ImageRef, VmName};

use super::Images;
use super::access::Mark;
use crate::host::disk::ENOUGH;
use crate::ledger::Stage;

/// How long an image stays that nobody needs.
const KEEP: SignedDuration = SignedDuration::from_hours(24);
/// What was asked for so recently is about to be cloned.
const RECENT: SignedDuration = SignedDuration::from_mins(10);
/// How long a look at the host may take.
const LIST: Duration = Duration::from_mins(1);
/// More images than a disk can hold.
const MOST: usize = 64;

impl Images {
    /// Lets go what nobody has needed for a day, and shows what is there.
    pub(crate) async fn tidy(&self) {
        let _turn = self.cleaning.lock().await;
        let mark = self.access.mark();
        let Some(inventory) = self.inventory().await else {
            return;
        };
        let (now, needs) = (Timestamp::now(), self.needs(&inventory));
        let idle = retain::idle(&inventory, &needs, &self.memory.idle(), now);
        let there = inventory.iter().map(|(key, _)| key.clone()).collect();
        self.memory.set_idle(&there, &idle);
        let mut gone = false;
        if !self.keep_unused {
            for key in retain::expired(&idle, KEEP, now) {
                tracing::info!(image = ?self.memory.names(&key), "nobody has needed an image for a day; deleting it");
                gone |= self.delete(&inventory, &key, mark).await;
            }
        }
        if gone {
            self.look().await;
        } else {
            self.show(&inventory);
        }
    }

    /// Makes room on a disk that is nearly full, until there is enough or nothing is left that could go. `refused` says that
    /// something did not fit, whatever the disk says of itself. Whether anything went.
    pub(crate) async fn make_room(&self, refused: bool) -> bool {
        if self.keep_unused {
            return false;
        }
        let _turn = self.cleaning.lock().await;
        let mut gone = false;
        for _ in 0..MOST {
            let enough = self.gauge.look().is_none_or(|disk| disk.has_free(ENOUGH));
            if enough && (gone || !refused) {
                break;
            }
            let mark = self.access.mark();
            let Some(inventory) = self.inventory().await else { break };
            let needs = self.needs(&inventory);
            let idle = retain::idle(&inventory, &needs, &self.memory.idle(), Timestamp::now());
            let Some(key) = retain::next(&inventory, &needs, &idle) else {
                break;
            };
            tracing::info!(image = ?self.memory.names(&key), "the disk is nearly full; deleting an image");
            if !self.delete(&inventory, &key, mark).await {
                break;
            }
            gone = true;
        }
        if gone {
            self.look().await;
        }
        gone
    }

    async fn inventory(&self) -> Option<Inventory> {
        match tokio::time::timeout(LIST, self.runtime.list()).await {
            Ok(Ok(listing)) => Some(Inventory::of(&listing)),
            Ok(Err(error)) => {
                tracing::info!(%error, "the images of the host could not be listed");
                None
            }
            Err(_) => None,
        }
    }

    /// Looks at what is there and shows it.
    pub(crate) async fn look(&self) {
        if let Some(inventory) = self.inventory().await {
            self.show(&inventory);
        }
    }

    fn show(&self, inventory: &Inventory) {
        let images = inventory.iter().filter_map(|(key, base)| {
            let mut names = self.memory.names(key);
            if let Some((image, _)) = base.image.as_ref().filter(|_| names.is_empty()) {
                names.push(image.to_string());
            }
            (!names.is_empty()).then(|| ResidentImage {
                names,
                bytes: base.bytes(),
            })
        });
        let goldens = inventory.iter().filter(|(_, base)| base.golden.is_some());
        let labels = goldens.map(|(key, _)| format!("{GOLDEN_PREFIX}{key}"));
        self.board.set_resident(Resident {
            images: images.collect(),
            labels: labels.collect(),
        });
    }

    /// The two share their blocks, so both go. An image that a VM is just made of says so, and stays. `mark` is older than the
    /// inventory: whose an image is must not be forgotten if it came after that.
    async fn delete(&self, inventory: &Inventory, key: &GoldenKey, mark: Mark) -> bool {
        let Some(base) = inventory.get(key) else { return false };
        let attempt = async {
            if let Some((image, _)) = &base.image {
                self.runtime.remove_image(image).await?;
            }
            if base.golden.is_some() {
                self.runtime.delete(&VmName::from(key.clone())).await?;
            }
            Ok::<(), Error>(())
        };
        match attempt.await {
            Ok(()) => {
                self.access.forget(key, mark);
                self.meters.dropped();
                true
            }
            Err(error) => {
                tracing::warn!(%error, "an image could not be deleted; it is tried again");
                false
            }
        }
    }

    /// Who needs what.
    fn needs(&self, inventory: &Inventory) -> Needs {
        let of_text = |text: &str| {
            let image = ImageRef::parse(text).ok()?;
            match image.pinned() {
                Some(pinned) => Some(GoldenKey::of(&pinned)),
                None => self.memory.meant(&image),
            }
        };
        let vms = self.ledger.all().into_iter();
        let mut in_use: BTreeSet<GoldenKey> = vms
            .filter(|(_, entry)| !matches!(entry.stage, Stage::Deleted(_)))
            .filter_map(|(_, entry)| of_text(&entry.image))
            .collect();
        let recently = Timestamp::now().checked_sub(RECENT).unwrap_or(Timestamp::MIN);
        in_use.extend(self.memory.used_since(recently));
        for image in self.under_way() {
            in_use.extend(self.memory.of_repository(&image));
            let pulled = inventory.iter().filter(|(_, base)| {
                let of = base.image.as_ref().map(|(found, _)| found.to_ref());
                of.is_some_and(|found| found.same_repository(&image))
            });
            in_use.extend(pulled.map(|(key, _)| key.clone()));
        }
        let needed = self.directory.list().into_iter().filter(|shown| !is_over(&shown.pod));
        Needs {
            in_use,
            needed: needed
                .flat_map(|shown| images(&shown.pod))
                .filter_map(|text| of_text(&text))
                .collect(),
            wanted: self.wanted(),
        }
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.and_then(Phase::parse).is_some_and(Phase::is_terminal)
}

/// The images of a Pod, by name and by the digests that were found.
fn images(pod: &Pod) -> Vec<String> {
    let named = spec::containers(pod).filter_map(|(_, container)| container.image.clone());
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
    let statuses = lists.into_iter().flatten().flatten().flatten();
    named.chain(statuses.map(|status| status.image_id.clone())).collect()
}
