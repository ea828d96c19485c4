//! A cache node that is killed under load, again and again, on one folder.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use russet_conformance::http::Server;
use russet_stages::kura::{Node, Options, Program};
use russet_testkit::wait::{Look, PATIENCE, until};
use tokio::task::JoinSet;

const ROUNDS: usize = 4;
const WRITERS: usize = 6;
/// Acknowledged writes after which a round ends.
const ENOUGH: usize = 250;

/// What was promised to clients, over all rounds.
#[derive(Default)]
struct Ledger {
    /// Target and body of every write that was acknowledged.
    blobs: Mutex<HashMap<String, Vec<u8>>>,
    /// Key-value entries: the last value that was acknowledged, and the one that may have been under way.
    values: Mutex<HashMap<String, (usize, usize)>>,
    acknowledged: AtomicUsize,
}

impl Ledger {
    fn any_blob(&self, at: usize) -> Option<(String, Vec<u8>)> {
        let blobs = self.blobs.lock().unwrap();
        let mut keys: Vec<_> = blobs.keys().collect();
        keys.sort();
        let key = *keys.get(at % keys.len().max(1))?;
        Some((key.clone(), blobs[key].clone()))
    }
}

async fn write_blobs(server: Arc<Server>, ledger: Arc<Ledger>) {
    for number in 0.. {
        let body = server.body(if number % 10 == 9 { 200_000 } else { 1000 + number });
        let target = server.gradle(&server.key("crash"));
        match server.anonymous().put(&target, &body).await {
            Ok(answer) if answer.status == 201 => {
                ledger.blobs.lock().unwrap().insert(target, body);
                ledger.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            _ => return,
        }
    }
}

async fn write_values(server: Arc<Server>, ledger: Arc<Ledger>, key: String, from: usize) {
    let put = server.api("keyvalue");
    for value in from.. {
        let document = format!(r#"{{"cas_id":"{key}","entries":[{{"value":"{value}"}}]}}"#);
        ledger.values.lock().unwrap().entry(key.clone()).or_default().1 = value;
        match server.anonymous().put(&put, document.as_bytes()).await {
            Ok(answer) if answer.status == 204 => {
                ledger.values.lock().unwrap().entry(key.clone()).or_default().0 = value;
                ledger.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            _ => return,
        }
    }
}

/// What was acknowledged can be read at once, and never as something else.
async fn read(server: Arc<Server>, ledger: Arc<Ledger>) -> Result<()> {
    for at in (0..).step_by(7) {
        let Some((target, body)) = ledger.any_blob(at) else {
            tokio::task::yield_now().await;
            continue;
        };
        let Ok(answer) = server.anonymous().get(&target).await else {
            return Ok(());
        };
        answer.expect(200)?.expect_body(&body)?;
    }
    Ok(())
}

async fn everything_is_there(server: &Server, ledger: &Ledger) -> Result<()> {
    let blobs = ledger.blobs.lock().unwrap().clone();
    for (target, body) in blobs {
        let found = server.anonymous().hit(&target, &body).await;
        found.with_context(|| format!("{target} was acknowledged"))?;
    }
    let values = ledger.values.lock().unwrap().clone();
    for (key, (acknowledged, under_way)) in values {
        let get = server.api(&format!("keyvalue/{key}"));
        let found = server.anonymous().get(&get).await?.expect(200)?.json()?;
        let value: usize = found["entries"][0]["value"].as_str().unwrap().parse()?;
        let known = value == acknowledged || value == under_way;
        ensure!(
            known,
            "{key} is {value}, where {acknowledged} was acknowledged and {under_way} was under way"
        );
        ledger.values.lock().unwrap().insert(key, (value, value));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_four_kills_under_load() -> Result<()> {
    let (program, home) = (Program::at(env!("CARGO_BIN_EXE_kura")), tempfile::tempdir()?);
    let ledger = Arc::new(Ledger::default());
    for round in 0..ROUNDS {
        let node = Node::start(&program, home.path(), &Options::default()).await?;
        let server = Arc::new(Server::new(&node.url())?);
        let survived = everything_is_there(&server, &ledger).await;
        survived.with_context(|| format!("after {round} kills"))?;

        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            writers.spawn(write_blobs(Arc::clone(&server), Arc::clone(&ledger)));
        }
        for number in 0..2 {
            let key = format!("value-{number}");
            let from = ledger.values.lock().unwrap().get(&key).map_or(0, |(last, _)| last + 1);
            writers.spawn(write_values(Arc::clone(&server), Arc::clone(&ledger), key, from));
        }
        let mut readers = JoinSet::new();
        for _ in 0..2 {
            readers.spawn(read(Arc::clone(&server), Arc::clone(&ledger)));
        }
        let wanted = (round + 1) * ENOUGH;
        until("enough writes to be acknowledged", PATIENCE, || async {
            node.alive()?;
            let count = ledger.acknowledged.load(Ordering::Relaxed);
            let enough = count >= wanted;
            Ok(if enough { Look::Done(()) } else { Look::not_yet(count) })
        })
        .await?;
        node.kill().await?;
        while let Some(ended) = writers.join_next().await {
            ended?;
        }
        while let Some(ended) = readers.join_next().await {
            ended?.context("a reader under load")?;
        }
    }
    let node = Node::start(&program, home.path(), &Options::default()).await?;
    everything_is_there(&Server::new(&node.url())?, &ledger).await?;
    node.stop().await?;
    let checked = std::process::Command::new(program.path())
        .args(["verify", "--data-dir"])
        .arg(home.path().join("data"))
        .output()?;
    ensure!(checked.status.success(), "kura verify: {}", crate::node::said(&checked));
    Ok(())
}
