//! A Mac: the agent of this repository with the emulated `tart`.

use std::ops::Deref;
use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use russet_cluster::node::join;
use russet_sim_tart::Image;
use russet_stages::macs::host::{Agent, MacHost};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};

use crate::compare::{IMAGE, OTHER_IMAGE};

pub(crate) struct Mac {
    host: MacHost,
    agent: Option<Agent>,
}

impl Deref for Mac {
    type Target = MacHost;

    fn deref(&self) -> &MacHost {
        &self.host
    }
}

impl Mac {
    /// A Mac that has joined and is ready.
    pub(crate) async fn start(cluster: &TestCluster, client: &Client, number: usize) -> Result<Self> {
        let node = format!("mac-{number}");
        let dir = cluster.dir().join(&node);
        std::fs::create_dir_all(&dir)?;
        let host = MacHost::new(&dir, &node, &std::env::current_exe()?)?;
        // Guests bind ports, so no two Macs give out the same address.
        host.control
            .switch(|switches| switches.addresses = format!("127.{}", 80 + number))?;
        for image in [IMAGE, OTHER_IMAGE] {
            let content = Image {
                label: image.to_owned(),
                ..Image::default()
            };
            host.control.push(image, &content)?;
        }
        let token = host.invite(cluster, client).await?;
        let agent = host.start(
            Path::new(env!("CARGO_BIN_EXE_tart-kubelet")),
            &[
                &format!("--node-ip=127.77.8.{number}"),
                "--max-pods=4",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
                "--kubelet-bind-address=0",
                "--log-filter=info,russet_tart_kubelet=debug",
            ],
        )?;
        let mac = Self {
            host,
            agent: Some(agent),
        };
        let nodes: Api<Node> = Api::all(client.clone());
        wait::until("a Mac that is ready", PATIENCE, || async {
            let node = nodes.get_opt(&mac.node).await?;
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|found| found.type_ == "Ready" && found.status == "True");
            Ok(if ready { Look::Done(()) } else { Look::NotYet(mac.log()) })
        })
        .await?;
        join::revoke(client, &token).await;
        Ok(mac)
    }

    /// Waits until nothing of any Pod is left.
    pub(crate) async fn until_empty(&self) -> Result<()> {
        wait::until("an empty Mac", PATIENCE, || async {
            let folders = std::fs::read_dir(self.path("state/pods")).map_or(0, Iterator::count);
            let running = self.control.running()?;
            Ok(if folders == 0 && running.is_empty() {
                Look::Done(())
            } else {
                Look::NotYet(format!("{running:?} {}", self.log()))
            })
        })
        .await
    }

    /// Ends everything.
    pub(crate) async fn end(&mut self) -> Result<()> {
        if let Some(agent) = self.agent.take() {
            agent.killed().await?;
        }
        Ok(self.control.reboot()?)
    }
}
