//! One App installation, and the calls it makes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use russet_rest::clock::{Chance, Clock, SystemChance, SystemClock};
use russet_rest::connection::{self, is_unsent, why};
use russet_telemetry::{Scrubber, Secret};
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::answer::{clean, date, refusal, skew};
use crate::call::{Bearer, Call, Effect};
use crate::config::{Config, Invalid};
use crate::credentials::Credentials;
use crate::error::{Error, Kind, Limit};
use crate::jwt;

mod token;

use token::Token;

const API_VERSION: HeaderName = HeaderName::from_static("x-github-api-version");
const REQUEST_ID: &str = "x-github-request-id";
/// Longest answer read. A page of a hundred runners is a twentieth of it.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// A difference below this is the way of the answer, not a wrong clock.
const TOLERATED: SignedDuration = SignedDuration::from_secs(5);
/// No more tries than this.
const MAX_ATTEMPTS: u32 = 3;

/// What a client shares with the rest of its process.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub chance: Arc<dyn Chance>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
        }
    }
}

/// GitHub, as one installation of an App sees it. Cheap to clone. Every call may be dropped at any await.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    base: Url,
    page_size: u32,
    attempt_timeout: Duration,
    credentials: Credentials,
    context: Context,
    /// Held while a token is asked for, so that callers who come together share one.
    minting: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

/// What the answers so far taught us.
#[derive(Debug, Default)]
struct Known {
    /// How far GitHub's clock is ahead of ours.
    skew: SignedDuration,
    token: Option<Token>,
    /// Until when nothing is sent.
    closed: Option<(Timestamp, Limit)>,
}

/// An answer that says yes.
struct Answer {
    status: u16,
    request_id: Option<String>,
    body: Vec<u8>,
}

/// An exchange without one.
struct Failure {
    kind: Kind,
    request_id: Option<String>,
    /// GitHub's time, if it said.
    date: Option<Timestamp>,
    sent: Sent,
}

/// What is known about a failed exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing went out.
    No,
    /// It went out, and no definite answer came back.
    NoAnswer,
    /// GitHub said no.
    Refused,
}

impl Client {
    /// A client. Nothing is sent yet.
    pub fn new(config: &Config, credentials: Credentials, context: Context) -> Result<Self, Invalid> {
        let headers = [
            (ACCEPT, HeaderValue::from_static("application/vnd.github+json")),
            (API_VERSION, HeaderValue::from_static("2022-11-28")),
        ];
        let headers = HeaderMap::from_iter(headers);
        let http = connection::http(&config.url, headers, config.attempt_timeout, config.proxy);
        Ok(Self(Arc::new(Inner {
            http: http.map_err(|e| Invalid::Url(Box::new(e)))?,
            base: config.url.clone(),
            page_size: config.page_size.clamp(1, 100),
            attempt_timeout: config.attempt_timeout,
            credentials,
            context,
            minting: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        })))
    }

    pub(crate) fn page_size(&self) -> u32 {
        self.0.page_size
    }

