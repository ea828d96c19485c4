//! Taking credentials back.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Secret as KubeSecret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Client, Resource, ResourceExt as _};
use russet_api::labels::{MANAGED_BY, MANAGED_BY_CAPI};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::approver::undecided;
use super::token::{self, ATTEMPTS};
use super::{CONTEXT, Error, Identities, TOKEN_NAMESPACE};
use crate::machine_ref::MachineRef;

impl Identities {
    /// Takes back what the machine was given: the token first, so that nothing new can be asked for, then open requests, then
    /// what earlier releases made. May be repeated, and may be called for a machine that never had anything.
    ///
    /// A certificate that was already signed cannot be taken back; its key is gone with the wiped disk, and
    /// [`super::approver`] does not renew it without a machine.
    pub async fn revoke(&self, machine: &MachineRef) -> Result<(), Error> {
        self.revoke_tokens(machine).await?;
        self.withdraw_requests(machine).await?;
        self.remove_service_account(machine).await
    }

    async fn revoke_tokens(&self, machine: &MachineRef) -> Result<(), Error> {
        let failed = |verb| move |source| Error::token(verb, machine, source);
        let tokens = self.tokens();
        for attempt in 0..ATTEMPTS {
            let name = token::secret_name(&token::id(&machine.uid, attempt));
            let live = tokens.get_opt(&name).await.map_err(failed("read"))?;
            let Some(live) = live.filter(|live| token::belongs(live, machine)) else {
                continue;
            };
            match tokens.delete(&name, &exactly(&live)).await {
                Ok(_) => info!(machine = %machine, secret = name, "revoked a bootstrap token"),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(failed("delete")(error)),
            }
        }
        Ok(())
    }

    async fn withdraw_requests(&self, machine: &MachineRef) -> Result<(), Error> {
        let failed = |verb, what: String| {
            move |source| Error::Revoke {
                verb,
                what,
                machine: machine.clone(),
                source: Box::new(source),
            }
        };
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let asked = |request: &CertificateSigningRequest| asked_by(request, machine);
        let all = self.requests.filter(&self.client, asked).await;
        for request in all.map_err(failed("list", "signing requests".to_owned()))? {
            let unsigned = request
                .status
                .as_ref()
                .is_none_or(|status| status.certificate.is_none());
            if !(undecided(&request) || unsigned) {
                continue;
            }
            let name = request.name_any();
            match requests.delete(&name, &exactly(&*request)).await {
                Ok(_) => info!(machine = %machine, request = name, "withdrew a signing request"),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(failed("delete", format!("signing request {name}"))(error)),
            }
        }
        Ok(())
    }

    /// Earlier releases gave each machine a ServiceAccount whose token never ended. Deleting the token's Secret ends it; the rest is
    /// tidying, for which the chart gives rights only where such machines may still be.
    async fn remove_service_account(&self, machine: &MachineRef) -> Result<(), Error> {
        let name = format!("{CONTEXT}-{}", machine.name);
        let namespace = &self.settings.secrets_namespace;
        let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
        if !self.remove(machine, &secrets, &format!("{name}-token")).await? {
            return Ok(());
        }
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        self.remove(machine, &bindings, &name).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        self.remove(machine, &accounts, &name).await?;
        Ok(())
    }

    /// Removes an object that we made, and says whether there was one.
    async fn remove<K>(&self, machine: &MachineRef, api: &Api<K>, name: &str) -> Result<bool, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let what = || format!("{} {name}", K::kind(&()));
        let failed = |verb| {
            move |source| Error::Revoke {
                verb,
                what: format!("{} {name}", K::kind(&())),
                machine: machine.clone(),
                source: Box::new(source),
            }
        };
        let forbidden = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden());
        let live = match api.get_opt(name).await {
            Err(error) if forbidden(&error) => {
                warn!(machine = %machine, object = what(), "left over from an earlier release: no right to remove it, delete it by hand");
                return Ok(false);
            }
            other => other.map_err(failed("read"))?,
        };
        let ours = |live: &K| live.labels().get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_CAPI);
        let Some(live) = live.filter(ours) else {
            return Ok(false);
        };
        match api.delete(name, &exactly(&live)).await {
            Ok(_) => info!(machine = %machine, object = what(), "removed what an earlier release made"),
            Err(error) if is_gone(&error) => {}
            Err(error) if forbidden(&error) => {
                warn!(machine = %machine, object = what(), "left over from an earlier release: no right to remove it, delete it by hand");
            }
            Err(error) => return Err(failed("delete")(error)),
        }
        Ok(true)
    }
}

/// The token Secrets of the machine with this uid, by namespace and name. There should be none when it is gone.
pub(crate) async fn tokens_of(client: &Client, uid: &str) -> Result<Vec<String>, kube::Error> {
    let tokens: Api<KubeSecret> = Api::namespaced(client.clone(), TOKEN_NAMESPACE);
    let machine = MachineRef {
        namespace: String::new(),
        name: String::new(),
        uid: uid.to_owned(),
    };
    let mut found = Vec::new();
    for attempt in 0..ATTEMPTS {
        let name = token::secret_name(&token::id(uid, attempt));
        let live = tokens.get_metadata_opt(&name).await?;
        if live.is_some_and(|live| token::belongs(&live, &machine)) {
            found.push(format!("{TOKEN_NAMESPACE}/{name}"));
        }
    }
    Ok(found)
}

/// Whether a signing request comes from this machine: from its token, or from its node.
fn asked_by(request: &CertificateSigningRequest, machine: &MachineRef) -> bool {
    let group = token::machine_group(&machine.uid);
    let by_token = request.spec.groups.iter().flatten().any(|name| *name == group);
    by_token || request.spec.username.as_deref() == Some(&*format!("system:node:{}", machine.name))
}

/// Deletes this object and not one made anew under its name.
fn exactly<K: Resource>(object: &K) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.meta().uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// Whether the object is gone, or was replaced by another.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict())
}
