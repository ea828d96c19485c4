//! One cluster with two kinds of nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};
use russet_testkit::cluster::tools;
use russet_testkit::wait::{self, PATIENCE};
use russet_testkit::{Extras, TestCluster};
use serde_json::json;
use tokio::sync::{Mutex, OnceCell, Semaphore};

use crate::compare::{Case, IMAGE, JUSTIFIED, OTHER_IMAGE, aspects, compare, same_again};
use crate::mac::Mac;
use crate::record::Record;
use crate::run::{Node, Run};

/// How many Macs there are, and so how many Pods of each kind run at once.
pub(crate) const MACS: usize = 6;
/// A stock kubelet may put two news into one write. What differs is run again, and only what always differs is a difference; but
/// ours has to tell the same each time.
const ATTEMPTS: u32 = 3;
const NAMESPACES: [&str; 2] = ["stock", "ours"];

static SHARED: OnceCell<Stage> = OnceCell::const_new();

pub(crate) struct Stage {
    pub(crate) cluster: TestCluster,
    pub(crate) client: Client,
    pub(crate) record: Record,
    ctr: PathBuf,
    free: Semaphore,
    /// Started when they are needed.
    macs: Vec<Mutex<Option<Mac>>>,
}

impl Stage {
    pub(crate) async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start() -> Result<Self> {
        let cluster = TestCluster::start(Extras {
            linux_node: true,
            ..Extras::default()
        })
        .await?;
        let client = cluster.client().await?;
        for name in NAMESPACES {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            let namespaces: Api<Namespace> = Api::all(client.clone());
            namespaces.create(&PostParams::default(), &namespace).await?;
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
            wait::until_true("a ServiceAccount", PATIENCE, || async {
                Ok(accounts.get_opt("default").await?.is_some() && maps.get_opt("kube-root-ca.crt").await?.is_some())
            })
            .await?;
        }
        let stage = Self {
            record: Record::start(&client, &NAMESPACES),
            ctr: tools(&["ctr"]).await?.path("ctr")?.to_owned(),
            cluster,
            client,
            free: Semaphore::new(MACS),
            macs: (0..MACS).map(|_| Mutex::new(None)).collect(),
        };
        stage.tag(OTHER_IMAGE).await?;
        Ok(stage)
    }

    /// Gives the image of the Linux node another name.
    pub(crate) async fn tag(&self, name: &str) -> Result<()> {
        let node = self.cluster.node().context("there is no Linux node")?;
        let words = ["--namespace", "k8s.io", "images", "tag", IMAGE, name];
        node.run(&self.ctr.to_string_lossy(), &words).await?;
        Ok(())
    }

    /// Runs a case on both, and compares.
    pub(crate) async fn compare(&self, case: &Case) -> Result<()> {
        let _turn = self.free.acquire().await?;
        let free = self
            .macs
            .iter()
            .enumerate()
            .find_map(|(number, mac)| Some((number, mac.try_lock().ok()?)));
        let (number, mut seat) = free.context("more turns than Macs")?;
        if seat.is_none() {
            *seat = Some(Mac::start(&self.cluster, &self.client, number + 1).await?);
        }
        let mac = seat.as_ref().context("a Mac")?;
        let linux = self.cluster.node().context("there is no Linux node")?;
        let mut complaint = String::new();
        let mut before: Option<BTreeMap<String, String>> = None;
        for attempt in 1..=ATTEMPTS {
            let run = |node, namespace| Run {
                stage: self,
                case,
                node,
                namespace,
                attempt,
            };
            let (stock, ours) = (run(Node::Linux(linux), "stock"), run(Node::Mac(mac), "ours"));
            let told = tokio::try_join!(stock.told(), ours.told());
            stock.clean().await?;
            ours.clean().await?;
            mac.until_empty().await?;
            let (stock, ours): (BTreeMap<_, _>, BTreeMap<_, _>) = told
                .map(|(stock, ours)| (aspects(&stock), aspects(&ours)))
                .with_context(|| format!("the agent said:\n{}", mac.log()))?;
            if let Some(before) = before.replace(ours.clone())
                && let Err(varies) = same_again(case.name, &before, &ours, JUSTIFIED)
            {
                bail!("ours does not tell the same each time:\n{varies}after\n{complaint}");
            }
            match compare(case.name, &stock, &ours, JUSTIFIED) {
                Ok(()) => return Ok(()),
                Err(differs) => complaint = differs,
            }
        }
        bail!("the two kubelets do not tell the same:\n{complaint}")
    }

    /// Ends what would outlive this program.
    pub(crate) async fn end() {
        let Some(stage) = SHARED.get() else { return };
        for mac in &stage.macs {
            if let Some(mac) = mac.lock().await.as_mut()
                && let Err(error) = mac.end().await
            {
                eprintln!("a Mac was not ended: {error:#}");
            }
        }
    }
}
