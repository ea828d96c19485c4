//! What a machine leaves behind in the cluster, and its removal. All of it may be gone already, or never have been.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource as _, ResourceExt as _};
use russet_api::events::apple_silicon::DELETE_FAILED;
use russet_controller::Outcome;
use tracing::{info, warn};

use super::reconcile::NOW;
use super::{Context, Error, Mac};
use crate::bootstrap::Problem;
use crate::decide::Machine;

impl Context {
    /// Node, identity, Secret, Service. Core deletes Nodes too, but gives up soon after a host that took minutes to wipe.
    pub(super) async fn clean_up(&self, mac: &Mac, machine: &Machine) -> Result<Outcome, Error> {
        let holder = &machine.holder;
        // A host that moved to another management cluster keeps everything that it needs.
        if !machine.standing.moved_away {
            self.delete_node(mac).await?;
            if let Err(problem) = self.revoke(machine).await {
                warn!(%problem, "cleaning up failed, it is tried again");
                let outcome = Outcome::After(problem.retry);
                self.bad_news(mac, DELETE_FAILED, problem.message).await;
                return Ok(outcome);
            }
        }
        self.secrets.delete(mac).await?;
        self.memory.clean(&holder.uid);
        Ok(NOW)
    }

    async fn revoke(&self, machine: &Machine) -> Result<(), Problem> {
        if let Some(identities) = &self.parts.services.identities {
            identities.revoke(&machine.holder).await?;
        }
        if let Some(egress) = &self.parts.services.egress {
            egress.remove(&machine.holder).await?;
        }
        Ok(())
    }

    /// The Node of the host, if it is that: a Node of this name with another host behind it is not ours.
    async fn delete_node(&self, mac: &Mac) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = mac.name_any();
        let Some(node) = nodes.get_opt(&name).await.map_err(Error::kube("read the Node"))? else {
            return Ok(());
        };
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let ours = match (provider_id.filter(|id| !id.is_empty()), mac.spec.provider_id.as_deref()) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // It joined and the machine was deleted before that was noted, or it never got a provider id.
            (Some(theirs), None) => had(mac, theirs),
            (None, _) => true,
        };
        if !ours {
            warn!(node = name, "a Node of this name belongs to another host and stays");
            return Ok(());
        }
        let this_one = DeleteParams::default().preconditions(Preconditions {
            uid: node.meta().uid.clone(),
            resource_version: None,
        });
        match nodes.delete(&name, &this_one).await {
            Ok(_) => {
                info!(node = name, "deleted the Node");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(Error::kube("delete the Node")(error)),
        }
    }
}

/// Whether this machine had the host of a provider id.
fn had(mac: &Mac, provider_id: &str) -> bool {
    let server = provider_id.rsplit('/').next();
    mac.status
        .as_ref()
        .is_some_and(|status| status.server_id.as_deref() == server)
}
