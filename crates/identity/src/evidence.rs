//! What is known about a credential, and the decision that follows from it. Pure: no clock, no network, no lock.
//!
//! Everything others say about a credential (its signed claims, its introspection, its list of projects) is about the
//! credential, not about one request. So that is what is remembered, and each decision is computed from it: a hundred
//! projects of one token need one question, and a refused token is forgotten in one place.
//!
//! ```text
//!  age of an answer   0 ──────────── 30 s ─────────────────── 60 s ──────►
//!  it allows          allow           allow, ask again behind   ask first, 503 if nobody answers
//!  it does not        repeat for 3 s, then ask again
//! ```

use std::time::{Duration, Instant};

use crate::clock::Moment;
use crate::config::Memory;
use crate::denial::{Denial, Refusal};
use crate::grants::Grants;
use crate::jwt::{self, Signed};
use crate::observer::{Route, Stage};
use crate::scope::{Access, Scope};

pub(crate) const INVALID: Denial = Denial::fixed(Refusal::Unauthenticated, "The token is not valid");
pub(crate) const UNAVAILABLE: Denial = Denial::fixed(
    Refusal::Unavailable,
    "The control plane that knows this token cannot be reached; try again",
);
const UNANSWERABLE: Denial = Denial::fixed(
    Refusal::Unavailable,
    "This node has no client credentials to ask about access to an account; name a project",
);
pub(crate) const PAYMENT: Denial = Denial::fixed(Refusal::PaymentRequired, "Payment required");
pub(crate) const FORBIDDEN: Denial = Denial::fixed(Refusal::Forbidden, "The token does not grant this access");

/// Whom there is to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Nobody,
    /// `/api/cache/access` only.
    AccessOnly,
    /// Introspection, then `/api/cache/access`.
    Both,
}

/// What does not change between decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) memory: Memory,
    pub(crate) backing: Backing,
    /// A good signature alone is not enough.
    pub(crate) introspect_signed: bool,
}

/// An answer of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The token is known, with these rights.
    Holds { grants: Grants, expires: Option<u64> },
    /// The token is not valid (any more).
    Rejected,
}

#[derive(Debug)]
struct Evidence {
    /// When the question was sent; an answer cannot be younger than that.
    asked: Instant,
    /// When the answer came.
    answered: Instant,
    /// From when on it allows nothing.
    until: Instant,
    answer: Answer,
}

impl Evidence {
    fn grants(&self) -> Option<&Grants> {
        match &self.answer {
            Answer::Holds { grants, .. } => Some(grants),
            Answer::Rejected => None,
        }
    }

    fn live(&self, now: Instant) -> Option<&Grants> {
        self.grants().filter(|_| now < self.until)
    }

    /// Whether its refusal is still repeated.
    fn recent(&self, now: Instant, rules: &Rules) -> bool {
        now < self.answered + rules.memory.refusal
    }

    fn is_due(&self, now: Instant, rules: &Rules) -> bool {
        now >= self.asked + rules.memory.refresh_after
    }
}

#[derive(Debug)]
enum Local {
    /// Whatever others say, not beyond its own end.
    Unknown {
        until: Option<Instant>,
    },
    Valid {
        grants: Grants,
        until: Instant,
    },
    Refused(Denial),
}

/// Everything known about one credential.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Which keys the signature was checked with.
    generation: u64,
    checked: Instant,
    local: Local,
    introspection: Option<Evidence>,
    access: Option<Evidence>,
    unreachable_until: Option<Instant>,
    /// The control plane refused it, so its signature alone does not count any more.
    distrusted: bool,
}

/// What follows from an entry for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Allow { stage: Stage, refresh: Option<Route> },
    Deny { stage: Stage, denial: Denial },
    Ask(Route),
}

impl Entry {
    pub(crate) fn new(signed: Signed, now: Moment, generation: u64) -> Self {
        Self {
            generation,
            checked: now.instant,
            local: match signed {
                Signed::Unknown { until } => Local::Unknown {
                    until: until.map(|until| after_seconds(now, until)),
                },
                Signed::Refused(denial) => Local::Refused(denial),
                // From here on the monotonic clock counts: setting the wall clock back prolongs nothing.
                Signed::Valid { grants, until } => Local::Valid {
                    grants,
                    until: after_seconds(now, until),
                },
            },
            introspection: None,
            access: None,
            unreachable_until: None,
            distrusted: false,
        }
    }

    /// Whether the signature check behind this entry still stands. A refused token is looked at again after a while,
    /// since it may not have been valid *yet*.
    pub(crate) fn stands(&self, generation: u64, now: Instant, rules: &Rules) -> bool {
        self.generation == generation
            && !(matches!(self.local, Local::Refused(_)) && now >= self.checked + rules.memory.refusal)
    }

    /// Whether anyone ever vouched for the credential. Entries of strangers are the first to be forgotten.
    pub(crate) fn vouched(&self) -> bool {
        let held = |e: &Option<Evidence>| e.as_ref().is_some_and(|e| e.grants().is_some());
        matches!(self.local, Local::Valid { .. }) || held(&self.introspection) || held(&self.access)
    }

    /// Takes in an answer.
    pub(crate) fn learn(&mut self, route: Route, asked: Moment, now: Moment, answer: Answer, rules: &Rules) {
        self.unreachable_until = None;
        let mut until = asked.instant + rules.memory.revocation;
        match &answer {
            Answer::Holds { expires, .. } => {
                self.distrusted = false;
                if let Some(expires) = expires {
                    until = until.min(after_seconds(now, *expires));
                }
            }
            Answer::Rejected => {
                self.distrusted = true;
                self.introspection = None;
                self.access = None;
            }
        }
        let evidence = Some(Evidence {
            asked: asked.instant,
            answered: now.instant,
            until,
            answer,
        });
        match route {
            Route::Introspect => self.introspection = evidence,
            Route::Access => self.access = evidence,
        }
    }

