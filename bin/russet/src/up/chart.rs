//! Installs our charts with the real Helm.
//!
//! The charts are embedded in this program, unpacked into the state directory, and installed as any user would:
//! `helm upgrade --install`. Helm takes seconds even when nothing changed, so it is skipped when the content hash is the
//! one recorded by the last successful install and the cluster still shows that release with what belongs to it.

use super::tether;
use crate::state::Layout;
use crate::status::cluster::{is_established, our_crds};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::Instant;

/// A chart that this program carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chart {
    /// Name of the release and of the chart.
    pub release: &'static str,
    /// Every file: path inside the chart, content. Sorted.
    files: &'static [(&'static str, &'static [u8])],
    /// Whether Helm waits until everything is well. Not where that takes the program that is started afterwards.
    wait: bool,
}

/// Our CRDs.
pub const CRDS: Chart = Chart {
    release: "russet-crds",
    files: include!(concat!(env!("OUT_DIR"), "/russet-crds.rs")),
    wait: true,
};

/// The Cluster API provider and the fleets.
pub const PROVIDER: Chart = Chart {
    release: "capi-provider",
    files: include!(concat!(env!("OUT_DIR"), "/capi-provider.rs")),
    wait: false,
};

/// Where Helm keeps the records of the releases.
pub const NAMESPACE: &str = "russet-system";

/// Between two looks at a CRD that is not served yet.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to unpack a chart to {}", path.display())]
    Unpack { path: PathBuf, source: io::Error },
    #[error("failed to run {}", helm.display())]
    Spawn { helm: PathBuf, source: io::Error },
    #[error("helm could not install the chart {release}: {reason}")]
    Helm { release: &'static str, reason: String },
    #[error("failed to look at the releases in namespace {NAMESPACE}")]
    Look { source: Box<kube::Error> },
    #[error(
        "an earlier `helm upgrade` of {release} was cut short (the release is {status}); undo it with `helm rollback \
         {release} --namespace {NAMESPACE}` or `helm uninstall {release} --namespace {NAMESPACE}` (our CRDs are kept), \
         then run this again"
    )]
    Pending { release: &'static str, status: String },
    #[error("the CRDs {} were not Established within {} s", missing.join(", "), within.as_secs())]
    NotEstablished { missing: Vec<String>, within: Duration },
}

impl From<kube::Error> for Error {
    fn from(source: kube::Error) -> Self {
        Self::Look {
            source: Box::new(source),
        }
    }
}

/// Whose cluster it is decides what may be repaired in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Started by us, under our lock: nobody else runs Helm in it.
    Ours,
    /// Given with `--kubeconfig`: somebody else may be at work.
    Theirs,
}

/// Where and how to install.
#[expect(missing_debug_implementations, reason = "a client has nothing to show")]
pub struct Target<'a> {
    pub helm: &'a Path,
    pub layout: &'a Layout,
    pub kubeconfig: &'a Path,
    pub context: Option<&'a str>,
    pub client: &'a Client,
    pub ownership: Ownership,
    pub timeout: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Unchanged,
    Installed,
    Upgraded,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Installed => "installed",
            Self::Upgraded => "upgraded",
        }
    }
}

impl Chart {
    /// Identifies the content of the chart and the values it is installed with.
    pub fn content_hash(&self, values: Option<&Value>) -> String {
        let values = values.map(ToString::to_string);
        let mut files = self.files.to_vec();
        files.extend(values.as_ref().map(|values| ("values", values.as_bytes())));
        hash(&files)
    }
}

