//! The chart of the provider through the real Helm, on a real API server and beside the real Cluster API core.

mod clusterctl;
mod install;
mod rights;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{CommandFactory as _, Parser as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ObjectMeta, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use kube::{Client, ResourceExt as _};
use russet_capi_provider::config::{self, Cli};
use russet_testkit::cluster;
use serde_json::Value;

const INFRA: &str = "infrastructure.cluster.x-k8s.io";
const CORE: &str = "cluster.x-k8s.io";

/// Everything on, for what only shows then.
const FULL: &str = r"
commonLabels: {team: platform}
provider:
  secretsNamespace: russet-claims
  fleetNamespaces: [russet-builders]
  watchOnlyFleetNamespaces: true
  watchFilter: macs
  apiServerURL: https://api.example.com:6443
  maxHourlySpend: 2.5
  dryRun: true
  bootstrap: {mode: stand-in}
  orphanReclaim: {zones: [fr-par-1, fr-par-3], claimNamePrefix: tuist-tuist-}
  extraArgs: [--inventory-interval=1m]
scaleway: {apiURL: 'http://127.0.0.1:4280'}
runnerCacheVolume: {gib: 80, masterCapGib: 20, casGib: 11}
tailscale: {enabled: true, authKeySecretName: tailnet, tags: ['tag:macs'], acceptRoutes: true}
hostLogs: {enabled: true, url: 'http://logs.example.com/push', env: test}
tailscaleEgress: {enabled: true, magicDNSSuffix: tail0123.ts.net}
vmClusterEgress: {kuraServiceCIDR: 10.128.0.0/12, clusterDNSIP: 10.128.0.10}
vmCachePrivateNetwork: {name: tuist-runner-cache, cidr: 172.16.0.0/22}
sshIngressAllowCIDRs: [203.0.113.7/32]
fleetSpread: {deployment: xcresult-processor}
cluster: {enabled: true, controlPlaneEndpoint: {host: api.example.com}}
fleets:
  macos: {enabled: true, replicas: 2}
  runners: {enabled: true, replicas: null, machineLabels: {node.cluster.x-k8s.io/pool: runners}}
  builders: {enabled: true, ghActionsRunner: {ghOrg: example, ghRunnerVersion: 2.330.0}, machine: {hostCPU: 10}}
kuraFleet: {enabled: true, machine: {offerType: EM-I220E-NVME, adoptNamePrefix: tuist-kura-em-}}
kuraFleets:
  instances: {replicas: 2, nodePool: kura-vms, machine: {kind: instance, adoptNamePrefix: ''}}
  resting: {enabled: false}
";

/// The other kind of cache node.
const INSTANCES: &str = r"
cluster: {enabled: true}
kuraFleet: {enabled: true, replicas: null, machine: {kind: instance, commercialType: POP2-HN-5}, healthCheck: {enabled: false}}
localPath: {enabled: false}
";

struct Helm {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Helm {
    async fn new() -> Result<Self> {
        let tools = cluster::tools(&["helm"]).await?;
        Ok(Self {
            program: tools.path("helm")?.to_owned(),
            dir: tempfile::tempdir()?,
        })
    }

    fn values(&self, text: &str) -> Result<String> {
        let path = self.dir.path().join("values.yaml");
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("a UTF-8 path")?.to_owned())
    }

