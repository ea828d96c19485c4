//! The storage plugin did not tolerate the taint of the only nodes it was for.
//!
//! Without the toleration of `tuist.dev/runner-cache` in the chart it ends with the helper of volumes, which no cache node takes.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_testkit::chart::{Helm, Release};
use serde_json::{Value, json};

use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "csi-toleration",
    from: "S4",
    what_happened: "the CSI daemon did not tolerate the taint of cache nodes, so no volume was ever mounted there",
    must_hold: "every Pod of the chart that must run on cache nodes tolerates every taint that the chart gives them",
    without: None,
    play: Play::Plain(run),
};

/// The driver has a chart of its own; ours says which values make it run on cache nodes.
const CSI: &str = include_str!("../../../charts/capi-provider/files/scaleway-csi.values.yaml");

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("render the chart with cache nodes of both kinds");
        let helm = Helm::new().await?;
        let mut seen = 0;
        for kind in ["elasticMetal", "instance"] {
            let values =
                json!({"cluster": {"enabled": true}, "kuraFleet": {"enabled": true, "machine": {"kind": kind}}});
            let release = Release {
                name: "macs",
                chart: "capi-provider",
                namespace: "russet",
                values: &values,
            };
            let fleet = helm.template(release, "templates/kura-fleet.yaml").await?;
            let taints = taints(&fleet)?;
            let plugin = json!({"containers": []});
            ensure!(
                !tolerates(&plugin, &taints),
                "the staged fault did not bite: {taints:?}"
            );
            if seen == 0 {
                stage.bites(format!(
                    "a node plugin without tolerations runs on none of them: {}",
                    json!(taints)
                ));
            }
            let mut pods = node_pods(&helm.template(release, "templates/local-path.yaml").await?)?;
            let plugin: Value = serde_yaml_ng::from_str(CSI)?;
            let plugin = plugin.get("node").cloned().context("no values for the node plugin")?;
            pods.push(("the node plugin of scaleway-csi".to_owned(), plugin));
            for (name, pod) in pods {
                ensure!(tolerates(&pod, &taints), "{name} does not tolerate {taints:?}: {pod}");
                stage.holds(format!("{kind}: {name} runs on them"));
                seen += 1;
            }
        }
        ensure!(seen >= 4, "the chart has nothing that runs on cache nodes");
        Ok(())
    }
    .boxed()
}

/// The taints of the fleet's nodes.
fn taints(objects: &[Value]) -> Result<Vec<Value>> {
    let mut specs = objects
        .iter()
        .filter_map(|object| object.pointer("/spec/template/spec/nodeTaints"));
    let taints = specs.next().and_then(Value::as_array).cloned();
    taints
        .filter(|taints| !taints.is_empty())
        .context("the fleet has no taints")
}

/// Pods that run on the nodes themselves: those of DaemonSets, and the one that makes the folders of volumes.
fn node_pods(objects: &[Value]) -> Result<Vec<(String, Value)>> {
    let mut pods = Vec::new();
    for object in objects {
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if object.get("kind") == Some(&json!("DaemonSet")) {
            let pod = object.pointer("/spec/template/spec").cloned().unwrap_or_default();
            pods.push((format!("DaemonSet {name}"), pod));
        }
        if let Some(helper) = object.pointer("/data/helperPod.yaml").and_then(Value::as_str) {
            let helper: Value = serde_yaml_ng::from_str(helper)?;
            let pod = helper.get("spec").cloned().unwrap_or_default();
            pods.push((format!("the helper of {name}"), pod));
        }
    }
    Ok(pods)
}

/// As the scheduler judges.
fn tolerates(pod: &Value, taints: &[Value]) -> bool {
    let none = Vec::new();
    let tolerations = pod.get("tolerations").and_then(Value::as_array).unwrap_or(&none);
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let matches = |toleration: &Value, taint: &Value| {
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        let exists = text(toleration, "operator") == "Exists";
        (key == text(taint, "key") || (key.is_empty() && exists))
            && (effect.is_empty() || effect == text(taint, "effect"))
            && (exists || text(toleration, "value") == text(taint, "value"))
    };
    let tolerated = |taint: &Value| tolerations.iter().any(|toleration| matches(toleration, taint));
    taints.iter().all(tolerated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_has_to_match_key_effect_and_value_unless_the_key_is_enough() {
        let taint = json!({"key": "a", "value": "true", "effect": "NoSchedule"});
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "value": "true"}), true),
            (json!({"key": "a", "value": "false"}), false),
            (json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "b", "operator": "Exists"}), false),
        ] {
            let pod = json!({"tolerations": [toleration]});
            assert_eq!(tolerates(&pod, std::slice::from_ref(&taint)), expected, "{pod}");
        }
    }
}
