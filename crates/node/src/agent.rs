//! Registers the Node and keeps it alive.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::Uri;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Config;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::error::Error;
use crate::identity::{self, Identity, Memory, Store};
use crate::notes::Notes;
use crate::object::{self, Since};
use crate::pace::{Doubt, Pace};
use crate::sight::{Machine, Sight};
use crate::spec::Spec;
use crate::spread::spread;

/// A token or a binding may be newer than what the API server has read; one that is refused this often is worthless, and a machine that
/// has nothing else says so.
const REFUSALS: u32 = 6;
/// A beat that failed is tried again sooner than the next is due.
const SOON: Duration = Duration::from_secs(2);
/// Looking at oneself must not hold up the next beat.
const LOOK: Duration = Duration::from_secs(5);
/// After so much silence others may have written down that we are gone; they are told otherwise.
const SILENCE: Duration = Duration::from_secs(35);
/// A watch without a word for this long is dead: API servers send a bookmark every minute.
const WATCH: Duration = Duration::from_secs(150);
/// Between two attempts to renew a certificate.
const RENEW_AGAIN: Duration = Duration::from_mins(1);

/// How often a Node says that it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// How often the Lease is renewed.
    pub lease: Duration,
    /// How often a status is reported that did not change.
    pub status: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            status: Duration::from_mins(5),
        }
    }
}

/// What an agent tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It did not get into the cluster, and tries again.
    Trying(String),
    /// The Node is there.
    Joined,
    /// The Lease was renewed.
    Renewed,
    /// A beat failed; why.
    Missed(String),
    /// It has a certificate that is good until then.
    Certificate(Option<Timestamp>),
}

/// An agent.
pub struct Agent<'a, M, S> {
    /// What the Node is.
    pub spec: &'a Spec,
    /// How to reach the API server, with credentials that may ask for a certificate.
    pub connection: Config,
    /// Where the API server is by now, if not where the kubeconfig says.
    pub moved: Option<Uri>,
    /// The machine.
    pub machine: &'a M,
    /// What it remembers.
    pub store: &'a S,
    /// How often it says that it lives.
    pub rhythm: Rhythm,
    /// Is told what happens.
    pub news: &'a (dyn Fn(News) + Send + Sync),
}

impl<M, S> std::fmt::Debug for Agent<'_, M, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("spec", self.spec).finish_non_exhaustive()
    }
}

/// Another certificate under way.
type Renewal = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