fn hash(files: &[(&str, &[u8])]) -> String {
    let mut digest = Sha256::new();
    for (name, content) in files {
        // Lengths keep "ab"+"c" and "a"+"bc" apart.
        for piece in [name.as_bytes(), content] {
            digest.update(u64::try_from(piece.len()).unwrap_or(u64::MAX).to_le_bytes());
            digest.update(piece);
        }
    }
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Makes the cluster have the chart. `recorded` is the hash of the last install from this state directory, `whole` whether what
/// belongs to it is there.
pub async fn ensure(
    target: &Target<'_>,
    chart: &Chart,
    values: Option<&Value>,
    recorded: Option<&str>,
    whole: bool,
) -> Result<Outcome, Error> {
    let releases = releases(target.client, chart.release).await?;
    let pending = releases.iter().filter(|release| release.status.starts_with("pending-"));
    for release in pending {
        clear_pending(target, chart.release, release).await?;
    }
    let deployed = releases.iter().any(|release| release.status == "deployed");
    if deployed && whole && recorded == Some(chart.content_hash(values).as_str()) {
        return Ok(Outcome::Unchanged);
    }
    upgrade(target, chart, values).await?;
    Ok(if deployed {
        Outcome::Upgraded
    } else {
        Outcome::Installed
    })
}

/// Makes the cluster have our CRDs.
pub async fn ensure_crds(target: &Target<'_>, recorded: Option<&str>) -> Result<Outcome, Error> {
    let whole = all_crds_exist(target.client).await?;
    ensure(target, &CRDS, None, recorded, whole).await
}

#[derive(Debug)]
struct Release {
    secret: String,
    status: String,
}

/// Helm's own records of a release, as it stores them.
async fn releases(client: &Client, release: &str) -> Result<Vec<Release>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api
        .list_metadata(&ListParams::default().labels(&format!("owner=helm,name={release}")))
        .await?;
    Ok(found
        .items
        .into_iter()
        .map(|secret| Release {
            secret: secret.name_any(),
            status: secret.labels().get("status").cloned().unwrap_or_default(),
        })
        .collect())
}

/// A Helm that was killed leaves its release locked for ever. In our own cluster nobody else can be running it.
async fn clear_pending(target: &Target<'_>, name: &'static str, release: &Release) -> Result<(), Error> {
    if target.ownership == Ownership::Theirs {
        return Err(Error::Pending {
            release: name,
            status: release.status.clone(),
        });
    }
    tracing::info!(
        secret = release.secret,
        status = release.status,
        "removing the record of an interrupted helm run"
    );
    let api: Api<Secret> = Api::namespaced(target.client.clone(), NAMESPACE);
    match api.delete(&release.secret, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn all_crds_exist(client: &Client) -> Result<bool, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let names = our_crds();
    let found = futures::future::try_join_all(names.iter().map(|name| api.get_metadata_opt(name))).await?;
    Ok(found.iter().all(Option::is_some))
}

async fn upgrade(target: &Target<'_>, chart: &Chart, values: Option<&Value>) -> Result<(), Error> {
    let dir = unpack(target.layout, chart)?;
    let home = target.layout.helm();
    let mut command = tether::command(target.helm);
    command
        .args(["upgrade", chart.release])
        .arg(&dir)
        .args(["--install", "--namespace", NAMESPACE, "--create-namespace"])
        .args(chart.wait.then_some("--wait"))
        .arg("--timeout")
        .arg(format!("{}s", target.timeout.as_secs().max(1)))
        .arg("--kubeconfig")
        .arg(target.kubeconfig);
    if let Some(values) = values {
        // A file, not --set: values keep their types, and nothing of them shows in the process list.
        let path = dir.with_extension("values.json");
        fs::write(&path, values.to_string()).map_err(|source| Error::Unpack {
            path: path.clone(),
            source,
        })?;
        command.arg("--values").arg(path);
    }
    if let Some(context) = target.context {
        command.args(["--kube-context", context]);
    }
    // Helm's own folders stay in the state directory, and a KUBECONFIG of the shell cannot redirect it.
    command
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .env_remove("KUBECONFIG")
        .env_remove("HELM_NAMESPACE")
        .env_remove("HELM_KUBECONTEXT")
        .stdin(Stdio::null());
    let output = command.output().await.map_err(|source| Error::Spawn {
        helm: target.helm.to_owned(),
        source,
    })?;
    tracing::debug!(status = %output.status, stdout = %String::from_utf8_lossy(&output.stdout), "helm upgrade");
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Helm {
        release: chart.release,
        reason: reason(&String::from_utf8_lossy(&output.stderr), &output.status.to_string()),
    })
}

