//! `set -o pipefail` in a script that cloud-init gave to sh: it ended on its first line.
//!
//! Without the check for bash at the top of the program it ends with dash's `Illegal option -o posix`, and nothing that says what to do.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_bootstrap::linux::{
    Data, Form, Join, KubernetesChannel, NodeAddress, PrivateNet, SCRIPT, cloud_init, exit, render,
};
use russet_telemetry::Secret;
use serde_json::{Value, json};

use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "dash-is-not-bash",
    from: "S4",
    what_happened: "`set -o pipefail` under sh, which is dash, aborted cloud-init on line one",
    must_hold: "user data names bash; given to sh all the same, the program hands itself to bash or says what it needs",
    without: None,
    play: Play::Plain(run),
};

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move { play(stage) }.boxed()
}

fn play(stage: &mut Stage<'_, ()>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    stage.step("a naive script, run as cloud-init runs `runcmd` lines: by sh");
    let naive = dir.path().join("naive.sh");
    std::fs::write(&naive, "#!/bin/bash\nset -euo pipefail\necho joined\n")?;
    // Where sh is another shell there is dash, or nothing that could bite.
    let sh = if run_in(dir.path(), "dash", &["-c", ":"]).is_ok() {
        "dash"
    } else {
        "sh"
    };
    let ended = run_in(dir.path(), sh, &[&naive.display().to_string()])?;
    ensure!(
        !ended.status.success(),
        "the staged fault did not bite: {sh} knows pipefail"
    );
    stage.bites(String::from_utf8_lossy(&ended.stderr).trim());

    stage.step("our user data");
    let rendered = render(&join())?;
    let config: Value = serde_yaml_ng::from_str(cloud_init(&rendered).expose())?;
    ensure!(
        config.get("runcmd") == Some(&json!([["bash", SCRIPT]])),
        "{:?}",
        config.get("runcmd")
    );
    stage.holds(format!("runs `bash {SCRIPT}`, with no shell in between"));

    stage.step("the same program given to sh, where `bash` is a stand-in that only says that it was called");
    let program = dir.path().join("bootstrap-node.sh");
    std::fs::write(&program, rendered.script.expose())?;
    let program = program.display().to_string();
    let ended = run_in(dir.path(), sh, &[&program])?;
    // 64 and a sentence: nothing was done, since nothing but a real bash may go on.
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.code() == i32::try_from(exit::NOT_BASH).ok(), "{ended:?}");
    ensure!(said.contains("needs bash"), "{said}");
    stage.holds(format!(
        "without bash it says so and exits with {}: {}",
        exit::NOT_BASH,
        said.trim()
    ));
    let stand_in = dir.path().join("bin/bash");
    std::fs::write(&stand_in, "#!/bin/sh\necho \"bash was given $1\"\n")?;
    executable(&stand_in)?;
    let ended = run_in(dir.path(), sh, &[&program])?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    ensure!(
        ended.status.success() && said.trim() == format!("bash was given {program}"),
        "{ended:?}"
    );
    stage.holds("with bash it hands itself over before a line of it has run");
    Ok(())
}

/// Runs a shell that finds nothing but what is in `bin` of a folder.
fn run_in(dir: &Path, shell: &str, args: &[&str]) -> Result<Output> {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin)?;
    Command::new(Path::new("/bin").join(shell))
        .args(args)
        .env_clear()
        .env("PATH", &bin)
        .current_dir(dir)
        .output()
        .with_context(|| format!("failed to run {shell}"))
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

fn join() -> Join {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "abcdef.0123456789abcdef"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    Join {
        node_name: "cache-1".to_owned(),
        provider_id: "scaleway://instance/fr-par-1/11111111-1111-4111-8111-111111111111".to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        bootstrap_kubeconfig: Secret::new(kubeconfig.to_string()),
        cluster_ca_pem: "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmg\n-----END CERTIFICATE-----\n".to_owned(),
        cluster_dns: vec![std::net::Ipv4Addr::new(10, 96, 0, 10).into()],
        cluster_domain: "cluster.local".to_owned(),
        kubernetes: KubernetesChannel::v1(35),
        private_network: PrivateNet::None,
        node_address: NodeAddress::default(),
        data: Data::None,
        form: Form::CloudInit,
    }
}
