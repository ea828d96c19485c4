//! Asks a container how it is.

use super::{Answer, grpc, http};
use crate::time::in_words;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// How to reach an address. On a Mac the socket has to be bound to the interface of the VM's network.
pub trait Dial: Send + Sync {
    /// Connects to a port of a host, which may be a name.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<TcpStream>>;
}

/// Connects as the system does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Dial for Direct {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect((host, port)))
    }
}

/// How to run a program in a container.
pub trait Inside: Send + Sync {
    /// Runs it to its end. An error means that it could not be run at all.
    fn run<'a>(&'a self, command: &'a [String]) -> BoxFuture<'a, Result<Word, String>>;
}

/// A container in which nothing can be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingInside;

impl Inside for NothingInside {
    fn run<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Result<Word, String>> {
        Box::pin(async { Err("nothing can be run in this container".to_owned()) })
    }
}

/// What a program said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Its exit code.
    pub code: i32,
    /// Its output, errors included.
    pub output: String,
}

/// The container that is asked.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its spec, for ports by name.
    pub container: &'a Container,
    /// Its address.
    pub address: IpAddr,
    /// The way to it.
    pub dial: &'a dyn Dial,
    /// The way into it.
    pub inside: &'a dyn Inside,
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("container", &self.container.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The most of a program's or a server's words that is repeated.
const WORDS: usize = 10 * 1024;

/// How often a program is tried that cannot be run at all.
const TRIES: usize = 3;

/// Asks once.
pub async fn ask(probe: &Probe, timeout: Duration, target: Target<'_>) -> Answer {
    if let Some(action) = &probe.exec {
        let command = action.command.as_deref().unwrap_or_default();
        let mut answer = run(command, timeout, target).await;
        for _ in 1..TRIES {
            if !matches!(answer, Answer::Unknown(_)) {
                break;
            }
            answer = run(command, timeout, target).await;
        }
        return answer;
    }
    if let Some(action) = &probe.http_get {
        return match port(&action.port, target.container) {
            Ok(port) => http::probe(action, port, timeout, target).await,
            Err(words) => Answer::Unknown(words),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let own = target.address.to_string();
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&own);
        let port = match port(&action.port, target.container) {
            Ok(port) => port,
            Err(words) => return Answer::Unknown(words),
        };
        let place = place(host, port);
        return match tokio::time::timeout(timeout, target.dial.dial(host, port)).await {
            Ok(Ok(_)) => Answer::Good,
            Ok(Err(error)) => Answer::Bad(format!("dial tcp {place}: {error}")),
            Err(_) => Answer::Bad(format!("dial tcp {place}: i/o timeout")),
        };
    }
    if let Some(action) = &probe.grpc {
        return grpc::probe(action, timeout, target).await;
    }
    Answer::Unknown("missing probe handler; give it exec, httpGet, tcpSocket or grpc".to_owned())
}

async fn run(command: &[String], timeout: Duration, target: Target<'_>) -> Answer {
    match tokio::time::timeout(timeout, target.inside.run(command)).await {
        Err(_) => Answer::Bad(format!(
            "command timed out: {command:?} timed out after {}",
            in_words(timeout)
        )),
        Ok(Err(words)) => Answer::Unknown(words),
        Ok(Ok(word)) if word.code == 0 => Answer::Good,
        Ok(Ok(word)) => Answer::Bad(word.output.chars().take(WORDS).collect()),
    }
}

/// Runs the hook after a start or before a stop. The caller limits its time. An error is the text of the event.
pub async fn run_hook(hook: &LifecycleHandler, target: Target<'_>) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.as_deref().unwrap_or_default();
        let word = target.inside.run(command).await?;
        let output: String = word.output.chars().take(WORDS).collect();
        return match word.code {
            0 => Ok(()),
            code => Err(format!("command {command:?} exited with {code}: {output}")),
        };
    }
    if let Some(action) = &hook.http_get {
        // As in a stock kubelet, an answer is enough, whatever it says.
        return http::call(action, port(&action.port, target.container)?, target).await;
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(crate::time::seconds(action.seconds)).await;
        return Ok(());
    }
    Err("invalid handler; give it exec, httpGet or sleep".to_owned())
}

/// A port by number or by its name in the container.
fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let ports = container.ports.as_deref().unwrap_or_default();
            let named = ports.iter().find(|port| port.name.as_deref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    let Some(number) = number else {
        return Err(format!("couldn't find port: {port:?} in container {}", container.name));
    };
    u16::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

/// Host and port as one word.
pub(super) fn place(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
