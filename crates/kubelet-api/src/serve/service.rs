//! One request: who asks, may they, and what is done.

use std::future::Future;
use std::num::NonZeroU16;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::{self, Body, plain, refused};
use super::upgrade::{self, Kind};
use super::{Caller, Limits, logs};
use crate::auth::{Attributes, Denied, Gate, Reviewer};
use crate::backend::{Backend, ContainerRef, Page, PodRef};
use crate::refusal::Refusal;
use crate::request::{Area, Query, Route};
use crate::session::{self, Action, Command, Wanted};
use crate::spdy::Broken;

pub(super) struct Service<B, R> {
    pub(super) backend: Arc<B>,
    pub(super) gate: Gate<R>,
    pub(super) limits: Limits,
    pub(super) sessions: TaskTracker,
    /// Sessions end and say so.
    pub(super) stop: CancellationToken,
    /// Whoever still has something to say has had its time.
    pub(super) cut: CancellationToken,
}

type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

impl<B: Backend, R: Reviewer> Service<B, R> {
    pub(super) async fn answer(&self, caller: &Caller, request: Request<Incoming>) -> Response<Body> {
        // Read once: what is performed is what the caller was found to have a right to.
        let found = Route::find(request.uri().path());
        let area = found.as_ref().map_or_else(|area| *area, Route::area);
        if let Err(denied) = self.admit(caller, area, &request).await {
            let status = match denied {
                Denied::Unauthenticated => StatusCode::UNAUTHORIZED,
                Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
                Denied::Unknown { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let (address, error) = (caller.address, &denied as &dyn std::error::Error);
            if matches!(denied, Denied::Unknown { .. }) {
                // Our own trouble, not the caller's: without reviews nobody gets in.
                tracing::warn!(%address, error, "a request could not be judged");
            } else {
                tracing::debug!(%address, path = request.uri().path(), error, "refused a request");
            }
            // Who is refused takes no seat until the next try.
            let mut refused = plain(status, denied.to_string());
            refused
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
            return refused;
        }
        let route = match found {
            Ok(route) if route.takes(request.method()) => route,
            Ok(_) => return plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
            Err(_) => return plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        let is_log = matches!(route, Route::Logs(_));
        match self.perform(caller, route, request).await {
            Ok(response) => response,
            Err(refusal) if is_log => plain(refusal.status(), refusal.log_text()),
            Err(refusal) => refused(&refusal),
        }
    }

    async fn admit(&self, caller: &Caller, area: Area, request: &Request<Incoming>) -> Result<(), Denied> {
        let user = self
            .gate
            .authenticate(caller.presented.as_ref(), request.headers())
            .await?;
        let wanted = Attributes::of(area, request.method());
        self.gate.authorise(&user, &wanted).await?;
        // A token that is good for nothing here is had by every Pod of the cluster.
        caller.place.guest.known();
        Ok(())
    }

    async fn perform(
        &self,
        caller: &Caller,
        route: Route,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let query = Query::parse(caller.query.whole(request.uri().query()).as_deref())?;
        match route {
            Route::Logs(container) => self.logs(&container, &query).await,
            Route::Exec(container) => {
                let command: Vec<String> = query.all("command").map(str::to_owned).collect();
                if command.is_empty() {
                    return Err(Refusal::Invalid("you must specify a command".to_owned()));
                }
                self.remote(caller, container, Action::Exec(command), &query, request)
                    .await
            }
            Route::Attach(container) => self.remote(caller, container, Action::Attach, &query, request).await,
            Route::PortForward(pod) => self.port_forward(caller, pod, &query, request).await,
            Route::Run(container) => self.run(&container, &query).await,
            Route::Pods => {
                let items = self.backend.pods().await?;
                let list: List<Pod> = List {
                    items,
                    ..List::default()
                };
                Ok(answer::json(&list))
            }
            Route::RunningPods => self.running_pods().await,
            Route::Summary => {
                let summary = self.backend.stats().await?;
                let lean = query.flag("only_cpu_and_memory");
                Ok(answer::json(&if lean {
                    summary.only_cpu_and_memory()
                } else {
                    summary
                }))
            }
            Route::ResourceMetrics => {
                let page = self.backend.stats().await?.resource_metrics();
                Ok(answer::metrics(Page::Text(page), request.headers()))
            }
            Route::Metrics(which) => Ok(answer::metrics(self.backend.metrics(which).await?, request.headers())),
            Route::Health(check) => Ok(self.health(check.as_deref(), query.get("verbose").is_some()).await),
            Route::Config => Ok(answer::json(&json!({"kubeletconfig": self.backend.config().await}))),
            Route::Checkpoint => Err(Refusal::Unsupported(
                "checkpointing is not supported by this node".to_owned(),
            )),
            Route::HostLogs => Err(Refusal::Unsupported(
                "this node does not serve its log files".to_owned(),
            )),
        }
    }

    async fn logs(&self, container: &ContainerRef, query: &Query) -> Result<Response<Body>, Refusal> {
        let options = logs::options(query, Timestamp::now())?;
        self.backend.find_container(container).await?;
        let entries = self.backend.logs(container, &options).await?;
        Ok(answer::streamed(logs::text(entries, &options)))
    }

    async fn running_pods(&self) -> Result<Response<Body>, Refusal> {
        let pods = self.backend.running_pods().await?;
        let items: Vec<_> = pods
            .iter()
            .map(|pod| {
                let containers: Vec<_> = pod
                    .containers
                    .iter()
                    .map(|(name, image)| json!({"name": name, "image": image, "resources": {}}))
                    .collect();
                json!({
                    "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                    "spec": {"containers": containers},
                    "status": {},
                })
            })
            .collect();
        Ok(answer::json(
            &json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}),
        ))
    }

    async fn run(&self, container: &ContainerRef, query: &Query) -> Result<Response<Body>, Refusal> {
        let command: Vec<String> = query
            .get("cmd")
            .unwrap_or_default()
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        if command.is_empty() {
            return Err(Refusal::Invalid("you must specify a command".to_owned()));
        }
        self.backend.find_container(container).await?;
        let output = session::run_to_end(&*self.backend, container, command, self.limits.run_output).await?;
        // Plain text under this name, as a stock kubelet has it.
        Ok(answer::with_type(StatusCode::OK, "application/json", output))
    }

    async fn health(&self, wanted: Option<&str>, verbose: bool) -> Response<Body> {
        let checks = self.backend.health().await;
        // Ours pass by being answered: lines of the log are written in place, so nothing that flushes them can hang.
        let ours = [("ping", true), ("log", true)].into_iter();
        let all = ours.chain(checks.iter().map(|check| (check.name, check.healthy)));
        let named: Vec<_> = all
            .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
            .collect();
        if named.is_empty() {
            return plain(StatusCode::NOT_FOUND, "404 page not found\n");
        }
        let healthy = named.iter().all(|(_, healthy)| *healthy);
        if healthy && !verbose {
            return plain(StatusCode::OK, "ok");
        }
        let mut text: String = named
            .iter()
            .map(|(name, healthy)| match healthy {
                true => format!("[+]{name} ok\n"),
                false => format!("[-]{name} failed: reason withheld\n"),
            })
            .collect();
        text.push_str(if healthy {
            "healthz check passed\n"
        } else {
            "healthz check failed\n"
        });
        let status = if healthy {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        plain(status, text)
    }

    async fn remote(
        &self,
        caller: &Caller,
        container: ContainerRef,
        action: Action,
        query: &Query,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let wanted = wanted(query)?;
        self.backend.find_container(&container).await?;
        let command = Command {
            backend: self.backend.clone(),
            container,
            action,
            wanted,
            stop: self.stop.clone(),
        };
        let pace = self.limits.pace();
        let choice = match kind(request.headers())? {
            Kind::Spdy => upgrade::spdy(request.headers(), |offered| {
                session::choose_spdy(offered).map(|version| (version, version.name()))
            })
            .map(|(version, response)| {
                let session = move |io| session::remote_spdy(command, version, io, pace);
                self.begin(caller, hyper::upgrade::on(&mut request), session);
                response
            }),
            Kind::WebSocket => upgrade::websocket(request.headers(), |offered| session::choose_websocket(offered)).map(
                |(flavour, response)| {
                    let session = move |io| session::remote_websocket(command, flavour, io, pace);
                    self.begin(caller, hyper::upgrade::on(&mut request), session);
                    response
                },
            ),
        };
        Ok(choice.unwrap_or_else(|refused| *refused))
    }

    async fn port_forward(
        &self,
        caller: &Caller,
        pod: PodRef,
        query: &Query,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        self.backend.find_pod(&pod).await?;
        let (backend, stop) = (self.backend.clone(), self.stop.clone());
        let pace = self.limits.pace();
        let choice = match kind(request.headers())? {
            Kind::Spdy => upgrade::spdy(request.headers(), session::choose_port_forward).map(|((), response)| {
                let session = move |io| session::forward_spdy(backend, pod, io, pace, stop);
                self.begin(caller, hyper::upgrade::on(&mut request), session);
                response
            }),
            Kind::WebSocket => {
                let ports = ports(query)?;
                upgrade::websocket(request.headers(), |offered| session::choose_websocket(offered)).map(
                    |(flavour, response)| {
                        let session =
                            move |io| session::forward_websocket(backend, pod, ports, flavour, io, pace, stop);
                        self.begin(caller, hyper::upgrade::on(&mut request), session);
                        response
                    },
                )
            }
        };
        Ok(choice.unwrap_or_else(|refused| *refused))
    }

    /// Starts a session as soon as its 101 is out. It ends with the server: by itself when it is told to, or else without a word.
    fn begin<F>(&self, caller: &Caller, upgraded: OnUpgrade, session: impl FnOnce(Upgraded) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Broken>> + Send + 'static,
    {
        let (cut, caller) = (self.cut.clone(), caller.clone());
        self.sessions.spawn(async move {
            let serve = async {
                match upgraded.await {
                    Ok(io) => session(TokioIo::new(io)).await,
                    Err(error) => Err(Broken::Io(std::io::Error::other(error))),
                }
            };
            let result = tokio::select! {
                result = serve => result,
                () = cut.cancelled() => Ok(()),
            };
            if let Err(error) = result {
                let address = caller.address;
                tracing::debug!(%address, error = &error as &dyn std::error::Error, "a session broke off");
            }
        });
    }
}

fn kind(headers: &HeaderMap) -> Result<Kind, Refusal> {
    upgrade::kind(headers).ok_or_else(|| Refusal::Failed("Upgrade request required".to_owned()))
}

fn wanted(query: &Query) -> Result<Wanted, Refusal> {
    let tty = query.flag("tty");
    let wanted = Wanted {
        stdin: query.flag("input"),
        stdout: query.flag("output"),
        // A terminal has one output.
        stderr: query.flag("error") && !tty,
        tty,
    };
    if wanted.stdin || wanted.stdout || wanted.stderr {
        Ok(wanted)
    } else {
        Err(Refusal::Invalid(
            "you must specify at least 1 of stdin, stdout, stderr".to_owned(),
        ))
    }
}

/// Ports of the WebSocket form: `port=8080,9090` or repeated. Channels are single digits in its text form, so five at most.
fn ports(query: &Query) -> Result<Vec<NonZeroU16>, Refusal> {
    const MOST: usize = 5;
    let ports: Vec<NonZeroU16> = query
        .all("port")
        .flat_map(|list| list.split(','))
        .map(|port| {
            port.parse()
                .map_err(|_| Refusal::Invalid(format!("{port:?} is not a port")))
        })
        .collect::<Result<_, _>>()?;
    match ports.len() {
        0 => Err(Refusal::Invalid("query parameter \"port\" is required".to_owned())),
        1..=MOST => Ok(ports),
        _ => Err(Refusal::Invalid(format!(
            "at most {MOST} ports can be forwarded over one WebSocket"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_as_a_list_or_repeated() {
        let parse = |text| ports(&Query::parse(Some(text)).unwrap()).map(|ports| ports.len());
        assert_eq!(parse("port=8080,9090&port=1"), Ok(3));
        assert!(parse("").is_err());
        assert!(parse("port=0").is_err());
        assert!(parse("port=1,2,3,4,5,6").is_err());
    }

    #[test]
    fn at_least_one_stream_must_be_wanted() {
        let parse = |text| wanted(&Query::parse(Some(text)).unwrap());
        assert!(parse("tty=1").is_err());
        assert!(
            parse("tty=1&error=1").is_err(),
            "a terminal has no error output of its own"
        );
        assert!(parse("output=1").is_ok());
    }
}