impl<M: Machine, S: Store> Agent<'_, M, S> {
    /// Is a Node until it is dropped, or until that cannot be. Dropping it anywhere is safe.
    ///
    /// A node that has a certificate is never told to end by an API server that refuses it: that may be the wrong one, or one that was
    /// started wrongly, and says the same to every other node at the same moment.
    pub async fn run(&self) -> Result<Infallible, Error> {
        Box::pin(self.run_at(Pace::default())).await
    }

    /// The same at another pace: tests have no minutes.
    async fn run_at(&self, pace: Pace) -> Result<Infallible, Error> {
        let mut notes = Notes::open(&self.spec.name, self.store);
        let (mut pause, mut refusals, mut doubt) = (pace.first, 0, Doubt::default());
        loop {
            let mut joined = false;
            let lived = self.live(&mut notes, &mut joined).await;
            if joined {
                (pause, refusals, doubt) = (pace.first, 0, Doubt::default());
            }
            // With another certificate.
            let Err(error) = lived else { continue };
            refusals = if error.is_refusal() { refusals + 1 } else { 0 };
            let doubted = doubt.hear(error.code(), Instant::now(), pace.doubt);
            let certified = notes.is_certified();
            if error.is_final() || (refusals >= REFUSALS && !certified) {
                return Err(error);
            }
            if certified && refusals == 1 {
                tracing::warn!(node = self.spec.name, %error, "the API server refuses us; we stay who we are, and try again");
            }
            tracing::debug!(node = self.spec.name, %error, "will try again");
            (self.news)(News::Trying(error.to_string()));
            // Our clock may be wrong, so that a certificate that is over is tried first all the same.
            let over = notes.is_over(Timestamp::now()) && !error.is_known();
            if certified && (doubted || over) {
                match self.ask_anew(&mut notes, pace.grant).await {
                    Ok(true) => doubt = Doubt::default(),
                    Ok(false) => tracing::debug!(node = self.spec.name, "there is no other certificate yet"),
                    Err(refused) => tracing::warn!(
                        node = self.spec.name,
                        %error,
                        %refused,
                        "our certificate is not accepted, and no other was given; both are tried again"
                    ),
                }
            }
            // Those who were refused together come back one by one.
            tokio::time::sleep(if certified { spread(pause) } else { pause }).await;
            pause = (pause * 2).min(pace.longest);
        }
    }

    /// Asks for another certificate as one who has none. The one that is there stays until another was granted: what may ask is a
    /// token that was good for an hour or so, and without either the machine could never come back. Whether there is another.
    async fn ask_anew(&self, notes: &mut Notes<'_, S>, patience: Duration) -> Result<bool, Error> {
        let server = self.connection.cluster_url.to_string();
        let Some(next) = notes.next_key(&server)? else {
            return Ok(false);
        };
        let asker = identity::client(self.way())?;
        // A request that nobody decided about, or that was denied, is found again the next time.
        let Ok(answered) = timeout(patience, identity::ask(asker, &next)).await else {
            return Ok(false);
        };
        notes.succeed(answered?);
        tracing::info!(
            node = self.spec.name,
            "another certificate takes the place of the one before"
        );
        Ok(true)
    }

    /// Once from an identity to its end, or to its successor.
    async fn live(&self, notes: &mut Notes<'_, S>, joined: &mut bool) -> Result<(), Error> {
        let client = self.obtain(notes).await?;
        let mut life = Life {
            agent: self,
            nodes: Api::all(client.clone()),
            leases: Api::namespaced(client.clone(), object::LEASES),
            sight: self.machine.look().await,
            since: Since::default(),
            written: Value::Null,
            labelled: None,
            renewed: None,
            lease: None,
        };
        life.register(notes).await?;
        *joined = true;
        tracing::info!(node = self.spec.name, "joined");
        if let Some(patient) = self.patient(&notes.memory)? {
            self.machine.joined(&client, &patient);
        }
        (self.news)(News::Joined);
        let identity = notes.memory.identity.clone();
        (self.news)(News::Certificate(
            identity.as_ref().and_then(Identity::validity).map(|(_, until)| until),
        ));
        let certificate = life.stay(notes, client).await?;
        notes.succeed(certificate);
        Ok(())
    }

    /// The way to the API server as it is by now.
    fn way(&self) -> Config {
        let mut connection = self.connection.clone();
        if let Some(moved) = &self.moved {
            connection.cluster_url = moved.clone();
        }
        connection
    }

    /// The same client for answers that never end: a watch is silent for longer than anything else may be.
    fn patient(&self, memory: &Memory) -> Result<Option<kube::Client>, Error> {
        let mut connection = self.way();
        connection.read_timeout = Some(WATCH);
        match &memory.identity {
            Some(identity) => identity.client(&connection),
            None => Ok(None),
        }
    }

    /// A client that is the node, after a certificate was asked for and given if there was none.
    async fn obtain(&self, notes: &mut Notes<'_, S>) -> Result<kube::Client, Error> {
        let server = self.connection.cluster_url.to_string();
        notes.forget_others(&server);
        let mut identity = match notes.memory.identity.clone() {
            Some(identity) => identity,
            None => Identity::generate(&self.spec.name, &server)?,
        };
        let connection = self.way();
        if let Some(client) = identity.client(&connection)? {
            return Ok(client);
        }
        notes.memory.identity = Some(identity.clone());
        notes.save().map_err(Error::Store)?;
        let asker = identity::client(connection.clone())?;
        identity.certificate_pem = Some(identity::ask(asker, &identity).await?);
        notes.memory.identity = Some(identity.clone());
        notes.keep();
        let client = identity.client(&connection)?;
        client.ok_or_else(|| Error::Kubeconfig("there is no certificate".to_owned()))
    }
}

/// One identity's life.
struct Life<'a, M, S> {
    agent: &'a Agent<'a, M, S>,
    nodes: Api<Node>,
    leases: Api<Lease>,
    sight: Sight,
    since: Since,
    /// The status that was written last, without the times.
    written: Value,
    /// The labels that were written last; none if those of images are not known.
    labelled: Option<BTreeSet<String>>,
    /// When the Lease was renewed, as it was told.
    renewed: Option<Timestamp>,
    /// The Lease as the API server answered last.
    lease: Option<Lease>,
}

