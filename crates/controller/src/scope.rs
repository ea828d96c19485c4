//! Where a controller looks: the whole cluster, or a set of namespaces.
//!
//! A controller under a namespaced Role must not make one cluster-wide request: the answer is a 403 for ever, and a watch that
//! never starts (incident `namespaced-informer`). So the scope is a value, and Apis are made from it.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind that a controller can work on: typed, readable, and in a namespace. Every such type is one.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a namespace name: use lower-case letters, digits and dashes, 63 at most")]
pub struct Error(String);

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Everywhere; needs a ClusterRole.
    Cluster,
    /// In these namespaces only; Roles in them suffice.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// From the values of `--namespace`, which may repeat and contain commas. None at all means the cluster.
    pub fn parse<S: AsRef<str>>(values: &[S]) -> Result<Self, Error> {
        let names: BTreeSet<String> = values
            .iter()
            .flat_map(|value| value.as_ref().split(','))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        if let Some(bad) = names.iter().find(|name| !is_label(name)) {
            return Err(Error(bad.clone()));
        }
        Ok(if names.is_empty() {
            Self::Cluster
        } else {
            Self::Namespaces(names)
        })
    }

    /// The places to watch: one per namespace, or one for everything.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Self::Cluster => vec![Place(None)],
            Self::Namespaces(names) => names.iter().map(|name| Place(Some(name.clone()))).collect(),
        }
    }

    /// Whether objects of this namespace are in scope.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces(names) => names.contains(namespace),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("all namespaces"),
            Self::Namespaces(names) => f.write_str(&names.iter().map(String::as_str).collect::<Vec<_>>().join(",")),
        }
    }
}

/// One namespace, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(Option<String>);

impl Place {
    /// The namespace; none for all.
    pub fn namespace(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// An Api that lists and watches here and nowhere else.
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.0 {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// RFC 1123 label.
fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_may_repeat_and_contain_commas() {
        let scope = Scope::parse(&["a,b", "b", " c "]).unwrap();
        assert_eq!(scope.to_string(), "a,b,c");
        assert_eq!(scope.places().len(), 3);
        assert!(scope.contains("b") && !scope.contains("d"));
    }

    #[test]
    fn no_namespace_means_the_cluster() {
        assert_eq!(Scope::parse(&[] as &[&str]).unwrap(), Scope::Cluster);
        assert_eq!(Scope::parse(&["", ","]).unwrap(), Scope::Cluster);
        assert_eq!(Scope::Cluster.places(), [Place(None)]);
    }

    #[test]
    fn a_bad_name_is_quoted() {
        for bad in ["Kura", "a_b", "-a", "a-", "a/b", &"x".repeat(64)] {
            assert!(Scope::parse(&[bad]).unwrap_err().to_string().contains(bad), "{bad}");
        }
    }
}
