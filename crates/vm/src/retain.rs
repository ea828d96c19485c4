//! Which images stay on a host, and which go. Pure: what is there, who needs it and how full the disk is are arguments.
//!
//! A pulled image and the golden base made of it share their blocks, so to delete one of them frees nothing: both stay or both go.
//! Together they are a [`Base`], known by its [`GoldenKey`].
//!
//! ```text
//!   in use (a VM was cloned from it, or is about to be) ─────▶ stays, whatever the disk says
//!   needed (a Pod here names it), wanted (to be here early) ─▶ stays, unless the disk is nearly full
//!   neither, for longer than a day ──────────────────────────▶ goes
//!   disk nearly full ─▶ one after the other: needed by nobody, then wanted, then needed; the last one stays
//! ```

use crate::image::Pinned;
use crate::name::{GoldenKey, VmName};
use crate::runtime::{Listing, Owner};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// An image on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The size of the golden base, if there is one.
    pub golden: Option<u64>,
    /// The pulled image and its size, if it is there.
    pub image: Option<(Pinned, u64)>,
}

impl Base {
    /// What it takes on the disk; the two share their blocks.
    pub fn bytes(&self) -> u64 {
        let image = self.image.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.golden.unwrap_or(0).max(image)
    }
}

/// Everything that could go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<GoldenKey, Base>);

impl Inventory {
    /// What a listing tells. VMs of Pods and those of others are not in it, so no decision can be about them.
    pub fn of(listing: &Listing) -> Self {
        let mut bases: BTreeMap<GoldenKey, Base> = BTreeMap::new();
        for vm in &listing.vms {
            if let Owner::Ours(VmName::Golden(key)) = &vm.owner {
                bases.entry(key.clone()).or_default().golden = Some(vm.bytes);
            }
        }
        for found in &listing.images {
            let base = bases.entry(GoldenKey::of(&found.image)).or_default();
            base.image = Some((found.image.clone(), found.bytes));
        }
        Self(bases)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&GoldenKey, &Base)> {
        self.0.iter()
    }

