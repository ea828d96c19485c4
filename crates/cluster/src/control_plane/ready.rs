//! When a control plane is usable: what every test and chart takes for granted is there.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::Api;
use tokio::time::{Instant, sleep};

use super::{ControlPlane, Error};

const LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(50);

/// Waits for the `default` namespace, and for its `default` ServiceAccount when somebody makes it: Pods need it, and
/// kube-controller-manager reports healthy well before.
pub(super) async fn wait(control_plane: &ControlPlane) -> Result<(), Error> {
    let client = control_plane.client().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let logs = &control_plane.options().logs;
    present(logs, "the namespace default", async || {
        namespaces.get_metadata_opt("default").await.map(|o| o.is_some())
    })
    .await?;
    if control_plane.options().extras.controller_manager.is_some() {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        let ask = async || accounts.get_metadata_opt("default").await.map(|o| o.is_some());
        present(logs, "the ServiceAccount default/default", ask).await?;
    }
    Ok(())
}

async fn present(
    logs: &std::path::Path,
    what: &'static str,
    ask: impl AsyncFn() -> Result<bool, kube::Error>,
) -> Result<(), Error> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let last = match ask().await {
            Ok(true) => return Ok(()),
            Ok(false) => "not found".to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(Error::Incomplete {
                what,
                seconds: LIMIT.as_secs(),
                last,
                logs: logs.to_owned(),
            });
        }
        sleep(PAUSE).await;
    }
}