    /// A call whose answer has a body.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let answer = self.perform(call).await?;
        serde_json::from_slice(&answer.body).map_err(|e| {
            // The text of the error could repeat a token; its place cannot.
            let message = format!("line {} column {} cannot be read as expected", e.line(), e.column());
            let kind = match call.endpoint.effect {
                Effect::Read | Effect::Repeatable => Kind::Unexpected {
                    status: answer.status,
                    message,
                },
                Effect::Once => Kind::Unknown {
                    status: Some(answer.status),
                    message,
                },
            };
            error(call, kind, answer.request_id)
        })
    }

    /// A call whose answer says nothing but yes.
    pub(crate) async fn send(&self, call: &Call) -> Result<(), Error> {
        self.perform(call).await.map(drop)
    }

    async fn perform(&self, call: &Call) -> Result<Answer, Error> {
        let span = tracing::debug_span!("github", endpoint = call.endpoint.name, path = call.path);
        self.perform_in_span(call).instrument(span).await
    }

    async fn perform_in_span(&self, call: &Call) -> Result<Answer, Error> {
        let mut attempt = 0;
        let mut in_doubt = false;
        // A 401 is answered once by a new token, or by GitHub's own time.
        let mut excused = false;
        loop {
            self.gate(call)?;
            let bearer = match call.endpoint.bearer {
                Bearer::App => jwt::sign(&self.0.credentials, self.now()).ok_or_else(|| {
                    let bearer = Bearer::App;
                    error(call, Kind::BadCredentials { bearer }, None)
                })?,
                Bearer::Installation => Box::pin(self.token()).await?,
            };
            let failure = match self.exchange(call, &bearer).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            tracing::debug!(attempt, kind = %failure.kind, "refused or unanswered");
            match &failure.kind {
                Kind::RateLimited { until, limit } => self.known().closed = Some((*until, *limit)),
                Kind::BadCredentials { .. } if !excused && self.excuse(call, &bearer, failure.date) => {
                    excused = true;
                    continue;
                }
                // An earlier try of the removal had its effect.
                Kind::NotFound { .. } if in_doubt && call.endpoint.method == Method::DELETE => {
                    return Ok(Answer {
                        status: call.endpoint.success,
                        request_id: failure.request_id,
                        body: Vec::new(),
                    });
                }
                _ => {}
            }
            in_doubt |= failure.sent == Sent::NoAnswer;
            attempt += 1;
            let again = call.endpoint.effect != Effect::Once && failure.sent != Sent::Refused && attempt < MAX_ATTEMPTS;
            if !again {
                return Err(certain(call, failure, in_doubt));
            }
            let delay = russet_rest::delay(attempt - 1, self.0.context.chance.fraction());
            self.0.context.clock.sleep(delay).await;
        }
    }

    /// Nothing is sent while GitHub wants to be left alone: it bans those who go on.
    fn gate(&self, call: &Call) -> Result<(), Error> {
        let mut known = self.known();
        match known.closed {
            Some((until, limit)) if until > self.0.context.clock.wall() => {
                Err(error(call, Kind::RateLimited { until, limit }, None))
            }
            _ => {
                known.closed = None;
                Ok(())
            }
        }
    }

    /// Whether there is something to do about a 401, done here.
    fn excuse(&self, call: &Call, used: &Secret<String>, date: Option<Timestamp>) -> bool {
        let mut known = self.known();
        match call.endpoint.bearer {
            Bearer::Installation => {
                // Somebody else may have fetched a newer one by now.
                if known
                    .token
                    .as_ref()
                    .is_some_and(|t| t.token.matches(used.expose().as_bytes()))
                {
                    known.token = None;
                }
                true
            }
            Bearer::App => {
                let Some(theirs) = date else { return false };
                let off = skew(theirs, self.0.context.clock.wall());
                if (off - known.skew).abs() <= TOLERATED {
                    return false;
                }
                known.skew = off;
                tracing::warn!(
                    seconds = off.as_secs(),
                    "GitHub's clock is ahead of ours by this much; its time is used, set ours right"
                );
                true
            }
        }
    }

    async fn exchange(&self, call: &Call, bearer: &Secret<String>) -> Result<Answer, Failure> {
        let inner = &*self.0;
        let scrubber = || Scrubber::new().with(bearer);
        let url = connection::url(&inner.base, &call.path, &call.query);
        let mut request = inner
            .http
            .request(call.endpoint.method.clone(), url)
            .bearer_auth(bearer.expose());
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let broken = |e: &reqwest::Error| self.broken(e, &scrubber());
        let mut response = request.send().await.map_err(|e| broken(&e))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let request_id = id.map(|id| clean(id, &scrubber()));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| broken(&e))? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(Failure {
                    kind: Kind::Server {
                        status: Some(status),
                        message: format!("the answer is longer than {MAX_BODY} bytes"),
                    },
                    request_id,
                    date: None,
                    sent: Sent::NoAnswer,
                });
            }
            body.extend_from_slice(&chunk);
        }
        if status == call.endpoint.success {
            return Ok(Answer {
                status,
                request_id,
                body,
            });
        }
        let kind = refusal(call, status, &headers, &body, inner.context.clock.wall(), &scrubber());
        let sent = match kind {
            // Another yes than the one that was expected says that something happened, and not what.
            Kind::Server { .. } | Kind::Unexpected { status: 200..=299, .. } => Sent::NoAnswer,
            _ => Sent::Refused,
        };
        Err(Failure {
            kind,
            request_id,
            date: date(&headers),
            sent,
        })
    }

    /// A connection that could not be made, or broke.
    fn broken(&self, error: &reqwest::Error, scrubber: &Scrubber) -> Failure {
        let sent = if is_unsent(error) { Sent::No } else { Sent::NoAnswer };
        let message = clean(&why(error, self.0.attempt_timeout), scrubber);
        Failure {
            kind: Kind::Server { status: None, message },
            request_id: None,
            date: None,
            sent,
        }
    }

    /// The time, as GitHub believes it to be.
    fn now(&self) -> Timestamp {
        let now = self.0.context.clock.wall();
        now.checked_add(self.known().skew).unwrap_or(now)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is one assignment; a panic elsewhere leaves nothing half done.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(call: &Call, kind: Kind, request_id: Option<String>) -> Error {
    Error {
        endpoint: call.endpoint.name,
        kind,
        request_id,
    }
}

/// The error of the last try, in the light of those before it.
fn certain(call: &Call, failure: Failure, in_doubt: bool) -> Error {
    let kind = match failure.kind {
        Kind::Server { status, message } if call.endpoint.effect == Effect::Once && in_doubt => {
            Kind::Unknown { status, message }
        }
        Kind::Unexpected { status, message } if call.endpoint.effect == Effect::Once && in_doubt => Kind::Unknown {
            status: Some(status),
            message,
        },
        other => other,
    };
    error(call, kind, failure.request_id)
}