    /// Output, or what Helm complained about.
    fn run(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args)
            .env("HOME", self.dir.path())
            .output()
            .context("failed to start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {} failed: {said}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn template(&self, values: &str) -> Result<String> {
        let (chart, values) = (chart("capi-provider")?, self.values(values)?);
        self.run(&["template", "macs", &chart, "--namespace", "russet", "--values", &values])
    }
}

fn chart(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(name);
    Ok(path.canonicalize()?.to_str().context("a UTF-8 path")?.to_owned())
}

fn objects(manifest: &str) -> Result<Vec<Value>> {
    use serde::Deserialize as _;
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(manifest) {
        let value = Value::deserialize(document)?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    Ok(objects)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[tokio::test]
async fn the_chart_renders_what_was_reviewed() -> Result<()> {
    let helm = Helm::new().await?;
    helm.run(&["lint", "--strict", &chart("capi-provider")?])?;
    let (default, full) = (helm.template("")?, helm.template(FULL)?);
    let instances = helm.template(INSTANCES)?;
    insta::with_settings!({snapshot_path => "../golden", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("capi_provider_default", default);
        insta::assert_snapshot!("capi_provider_full", full);
        insta::assert_snapshot!("capi_provider_instances", instances);
    });
    Ok(())
}

/// A claim stayed Pending because the provisioner could make no helper Pod, and a helper Pod because it did not tolerate the
/// taint of the only nodes it is for.
#[tokio::test]
async fn volumes_of_cache_nodes_can_be_made_where_the_caches_are() -> Result<()> {
    let helm = Helm::new().await?;
    let objects = objects(&helm.template(FULL)?)?;
    let named = |kind: &str, name: &str| {
        let found = of_kind(&objects, kind)
            .into_iter()
            .find(|object| text(object, "/metadata/name") == name);
        found.cloned().with_context(|| format!("{kind} {name}"))
    };
    let template = of_kind(&objects, "ScalewayElasticMetalMachineTemplate");
    let taints = &template.first().context("a template")?["spec"]["template"]["spec"]["nodeTaints"];
    let config = named("ConfigMap", "macs-capi-provider-local-path")?;
    let helper: Value = serde_yaml_ng::from_str(text(&config, "/data/helperPod.yaml"))?;
    let tolerated: Vec<_> = helper["spec"]["tolerations"]
        .as_array()
        .context("tolerations")?
        .iter()
        .map(|t| &t["key"])
        .collect();
    for taint in taints.as_array().context("taints")? {
        ensure!(
            tolerated.contains(&&taint["key"]),
            "the helper does not tolerate {taint}"
        );
    }
    let paths: Value = serde_json::from_str(text(&config, "/data/config.json"))?;
    ensure!(
        paths["nodePathMap"][0]["paths"][0] == "/opt/local-path-provisioner",
        "{paths}"
    );

    let role = named("Role", "macs-capi-provider-local-path")?;
    let pods = role["rules"]
        .as_array()
        .context("rules")?
        .iter()
        .find(|rule| rule["resources"][0] == "pods");
    let verbs = pods.context("a rule for Pods")?["verbs"].as_array().context("verbs")?;
    for verb in ["get", "create", "delete"] {
        ensure!(
            verbs.iter().any(|known| known == verb),
            "the provisioner may not {verb} Pods"
        );
    }
    let class = named("StorageClass", "scw-local-nvme")?;
    ensure!(class["volumeBindingMode"] == "WaitForFirstConsumer", "{class}");

    let rights = named("ClusterRole", "macs-capi-provider")?;
    let provider = named("Deployment", "macs-capi-provider")?.to_string();
    ensure!(
        provider.contains("--linux-local-storage-class=scw-local-nvme")
            && rights.to_string().contains("persistentvolumeclaims"),
        "nobody deletes the claims of a server that is gone: {rights}"
    );
    Ok(())
}

/// The chart named a release of the provisioner that no test had ever run.
#[tokio::test]
async fn the_provisioner_of_the_chart_is_the_one_that_the_tests_run() -> Result<()> {
    let objects = objects(&Helm::new().await?.template(FULL)?)?;
    let name = "macs-capi-provider-local-path";
    let mut deployments = of_kind(&objects, "Deployment").into_iter();
    let found = deployments.find(|object| text(object, "/metadata/name") == name);
    let image = text(
        found.context("the provisioner")?,
        "/spec/template/spec/containers/0/image",
    );
    let manifest = russet_parts::Manifest::embedded();
    let (part, _) = manifest.tool("local-path-provisioner")?;
    let expected = format!("docker.io/rancher/local-path-provisioner:{}", part.version);
    ensure!(image == expected, "the chart has {image}, crates/parts has {expected}");
    Ok(())
}

#[tokio::test]
async fn without_volumes_of_its_own_the_provider_may_touch_none() -> Result<()> {
    let text = Helm::new().await?.template("")?;
    ensure!(!text.contains("persistentvolume"), "{text}");
    ensure!(!text.contains("--linux-local-storage-class"), "{text}");
    Ok(())
}

#[test]
fn what_the_chart_only_documents_is_sound() -> Result<()> {
    let read = |name: &str| -> Result<Value> {
        let path = Path::new(&chart("capi-provider")?).join("files").join(name);
        Ok(serde_yaml_ng::from_str(&std::fs::read_to_string(path)?)?)
    };
    let csi = read("scaleway-csi.values.yaml")?;
    ensure!(
        csi["node"]["tolerations"][0]["key"] == russet_api::taints::RUNNER_CACHE,
        "{csi}"
    );
    let class = read("clusterclass-kubelet-addresses.yaml")?;
    let variable = &class["variables"][0];
    let default = &variable["schema"]["openAPIV3Schema"]["default"];
    ensure!(
        default == "ExternalIP,Hostname,InternalDNS,ExternalDNS",
        "a default that changes control planes: {default}"
    );
    let template = text(&class, "/patches/0/definitions/0/jsonPatches/0/valueFrom/template");
    ensure!(template.contains(text(variable, "/name")), "{template}");
    Ok(())
}

/// The rules of the seeds that a review forgets.
#[tokio::test]
async fn no_rendered_object_is_a_hook_and_defaults_make_no_machines() -> Result<()> {
    let helm = Helm::new().await?;
    let full = objects(&helm.template(FULL)?)?;
    for object in &full {
        let annotations = object.pointer("/metadata/annotations").cloned().unwrap_or_default();
        ensure!(annotations.get("helm.sh/hook").is_none(), "a hook: {object}");
    }
    let names: BTreeSet<_> = full
        .iter()
        .map(|object| {
            (
                text(object, "/kind"),
                text(object, "/metadata/namespace"),
                text(object, "/metadata/name"),
            )
        })
        .collect();
    ensure!(names.len() == full.len(), "two objects of one name");
    for role in of_kind(&full, "Role") {
        let rules = serde_json::to_string(&role["rules"])?;
        ensure!(
            !rules.contains("nodes"),
            "Nodes are in no namespace, a Role cannot grant them: {role}"
        );
    }
    // A user's Cluster must not go when clusterctl removes the provider.
    for kind in [
        "Cluster",
        "ScalewayAppleSiliconCluster",
        "MachineDeployment",
        "ScalewayAppleSiliconMachineTemplate",
    ] {
        for object in of_kind(&full, kind) {
            ensure!(
                object.pointer("/metadata/labels/cluster.x-k8s.io~1provider").is_none(),
                "{object}"
            );
        }
    }

    let default = objects(&helm.template("")?)?;
    for object in &default {
        let group = text(object, "/apiVersion");
        ensure!(
            !group.contains("x-k8s.io/"),
            "defaults must install on an empty cluster: {object}"
        );
    }
    let argv =
        serde_json::to_string(&of_kind(&default, "Deployment")[0].pointer("/spec/template/spec/containers/0/args"))?;
    ensure!(!argv.contains("tailscale"), "{argv}");
    Ok(())
}

/// `flag-skew`: a flag that the program of the same commit does not know would be said and ignored, and what it turns on would
/// be off.
#[tokio::test]
async fn the_program_of_the_same_commit_understands_every_rendered_flag() -> Result<()> {
    let helm = Helm::new().await?;
    for values in ["", FULL] {
        let rendered = objects(&helm.template(values)?)?;
        let args = of_kind(&rendered, "Deployment")[0]
            .pointer("/spec/template/spec/containers/0/args")
            .and_then(Value::as_array)
            .context("args")?;
        let args = args.iter().filter_map(Value::as_str);
        let line = std::iter::once("manager").chain(args).map(OsString::from);
        let (known, ignored) = config::lenient(&Cli::command(), line);
        let unknown: Vec<String> = ignored.into_iter().map(|config::Ignored(flag)| flag).collect();
        ensure!(unknown.is_empty(), "the program does not know {unknown:?}");
        let cli = Cli::try_parse_from(known)?;
        config::Settings::from_args(cli.provider, cli.bootstrap)?;
    }
    Ok(())
}

/// Values of the chart, and what is said of them. A semicolon ends a line; `@on` is the start of values with a fleet of Macs.
const BAD_VALUES: &str = "
replica: 3 => 'replica' not allowed
replicas: two => /replicas | want integer
image: {pullPolicy: Sometimes} => /image/pullPolicy | 'IfNotPresent'
fleets: {macos: {machine: {tpye: M1}}} => /fleets/macos/machine | 'tpye' not allowed
fleets: {Macs: {}} => /fleets | 'Macs' not allowed
fleets: {macos: {replicas: -1}} => /fleets/macos/replicas | minimum
provider: {orphanReclaim: {interval: often}} => /provider/orphanReclaim/interval
provider: {apiServerURL: 'http://plain'} => /provider/apiServerURL
provider: {defaultAdoptPoolPrefix: 'a b'} => /provider/defaultAdoptPoolPrefix
fleets: {macos: {enabled: true}} => a fleet needs its Cluster
@on, version: '1.35'}} => fleets.macos.version | v1.35.4
@on, machine: {os: Tahoe-26.3}}} => fleets.macos.machine.os | a macOS family
@on, name: x}, runners: {enabled: true, name: x}} => both have the name x
@on, ghActionsRunner: {enabled: true}}} => fleets.macos.ghActionsRunner.ghOrg is empty
tailscaleEgress: {enabled: true} => tailscaleEgress.magicDNSSuffix is empty
tailscale: {enabled: true} => tailscale.authKeySecretName is empty
hostLogs: {enabled: true} => logs travel over the tailnet
vmClusterEgress: {clusterDNSIP: 10.0.0.10} => hosts refuse one without the other
kuraFleet: {machine: {kind: vm}} => /kuraFleet/machine/kind | 'elasticMetal'
kuraFleet: {machine: {offer: EM-I220E}} => /kuraFleet/machine | 'offer' not allowed
kuraFleet: {nodeTaints: [{key: a, effect: Never}]} => /kuraFleet/nodeTaints/0/effect | 'NoSchedule'
localPath: {path: relative} => /localPath/path
localPath: {replicas: 2} => /localPath/replicas
kuraFleets: {a: {machine: {offer: EM-I220E}}} => /kuraFleets/a/machine | 'offer' not allowed
kuraFleets: {A b: {}} => /kuraFleets
kuraFleets: {a: {enabled: true}} => kuraFleets.a is enabled | a fleet needs its Cluster
cluster: {enabled: true} ; kuraFleet: {enabled: true, name: x} ; kuraFleets: {a: {name: x}} => kuraFleets.a and kuraFleet both have the name x
cluster: {enabled: true} ; kuraFleet: {machine: {adoptNamePrefix: a-}} ; kuraFleets: {a: {enabled: true, machine: {kind: instance}}} => kuraFleets.a.machine.adoptNamePrefix | Instances are made, never taken
kuraFleet: {enabled: true} => a fleet needs its Cluster
@on, name: x}} ; kuraFleet: {enabled: true, name: x} => kuraFleet and fleets.macos both have the name x
cluster: {enabled: true} ; kuraFleet: {enabled: true, kubernetesVersion: '1.35'} => kuraFleet.kubernetesVersion | v1.35.4
cluster: {enabled: true} ; kuraFleet: {enabled: true, machine: {privateNetworkName: ''}} => say how the Private Network is called
cluster: {enabled: true} ; kuraFleet: {enabled: true, machine: {kind: instance, adoptNamePrefix: a-}} => Instances are made, never taken
";

