//! One exchange after the other, until there is an answer or no sense in asking.

mod lists;

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use russet_rest::clock::{Chance, Clock, SystemChance, SystemClock};
use russet_rest::connection::{self, is_unsent, why};
use russet_telemetry::Scrubber;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::body::refusal;
use crate::call::{Body, Call, Effect};
use crate::censor::{Censor, clean};
use crate::config::{Config, Invalid};
use crate::error::{EffectKnown, Error, Keeper, Kind};
use crate::ids::ProjectId;
use crate::limiter::{Limiter, Limiters};
use crate::observer::{Deaf, Exchange, Observer, Outcome};
use crate::retry::{self, Next, Trouble};

const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Where the Instance API says how many rows a list has.
const TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");

/// Longest answer read. A page of a hundred servers is a twentieth of it.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// What a client shares with the rest of its process.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub chance: Arc<dyn Chance>,
    /// Metrics.
    pub observer: Arc<dyn Observer>,
    /// The limiters, by key.
    pub limiters: Arc<Limiters>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
            observer: Arc::new(Deaf),
            limiters: Arc::default(),
        }
    }
}

/// The API, as one key sees it. Cheap to clone. Every call may be dropped at any await: no lock is held across one, and a
/// call with an effect that is dropped after it was sent is like one whose answer was lost.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    base: Url,
    project: ProjectId,
    page_size: u32,
    attempt_timeout: Duration,
    deadline: Duration,
    limiter: Limiter,
    context: Context,
    scrubber: Scrubber,
}

/// An answer that says yes.
struct Answer {
    status: u16,
    request_id: Option<String>,
    /// How many rows the list has, where a header says so.
    counted: Option<u64>,
    body: Vec<u8>,
}

/// An exchange without one.
struct Failure {
    trouble: Trouble,
    outcome: Outcome,
    status: Option<u16>,
    request_id: Option<String>,
    kind: Kind,
}