/// The line that says why; Helm prefixes it with `Error: `, and warnings may come before it.
fn reason(stderr: &str, status: &str) -> String {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines()
        .find_map(|line| line.strip_prefix("Error: "))
        .or_else(|| lines().next_back())
    {
        Some(line) => line.to_owned(),
        None => status.to_owned(),
    }
}

/// Writes an embedded chart out, replacing what an older russet left.
fn unpack(layout: &Layout, chart: &Chart) -> Result<PathBuf, Error> {
    let dir = layout.chart(chart.release);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Unpack { path, source }
    };
    match fs::remove_dir_all(&dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&dir)(error)),
    }
    for (name, content) in chart.files {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        fs::write(&path, content).map_err(failed(&path))?;
    }
    Ok(dir)
}

/// Waits until the API server serves every CRD of ours. Returns how many there are.
pub async fn wait_established(client: &Client, within: Duration) -> Result<usize, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let names = our_crds();
    let deadline = Instant::now() + within;
    let mut missing = names.clone();
    loop {
        let mut still = Vec::new();
        for name in missing {
            if !api.get_opt(&name).await?.as_ref().is_some_and(is_established) {
                still.push(name);
            }
        }
        if still.is_empty() {
            return Ok(names.len());
        }
        if Instant::now() >= deadline {
            return Err(Error::NotEstablished { missing: still, within });
        }
        missing = still;
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_charts_are_whole() {
        for chart in [CRDS, PROVIDER] {
            assert!(chart.files.iter().any(|(name, _)| *name == "Chart.yaml"));
        }
        let all: String = CRDS
            .files
            .iter()
            .map(|(_, content)| String::from_utf8_lossy(content))
            .collect();
        for name in our_crds() {
            assert!(all.contains(&format!("name: {name}")), "{name} is not in the chart");
        }
    }

    #[test]
    fn the_hash_sees_names_contents_and_borders() {
        let one: &[(&str, &[u8])] = &[("a", b"bc")];
        let others: [&[(&str, &[u8])]; 3] = [&[("ab", b"c")], &[("a", b"bd")], &[("a", b"bc"), ("d", b"")]];
        assert_eq!(hash(one), hash(one));
        for other in others {
            assert_ne!(hash(one), hash(other));
        }
    }

    #[test]
    fn other_values_are_another_content() {
        let [one, two] = [serde_json::json!({"pool": 1}), serde_json::json!({"pool": 2})];
        assert_ne!(CRDS.content_hash(Some(&one)), CRDS.content_hash(Some(&two)));
        assert_ne!(CRDS.content_hash(Some(&one)), CRDS.content_hash(None));
    }

    #[test]
    fn unpacking_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), Path::new("."));
        let stale = layout.chart(CRDS.release).join("templates/stale.yaml");
        fs::create_dir_all(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "").unwrap();
        let chart = unpack(&layout, &CRDS).unwrap();
        assert!(chart.join("Chart.yaml").is_file());
        assert!(!stale.exists());
    }

    #[test]
    fn the_reason_of_helm_is_found_behind_its_warnings() {
        let text = "WARNING: kubeconfig is group-readable\nError: UPGRADE FAILED: no space left\n";
        assert_eq!(reason(text, "exit status: 1"), "UPGRADE FAILED: no space left");
        assert_eq!(reason("panic: oh\n", "exit status: 2"), "panic: oh");
        assert_eq!(reason("\n", "signal: 9"), "signal: 9");
    }
}
