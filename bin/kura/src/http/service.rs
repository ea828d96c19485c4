//! From a request head to what is to be done: route, scope, trust, and the store's index, in that order.

use super::body::Body;
use super::head::Head;
use super::receive::Receive;
use super::reply::{Error, Payload, Reply};
use super::route::{self, Route};
use super::routes::{self, Unverified};
use crate::blob::Blobs;
use crate::budget::Budget;
use crate::lifecycle::Lifecycle;
use crate::metrics::{Metrics, Shard};
use crate::multipart::Uploads;
use crate::reapi::Reapi;
use crate::scope::Query;
use crate::usage::Ledger;
use russet_identity::{Access, Authorizer, Credential, Decision, Denial, Moment, Refusal, Scope};
use std::sync::Arc;

/// What every thread shares.
#[derive(Debug)]
pub struct Shared {
    /// The store.
    pub blobs: Blobs,
    /// Who may do what.
    pub authorizer: Authorizer,
    /// Joining, serving, draining.
    pub lifecycle: Lifecycle,
    /// Bytes in flight.
    pub budget: Budget,
    /// Counters of all threads.
    pub metrics: Metrics,
    /// Uploads in parts.
    pub uploads: Uploads,
    /// What is reported to the control plane.
    pub usage: Ledger,
    /// What calls of the Remote Execution API share.
    pub reapi: Reapi,
    /// The node as probes describe it.
    pub node: Node,
    /// Limits of routes.
    pub max_keyvalue: usize,
}

/// Who the node is.
#[derive(Debug, Clone)]
pub struct Node {
    /// The account it serves.
    pub tenant: russet_identity::AccountHandle,
    /// Where it is.
    pub region: String,
    /// Where others reach it.
    pub url: String,
    /// Country and subdivision.
    pub place: (String, String),
    /// When the process started, in Unix seconds.
    pub started: u64,
}

/// The handlers, as one thread sees them.
#[derive(Debug, Clone)]
pub struct Service {
    /// What all threads share.
    pub shared: Arc<Shared>,
    /// This thread's counters.
    pub shard: Arc<Shard>,
}

/// What is to be done about a request.
#[derive(Debug)]
pub enum Plan {
    /// Answer; a body, if there is one, is of no interest.
    Reply(Reply),
    /// Read the body.
    Receive(Receive),
    /// Check stored bytes nobody has looked at yet, then answer.
    Verify(Box<Unverified>),
    /// Somebody else has to be asked first; then plan again with the decision.
    Ask(Question),
}

/// A plan and the route it belongs to.
#[derive(Debug)]
pub struct Planned {
    /// For metrics.
    pub route: Route,
    /// What to do.
    pub plan: Plan,
}

/// A question to the control plane.
#[derive(Debug)]
pub struct Question {
    credential: Credential<'static>,
    scope: Scope<'static>,
    access: Access,
}

/// The answer to a question, or why there is none.
pub type Answer = Result<(), Denial>;

impl Service {
    /// Decides what to do. `answer` is what [`Service::ask`] said to an earlier [`Plan::Ask`] for the same head.
    pub fn plan(&self, head: &Head<'_>, now: Moment, answer: Option<Answer>) -> Planned {
        let (route, segment) = route::find(head.path);
        let plan = self
            .try_plan(route, segment, head, now, answer)
            .unwrap_or_else(|error| Plan::Reply(error.into()));
        Planned { route, plan }
    }

    /// Asks the control plane.
    pub async fn ask(&self, question: Question) -> Answer {
        self.shared
            .authorizer
            .decide(Some(&question.credential), &question.scope, question.access)
            .await
    }

    /// Does what was planned.
    pub async fn perform<B: Body>(&self, plan: Plan, body: &mut B) -> Reply {
        match plan {
            Plan::Reply(reply) => reply,
            Plan::Receive(receive) => self.receive(receive, body).await,
            Plan::Verify(unverified) => unverified.check().await,
            // Planning with an answer at hand never asks again.
            Plan::Ask(_) => Reply::message(503, "Authorization is not available"),
        }
    }

