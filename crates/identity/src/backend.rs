//! Asking the control plane about a token.
//!
//! Only an answer that is certain counts: 200 with the right JSON, or 401 where it is about the caller. Everything else,
//! a redirect included (it would carry the token to another host), is silence, and silence never allows anything.

use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::config::{Client, ControlPlane, Error, Proxy};
use crate::evidence::Answer;
use crate::grants::{CacheGrants, ProjectName, Unpaid, full_access};
use crate::jwt::whole_seconds;
use crate::observer::{BackendRequest, ErrorKind, Observer, Route};

/// Wait before the one second try.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Longest answer read. Ten thousand projects fit.
const MAX_BODY: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Backend {
    http: reqwest::Client,
    introspect: String,
    access: String,
    client: Option<Client>,
    permits: Semaphore,
    patience: Duration,
}

impl Backend {
    pub(crate) fn new(config: &ControlPlane) -> Result<Self, Error> {
        let mut http = reqwest::Client::builder()
            .connect_timeout(config.connect_timeout)
            .timeout(config.request_timeout)
            .redirect(redirect::Policy::none())
            .referer(false);
        if config.proxy == Proxy::Never {
            http = http.no_proxy();
        }
        let base = config.url.as_str().trim_end_matches('/');
        Ok(Self {
            http: http.build().map_err(Error::Client)?,
            introspect: format!("{base}/oauth2/introspect"),
            access: format!("{base}/api/cache/access"),
            client: config.client.clone(),
            permits: Semaphore::new(config.concurrency),
            patience: config.request_timeout,
        })
    }

    pub(crate) fn introspects(&self) -> bool {
        self.client.is_some()
    }

    /// One question, with one second try if the connection failed. A timeout is not tried again: a control plane that
    /// is too slow does not get faster by being asked twice.
    pub(crate) async fn ask(&self, route: Route, token: &str, observer: &dyn Observer) -> Result<Answer, Silence> {
        let started = Instant::now();
        let permit = tokio::time::timeout(self.patience, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            let silence = Silence::of(ErrorKind::Overload);
            observer.backend(silence.report(route, started.elapsed()));
            return Err(silence);
        };
        let mut answer = self.ask_once(route, token, observer).await;
        if answer
            .as_ref()
            .is_err_and(|s| matches!(s.kind, ErrorKind::Connect | ErrorKind::Transport))
        {
            tokio::time::sleep(RETRY_AFTER).await;
            answer = self.ask_once(route, token, observer).await;
        }
        if let Err(silence) = &answer {
            // The kind and the status say enough; the library's message could hold the URL but never the token.
            tracing::warn!(
                route = route.as_str(),
                error_kind = silence.kind.as_str(),
                status = silence.status,
                "the control plane gave no answer about a token"
            );
        }
        answer
    }

    async fn ask_once(&self, route: Route, token: &str, observer: &dyn Observer) -> Result<Answer, Silence> {
        let started = Instant::now();
        let answer = match route {
            Route::Introspect => self.introspect(token).await,
            Route::Access => self.access(token).await,
        };
        observer.backend(match &answer {
            Ok((status, _)) => BackendRequest {
                route,
                status: Some(*status),
                error: None,
                duration: started.elapsed(),
            },
            Err(silence) => silence.report(route, started.elapsed()),
        });
        answer.map(|(_, answer)| answer)
    }

    async fn introspect(&self, token: &str) -> Result<(u16, Answer), Silence> {
        let Some(client) = &self.client else {
            return Err(Silence::of(ErrorKind::Status));
        };
        let question = IntrospectionRequest {
            client_id: &client.id,
            client_secret: client.secret.expose(),
            token,
        };
        let response = self.http.post(&self.introspect).json(&question).send().await?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(Silence::status(status));
        }
        let answer: Introspection = read(response).await?;
        if !answer.active {
            return Ok((status, Answer::Rejected));
        }
        let unpaid = answer.cache_payment_required.or(answer.payment_required);
        let grants = answer.cache_grants.unwrap_or_default().into_grants();
        Ok((
            status,
            Answer::Holds {
                grants: grants.with_unpaid(unpaid),
                expires: answer.exp.map(whole_seconds),
            },
        ))
    }

    async fn access(&self, token: &str) -> Result<(u16, Answer), Silence> {
        let header = Secret::new(format!("Bearer {token}"));
        let mut header = HeaderValue::from_str(header.expose()).map_err(|_| Silence::of(ErrorKind::Transport))?;
        header.set_sensitive(true);
        let response = self.http.get(&self.access).header(AUTHORIZATION, header).send().await?;
        let status = response.status().as_u16();
        match status {
            200 => {}
            401 => return Ok((status, Answer::Rejected)),
            _ => return Err(Silence::status(status)),
        }
        let answer: ProjectList = read(response).await?;
        let grants = full_access(&answer.projects).with_unpaid(answer.payment_required);
        Ok((status, Answer::Holds { grants, expires: None }))
    }
}

/// No usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) kind: ErrorKind,
    status: Option<u16>,
}

impl Silence {
    const fn of(kind: ErrorKind) -> Self {
        Self { kind, status: None }
    }

    const fn status(status: u16) -> Self {
        Self {
            kind: ErrorKind::Status,
            status: Some(status),
        }
    }

    const fn report(self, route: Route, duration: Duration) -> BackendRequest {
        BackendRequest {
            route,
            status: self.status,
            error: Some(self.kind),
            duration,
        }
    }
}

impl From<reqwest::Error> for Silence {
    fn from(error: reqwest::Error) -> Self {
        Self::of(if error.is_timeout() {
            ErrorKind::Timeout
        } else if error.is_connect() {
            ErrorKind::Connect
        } else {
            ErrorKind::Transport
        })
    }
}

/// Reads a bounded JSON body.
async fn read<T: for<'de> Deserialize<'de>>(mut response: reqwest::Response) -> Result<T, Silence> {
    let bad = Silence {
        kind: ErrorKind::Body,
        status: Some(response.status().as_u16()),
    };
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(bad);
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|_| bad)
}

#[derive(Serialize)]
struct IntrospectionRequest<'a> {
    client_id: &'a str,
    client_secret: &'a str,
    token: &'a str,
}

#[derive(Deserialize)]
struct Introspection {
    active: bool,
    exp: Option<f64>,
    cache_grants: Option<CacheGrants>,
    cache_payment_required: Option<Unpaid>,
    payment_required: Option<Unpaid>,
}

#[derive(Deserialize)]
struct ProjectList {
    projects: Vec<ProjectName>,
    payment_required: Option<Unpaid>,
}
