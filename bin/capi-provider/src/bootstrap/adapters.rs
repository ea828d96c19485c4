//! The parts of the provider as what a set-up needs of them.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_api::conditions::reasons::apple_silicon::GH_RUNNER_REGISTRATION_TOKEN_UNAVAILABLE;
use russet_controller::{Class, Classify};
use russet_github::resolver::Resolver;
use russet_telemetry::Secret;

use super::services::{self, LoginKey, Problem};
use crate::claims::Holder;
use crate::machine_ref::MachineRef;
use crate::{egress, fleet_key, identity, runner_token};

const SOON: Duration = Duration::from_secs(15);
const SELDOM: Duration = Duration::from_mins(5);

impl<E: Classify> From<E> for Problem {
    fn from(error: E) -> Self {
        let retry = match error.class() {
            Class::Conflict => Duration::from_secs(1),
            Class::Transient => SOON,
            Class::RateLimited { after } => after,
            Class::Waiting { poll, .. } => poll,
            Class::Invalid | Class::Forbidden => SELDOM,
        };
        Self {
            reason: error.reason(),
            message: error.to_string(),
            retry,
        }
    }
}

impl From<&Holder> for MachineRef {
    fn from(holder: &Holder) -> Self {
        Self {
            namespace: holder.namespace.clone(),
            name: holder.name.clone(),
            uid: holder.uid.clone(),
        }
    }
}

impl services::FleetKeys for fleet_key::FleetKeys {
    fn ensure<'a>(&'a self, fleet: &'a str) -> BoxFuture<'a, Result<LoginKey, Problem>> {
        async move {
            let key = Self::ensure(self, fleet).await?;
            Ok(LoginKey {
                private: key.private,
                public: key.public,
                id: Some(key.key_id),
                sudo_password: key.sudo_password,
            })
        }
        .boxed()
    }
}

impl services::Identities for identity::Identities {
    fn issue<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<Secret<String>, Problem>> {
        async move { Ok(Self::issue(self, &machine.into()).await?.kubeconfig) }.boxed()
    }

    fn revoke<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<(), Problem>> {
        async move { Ok(Self::revoke(self, &machine.into()).await?) }.boxed()
    }
}

impl services::RunnerTokens for runner_token::RunnerTokens {
    fn registration_token<'a>(
        &'a self,
        runner: &'a GhActionsRunner,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Secret<String>, Problem>> {
        async move {
            let minted = Resolver::registration_token(self, runner, namespace).await;
            minted.map_err(|error| Problem {
                reason: GH_RUNNER_REGISTRATION_TOKEN_UNAVAILABLE,
                message: error.to_string(),
                retry: SOON * 4,
            })
        }
        .boxed()
    }
}

impl services::Egress for egress::Egress {
    fn ensure<'a>(&'a self, machine: &'a Holder, fleet: Option<&'a str>) -> BoxFuture<'a, Result<(), Problem>> {
        async move { Ok(Self::ensure(self, &machine.into(), fleet).await?) }.boxed()
    }

    fn remove<'a>(&'a self, machine: &'a Holder) -> BoxFuture<'a, Result<(), Problem>> {
        async move { Ok(Self::remove(self, &machine.into()).await?) }.boxed()
    }
}
