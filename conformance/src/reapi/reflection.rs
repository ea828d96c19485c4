//! Server reflection, by an exchange such as tools make it: what is there, what does it look like, what does that need.
//!
//! Messages are read without generated types, so that nothing is taken for granted that the server's library also takes for granted.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use russet_reapi::client::tonic::Code;
use russet_reapi::wire::{Fields, Malformed, Value, put_bytes};
use std::collections::BTreeSet;

use super::raw::Exchange;
use super::target::{Target, Told};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    current, "reapi-reflection", "gRPC server reflection protocol":
        "server reflection (v1) lists the services, describes them with all they import, and says NOT_FOUND of others";
    alpha, "reapi-reflection-v1alpha", "gRPC server reflection protocol":
        "the same in the version older tools ask for";
};

const ACTIONS: &str = "build.bazel.remote.execution.v2.ActionCache";
const SERVICES: [&str; 4] = [
    ACTIONS,
    "build.bazel.remote.execution.v2.Capabilities",
    "build.bazel.remote.execution.v2.ContentAddressableStorage",
    "google.bytestream.ByteStream",
];

async fn current(target: &Target) -> Result<()> {
    converse(target, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo").await
}

async fn alpha(target: &Target) -> Result<()> {
    converse(target, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo").await
}

/// Fields of a `ServerReflectionRequest`.
const FILE_BY_FILENAME: u8 = 3;
const FILE_CONTAINING_SYMBOL: u8 = 4;
const LIST_SERVICES: u8 = 7;

/// What a `ServerReflectionResponse` says.
enum Answer {
    Files(Vec<Bytes>),
    Services(BTreeSet<String>),
    Error(u64),
}

/// What is in that field of a message, as often as it is there.
fn all<'m, T>(message: &'m [u8], wanted: u32, read: impl Fn(Value<'m>) -> Result<T, Malformed>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for field in Fields::new(message) {
        let (number, value) = field?;
        if number == wanted {
            found.push(read(value)?);
        }
    }
    Ok(found)
}

fn texts(message: &[u8], wanted: u32) -> Result<Vec<&str>> {
    all(message, wanted, Value::text)
}

fn messages(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>> {
    all(message, wanted, Value::bytes)
}

fn name(message: &[u8]) -> Result<&str> {
    texts(message, 1)?.first().copied().context("something has no name")
}

fn read(response: &[u8]) -> Result<Answer> {
    for field in Fields::new(response) {
        match field? {
            (4, value) => {
                let files = messages(value.bytes()?, 1)?.into_iter();
                return Ok(Answer::Files(files.map(Bytes::copy_from_slice).collect()));
            }
            (6, value) => {
                let services = messages(value.bytes()?, 1)?.into_iter();
                return Ok(Answer::Services(
                    services
                        .map(|service| Ok(name(service)?.to_owned()))
                        .collect::<Result<_>>()?,
                ));
            }
            (7, value) => {
                let code = Fields::new(value.bytes()?).find_map(|field| match field {
                    Ok((1, code)) => code.number().ok(),
                    _ => None,
                });
                return Ok(Answer::Error(code.unwrap_or(0)));
            }
            _ => {}
        }
    }
    bail!("an answer that says nothing")
}

async fn converse(target: &Target, path: &'static str) -> Result<()> {
    let mut first = Vec::new();
    put_bytes(&mut first, LIST_SERVICES, b"*");
    let mut exchange = match Exchange::begin(target, path, first.clone()).await {
        Err(status) if status.code() == Code::Unimplemented => {
            return not_applicable("the server has no such reflection");
        }
        begun => begun.map_err(Told)?,
    };
    let answer = match exchange.next().await {
        Err(status) if status.code() == Code::Unimplemented => {
            return not_applicable("the server has no such reflection");
        }
        answer => answer.map_err(Told)?.context("the exchange ended early")?,
    };
    ensure!(
        messages(&answer, 2)?.first() == Some(&&first[..]),
        "the answer does not repeat the request it is about"
    );
    let Answer::Services(services) = read(&answer)? else {
        bail!("a question for services was answered with something else");
    };
    for service in SERVICES {
        ensure!(services.contains(service), "{service} is not listed");
    }
    // Whatever is listed can be described, with everything it imports.
    let (mut seen, mut queue) = (BTreeSet::new(), Vec::new());
    for service in &services {
        for file in exchange.files(FILE_CONTAINING_SYMBOL, service).await? {
            queue.push(file);
        }
    }
    let mut described = BTreeSet::new();
    while let Some(file) = queue.pop() {
        if !seen.insert(name(&file)?.to_owned()) {
            continue;
        }
        let package = texts(&file, 2)?.first().copied().unwrap_or_default();
        for service in messages(&file, 6)? {
            let service_name = format!("{package}.{}", name(service)?);
            if service_name == ACTIONS {
                ensure!(
                    methods(service)? == expected(),
                    "{ACTIONS} has the methods {:?}",
                    methods(service)?
                );
            }
            described.insert(service_name);
        }
        for import in texts(&file, 3)? {
            if !seen.contains(import) {
                queue.extend(exchange.files(FILE_BY_FILENAME, import).await?);
            }
        }
    }
    let missing: Vec<_> = services.difference(&described).collect();
    ensure!(missing.is_empty(), "listed, but not described: {missing:?}");
    for (field, unknown) in [
        (FILE_CONTAINING_SYMBOL, "no.such.Service"),
        (FILE_BY_FILENAME, "no/such/file.proto"),
    ] {
        let mut request = Vec::new();
        put_bytes(&mut request, field, unknown.as_bytes());
        let code = refusal(target, path, request).await?;
        ensure!(code == Some(5), "{unknown} is {code:?}");
    }
    Ok(())
}

/// How a question is refused: in an answer, or as some libraries do by ending the exchange. Tools understand both.
async fn refusal(target: &Target, path: &'static str, request: Vec<u8>) -> Result<Option<u64>> {
    let answer = match Exchange::begin(target, path, request).await {
        Ok(mut exchange) => exchange.next().await,
        Err(status) => Err(status),
    };
    Ok(match answer {
        Ok(Some(answer)) => match read(&answer)? {
            Answer::Error(code) => Some(code),
            _ => None,
        },
        Ok(None) => None,
        Err(status) => u64::try_from(i32::from(status.code())).ok(),
    })
}

/// Names and types of a service's methods.
fn methods(service: &[u8]) -> Result<BTreeSet<[String; 3]>> {
    let methods = messages(service, 2)?.into_iter();
    methods
        .map(|method| {
            let text = |field| Ok::<_, anyhow::Error>(texts(method, field)?.first().copied().unwrap_or("").to_owned());
            Ok([text(1)?, text(2)?, text(3)?])
        })
        .collect()
}

fn expected() -> BTreeSet<[String; 3]> {
    let result = ".build.bazel.remote.execution.v2.ActionResult";
    ["GetActionResult", "UpdateActionResult"]
        .into_iter()
        .map(|name| {
            let request = format!(".build.bazel.remote.execution.v2.{name}Request");
            [name.to_owned(), request, result.to_owned()]
        })
        .collect()
}

impl Exchange {
    async fn ask(&mut self, field: u8, text: &str) -> Result<Answer> {
        let mut request = Vec::new();
        put_bytes(&mut request, field, text.as_bytes());
        self.send(request).await?;
        let answer = self.next().await.map_err(Told)?.context("the exchange ended early")?;
        read(&answer).with_context(|| format!("the answer about {text}"))
    }

    /// The files that describe something.
    async fn files(&mut self, field: u8, text: &str) -> Result<Vec<Bytes>> {
        match self.ask(field, text).await? {
            Answer::Files(files) if !files.is_empty() => Ok(files),
            Answer::Error(code) => bail!("{text} cannot be described: code {code}"),
            _ => bail!("a question for {text} was answered with something else"),
        }
    }
}
