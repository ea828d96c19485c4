//! One reconcile: look until a decision is possible, do the one thing, end.

use std::sync::Arc;
use std::time::Duration;

use russet_controller::Outcome;
use tracing::{debug, error, info};

use super::look::{Looked, Sights};
use super::view;
use super::{Context, Effects, Error, Mac};
use crate::claims::Claims;
use crate::decide::{Action, Decision, Machine, Seen, decide};
use crate::situation::Situation;
use crate::surroundings::key;

/// Time for the event of our own write to arrive, should it take longer than usual.
const ECHO: Duration = Duration::from_secs(2);
/// No decision needs more looks than there are things to look at, twice.
const LOOKS: usize = 8;

/// At once, as far as a queue goes.
pub(crate) const NOW: Outcome = Outcome::After(Duration::from_millis(1));

/// An id that was never used.
pub(crate) fn fresh_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

pub(super) async fn reconcile(mac: Arc<Mac>, context: Arc<Context>) -> Result<Outcome, Error> {
    if context.memory.is_stale(&*mac) {
        return Ok(Outcome::After(ECHO));
    }
    context.show_phase(&mac, &mac.status.clone().unwrap_or_default());
    context.work_on(&mac).await
}

impl Context {
    async fn work_on(&self, mac: &Mac) -> Result<Outcome, Error> {
        let around = self.surroundings.of(mac);
        let uid = mac.metadata.uid.clone().unwrap_or_default();
        let cleaned = self.memory.is_clean(&uid);
        let machine = match view::view(mac, &around, self.parts.default_pool.as_ref(), cleaned) {
            Ok(machine) => machine,
            Err(unreadable) => {
                error!(%unreadable, "a record cannot be read");
                return self.rest_unreadable(mac, &unreadable).await;
            }
        };
        self.parts.registry.note(&key(mac), view::ties(&machine, &around));
        if machine.standing.deleting {
            // Nobody has use for it any more, and a host that is wiped should not be worked on.
            self.parts.pool.forget(&uid);
        }
        let mut sights = Sights::default();
        for _ in 0..LOOKS {
            let Some(decision) = self.decide(&machine, &sights) else {
                debug!("the claims were not listed yet");
                return Ok(Outcome::After(Duration::from_millis(200)));
            };
            let decision = match decision {
                Decision::Look(need) => match self.look(mac, &machine, need, &mut sights).await? {
                    Looked::Seen => continue,
                    Looked::Wait(outcome) => return Ok(outcome),
                    Looked::Trouble(error) => Decision::Rest(Situation::Scaleway(error)),
                },
                decision => decision,
            };
            if self.parts.effects == Effects::DryRun {
                return Ok(self.say(mac, &decision));
            }
            return match decision {
                Decision::Act(action) => self.act(mac, &machine, action, &sights).await,
                Decision::Fly(plan) => self.fly(mac, &machine, *plan).await,
                Decision::Rest(situation) => self.rest(mac, &machine, &situation).await,
                Decision::Look(_) => Ok(NOW),
            };
        }
        error!("a decision asked for the same thing again and again");
        Ok(Outcome::After(Duration::from_mins(1)))
    }

    /// None: the claims are not known yet.
    fn decide(&self, machine: &Machine, sights: &Sights) -> Option<Decision> {
        let fresh = fresh_id();
        let zone = self.parts.inventories.ask(&machine.zone);
        let zone = zone.read();
        let with = |claims: &Claims, live: bool| {
            decide(
                machine,
                &Seen {
                    project: self.parts.scaleway.project(),
                    claims,
                    claims_are_live: live,
                    inventory: sights.inventory.then(|| zone.inventory()).flatten(),
                    host: sights.host.as_ref(),
                    images: sights.images.as_deref().map(Vec::as_slice),
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

    /// A dry run says what would be done, once.
    fn say(&self, mac: &Mac, decision: &Decision) -> Outcome {
        let text = match decision {
            Decision::Act(Action::RecordHost(host)) => format!("would note host {} ({})", host.id, host.name),
            Decision::Act(action) => format!("would do: {action:?}"),
            Decision::Fly(plan) => format!("would call Scaleway for {}: {:?}", plan.journal.server, plan.call),
            Decision::Rest(situation) => format!(
                "would wait: {}",
                situation.report(false).condition.message.unwrap_or_default()
            ),
            Decision::Look(need) => format!("would look at {need:?}"),
        };
        // Ids are drawn anew each time and would make news of everything.
        let stable = match decision {
            Decision::Act(action) => format!("{:?}", std::mem::discriminant(action)),
            Decision::Fly(plan) => format!("{} {:?}", plan.journal.server, plan.attempt.step),
            _ => text.clone(),
        };
        if self
            .memory
            .is_news(mac.metadata.uid.as_deref().unwrap_or_default(), &stable)
        {
            info!(dry_run = true, "{text}");
        }
        Outcome::After(Duration::from_mins(1))
    }
}
