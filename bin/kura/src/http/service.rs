//! From a request head to what is to be done: route, scope, trust, and the store's index, in that order.

use super::body::Body;
use super::digest::{self, Checked, Wish};
use super::head::{Head, Method};
use super::receive::Receive;
use super::reply::{Error, Payload, Reply};
use super::route::{self, Found, Route, Whose};
use super::routes::{self, Unverified};
use super::span::Labels;
use super::voice::Asked;
use crate::analytics::Analytics;
use crate::blob::Blobs;
use crate::budget::Budget;
use crate::lifecycle::Lifecycle;
use crate::metrics::{Metrics, Shard};
use crate::multipart::Uploads;
use crate::pressure::Pressure;
use crate::reapi::Reapi;
use crate::scope::{Query, decode};
use crate::tools::Tools;
use crate::usage::Ledger;
use russet_identity::{Access, Authorizer, Credential, Decision, Denial, Moment, Refusal, Scope};
use russet_telemetry::trace::Traces;
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
    /// How close memory is to its limit.
    pub pressure: Arc<Pressure>,
    /// What is reported to the control plane.
    pub usage: Ledger,
    /// What is told to webhooks.
    pub analytics: Analytics,
    /// Spans of requests.
    pub traces: Traces,
    /// What calls of the Remote Execution API share.
    pub reapi: Reapi,
    /// The node as probes describe it.
    pub node: Node,
    /// Limits of routes.
    pub max_keyvalue: usize,
    /// Hits and misses per tool and project.
    pub tools: Tools,
    /// What Turborepo's artifacts must be signed with.
    pub turborepo: Option<routes::turborepo::SignatureKey>,
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
    /// Whose data it is about, for traces.
    pub whose: Option<Box<Labels>>,
    /// What was said about digests, if anything was.
    pub digest: Option<Box<Wish>>,
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
        let found = route::find(head.path);
        let plan = self.try_plan(&found, head, now, answer).unwrap_or_else(|error| {
            let asked = found.route.asked(head.method);
            Plan::Reply(self.refuse(found.route, asked, error))
        });
        let plan = match plan {
            Plan::Reply(reply) if head.method == Method::Head => Plan::Reply(reply.described()),
            plan => plan,
        };
        let (plan, digest) = wish(head, plan);
        // Only a traced request pays for reading the scope twice.
        let whose = (self.shared.traces.is_on() && !found.route.is_probe())
            .then(|| self.scope(found.whose, head).ok())
            .flatten()
            .map(|(_, scope)| Labels::of(&scope));
        Planned {
            route: found.route,
            plan,
            whose,
            digest,
        }
    }

    /// A refusal, worded for whoever uses the route.
    pub fn refuse(&self, route: Route, asked: Asked, error: Error) -> Reply {
        let refusal = route.voice().refuse(asked, error);
        if let (true, Some(tool)) = (refusal.shed, route.tool()) {
            self.shared.tools.shed(tool);
        }
        refusal.reply
    }

    /// Asks the control plane.
    pub async fn ask(&self, question: Question) -> Answer {
        self.shared
            .authorizer
            .decide(Some(&question.credential), &question.scope, question.access)
            .await
    }

    /// Does what was planned.
    pub async fn perform<B: Body>(&self, plan: Plan, digest: Option<Box<Wish>>, body: &mut B) -> Reply {
        let Some(wish) = digest else {
            return self.carry_out(plan, body).await;
        };
        let Wish { expected, wanted } = *wish;
        let reply = if expected.is_empty() {
            self.carry_out(plan, body).await
        } else {
            self.carry_out(plan, &mut Checked::new(body, expected)).await
        };
        self.describe(reply, wanted).await
    }

    async fn carry_out<B: Body>(&self, plan: Plan, body: &mut B) -> Reply {
        match plan {
            Plan::Reply(reply) => reply,
            Plan::Receive(receive) => self.receive(receive, body).await,
            Plan::Verify(unverified) => unverified.check(self).await,
            // Planning with an answer at hand never asks again.
            Plan::Ask(_) => Reply::message(503, "Authorization is not available"),
        }
    }

    fn try_plan(&self, found: &Found<'_>, head: &Head<'_>, now: Moment, answer: Option<Answer>) -> Result<Plan, Error> {
        let route = found.route;
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
        if head.method == Method::Options {
            // A question about the route itself, asked before credentials are sent.
            return Ok(Plan::Reply(routes::options(route)));
        }
        if self.shared.lifecycle.is_draining() {
            return Err(Error::Draining);
        }
        let credential = head.fields.authorization.map(Credential::from_header).transpose()?;
        let (query, scope) = match self.scope(found.whose, head) {
            Ok(parsed) => parsed,
            Err(error) => return Err(self.unscoped(credential.as_ref(), error)),
        };
        let access = route.access(head.method);
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
        self.dispatch(found, head, &query, &scope)
    }

    fn dispatch(
        &self,
        found: &Found<'_>,
        head: &Head<'_>,
        query: &Query<'_>,
        scope: &Scope<'_>,
    ) -> Result<Plan, Error> {
        let segment = found.key;
        match found.route {
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
            Route::GradlePath => routes::gradle::plan_by_path(self, head, segment, scope),
            Route::BazelAction => routes::bazel::action(self, head, segment, scope),
            Route::BazelBlob => routes::bazel::blob(self, head, segment, scope),
            Route::TurboStatus => Ok(routes::turborepo::status()),
            Route::TurboEvents => Ok(routes::turborepo::events()),
            Route::TurboQuery => Ok(routes::turborepo::query(scope)),
            Route::Turbo => routes::turborepo::plan(self, head, segment, query, scope),
            Route::Ccache => routes::ccache::plan(self, head, segment, scope),
            Route::Sccache => routes::sccache::plan(self, head, segment, scope),
            Route::Maven => routes::maven::plan(self, head, segment, scope),
            Route::Go => routes::go::plan(self, head, segment, scope),
            Route::Generic => routes::generic::plan(self, head, segment, scope),
            Route::Up
            | Route::Ready
            | Route::Rollout
            | Route::Cluster
            | Route::Metrics
            | Route::Version
            | Route::Unknown => Ok(Plan::Reply(Reply::empty(404))),
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

    fn scope<'a>(&'a self, whose: Whose<'a>, head: &Head<'a>) -> Result<(Query<'a>, Scope<'a>), Error> {
        let query = Query::parse(head.query)?;
        let account = &self.shared.node.tenant;
        let scope = match whose {
            // These send no parameters: they are about the account the node serves.
            Whose::Account => Scope::of_account(account),
            Whose::Project(project) => query.scope_in(account.as_str(), decode(project)?)?,
            Whose::Team => {
                let team = query.team().unwrap_or(route::DEFAULT_PROJECT.into());
                query.scope_in(account.as_str(), team)?
            }
            Whose::Query => query.scope()?,
        };
        Ok((query, scope))
    }
}

/// What a request says about digests. Only a body that will be read can be refused for what its header claims.
fn wish(head: &Head<'_>, plan: Plan) -> (Plan, Option<Box<Wish>>) {
    let fields = &head.fields;
    if fields.content_digest.is_none() && fields.want_content_digest.is_none() {
        return (plan, None);
    }
    let expected = match (&plan, fields.content_digest) {
        (Plan::Receive(_), Some(field)) => digest::expected(field),
        _ => Ok(Vec::new()),
    };
    match expected {
        Ok(expected) => {
            let wanted = fields.want_content_digest.and_then(digest::wanted);
            (plan, Some(Box::new(Wish { expected, wanted })))
        }
        Err(malformed) => (Plan::Reply(Reply::message(400, &malformed.to_string())), None),
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
