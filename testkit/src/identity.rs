//! ServiceAccounts that may do exactly what a test grants, as kubeconfig files.
//!
//! A controller that works as cluster administrator proves nothing about its chart. Every controller test runs under one of these.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};
use russet_cluster::kubeconfig;

use crate::sandbox::Sandbox;

#[derive(Debug)]
pub struct Identity<'a> {
    sandbox: &'a Sandbox<'a>,
    name: String,
    namespaced: Vec<(String, Vec<PolicyRule>)>,
    cluster_wide: Vec<PolicyRule>,
}

/// A finished identity.
#[derive(Debug, Clone)]
pub struct Granted {
    pub kubeconfig: PathBuf,
    /// As the audit log writes it.
    pub username: String,
}

/// `rule("", &["configmaps"], &["get", "list"])`
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

impl<'a> Identity<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox<'a>, name: &str) -> Self {
        Self {
            sandbox,
            name: name.to_owned(),
            namespaced: Vec::new(),
            cluster_wide: Vec::new(),
        }
    }

    /// Grants rules in the sandbox's own namespace, as a Role.
    #[must_use]
    pub fn here(self, rules: Vec<PolicyRule>) -> Self {
        let namespace = self.sandbox.namespace().to_owned();
        self.in_namespace(&namespace, rules)
    }

    /// Grants rules in another namespace, as a Role there.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str, rules: Vec<PolicyRule>) -> Self {
        self.namespaced.push((namespace.to_owned(), rules));
        self
    }

    /// Grants rules everywhere, as a ClusterRole.
    #[must_use]
    pub fn everywhere(mut self, rules: Vec<PolicyRule>) -> Self {
        self.cluster_wide.extend(rules);
        self
    }

    /// Creates the ServiceAccount, its roles and bindings, and writes a kubeconfig with a token of it.
    pub async fn grant(self) -> Result<Granted> {
        let client = self.sandbox.client().await?;
        let home = self.sandbox.namespace().to_owned();
        let meta = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let post = PostParams::default();
        let subjects = Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.name.clone(),
            namespace: Some(home.clone()),
            ..Subject::default()
        }]);
        let role_ref = |kind: &str, name: &str| RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };

        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &home);
        accounts
            .create(
                &post,
                &ServiceAccount {
                    metadata: meta(&self.name),
                    ..ServiceAccount::default()
                },
            )
            .await
            .with_context(|| format!("failed to create ServiceAccount {home}/{}", self.name))?;
        let unique = format!("{home}-{}", self.name);
        for (namespace, rules) in &self.namespaced {
            let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
            roles
                .create(
                    &post,
                    &Role {
                        metadata: meta(&unique),
                        rules: Some(rules.clone()),
                    },
                )
                .await?;
            let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
            let binding = RoleBinding {
                metadata: meta(&unique),
                role_ref: role_ref("Role", &unique),
                subjects: subjects.clone(),
            };
            bindings.create(&post, &binding).await?;
        }
        if !self.cluster_wide.is_empty() {
            let roles: Api<ClusterRole> = Api::all(client.clone());
            let role = ClusterRole {
                metadata: meta(&unique),
                rules: Some(self.cluster_wide.clone()),
                ..ClusterRole::default()
            };
            roles.create(&post, &role).await?;
            let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
            let binding = ClusterRoleBinding {
                metadata: meta(&unique),
                role_ref: role_ref("ClusterRole", &unique),
                subjects: subjects.clone(),
            };
            bindings.create(&post, &binding).await?;
        }
        let dest = self.sandbox.cluster().dir().join(format!("{unique}.kubeconfig"));
        kubeconfig::for_service_account(client, self.sandbox.cluster().control_plane(), &home, &self.name, &dest)
            .await?;
        Ok(Granted {
            kubeconfig: dest,
            username: format!("system:serviceaccount:{home}:{}", self.name),
        })
    }
}

#[cfg(test)]
mod tests;
