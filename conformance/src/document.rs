//! `docs/conformance.md`: what each check proves, and how servers fare.

use std::fmt::Write as _;

use anyhow::Result;
use russet_stages::kura::Program;

use super::http::{self, Dialect, Server, Transport};
use super::ours::{Ours, Signed};
use super::reapi::{self, Target};
use super::{Report, compare, run, select};

const HEAD: &str = "# Conformance

Black-box checks of a build cache: the HTTP contract, the attacks it must withstand, and the Remote Execution API. They know nothing of
the server but its address and credentials, so they can be pointed at any:

```console
$ cargo run -p russet-conformance -- http --url http://127.0.0.1:4000
$ cargo run -p russet-conformance -- http --url http://127.0.0.1:8080 --dialect bazel
$ cargo run -p russet-conformance -- reapi --url grpc://127.0.0.1:4000 --instance ios
$ cargo run -p russet-conformance -- reapi --url grpcs://cache.example.com:443 --ca-file authority.pem
```

`--json` prints the same for programs; the exit code is not zero when a check failed. Tokens come from files (`--token-file` and others, see
`--help`). The checks write into a scratch project and never empty one unless told `--allow-clean`. `make test` runs all of them against our
own node over HTTP/1.1, HTTP/2 and TLS; the tables below were printed by `conformance document`.

`n/a` means that the server does not offer what the check is about, or that the run does not: a check about the bytes of HTTP/1.1 says nothing
over HTTP/2. Where a specification leaves a choice every choice passes, save for the attacks (`poison-`): there a server must not even forgive
what RFC 9112 lets it forgive, such as folded lines and bare line feeds, because the next server in the chain may not.
";

/// What there is, for a terminal.
pub fn list() -> String {
    let mut text = String::new();
    for (name, proves, naive) in http::all()
        .map(|check| (check.name, check.proves, check.naive))
        .chain(reapi::all().map(|check| (check.name, check.proves, check.naive)))
    {
        let _ = writeln!(text, "{name}\n    {proves}");
        if let Some(naive) = naive {
            let _ = writeln!(text, "    a naive server {naive}");
        }
    }
    text
}

/// Servers to compare with, by name and URL. They run already.
#[derive(Debug, Default)]
pub struct Others {
    pub bazel: Vec<(String, String)>,
    pub reapi: Vec<(String, String)>,
}

/// The whole document. Starts a kura of its own.
pub async fn write(program: &Program, others: &Others) -> Result<String> {
    let ours = Ours::start(program, Signed::Es256).await?;
    let mut text = HEAD.to_owned();
    text.push_str("\n## HTTP\n\n");
    text.push_str(&over_http(&ours, &others.bazel).await?);
    text.push_str("\n## Remote Execution API\n\n");
    text.push_str(&over_grpc(&ours, &others.reapi).await?);
    Ok(text)
}

async fn over_http(ours: &Ours, others: &[(String, String)]) -> Result<String> {
    let all = select(http::all(), &[]);
    let mut columns: Vec<(String, Report)> = Vec::new();
    for (name, transport) in [
        ("kura", Transport::Http1),
        ("kura, HTTP/2", Transport::H2c),
        ("kura, TLS", Transport::TlsHttp1),
    ] {
        let server = ours.server(transport)?;
        columns.push((name.to_owned(), run(&all, &server).await));
    }
    for (name, url) in others {
        let mut server = Server::new(url)?;
        server.dialect = Dialect::Bazel;
        columns.push((name.clone(), run(&all, &server).await));
    }
    let mut text = compare(&borrowed(&columns));
    text.push_str("\nWhat a naive server does under attack:\n\n");
    for check in http::all() {
        if let Some(naive) = check.naive {
            let _ = writeln!(text, "- `{}`: {naive}", check.name);
        }
    }
    Ok(text)
}

async fn over_grpc(ours: &Ours, others: &[(String, String)]) -> Result<String> {
    let all = select(reapi::all(), &[]);
    let mut columns = vec![
        ("kura".to_owned(), run(&all, &ours.target()?).await),
        ("kura, TLS".to_owned(), run(&all, &ours.secure_target()?).await),
    ];
    for (name, url) in others {
        columns.push((name.clone(), run(&all, &Target::new(url)?).await));
    }
    Ok(compare(&borrowed(&columns)))
}

fn borrowed(columns: &[(String, Report)]) -> Vec<(&str, &Report)> {
    columns.iter().map(|(name, report)| (name.as_str(), report)).collect()
}
