//! Our own node under the REAPI suite.

use russet_conformance::ours::{Ours, Signed};
use russet_conformance::{reapi, run, select};
use russet_stages::kura::Program;

/// Everything passes and everything applies: capabilities are honoured, uploads resume, hints are taken, grants hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_remote_execution_api_of_a_cache() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Es256).await.unwrap();
    let report = run(&select(reapi::all(), &[]), &ours.target().unwrap()).await;
    assert_eq!(report.passed(), report.rows.len(), "{}", report.table());
    ours.node.alive().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_remote_execution_api_over_tls() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Es256).await.unwrap();
    let report = run(&select(reapi::all(), &[]), &ours.secure_target().unwrap()).await;
    assert_eq!(report.passed(), report.rows.len(), "{}", report.table());
    ours.node.alive().unwrap();
}
