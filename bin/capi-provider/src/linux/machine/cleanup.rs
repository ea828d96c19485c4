//! What a machine leaves behind in the cluster, and its removal. All of it may be gone already, or never have been.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use russet_controller::{Class, Classify as _, Outcome};
use tracing::{info, warn};

use super::{Context, Error};
use crate::linux::decide::Machine;
use crate::linux::kind::LinuxKind;
use crate::linux::local_volumes::Forgotten;
use crate::machine::reconcile::NOW;

impl Context {
    /// Node, identity, volumes, Secret. Core deletes Nodes too, but gives up soon after a server that took minutes to stop.
    pub(super) async fn clean_up<K: LinuxKind>(&self, object: &K, machine: &Machine) -> Result<Outcome, Error> {
        // A server that moved to another management cluster keeps everything that it needs.
        if !machine.standing.moved_away {
            self.delete_node(object, machine).await?;
            if let Some(identities) = &self.parts.services.identities
                && let Err(problem) = identities.revoke(&machine.holder).await
            {
                warn!(%problem, "cleaning up failed, it is tried again");
                let outcome = Outcome::After(problem.retry);
                self.bad_news(object, "DeleteFailed", problem.message).await;
                return Ok(outcome);
            }
        }
        if !machine.standing.moved_away
            && let Some(wait) = self.forget_volumes(object).await?
        {
            return Ok(wait);
        }
        self.secrets.delete(object).await?;
        self.memory.clean(&machine.holder.uid);
        Ok(NOW)
    }

    /// What was on the server's disk. Not done yet: when to try again.
    async fn forget_volumes<K: LinuxKind>(&self, object: &K) -> Result<Option<Outcome>, Error> {
        let Some(volumes) = &self.local_volumes else {
            return Ok(None);
        };
        match volumes.forget(&object.name_any()).await {
            // A Node that stays is another's, and so are its volumes.
            Ok(Forgotten::All | Forgotten::NodeStays) => Ok(None),
            Ok(Forgotten::NodeLeaves) => Ok(Some(Outcome::After(Duration::from_secs(2)))),
            Err(error) if error.class() == Class::Forbidden => {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                let note = format!(
                    "{error}: {}; grant list and delete of persistentvolumes, get and delete of persistentvolumeclaims, as the chart \
                     does, or start the provider without --linux-local-storage-class",
                    why.unwrap_or_default()
                );
                self.bad_news(object, "DeleteFailed", note).await;
                Ok(Some(Outcome::After(self.parts.slowest_retry)))
            }
            Err(error) => Err(error),
        }
    }

    /// The Node of the server, if it is that: a Node of this name with another server behind it is not ours.
    async fn delete_node<K: LinuxKind>(&self, object: &K, machine: &Machine) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = object.name_any();
        let Some(node) = nodes.get_opt(&name).await.map_err(Error::kube("read the Node"))? else {
            return Ok(());
        };
        let said = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let expected = object.provider_id().ok().flatten().map(|id| id.to_string());
        let ours = match (said.filter(|id| !id.is_empty()), expected) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // It joined and the machine was deleted before that was noted. Only a server of ours knew this name's token.
            (Some(theirs), None) => theirs.starts_with(K::PROVIDER.scheme()) && machine.provider_server.is_none(),
            (None, _) => false,
        };
        if !ours {
            warn!(node = name, "a Node of this name belongs to something else and stays");
            return Ok(());
        }
        let this_one = DeleteParams::default().preconditions(Preconditions {
            uid: node.metadata.uid.clone(),
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