    fn try_plan(
        &self,
        route: Route,
        segment: &str,
        head: &Head<'_>,
        now: Moment,
        answer: Option<Answer>,
    ) -> Result<Plan, Error> {
        if route == Route::Unknown {
            return Ok(Plan::Reply(unknown(head)));
        }
        if !route.has(head.method) {
            let mut reply = Reply::message(405, "Method not allowed");
            reply.extra = Some(("allow", route.allow()));
            return Ok(Plan::Reply(reply));
        }
        if route.is_probe() {
            return Ok(Plan::Reply(routes::probes::answer(self, route)));
        }
        if self.shared.lifecycle.is_draining() {
            return Err(Error::Draining);
        }
        let credential = head.fields.authorization.map(Credential::from_header).transpose()?;
        let (query, scope) = match self.scope(route, head) {
            Ok(parsed) => parsed,
            Err(error) => return Err(self.unscoped(credential.as_ref(), error)),
        };
        let access = if head.method.reads() {
            Access::Read
        } else {
            Access::Write
        };
        let decision = match answer {
            Some(Ok(())) => Decision::Allow,
            Some(Err(denial)) => Decision::Deny(denial),
            None => self
                .shared
                .authorizer
                .decide_now(credential.as_ref(), &scope, access, now),
        };
        match (decision, credential) {
            (Decision::Allow, _) => {}
            (Decision::Deny(denial), _) => return Err(denial.into()),
            (Decision::NeedsBackend, None) => return Err(Denial::missing_header().into()),
            (Decision::NeedsBackend, Some(credential)) => {
                return Ok(Plan::Ask(Question {
                    credential: credential.into_owned(),
                    scope: scope.into_owned(),
                    access,
                }));
            }
        }
        self.dispatch(route, segment, head, &query, &scope)
    }

    fn dispatch(
        &self,
        route: Route,
        segment: &str,
        head: &Head<'_>,
        query: &Query<'_>,
        scope: &Scope<'_>,
    ) -> Result<Plan, Error> {
        match route {
            Route::Gradle => routes::gradle::plan(self, head, segment, scope),
            Route::Xcode => routes::xcode::plan(self, head, segment, scope),
            Route::KeyValueGet => routes::keyvalue::read(self, head, segment, scope),
            Route::KeyValuePut => Ok(routes::keyvalue::write(scope)),
            Route::Nx => routes::nx::plan(self, head, segment),
            Route::Metro => routes::metro::plan(self, head, segment),
            Route::Module => routes::module::read(self, head, query, scope),
            Route::ModuleStart => routes::module::start(self, query, scope),
            Route::ModulePart => routes::module::part(self, query, scope),
            Route::ModuleComplete => routes::module::complete(self, query, scope),
            Route::Clean => Ok(routes::clean::plan(scope)),
            Route::Up | Route::Ready | Route::Rollout | Route::Cluster | Route::Metrics | Route::Unknown => {
                Ok(Plan::Reply(Reply::empty(404)))
            }
        }
    }

    /// Who has not said who they are learns nothing about how a request is read.
    fn unscoped(&self, credential: Option<&Credential<'_>>, error: Error) -> Error {
        let denial = self
            .shared
            .authorizer
            .refuse_unscoped(credential, Denial::missing_tenant());
        if denial.refusal() == Refusal::Unauthenticated {
            denial.into()
        } else {
            error
        }
    }

    fn scope<'a>(&'a self, route: Route, head: &Head<'a>) -> Result<(Query<'a>, Scope<'a>), Error> {
        let query = Query::parse(head.query)?;
        let scope = match route {
            // These send no parameters: they are about the account the node serves.
            Route::Nx | Route::Metro => Scope::of_account(&self.shared.node.tenant),
            _ => query.scope()?,
        };
        Ok((query, scope))
    }
}

/// A bare 404, except for gRPC, whose clients read statuses from fields.
fn unknown(head: &Head<'_>) -> Reply {
    if head.is_grpc() {
        return Reply {
            payload: Payload::Grpc("unknown service or method"),
            ..Reply::empty(200)
        };
    }
    Reply::empty(404)
}
