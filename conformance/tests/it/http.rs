//! Our own node under the HTTP suites, over every way it can be spoken to.

use russet_conformance::http::{self, Server, Transport};
use russet_conformance::ours::{Ours, Signed};
use russet_conformance::{Outcome, Report, run, select};
use russet_stages::kura::Program;

/// Everything passes, and what does not apply is what `excused` says and nothing else.
async fn expect_all(server: &Server, excused: &[&str]) {
    let report = run(&select(http::all(), &[]), server).await;
    judge(&report, excused);
}

fn judge(report: &Report, excused: &[&str]) {
    let failures: Vec<_> = report.failures().map(|row| (row.name, &row.outcome)).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    for row in &report.rows {
        if let Outcome::NotApplicable(why) = &row.outcome {
            assert!(
                excused.iter().any(|excuse| why.contains(excuse)),
                "{} was not made: {why}",
                row.name
            );
        }
    }
}

const NO_HTTP2: &str = "about HTTP/2";
const NO_HTTP1: &str = "about the bytes of HTTP/1.1";
const NO_PUBLIC_KEY: &str = "there is no public key to confuse it with";

#[tokio::test]
async fn the_contract_and_every_attack_over_http_1() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Es256).await.unwrap();
    expect_all(&ours.server(Transport::Http1).unwrap(), &[NO_HTTP2]).await;
    ours.node.alive().unwrap();
}

#[tokio::test]
async fn the_contract_and_every_attack_over_http_2_without_tls() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Hs256).await.unwrap();
    expect_all(&ours.server(Transport::H2c).unwrap(), &[NO_HTTP1, NO_PUBLIC_KEY]).await;
    ours.node.alive().unwrap();
}

#[tokio::test]
async fn the_contract_and_every_attack_over_tls() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Hs256).await.unwrap();
    expect_all(&ours.server(Transport::TlsHttp1).unwrap(), &[NO_HTTP2, NO_PUBLIC_KEY]).await;
    expect_all(&ours.server(Transport::TlsHttp2).unwrap(), &[NO_HTTP1, NO_PUBLIC_KEY]).await;
    ours.node.alive().unwrap();
}

/// No token, key or secret ends in the log of a node that was attacked with all of them.
#[tokio::test]
async fn nothing_secret_is_logged_under_attack() {
    let ours = Ours::start(&Program::built().unwrap(), Signed::Hs256).await.unwrap();
    let server = ours.server(Transport::Http1).unwrap();
    let report = run(&select(http::all(), &["trust".to_owned(), "token".to_owned()]), &server).await;
    judge(&report, &[NO_PUBLIC_KEY]);
    let log = ours.node.log();
    for token in [&server.credentials.writer, &server.credentials.victim] {
        let token = token.as_ref().unwrap().expose();
        let signature = token.rsplit('.').next().unwrap();
        assert!(!log.contains(signature), "a token was logged");
    }
}
