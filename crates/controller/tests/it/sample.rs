//! Starts `sample-controller` and looks at what it wrote.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, ObjectMeta, PostParams};
use russet_cluster::process::Probe;
use russet_testkit::audit::Entry;
use russet_testkit::identity::{Granted, rule};
use russet_testkit::sandbox::Program;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Sandbox, TestCluster};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Everything `sample-controller --kind config-map --namespace` needs, and not one verb more.
pub(crate) fn rules() -> Vec<PolicyRule> {
    vec![
        rule(
            "",
            &["configmaps"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    ]
}

/// Starts it in the sandbox's namespace. Ports are free ones; see [`probe`].
pub(crate) async fn start<'a>(
    sandbox: &'a Sandbox<'_>,
    name: &str,
    who: &Granted,
    extra: &[&str],
) -> Result<Program<'a>> {
    let mut args = vec![
        format!("--kubeconfig={}", who.kubeconfig.display()),
        format!("--namespace={}", sandbox.namespace()),
        format!("--leader-election-namespace={}", sandbox.namespace()),
        format!("--leader-election-identity={name}"),
        "--metrics-bind-address=127.0.0.1:0".to_owned(),
        "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        "--log-format=json".to_owned(),
    ];
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sample-controller"));
    sandbox.run(name, program, args, Probe::None).await
}

pub(crate) fn parent(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(
                "sample.russet.dev/parent".to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

pub(crate) async fn create(api: &Api<ConfigMap>, object: &ConfigMap) -> Result<ConfigMap> {
    Ok(api.create(&PostParams::default(), object).await?)
}

/// Waits until a key of a child has a value that the predicate likes.
pub(crate) async fn child_says(
    api: &Api<ConfigMap>,
    name: &str,
    key: &str,
    likes: impl Fn(&str) -> bool,
) -> Result<ConfigMap> {
    wait::until(&format!("{key} of ConfigMap {name}"), PATIENCE, || async {
        let child = api.get(name).await?;
        let value = child.data.as_ref().and_then(|data| data.get(key)).cloned();
        Ok(if value.as_deref().is_some_and(&likes) {
            Look::Done(child)
        } else {
            Look::not_yet(value)
        })
    })
    .await
}

/// Asks one of the program's own ports, which it names in its log, and returns status code and body.
pub(crate) async fn ask(program: &Program<'_>, what: &str, path: &str) -> Result<(u16, String)> {
    let address = program
        .log()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["message"] == "serving" && line["what"] == what)
        .and_then(|line| line["address"].as_str().map(ToOwned::to_owned))
        .with_context(|| format!("the log does not say where {what} are served yet"))?;
    let mut stream = tokio::net::TcpStream::connect(&address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("not an HTTP answer")?;
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default();
    Ok((code, body))
}

/// All requests to one namespace, by whomever, in the order in which the API server finished them.
pub(crate) fn requests_in(cluster: &TestCluster, namespace: &str) -> Result<Vec<Entry>> {
    let path = cluster.control_plane().audit_log().context("no audit log")?;
    let text = std::fs::read_to_string(path)?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    Ok(entries.filter(|entry| entry.object().namespace == namespace).collect())
}
