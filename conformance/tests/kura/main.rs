//! Our own node under the conformance suites, over every way it can be spoken to. Each check is a test of its own, `transport::check`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::{Arguments, Trial};
use russet_conformance::http::{self, Server, Transport};
use russet_conformance::ours::{Ours, Signed};
use russet_conformance::reapi::{self, Target};
use russet_conformance::{Check, Outcome, run, select};
use russet_stages::kura::Program;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

const NO_HTTP2: &str = "about HTTP/2";
const NO_HTTP1: &str = "about the bytes of HTTP/1.1";
const NO_PUBLIC_KEY: &str = "there is no public key to confuse it with";

/// A node of its own and one way to speak to it. Its checks run one after the other, since some empty a namespace.
struct Profile<T: 'static> {
    name: &'static str,
    signed: Signed,
    target: fn(&Ours) -> Result<T>,
    /// Reasons for which a check may not apply.
    excused: &'static [&'static str],
    stage: OnceCell<(Ours, Mutex<T>)>,
}

impl<T: Send + 'static> Profile<T> {
    fn new(
        name: &'static str,
        signed: Signed,
        excused: &'static [&'static str],
        target: fn(&Ours) -> Result<T>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            signed,
            target,
            excused,
            stage: OnceCell::new(),
        })
    }

    async fn prove(&self, check: &Check<T>) -> Result<()> {
        let (ours, target) = self
            .stage
            .get_or_try_init(|| async {
                let ours = Ours::start(&kura()?, self.signed).await?;
                let target = Mutex::new((self.target)(&ours)?);
                Ok::<_, anyhow::Error>((ours, target))
            })
            .await?;
        let report = run(&[check], &*target.lock().await).await;
        ours.node.alive()?;
        for row in report.rows {
            match row.outcome {
                Outcome::Passed => {}
                Outcome::Failed(seen) => bail!("{}: {seen}", row.proves),
                Outcome::NotApplicable(why) => {
                    let excused = self.excused.iter().any(|excuse| why.contains(excuse));
                    ensure!(excused, "it was not made: {why}");
                }
            }
        }
        Ok(())
    }

    fn trials(self: Arc<Self>, checks: impl Iterator<Item = &'static Check<T>>, runtime: &Runtime) -> Vec<Trial> {
        let trial = |check: &'static Check<T>| {
            let (handle, profile) = (runtime.handle().clone(), Arc::clone(&self));
            let name = format!("{}::{}", self.name, check.name);
            Trial::test(name, move || {
                let done = handle.block_on(profile.prove(check));
                done.map_err(|error| format!("{error:#}").into())
            })
        };
        checks.map(trial).collect()
    }
}

/// The node that was built last; built now if it never was.
fn kura() -> Result<Program> {
    Program::find().or_else(|_| {
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--package", "kura"])
            .status()?;
        ensure!(built.success(), "failed to build kura");
        Program::find()
    })
}

/// No token, key or secret ends in the log of a node that was attacked with all of them.
async fn nothing_secret_is_logged_under_attack() -> Result<()> {
    let ours = Ours::start(&kura()?, Signed::Hs256).await?;
    let server = ours.server(Transport::Http1)?;
    let words = ["trust".to_owned(), "token".to_owned()];
    for report in [
        run(&select(http::all(), &words), &server).await,
        run(&select(reapi::all(), &words), &ours.target()?).await,
    ] {
        ensure!(report.failures().next().is_none(), "{}", report.table());
    }
    let log = ours.node.log();
    for token in [
        &server.credentials.writer,
        &server.credentials.reader,
        &server.credentials.victim,
    ] {
        let token = token.as_ref().context("a credential")?.expose();
        let signature = token.rsplit('.').next().context("a signature")?;
        ensure!(!log.contains(signature), "a token was logged");
    }
    Ok(())
}

/// All engines serve one store.
async fn what_one_transport_stores_every_other_reads() -> Result<()> {
    let ours = Ours::start(&kura()?, Signed::Hs256).await?;
    let ways = [
        Transport::Http1,
        Transport::H2c,
        Transport::TlsHttp1,
        Transport::TlsHttp2,
    ];
    let servers: Vec<Server> = ways.into_iter().map(|way| ours.server(way)).collect::<Result<_>>()?;
    for writer in &servers {
        for size in [5, 3_000_000] {
            let (target, body) = (writer.gradle(&writer.key("shared")), writer.body(size));
            writer.writer().store(&target, &body).await?;
            for reader in &servers {
                let hit = reader.writer().get(&target).await?;
                hit.expect(200)?.expect_body(&body)?;
            }
        }
    }
    Ok(())
}

fn trials(runtime: &Runtime) -> Vec<Trial> {
    let mut alone = Vec::new();
    macro_rules! alone {
        ($($test:ident),*) => {$(
            let handle = runtime.handle().clone();
            alone.push(Trial::test(stringify!($test), move || {
                handle.block_on($test()).map_err(|error| format!("{error:#}").into())
            }));
        )*};
    }
    alone!(
        nothing_secret_is_logged_under_attack,
        what_one_transport_stores_every_other_reads
    );
    let mut columns = vec![alone];
    let over_http = [
        Profile::new("http1", Signed::Es256, &[NO_HTTP2], |ours: &Ours| {
            ours.server(Transport::Http1)
        }),
        Profile::new("h2c", Signed::Hs256, &[NO_HTTP1, NO_PUBLIC_KEY], |ours: &Ours| {
            ours.server(Transport::H2c)
        }),
        Profile::new("tls_http1", Signed::Hs256, &[NO_HTTP2, NO_PUBLIC_KEY], |ours: &Ours| {
            ours.server(Transport::TlsHttp1)
        }),
        Profile::new("tls_http2", Signed::Hs256, &[NO_HTTP1, NO_PUBLIC_KEY], |ours: &Ours| {
            ours.server(Transport::TlsHttp2)
        }),
    ];
    for profile in over_http {
        columns.push(profile.trials(http::all(), runtime));
    }
    let over_grpc: [Arc<Profile<Target>>; 2] = [
        Profile::new("grpc", Signed::Es256, &[], Ours::target),
        Profile::new("grpc_tls", Signed::Es256, &[], Ours::secure_target),
    ];
    for profile in over_grpc {
        columns.push(profile.trials(reapi::all(), runtime));
    }
    // In turns, so that no two threads want the same node.
    let mut turns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let row: Vec<Trial> = turns.iter_mut().filter_map(Iterator::next).collect();
        if row.is_empty() {
            return all;
        }
        all.extend(row);
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each of them mostly waits, whatever the machine has.
    arguments.test_threads.get_or_insert(6);
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = libtest_mimic::run(&arguments, trials(&runtime));
    runtime.shutdown_background();
    done.exit_code()
}