    /// Takes in that nobody answered.
    pub(crate) fn learn_silence(&mut self, now: Instant, rules: &Rules) {
        self.unreachable_until = Some(now + rules.memory.back_off);
    }

    /// The decision.
    pub(crate) fn judge(&self, scope: &Scope<'_>, access: Access, now: Instant, rules: &Rules) -> Judgement {
        let deny = |stage: Stage, denial: Denial| Judgement::Deny { stage, denial };
        let signed = match &self.local {
            Local::Refused(denial) => return deny(Stage::Jwt, denial.clone()),
            Local::Valid { until, .. } if now >= *until => return deny(Stage::Jwt, jwt::EXPIRED),
            Local::Valid { grants, .. } => Some(grants),
            Local::Unknown { until } if until.is_some_and(|until| now >= until) => {
                return deny(Stage::Jwt, jwt::EXPIRED);
            }
            Local::Unknown { .. } => None,
        };
        let local = !self.distrusted && signed.is_some_and(|grants| grants.permit(scope, access));
        let must_introspect = rules.introspect_signed && signed.is_some();
        if local && !must_introspect {
            return Judgement::Allow {
                stage: Stage::Jwt,
                refresh: None,
            };
        }
        if let Some(judgement) = self.allowed(scope, access, now, rules, local, must_introspect) {
            return judgement;
        }
        if rules.backing == Backing::Nobody {
            return match signed {
                Some(_) => deny(Stage::Jwt, self.insufficient(scope)),
                None => deny(Stage::Jwt, INVALID),
            };
        }
        if self.backs_off(now) {
            return deny(Stage::Backend, UNAVAILABLE);
        }
        self.ask_or_deny(scope, now, rules, must_introspect)
    }

    fn backs_off(&self, now: Instant) -> bool {
        self.unreachable_until.is_some_and(|until| now < until)
    }

    /// An allow by what the control plane said, if it said so recently enough.
    fn allowed(
        &self,
        scope: &Scope<'_>,
        access: Access,
        now: Instant,
        rules: &Rules,
        local: bool,
        must_introspect: bool,
    ) -> Option<Judgement> {
        // One 401 voids everything else that is remembered.
        if self.access.as_ref().is_some_and(|e| e.answer == Answer::Rejected) {
            return None;
        }
        let backs_off = self.backs_off(now);
        let introspection = self.introspection.as_ref().and_then(|e| Some((e, e.live(now)?)));
        if let Some((evidence, grants)) = introspection
            && (grants.permit(scope, access) || (must_introspect && local))
        {
            return Some(Judgement::Allow {
                stage: Stage::Introspection,
                refresh: (!backs_off && evidence.is_due(now, rules)).then_some(Route::Introspect),
            });
        }
        if must_introspect && introspection.is_none() {
            return None;
        }
        let (evidence, grants) = self.access.as_ref().and_then(|e| Some((e, e.live(now)?)))?;
        grants.permit(scope, access).then(|| Judgement::Allow {
            stage: Stage::Access,
            refresh: (!backs_off && evidence.is_due(now, rules)).then_some(Route::Access),
        })
    }

    /// Nothing allows it: the next question, or a refusal once all have been answered lately.
    fn ask_or_deny(&self, scope: &Scope<'_>, now: Instant, rules: &Rules, must_introspect: bool) -> Judgement {
        let deny = |stage: Stage, denial: Denial| Judgement::Deny { stage, denial };
        let recent = |evidence: &Option<Evidence>| -> Option<bool> {
            let evidence = evidence.as_ref().filter(|e| e.recent(now, rules))?;
            Some(evidence.answer == Answer::Rejected)
        };
        let access = recent(&self.access);
        if access == Some(true) {
            return deny(Stage::Access, INVALID);
        }
        if rules.backing == Backing::Both {
            match recent(&self.introspection) {
                None => return Judgement::Ask(Route::Introspect),
                // Introspection need not know every kind of token; whether this one is good for a project, the
                // other endpoint has the last word on.
                Some(true) if must_introspect || scope.project().is_none() => {
                    return deny(Stage::Introspection, INVALID);
                }
                Some(_) => {}
            }
        }
        match (scope.project(), access) {
            (Some(_), None) => Judgement::Ask(Route::Access),
            (Some(_), Some(_)) => deny(Stage::Access, self.insufficient(scope)),
            (None, _) if rules.backing == Backing::Both => deny(Stage::Introspection, self.insufficient(scope)),
            (None, _) => deny(Stage::Backend, UNANSWERABLE),
        }
    }

    /// 402 or 403: payment is spoken of only where grants do not suffice.
    fn insufficient(&self, scope: &Scope<'_>) -> Denial {
        let unpaid = |grants: &Grants| grants.payment_required(scope.account());
        let said = |evidence: &Option<Evidence>| evidence.as_ref().and_then(Evidence::grants).is_some_and(unpaid);
        let signed = matches!(&self.local, Local::Valid { grants, .. } if unpaid(grants));
        if signed || said(&self.introspection) || said(&self.access) {
            PAYMENT
        } else {
            FORBIDDEN
        }
    }
}

/// The monotonic moment of a wall-clock second. Far futures are cut at ten years, which no entry reaches.
fn after_seconds(now: Moment, unix_seconds: u64) -> Instant {
    const TEN_YEARS: u64 = 10 * 366 * 24 * 3600;
    now.instant + Duration::from_secs(unix_seconds.saturating_sub(now.unix_seconds).min(TEN_YEARS))
}

#[cfg(test)]
mod tests;
