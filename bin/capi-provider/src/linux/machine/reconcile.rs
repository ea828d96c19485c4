//! One reconcile: look until a decision is possible, do the one thing, end.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use russet_controller::Outcome;
use tokio::time::Instant;
use tracing::{debug, error, info};

use super::look::{Looked, Sights};
use super::{Context, Effects, Error, view};
use crate::claims::Claims;
use crate::linux::decide::{Decision, Machine, Seen, decide};
use crate::linux::journal::Journal;
use crate::linux::kind::LinuxKind;
use crate::linux::situation::Situation;
use crate::machine::reconcile::{NOW, fresh_id};
use crate::surroundings::key;
use crate::waiting::Waiting;

/// Time for the event of our own write to arrive, should it take longer than usual.
const ECHO: Duration = Duration::from_secs(2);
/// No decision needs more looks than there are things to look at, twice.
const LOOKS: usize = 16;

pub(super) async fn reconcile<K: LinuxKind>(object: Arc<K>, context: Arc<Context>) -> Result<Outcome, Error> {
    if context.memory.is_stale(&*object) {
        return Ok(Outcome::After(ECHO));
    }
    context.show_phase(&*object, &object.status());
    context.work_on(&*object).await
}

impl Context {
    async fn work_on<K: LinuxKind>(&self, object: &K) -> Result<Outcome, Error> {
        let around = self.surroundings.of(object);
        let uid = object.uid().unwrap_or_default();
        let machine = match view::view(object, &around, self.memory.is_clean(&uid)) {
            Ok(machine) => machine,
            Err(unreadable) => {
                error!(%unreadable, "a record cannot be read");
                return self.rest_unreadable(object, &unreadable).await;
            }
        };
        self.parts.registry.note(&key(object), view::ties(&machine, &around));
        if machine.standing.deleting {
            self.parts.pool.forget(&uid);
        }
        if let Some(Journal { attempt: Some(_), .. }) = &machine.journal {
            self.forget_looks(&machine);
        }
        let mut sights = Sights::default();
        for _ in 0..LOOKS {
            let Some(decision) = self.decide(&machine, &sights) else {
                debug!("the claims were not listed yet");
                return Ok(Outcome::After(Duration::from_millis(200)));
            };
            let decision = match decision {
                Decision::Look(need) => match self.look(object, &machine, need, &mut sights).await? {
                    Looked::Seen => continue,
                    Looked::Wait(outcome) => return Ok(outcome),
                    Looked::Rest(situation) => Decision::Rest(situation),
                },
                decision => decision,
            };
            if self.parts.effects == Effects::DryRun {
                return Ok(self.say(&uid, &decision));
            }
            return match decision {
                Decision::Act(action) => self.act(object, &machine, action, &sights).await,
                Decision::Fly(plan) => self.fly(object, &machine, *plan, &sights).await,
                Decision::Rest(situation) => self.rest(object, &machine, &situation).await,
                Decision::Look(_) => Ok(NOW),
            };
        }
        error!("a decision asked for the same thing again and again");
        Ok(Outcome::After(Duration::from_mins(1)))
    }

    /// None: the claims are not known yet.
    fn decide(&self, machine: &Machine, sights: &Sights) -> Option<Decision> {
        let fresh = fresh_id();
        let zone = self.parts.zones.ask(&machine.zone);
        let zone = zone.read();
        let with = |claims: &Claims, live: bool| {
            decide(
                machine,
                &Seen {
                    project: self.parts.cloud.client().project(),
                    claims,
                    claims_are_live: live,
                    inventory: zone.inventory(),
                    mine: sights.mine.as_deref(),
                    server: sights.server.as_ref(),
                    attachments: sights.attachments.as_deref(),
                    network: sights.network.as_ref(),
                    catalog: sights.catalog.as_ref(),
                    private_address: sights.private_address,
                    config_hash: sights.config_hash.as_deref(),
                    now: self.parts.clock.now(),
                    rules: &self.parts.rules,
                    fresh: &fresh,
                },
            )
        };
        if let Some(claims) = &sights.claims {
            return Some(with(claims, true));
        }
        let claims = self.parts.claims.copy()?;
        Some(with(&claims, false))
    }

    /// A call of this machine may have had an effect that nobody was told of: nothing that was seen before is believed.
    fn forget_looks(&self, machine: &Machine) {
        let worked_on = machine.journal.as_ref().and_then(Journal::server);
        let mut sightings = self.parts.zones.sightings();
        sightings.called(&machine.holder.uid, None, Instant::now());
        for id in [machine.server.as_ref(), machine.provider_server.as_ref(), worked_on]
            .into_iter()
            .flatten()
        {
            sightings.called(&machine.holder.uid, Some(id), Instant::now());
            sightings.forget_attachments(id);
        }
    }

    /// A dry run says what would be done, once.
    fn say(&self, uid: &str, decision: &Decision) -> Outcome {
        let text = match decision {
            Decision::Act(action) => format!("would do: {action:?}"),
            Decision::Fly(plan) => format!("would call Scaleway: {} ({:?})", plan.call.step(), plan.target),
            Decision::Rest(situation) => {
                let said = situation.report(false).condition.message;
                format!("would wait: {}", said.unwrap_or_default())
            }
            Decision::Look(need) => format!("would look at {need:?}"),
        };
        // Ids are drawn anew each time and would make news of everything.
        let stable = match decision {
            Decision::Act(action) => format!("{:?}", std::mem::discriminant(action)),
            Decision::Fly(plan) => format!("{:?} {}", plan.target, plan.call.step()),
            _ => text.clone(),
        };
        if self.memory.is_news(uid, &stable) {
            info!(dry_run = true, "{text}");
        }
        Outcome::After(match decision {
            Decision::Rest(Situation::Waiting(Waiting::Gone)) => Duration::from_mins(10),
            _ => Duration::from_mins(1),
        })
    }
}