impl<M: Machine, S: Store> Life<'_, M, S> {
    fn name(&self) -> &str {
        &self.agent.spec.name
    }

    /// The time to renew the Lease with.
    fn sign_of_life(&mut self) -> Timestamp {
        let next = object::later(self.renewed, Timestamp::now());
        self.renewed = Some(next);
        next
    }

    /// Makes the Node what it should be, and a Lease for it.
    async fn register(&mut self, notes: &mut Notes<'_, S>) -> Result<(), Error> {
        let now = Timestamp::now();
        let wanted = object::node(self.agent.spec, &self.sight, &mut self.since, now);
        let wanted: Node = serde_json::from_value(wanted).map_err(Error::Unfit)?;
        let node = match self.nodes.create(&PostParams::default(), &wanted).await {
            Ok(node) => {
                self.written = self.timeless();
                node
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.correct(&notes.memory).await?,
            Err(error) => return Err(Error::api("create the Node")(error)),
        };
        self.remember(&mut notes.memory);
        notes.keep();
        let lease = object::lease(&node, self.sign_of_life()).map_err(Error::Unfit)?;
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let owner = json!({"metadata": {"ownerReferences": lease.metadata.owner_references}});
                let there = self
                    .leases
                    .get(self.name())
                    .await
                    .map_err(Error::api("read the Lease"))?;
                let told = there.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
                self.renewed = self.renewed.max(told);
                let mut patch = object::renewal(self.sign_of_life());
                merge(&mut patch, owner);
                self.leases
                    .patch(self.name(), &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .map_err(Error::api("renew the Lease"))?;
                Ok(())
            }
            Err(error) => Err(Error::api("create the Lease")(error)),
        }
    }

    /// Brings a Node up to date that was there already. Its taints are left alone: NodeRestriction forbids them now, and
    /// Cluster API may have taken one away.
    async fn correct(&mut self, memory: &Memory) -> Result<Node, Error> {
        let spec = self.agent.spec;
        let found = self.nodes.get(self.name()).await.map_err(Error::api("read the Node"))?;
        self.since = Since::of(&found);
        let found_id = found.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        let ours = &spec.provider_id;
        if !found_id.is_empty() && !ours.is_empty() && found_id != *ours {
            return Err(Error::ForeignNode {
                name: spec.name.clone(),
                found: found_id,
                ours: ours.clone(),
            });
        }
        let mut patch = self.relabel(memory);
        if found_id.is_empty() && !ours.is_empty() {
            merge(&mut patch, json!({"spec": {"providerID": ours}}));
        }
        self.nodes
            .patch(self.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(Error::api("correct the Node"))?;
        self.report().await
    }

    fn labels(&self) -> BTreeMap<String, String> {
        object::labels(self.agent.spec, &self.sight)
    }

    /// The patch that makes the labels so. Only what this agent put there is its own to take away; core and administrators label
    /// Nodes, too.
    fn relabel(&self, memory: &Memory) -> Value {
        let wanted = self.labels();
        let stale = memory.labels.iter().filter(|key| !wanted.contains_key(*key));
        // What is on the machine may still be there.
        let stale = stale.filter(|_| self.sight.resident.is_some());
        let mut labels: Map<String, Value> = stale.map(|key| (key.clone(), Value::Null)).collect();
        labels.extend(wanted.into_iter().map(|(key, value)| (key, value.into())));
        json!({"metadata": {"labels": labels}})
    }

    /// Which labels are on the Node by our doing.
    fn remember(&mut self, memory: &mut Memory) {
        let wanted: BTreeSet<String> = self.labels().into_keys().collect();
        if self.sight.resident.is_some() {
            memory.labels.clone_from(&wanted);
            self.labelled = Some(wanted);
        } else {
            memory.labels.extend(wanted);
        }
    }

    /// Follows what is on the machine with its labels.
    async fn label(&mut self, notes: &mut Notes<'_, S>) -> Result<(), Error> {
        let wanted: BTreeSet<String> = self.labels().into_keys().collect();
        if self.sight.resident.is_none() || self.labelled.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let patch = Patch::Merge(self.relabel(&notes.memory));
        // Remembered before it is there: what nobody remembers is never taken off.
        notes.memory.labels.extend(wanted.iter().cloned());
        if !notes.keep() {
            tracing::debug!(
                node = self.name(),
                "the Node is labelled later: that could not be written down"
            );
            return Ok(());
        }
        self.nodes
            .patch(self.name(), &PatchParams::default(), &patch)
            .await
            .map_err(Error::api("label the Node"))?;
        notes.memory.labels.clone_from(&wanted);
        self.labelled = Some(wanted);
        // What is written down is too much at worst.
        notes.keep();
        Ok(())
    }

    /// The status as it is now, for comparison: times are no news.
    fn timeless(&self) -> Value {
        object::status(
            self.agent.spec,
            &self.sight,
            &mut Since::default(),
            Timestamp::UNIX_EPOCH,
        )
    }

    async fn report(&mut self) -> Result<Node, Error> {
        let status = object::status(self.agent.spec, &self.sight, &mut self.since, Timestamp::now());
        let patch = Patch::Strategic(object::report(status));
        let node = self
            .nodes
            .patch_status(self.name(), &PatchParams::default(), &patch)
            .await
            .map_err(Error::api("report the status of the Node"))?;
        self.written = self.timeless();
        Ok(node)
    }

    /// Keeps the Node alive. Ends with another certificate, or when the API server no longer knows the node.
    async fn stay(&mut self, notes: &mut Notes<'_, S>, client: kube::Client) -> Result<String, Error> {
        let rhythm = self.agent.rhythm;
        let mut beat = tokio::time::interval_at(Instant::now() + rhythm.lease, rhythm.lease);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Those who joined together do not report together from then on.
        let mut report_at = Instant::now() + spread(rhythm.status);
        let mut heard = Timestamp::now();
        let renew_at = notes.memory.identity.as_ref().and_then(Identity::renew_at);
        let mut renewal: Option<Renewal> = None;
        // Until it is there again: the Lease alone would not tell.
        let mut deleted = false;
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                () = self.agent.machine.deleted() => {
                    tracing::info!(node = self.name(), "the Node is gone, registering again");
                    deleted = true;
                }
                renewed = async { match &mut renewal { Some(renewal) => renewal.await, None => std::future::pending().await } } => {
                    renewal = None;
                    match renewed {
                        Ok(certificate) => return Ok(certificate),
                        Err(error) => {
                            tracing::warn!(node = self.name(), %error, "the certificate was not renewed; it is tried again");
                            // Another key: the request of this one was decided about.
                            notes.memory.next = None;
                        }
                    }
                    continue;
                }
            }
            notes.settle();
            let now = Timestamp::now();
            if renewal.is_none() && renew_at.is_some_and(|at| now >= at) {
                renewal = self.renewal(notes, client.clone())?;
            }
            let silent = now.duration_since(heard).unsigned_abs() > SILENCE;
            let done = if deleted {
                self.register(notes).await.map(|()| true)
            } else {
                self.beat(notes, Instant::now() >= report_at || silent).await
            };
            match done {
                Ok(reported) => {
                    deleted = false;
                    heard = now;
                    if reported {
                        report_at = Instant::now() + rhythm.status;
                    }
                    (self.agent.news)(News::Renewed);
                }
                Err(error) if error.is_refusal() || error.is_final() => return Err(error),
                // The API server may be away for a while.
                Err(error) => {
                    tracing::debug!(node = self.name(), %error, "a heartbeat failed");
                    (self.agent.news)(News::Missed(error.to_string()));
                    beat.reset_after(SOON.min(rhythm.lease));
                }
            }
        }
    }

    /// Asks for the next certificate as the node itself. None while its key cannot be written down; the next beat tries again.
    fn renewal(&self, notes: &mut Notes<'_, S>, client: kube::Client) -> Result<Option<Renewal>, Error> {
        let server = self.agent.connection.cluster_url.to_string();
        let Some(next) = notes.next_key(&server)? else {
            return Ok(None);
        };
        tracing::info!(node = self.name(), "asking for the next certificate");
        let renewal: Renewal = Box::pin(async move {
            let asked = identity::ask(client, &next).await;
            if asked.is_err() {
                tokio::time::sleep(RENEW_AGAIN).await;
            }
            asked
        });
        Ok(Some(renewal))
    }

    /// Renews the Lease. A whole Lease costs the API server less than a patch of one, and this is most of what nodes ask of it.
    async fn renew(&mut self) -> Result<Lease, Error> {
        let now = self.sign_of_life();
        if let Some(lease) = self.lease.take() {
            let params = PostParams::default();
            match self
                .leases
                .replace(self.name(), &params, &object::renewed(lease, now))
                .await
            {
                // Somebody else changed it, or took it away; a patch tells which.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                renewed => return renewed.map_err(Error::api("renew the Lease")),
            }
        }
        let patch = Patch::Merge(object::renewal(now));
        let renewed = self.leases.patch(self.name(), &PatchParams::default(), &patch).await;
        renewed.map_err(Error::api("renew the Lease"))
    }

    /// Renews the Lease, and reports the status if it is due or changed. Whether it was reported.
    async fn beat(&mut self, notes: &mut Notes<'_, S>, due: bool) -> Result<bool, Error> {
        match self.renew().await {
            Ok(lease) => self.lease = Some(lease),
            Err(error) if error.is_not_found() => {
                tracing::info!(node = self.name(), "the Lease is gone, registering again");
                self.register(notes).await?;
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        if let Ok(sight) = timeout(LOOK, self.agent.machine.look()).await {
            self.sight = sight;
        }
        match self.label(notes).await {
            Err(error) if error.is_not_found() => {
                self.register(notes).await?;
                return Ok(true);
            }
            labelled => labelled?,
        }
        if !due && self.timeless() == self.written {
            return Ok(false);
        }
        match self.report().await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => self.register(notes).await?,
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Adds the top-level fields of `more`.
fn merge(patch: &mut Value, more: Value) {
    if let (Value::Object(patch), Value::Object(more)) = (patch, more) {
        patch.extend(more);
    }
}

#[cfg(test)]
mod tests;