    /// One of them.
    pub fn get(&self, key: &GoldenKey) -> Option<&Base> {
        self.0.get(key)
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Who needs which image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// VMs are there that were made of them, or are just being made.
    pub in_use: BTreeSet<GoldenKey>,
    /// Pods here name them.
    pub needed: BTreeSet<GoldenKey>,
    /// They are to be here before a Pod comes.
    pub wanted: BTreeSet<GoldenKey>,
}

impl Needs {
    fn any(&self, key: &GoldenKey) -> bool {
        self.in_use.contains(key) || self.needed.contains(key) || self.wanted.contains(key)
    }
}

/// Since when nobody needs which image. Outlives the agent, or a host that is updated daily would keep everything.
pub type Idle = BTreeMap<GoldenKey, Timestamp>;

/// Brings up to date since when nobody needs what is there.
pub fn idle(inventory: &Inventory, needs: &Needs, before: &Idle, now: Timestamp) -> Idle {
    let since = |key: &GoldenKey| {
        // A time that has not come was written by a clock that has gone back.
        let known = before.get(key).copied().filter(|since| *since <= now);
        (key.clone(), known.unwrap_or(now))
    };
    let unneeded = inventory.iter().map(|(key, _)| key).filter(|key| !needs.any(key));
    unneeded.map(since).collect()
}

/// What goes because nobody has needed it for so long.
pub fn expired(idle: &Idle, keep: SignedDuration, now: Timestamp) -> Vec<GoldenKey> {
    let over = |since: &Timestamp| now.duration_since(*since) >= keep;
    let mut old: Vec<_> = idle.iter().filter(|(_, since)| over(since)).collect();
    old.sort_by_key(|(_, since)| **since);
    old.into_iter().map(|(key, _)| key.clone()).collect()
}

/// What goes next on a disk that is nearly full, and nothing if all the rest has to stay. Asked again after each, with a new look
/// at the host.
pub fn next(inventory: &Inventory, needs: &Needs, idle: &Idle) -> Option<GoldenKey> {
    let rank = |key: &GoldenKey| match () {
        () if needs.in_use.contains(key) => None,
        () if needs.needed.contains(key) => Some(2),
        () if needs.wanted.contains(key) => Some(1),
        () => Some(0),
    };
    let last = inventory.iter().count() <= 1;
    let free = inventory.iter().filter_map(|(key, base)| {
        let rank = rank(key)?;
        // The next Pod is most likely to need what the last ones did.
        if rank == 2 && last {
            return None;
        }
        let since = idle.get(key).copied().unwrap_or(Timestamp::MAX);
        Some((rank, since, std::cmp::Reverse(base.bytes()), key))
    });
    free.min().map(|(_, _, _, key)| key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageRef;
    use crate::name::PodVm;
    use crate::runtime::{Image, Listed};
    use proptest::prelude::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn image(number: u8) -> Pinned {
        let text = format!("ghcr.io/acme/mac@sha256:{}", format!("{number:02x}").repeat(32));
        ImageRef::parse(&text).unwrap().pinned().unwrap()
    }

    fn key(number: u8) -> GoldenKey {
        GoldenKey::of(&image(number))
    }

    fn inventory(numbers: impl IntoIterator<Item = u8>) -> Inventory {
        let vms = numbers.into_iter().map(|number| Listed {
            owner: Owner::Ours(key(number).into()),
            running: false,
            bytes: 72,
            accessed: None,
        });
        Inventory::of(&Listing {
            vms: vms.collect(),
            images: Vec::new(),
        })
    }

    #[test]
    fn a_base_and_its_image_are_one_and_vms_are_none() {
        let pod = PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap();
        let vm = |owner| Listed {
            owner,
            running: true,
            bytes: 72,
            accessed: None,
        };
        let found = Inventory::of(&Listing {
            vms: vec![
                vm(Owner::Ours(key(1).into())),
                vm(Owner::Ours(pod.into())),
                vm(Owner::Foreign("packer".to_owned())),
            ],
            images: vec![Image {
                image: image(1),
                bytes: 80,
                accessed: None,
            }],
        });
        assert_eq!(found.iter().count(), 1);
        let base = found.get(&key(1)).unwrap();
        assert_eq!((base.golden, base.bytes()), (Some(72), 80));
    }

    #[test]
    fn what_nobody_needs_goes_after_a_day_and_not_before() {
        let (there, nobody) = (inventory([1, 2]), Needs::default());
        let first = idle(&there, &nobody, &Idle::new(), at(0));
        let later = idle(&there, &nobody, &first, at(86_399));
        assert_eq!(expired(&later, DAY, at(86_399)), []);
        assert_eq!(expired(&later, DAY, at(86_400)).len(), 2);
        // Somebody needed it in between, so its day begins anew.
        let needs = Needs {
            needed: [key(1)].into(),
            ..Needs::default()
        };
        let needed = idle(&there, &needs, &later, at(86_399));
        let again = idle(&there, &nobody, &needed, at(86_400));
        assert_eq!(expired(&again, DAY, at(86_400)), [key(2)]);
    }

    #[test]
    fn a_clock_that_went_back_makes_nothing_older() {
        let there = inventory([1]);
        let future = Idle::from([(key(1), at(900_000))]);
        let now = idle(&there, &Needs::default(), &future, at(100));
        assert_eq!(now[&key(1)], at(100));
    }

    #[test]
    fn on_a_full_disk_what_nobody_needs_goes_first_and_the_oldest_of_it() {
        let there = inventory([1, 2, 3, 4]);
        let needs = Needs {
            in_use: BTreeSet::new(),
            needed: [key(3)].into(),
            wanted: [key(4)].into(),
        };
        let idle = Idle::from([(key(1), at(20)), (key(2), at(10))]);
        let mut left: Vec<u8> = vec![1, 2, 3, 4];
        let mut gone = Vec::new();
        while let Some(next) = next(&inventory(left.clone()), &needs, &idle) {
            let number = *left.iter().find(|number| key(**number) == next).unwrap();
            left.retain(|other| *other != number);
            gone.push(number);
        }
        assert_eq!(gone, [2, 1, 4], "of {there:?} the one that is needed stays as the last");
    }

    proptest! {
        /// Whatever is there, is needed and was remembered: what is in use never goes, what goes is there, and it comes to an end.
        #[test]
        fn what_is_in_use_stays(
            there in proptest::collection::btree_set(0_u8..12, 0..12),
            in_use in proptest::collection::btree_set(0_u8..12, 0..4),
            needed in proptest::collection::btree_set(0_u8..12, 0..6),
            wanted in proptest::collection::btree_set(0_u8..12, 0..6),
            remembered in proptest::collection::btree_map(0_u8..12, 0_i64..200_000, 0..12),
            now in 0_i64..400_000,
        ) {
            let keys = |numbers: &BTreeSet<u8>| numbers.iter().map(|number| key(*number)).collect::<BTreeSet<_>>();
            let needs = Needs { in_use: keys(&in_use), needed: keys(&needed), wanted: keys(&wanted) };
            let before: Idle = remembered.iter().map(|(number, since)| (key(*number), at(*since))).collect();
            let since = idle(&inventory(there.clone()), &needs, &before, at(now));
            for old in expired(&since, DAY, at(now)) {
                prop_assert!(!needs.any(&old));
                prop_assert!(keys(&there).contains(&old));
            }
            let mut left = there.clone();
            let mut worst = 0;
            while let Some(next) = next(&inventory(left.clone()), &needs, &since) {
                let number = left.iter().copied().find(|number| key(*number) == next);
                prop_assert!(number.is_some());
                prop_assert!(!needs.in_use.contains(&next));
                let rank = if needs.needed.contains(&next) { 2 } else { u8::from(needs.wanted.contains(&next)) };
                prop_assert!(rank >= worst);
                worst = rank;
                left.retain(|other| Some(*other) != number);
            }
            prop_assert!(there.intersection(&in_use).all(|number| left.contains(number)));
            if there.intersection(&needed).next().is_some() {
                prop_assert!(!left.is_empty());
            }
        }
    }
}
