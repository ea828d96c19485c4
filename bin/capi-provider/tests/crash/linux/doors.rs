//! Servers that join: by the script they were given, or by one that is run on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use russet_capi_provider::bootstrap::Failed;
use russet_capi_provider::linux::hosts::{Hosts, Login, Told};
use russet_sim_scaleway::{BoxKind, Handle, LinuxBox, Power};
use russet_telemetry::Secret;
use tokio::task::JoinHandle;

use crate::life::Life;
use crate::stage::join;

/// The identity of an emulated server.
fn provider_id(row: &LinuxBox) -> String {
    let product = match row.kind {
        BoxKind::Instance => "instance",
        BoxKind::Metal => "baremetal",
    };
    format!("scaleway://{product}/{}/{}", row.zone, row.server_id)
}

/// Which installation of a server was joined from last.
pub(super) type Used = Arc<Mutex<BTreeMap<String, u32>>>;

/// Servers that are up with a script join, once per boot: a kubelet registers when it starts.
pub(super) struct Boots(JoinHandle<()>);

impl Drop for Boots {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Boots {
    pub(super) fn of(handle: Handle, client: Client, used: Used) -> Self {
        Self(tokio::spawn(async move {
            let mut booted: BTreeSet<(String, u32, u32)> = BTreeSet::new();
            let up = |row: &LinuxBox| {
                let script = row.user_data.as_deref().unwrap_or_default();
                row.power == Power::On && row.public_ip.is_some() && script.contains("/opt/bootstrap-node.sh")
            };
            loop {
                for row in handle.boxes().iter().filter(|row| up(row)) {
                    let this = (row.server_id.to_string(), row.generation, row.boots);
                    if booted.contains(&this) {
                        continue;
                    }
                    used.lock().unwrap().insert(row.server_id.to_string(), row.generation);
                    if join(&client, &row.name, &provider_id(row)).await.is_ok() {
                        booted.insert(this);
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

/// Servers that are reached as long as the provider lives.
pub(super) struct Doors {
    pub(super) life: Arc<Life>,
    pub(super) handle: Handle,
    pub(super) client: Client,
    pub(super) used: Used,
}

impl Hosts for Doors {
    fn run(&self, login: Login, script: Secret<String>) -> BoxFuture<'static, Result<String, Failed>> {
        let (life, client, used) = (Arc::clone(&self.life), self.client.clone(), Arc::clone(&self.used));
        let row = self
            .handle
            .boxes()
            .into_iter()
            .find(|row| row.public_ip == Some(login.address));
        async move {
            if life.is_over() {
                return std::future::pending().await;
            }
            let failed = |message: &str| Failed {
                step: "connect".to_owned(),
                message: message.to_owned(),
                fingerprint: None,
            };
            let row = row
                .filter(|row| row.power == Power::On)
                .ok_or_else(|| failed("nobody is there"))?;
            let name = script.expose().split("--hostname-override=").nth(1).unwrap_or_default();
            let name = name
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap_or_default();
            used.lock().unwrap().insert(row.server_id.to_string(), row.generation);
            join(&client, name, &provider_id(&row))
                .await
                .map_err(|error| failed(&error.to_string()))?;
            Ok("SHA256:abc".to_owned())
        }
        .boxed()
    }

    fn ask(&self, _: Login) -> BoxFuture<'static, Result<Told, Failed>> {
        async {
            Ok(Told {
                report: None,
                pin: "SHA256:abc".to_owned(),
            })
        }
        .boxed()
    }
}
