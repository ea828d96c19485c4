//! One case on one node.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use russet_cluster::node::LinuxNode;
use russet_sim_tart::Image;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::{Value, json};

use crate::compare::{Case, LATE_IMAGE, Moment, Step, View};
use crate::mac::Mac;
use crate::stage::Stage;

const TAINT: &str = "example.com/out";

#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    Linux(&'a LinuxNode),
    Mac(&'a Mac),
}

impl Node<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Linux(node) => node.name(),
            Self::Mac(mac) => &mac.node,
        }
    }

    /// The volume of a Pod, as this machine sees it.
    fn volume(&self, uid: &str) -> PathBuf {
        match self {
            Self::Linux(node) => {
                let pod = node.directory().join("kubelet/pods").join(uid);
                pod.join("volumes/kubernetes.io~empty-dir/work")
            }
            Self::Mac(mac) => mac.work(uid),
        }
    }
}

pub(crate) struct Run<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) case: &'a Case,
    pub(crate) node: Node<'a>,
    pub(crate) namespace: &'static str,
    pub(crate) attempt: u32,
}

impl Run<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.stage.client.clone(), self.namespace)
    }

    fn before(&self) -> String {
        format!("{}-before", self.case.name)
    }

    /// An image is published once, so each attempt waits for another.
    fn late_image(&self) -> String {
        format!("{LATE_IMAGE}.{}", self.attempt)
    }

    /// Everything that was told until the last moment of the case.
    pub(crate) async fn told(&self) -> Result<Vec<View>> {
        let side = || format!("{} in {}", self.case.name, self.namespace);
        if let Some(before) = &self.case.before {
            let uid = self.create(&self.before(), before).await.with_context(side)?;
            let ready = Moment::True("Ready");
            self.stage.record.until(&uid, &ready, 0).await.with_context(side)?;
        }
        let uid = self.create(self.case.name, &self.case.pod).await.with_context(side)?;
        let mut seen = 0;
        for step in &self.case.steps {
            if let Step::Until(moment) = step {
                seen = self.stage.record.until(&uid, moment, seen).await.with_context(side)?;
            } else {
                self.act(step, &uid)
                    .await
                    .with_context(|| format!("{}: {step}", side()))?;
            }
        }
        let mut views = self.stage.record.views(&uid);
        views.truncate(seen + 1);
        Ok(views)
    }

    async fn create(&self, name: &str, pod: &Value) -> Result<String> {
        let text = pod.to_string().replace(LATE_IMAGE, &self.late_image());
        let mut pod: Pod = serde_json::from_str(&text)?;
        pod.metadata.name = Some(name.to_owned());
        pod.spec.get_or_insert_default().node_name = Some(self.node.name().to_owned());
        let made = self.pods().create(&PostParams::default(), &pod).await?;
        made.uid().context("a uid")
    }

    async fn act(&self, step: &Step, uid: &str) -> Result<()> {
        let (pods, name, params) = (self.pods(), self.case.name, PatchParams::default());
        match step {
            Step::Until(_) => {}
            Step::Touch(file) => std::fs::write(self.node.volume(uid).join(file), "")?,
            Step::Remove(file) => std::fs::remove_file(self.node.volume(uid).join(file))?,
            Step::Found(file) => {
                let path = self.node.volume(uid).join(file);
                wait::until_true("a file of the Pod", PATIENCE, || async { Ok(path.exists()) }).await?;
            }
            Step::Fill(file, kib) => std::fs::write(self.node.volume(uid).join(file), vec![b'x'; kib * 1024])?,
            Step::Delete(grace) => {
                let params = DeleteParams {
                    grace_period_seconds: *grace,
                    ..DeleteParams::default()
                };
                pods.delete(name, &params).await?;
            }
            Step::Make(object) => self.make(object).await?,
            Step::Patch(change) => {
                pods.patch(name, &params, &Patch::Strategic(change)).await?;
            }
            Step::Set(kind, is) => {
                let status = if *is { "True" } else { "False" };
                let change = json!({"status": {"conditions": [{"type": kind, "status": status}]}});
                pods.patch_status(name, &params, &Patch::Strategic(change)).await?;
            }
            Step::DeleteOwner => self.delete_owner().await?,
            Step::Taint => self.taint(true).await?,
            Step::Publish => self.publish().await?,
        }
        Ok(())
    }

    async fn publish(&self) -> Result<()> {
        let name = self.late_image();
        match self.node {
            Node::Linux(_) => self.stage.tag(&name).await,
            Node::Mac(mac) => {
                let image = Image {
                    label: name.clone(),
                    ..Image::default()
                };
                mac.control.push(&name, &image)?;
                Ok(())
            }
        }
    }

    async fn make(&self, object: &Value) -> Result<()> {
        let client = self.stage.client.clone();
        if object.get("kind").and_then(Value::as_str) == Some("Secret") {
            let secret: Secret = serde_json::from_value(object.clone())?;
            let secrets: Api<Secret> = Api::namespaced(client, self.namespace);
            secrets.create(&PostParams::default(), &secret).await?;
        } else {
            let map: ConfigMap = serde_json::from_value(object.clone())?;
            let maps: Api<ConfigMap> = Api::namespaced(client, self.namespace);
            maps.create(&PostParams::default(), &map).await?;
        }
        Ok(())
    }

    async fn delete_owner(&self) -> Result<()> {
        let name = format!("{}-owner", self.case.name);
        let maps: Api<ConfigMap> = Api::namespaced(self.stage.client.clone(), self.namespace);
        let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let owner = maps.create(&PostParams::default(), &owner).await?;
        let change = json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid(),
        }]}});
        let (pods, params) = (self.pods(), PatchParams::default());
        pods.patch(self.case.name, &params, &Patch::Strategic(change)).await?;
        maps.delete(&name, &DeleteParams::background()).await?;
        Ok(())
    }

    async fn taint(&self, on: bool) -> Result<()> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.stage.client.clone());
        let change = if on {
            json!({"spec": {"taints": [{"key": TAINT, "effect": "NoExecute"}]}})
        } else {
            json!({"spec": {"taints": [{"$patch": "delete", "key": TAINT, "effect": "NoExecute"}]}})
        };
        let params = PatchParams::default();
        nodes
            .patch(self.node.name(), &params, &Patch::Strategic(change))
            .await?;
        Ok(())
    }

    /// Takes everything away that the case has made.
    pub(crate) async fn clean(&self) -> Result<()> {
        let (client, now) = (self.stage.client.clone(), DeleteParams::default().grace_period(0));
        if self.case.steps.iter().any(|step| matches!(step, Step::Taint)) {
            self.taint(false).await?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), self.namespace);
        let secrets: Api<Secret> = Api::namespaced(client, self.namespace);
        for step in &self.case.steps {
            if let Step::Make(object) = step {
                let name = object
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let _ = maps.delete(name, &DeleteParams::default()).await;
                let _ = secrets.delete(name, &DeleteParams::default()).await;
            }
        }
        for name in [self.case.name.to_owned(), self.before()] {
            let _ = self.pods().delete(&name, &now).await;
            wait::until_true("a Pod is gone", PATIENCE, || async {
                Ok(self.pods().get_opt(&name).await?.is_none())
            })
            .await?;
        }
        Ok(())
    }
}