impl Client {
    /// A client. Nothing is sent yet.
    pub fn new(config: &Config, context: Context) -> Result<Self, Invalid> {
        let mut token = HeaderValue::from_str(config.secret_key.expose()).map_err(|_| Invalid::Key)?;
        token.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTH_TOKEN, token)]);
        let http = connection::http(&config.url, headers, config.attempt_timeout, config.proxy);
        Ok(Self(Arc::new(Inner {
            http: http.map_err(|e| Invalid::Url(Box::new(e)))?,
            base: config.url.clone(),
            project: config.project.clone(),
            page_size: config.page_size,
            attempt_timeout: config.attempt_timeout,
            deadline: config.deadline,
            limiter: context.limiters.of(&config.access_key, config.rate, &context.clock),
            scrubber: Scrubber::new().with(&config.secret_key),
            context,
        })))
    }

    /// The project of this client.
    pub fn project(&self) -> &ProjectId {
        &self.0.project
    }

    /// A call whose answer has a body.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let answer = self.perform(&call).await?;
        read(&call, &answer).map_err(|kind| error(&call, kind, answer.request_id))
    }

    /// A call whose answer says nothing but yes.
    pub(crate) async fn send(&self, call: Call) -> Result<(), Error> {
        self.perform(&call).await.map(drop)
    }

    async fn perform(&self, call: &Call) -> Result<Answer, Error> {
        let span = tracing::debug_span!("scaleway", endpoint = call.endpoint.name, path = call.path);
        self.perform_in_span(call).instrument(span).await
    }

    async fn perform_in_span(&self, call: &Call) -> Result<Answer, Error> {
        let inner = &*self.0;
        let clock = &inner.context.clock;
        let started = clock.now();
        let mut attempt = 0;
        // Whether an earlier try may have removed what this one no longer finds.
        let mut in_doubt = false;
        loop {
            let left = inner
                .deadline
                .saturating_sub(clock.now().saturating_duration_since(started));
            let asked = clock.now();
            if let Err(after) = inner.limiter.acquire(left).await {
                if in_doubt && call.endpoint.effect != Effect::Read {
                    let message = "an earlier try had no answer, and there is no time left for another".to_owned();
                    let kind = Kind::Unknown {
                        effect: EffectKnown::Maybe,
                        status: None,
                        message,
                    };
                    return Err(error(call, kind, None));
                }
                return Err(error(
                    call,
                    Kind::RateLimited {
                        after,
                        by: Keeper::Ours,
                    },
                    None,
                ));
            }
            let queued = clock.now().saturating_duration_since(asked);
            let sent = Instant::now();
            let result = self.exchange(call).await;
            self.report(call, attempt, &result, sent.elapsed(), queued);
            let failure = match result {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if let Trouble::RateLimited(wait) = failure.trouble {
                inner.limiter.close_for(retry::rate_limit_wait(wait));
            }
            if in_doubt && call.endpoint.method == Method::DELETE && matches!(failure.kind, Kind::NotFound { .. }) {
                tracing::debug!("an earlier try of this call had its effect");
                return Ok(Answer {
                    status: 204,
                    request_id: failure.request_id,
                    counted: None,
                    body: Vec::new(),
                });
            }
            in_doubt |= failure.trouble == Trouble::NoAnswer;
            let left = inner
                .deadline
                .saturating_sub(clock.now().saturating_duration_since(started));
            match retry::next(
                call.endpoint.effect,
                failure.trouble,
                attempt,
                left,
                inner.context.chance.fraction(),
            ) {
                Next::After(delay) => {
                    tracing::debug!(attempt, delay_ms = delay.as_millis(), "trying again");
                    clock.sleep(delay).await;
                    attempt += 1;
                }
                Next::GiveUp => {
                    let (kind, request_id) = certain(call.endpoint.effect, failure, in_doubt);
                    return Err(error(call, kind, request_id));
                }
            }
        }
    }

    async fn exchange(&self, call: &Call) -> Result<Answer, Failure> {
        let inner = &*self.0;
        let url = connection::url(&inner.base, &call.path, &call.query);
        let request = inner.http.request(call.endpoint.method.clone(), url);
        let request = match &call.body {
            None => request,
            Some(Body::Json(body)) => request.json(body),
            Some(Body::Sealed { content_type, text, .. }) => {
                request.header(CONTENT_TYPE, *content_type).body(text.expose().clone())
            }
        };
        let mut response = request.send().await.map_err(|e| self.broken(&e))?;
        let status = response.status();
        let headers = response.headers().clone();
        let request_id = headers
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .map(|id| clean(id, &inner.scrubber));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.broken(&e))? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(Failure {
                    trouble: Trouble::NoAnswer,
                    outcome: Outcome::Unreadable,
                    status: Some(status.as_u16()),
                    request_id,
                    kind: Kind::Unavailable {
                        status: Some(status.as_u16()),
                        message: format!("the answer is longer than {MAX_BODY} bytes"),
                    },
                });
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(Answer {
                status: status.as_u16(),
                request_id,
                counted: headers
                    .get(TOTAL_COUNT)
                    .and_then(|count| count.to_str().ok()?.trim().parse().ok()),
                body,
            });
        }
        let censor = Censor {
            scrubber: &inner.scrubber,
            sent: call.secrets(),
        };
        let kind = refusal(status.as_u16(), &headers, &body, &censor);
        let (trouble, outcome) = match &kind {
            Kind::RateLimited { after, .. } => (Trouble::RateLimited(Some(*after)), Outcome::RateLimited),
            Kind::Unavailable { .. } => (Trouble::NoAnswer, Outcome::ServerError),
            _ => (Trouble::Final, Outcome::Refused),
        };
        Err(Failure {
            trouble,
            outcome,
            status: Some(status.as_u16()),
            request_id,
            kind,
        })
    }

    /// A connection that could not be made, or broke.
    fn broken(&self, error: &reqwest::Error) -> Failure {
        let (trouble, outcome) = if is_unsent(error) {
            (Trouble::NotSent, Outcome::NotSent)
        } else {
            (Trouble::NoAnswer, Outcome::NoAnswer)
        };
        let message = clean(&why(error, self.0.attempt_timeout), &self.0.scrubber);
        Failure {
            trouble,
            outcome,
            status: None,
            request_id: None,
            kind: Kind::Unavailable { status: None, message },
        }
    }

    fn report(
        &self,
        call: &Call,
        attempt: u32,
        result: &Result<Answer, Failure>,
        duration: Duration,
        queued: Duration,
    ) {
        let (outcome, status) = match result {
            Ok(answer) => (Outcome::Ok, Some(answer.status)),
            Err(failure) => (failure.outcome, failure.status),
        };
        tracing::debug!(
            method = call.endpoint.method.as_str(),
            attempt,
            status,
            outcome = outcome.as_str(),
            duration_ms = duration.as_millis(),
            "exchange"
        );
        let endpoint = call.endpoint;
        self.0.context.observer.exchange(&Exchange {
            endpoint,
            attempt,
            outcome,
            status,
            duration,
            queued,
        });
    }
}

/// The body of an answer.
fn read<T: DeserializeOwned>(call: &Call, answer: &Answer) -> Result<T, Kind> {
    serde_json::from_slice(&answer.body).map_err(|e| {
        // The text of the error names fields and positions, never values of ours; passwords are plain strings to it.
        let message = format!(
            "line {} column {} of the body cannot be read as expected",
            e.line(),
            e.column()
        );
        match call.endpoint.effect {
            Effect::Read => Kind::Unexpected {
                status: answer.status,
                message,
            },
            Effect::Repeatable | Effect::Once => Kind::Unknown {
                effect: EffectKnown::Happened,
                status: Some(answer.status),
                message,
            },
        }
    })
}

/// What the caller is told. Unless an answer says so, nothing is certain about a call with an effect that was sent.
fn certain(effect: Effect, failure: Failure, in_doubt: bool) -> (Kind, Option<String>) {
    let kind = match failure.kind {
        Kind::Unavailable { status, message } if in_doubt && effect != Effect::Read => Kind::Unknown {
            effect: EffectKnown::Maybe,
            status,
            message,
        },
        Kind::RateLimited { .. } if in_doubt && effect != Effect::Read => Kind::Unknown {
            effect: EffectKnown::Maybe,
            status: failure.status,
            message: "an earlier try had no answer, and there is no time left for another".to_owned(),
        },
        kind => kind,
    };
    (kind, failure.request_id)
}

fn error(call: &Call, kind: Kind, request_id: Option<String>) -> Error {
    Error {
        endpoint: call.endpoint.name,
        permission: call.endpoint.permission,
        kind,
        request_id,
    }
}