#[tokio::test]
async fn bad_values_are_refused_with_the_place_and_the_reason() -> Result<()> {
    let helm = Helm::new().await?;
    let on = "cluster: {enabled: true} ; fleets: {macos: {enabled: true";
    for row in BAD_VALUES.trim().lines() {
        let (values, parts) = row.split_once(" => ").context("a row has two columns")?;
        let error = match helm.template(&values.replace("@on", on).replace(" ; ", "\n")) {
            Ok(_) => bail!("{values} was taken"),
            Err(error) => format!("{error:#}"),
        };
        for part in parts.split(" | ") {
            ensure!(error.contains(part), "{values}: no {part:?} in {error}");
        }
    }
    Ok(())
}

/// A value without a line in the README is a value nobody finds.
#[test]
fn every_value_is_in_the_readme() -> Result<()> {
    let folder = PathBuf::from(chart("capi-provider")?);
    let readme = std::fs::read_to_string(folder.join("README.md"))?;
    let values: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(folder.join("values.yaml"))?)?;
    let mut missing = Vec::new();
    for (name, value) in values.as_object().context("values")? {
        let whole = matches!(name.as_str(), "fleets" | "resources");
        let keys: Vec<String> = match value.as_object().filter(|fields| !whole && !fields.is_empty()) {
            Some(fields) => fields.keys().cloned().collect(),
            None => vec![name.clone()],
        };
        missing.extend(keys.into_iter().filter(|key| !readme.contains(key.as_str())));
    }
    ensure!(missing.is_empty(), "not in README.md: {missing:?}");
    Ok(())
}

async fn make_namespaces(client: &Client, names: &[&str]) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in names {
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some((*name).to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        match namespaces.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where an object of any kind belongs: in its namespace, if kinds like it are in one.
async fn api_of(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, DynamicObject)> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let kind = GroupVersionKind::try_from(object.types.as_ref().context("a kind")?)?;
    let discovery = Discovery::new(client.clone()).filter(&[kind.group.as_str()]);
    let discovery = discovery.run().await?;
    let found = discovery.resolve_gvk(&kind);
    let (resource, capabilities) = found.with_context(|| format!("{kind:?} is not served"))?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().context("a namespace")?;
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    Ok((api, object))
}
