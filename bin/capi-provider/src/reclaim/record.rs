//! The claim for an orphan, with the record of what is done to it.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use russet_api::machine::Intent;
use russet_api::values::Zone;
use tracing::error;

use crate::claims::Holder;
use crate::claims_store::{ClaimStore, render, selector};
use crate::journal::Journal;
use crate::orphans::RECLAIMER;

/// What is being done, as in `status.intent` of a machine.
const INTENT: &str = "scaleway.tuist.dev/intent";
/// Where the host is.
const ZONE: &str = "scaleway.tuist.dev/zone";

/// A claim for an orphan.
#[derive(Clone, Debug)]
pub(super) struct Record {
    lease: Lease,
    pub(super) zone: Zone,
    pub(super) journal: Journal,
}

fn holds(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder == Some(RECLAIMER)
}

fn parse(lease: Lease) -> Result<Record, String> {
    let text = |key: &str| lease.annotations().get(key).ok_or_else(|| format!("no {key}"));
    let zone = text(ZONE)?.parse().map_err(|error| format!("{ZONE}: {error}"))?;
    let intent: Intent = serde_json::from_str(text(INTENT)?).map_err(|error| format!("{INTENT}: {error}"))?;
    let journal = Journal::try_from(&intent).map_err(|error| error.to_string())?;
    Ok(Record { lease, zone, journal })
}

/// All that were begun. One that cannot be read is left alone, and its host with it.
pub(super) async fn all(claims: &ClaimStore) -> Result<Vec<Record>, kube::Error> {
    let list = claims.api().list(&ListParams::default().labels(&selector())).await?;
    let mut records = Vec::new();
    for lease in list.items.into_iter().filter(holds) {
        let name = lease.name_any();
        match parse(lease) {
            Ok(record) => records.push(record),
            Err(why) => error!(
                lease = name,
                why, "the claim for an orphan cannot be read; remove it if its host is free"
            ),
        }
    }
    Ok(records)
}

fn put(lease: &mut Lease, journal: &Journal) {
    // Made of strings and numbers, which can always be rendered.
    let intent = serde_json::to_string(&Intent::from(journal)).unwrap_or_default();
    lease.annotations_mut().insert(INTENT.to_owned(), intent);
}

/// Claims a host, which only one can. None: there is a claim already.
pub(super) async fn create(
    claims: &ClaimStore,
    zone: &Zone,
    name: &str,
    journal: Journal,
) -> Result<Option<Record>, kube::Error> {
    let holder = Holder {
        uid: RECLAIMER.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    let mut lease = render(&journal.server, &holder, &journal.id, Timestamp::now());
    lease.annotations_mut().insert(ZONE.to_owned(), zone.to_string());
    put(&mut lease, &journal);
    match claims.api().create(&PostParams::default(), &lease).await {
        Ok(lease) => Ok(Some(Record {
            lease,
            zone: zone.clone(),
            journal,
        })),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the record, if the claim is still as it was read. None: it is not.
pub(super) async fn write(
    claims: &ClaimStore,
    record: &Record,
    journal: Journal,
) -> Result<Option<Record>, kube::Error> {
    let mut lease = record.lease.clone();
    put(&mut lease, &journal);
    let name = lease.name_any();
    match claims.api().replace(&name, &PostParams::default(), &lease).await {
        Ok(lease) => Ok(Some(Record {
            lease,
            zone: record.zone.clone(),
            journal,
        })),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
