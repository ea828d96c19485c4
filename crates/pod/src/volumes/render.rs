//! From a volume's spec and the objects it names to files.

use super::host::{self, HostFolder};
use super::{File, Tree, bundle};
use crate::env::{self, field, resource};
use crate::objects::{Context, Objects, TokenKey};
use crate::quantity::Amount;
use bytes::Bytes;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Why a volume cannot be made, with the words of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ConfigMap is missing.
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    /// A Secret is missing.
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    /// A key is missing.
    #[error("references non-existent {kind} key: {key}")]
    NoKey {
        /// `config` or `secret`.
        kind: &'static str,
        /// Which.
        key: String,
    },
    /// A path leads out of the volume.
    #[error("invalid path {0:?}: it must be relative and must not contain '..'")]
    Path(String),
    /// A token could not be had yet.
    #[error("the token for audience {0:?} has not been issued yet")]
    NoToken(String),
    /// A ClusterTrustBundle is missing.
    #[error("clustertrustbundle.certificates.k8s.io \"{0}\" not found")]
    NoTrustBundle(String),
    /// No ClusterTrustBundle of a signer is selected.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles ({0})")]
    NoTrustBundleOf(String),
    /// A ClusterTrustBundle is not what an API server lets anybody write.
    #[error("clustertrustbundle \"{name}\" is no list of certificates: {why}")]
    BadTrustBundle {
        /// Which.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A field cannot be told.
    #[error(transparent)]
    Field(#[from] env::Error),
    /// A hostPath that is no folder.
    #[error("{0}")]
    HostPath(&'static str),
    /// A claim is missing.
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NoClaim(String),
    /// A claim leads to nothing that a VM can have.
    #[error("persistentvolumeclaim \"{claim}\" {why}")]
    Claim {
        /// Which.
        claim: String,
        /// Why not.
        why: String,
    },
    /// A source of a projected volume is nothing at all.
    #[error(
        "a source of this projected volume is empty; an API server leaves out what it does not serve, such as a clusterTrustBundle"
    )]
    EmptySource,
    /// Not a volume that a VM can have.
    #[error(
        "a VM cannot have this kind of volume; use secret, configMap, downwardAPI, projected, emptyDir, hostPath or a claim"
    )]
    Unsupported,
}

/// What a volume is on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// Files, swapped as a whole, which nobody in a VM may change.
    Files(Tree),
    /// A folder that containers write to.
    Empty {
        /// What it may grow to, in bytes.
        limit: Option<u64>,
    },
    /// A folder of the host as it is.
    Host(HostFolder),
}

/// Permissions of files that nobody has asked about.
const MODE: i32 = 0o644;

/// Makes a volume.
pub fn render(context: &Context<'_>, volume: &Volume, objects: &Objects) -> Result<Rendered, Error> {
    let mut maker = Maker {
        context,
        objects,
        tree: Tree::default(),
    };
    if let Some(source) = &volume.empty_dir {
        let limit = source
            .size_limit
            .as_ref()
            .map(Amount::of)
            .filter(|limit| *limit > Amount::ZERO);
        return Ok(Rendered::Empty {
            limit: limit.map(|limit| u64::try_from(limit.value()).unwrap_or(0)),
        });
    } else if let Some(source) = &volume.host_path {
        return host::host_path(source, false).map(Rendered::Host);
    } else if let Some((name, read_only)) = host::claim_of(context.pod, volume) {
        let node = context.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let known = objects.claims.get(&name);
        let folder = host::claimed(
            context.pod,
            volume,
            &name,
            read_only,
            known,
            node.unwrap_or_default(),
            &objects.node_labels,
        );
        return folder.map(Rendered::Host);
    } else if let Some(source) = &volume.config_map {
        maker.config_map(
            &source.name,
            source.items.as_deref(),
            source.optional,
            source.default_mode,
        )?;
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        maker.secret(name, source.items.as_deref(), source.optional, source.default_mode)?;
    } else if let Some(source) = &volume.downward_api {
        maker.downward(source.items.as_deref().unwrap_or_default(), source.default_mode)?;
    } else if let Some(source) = &volume.projected {
        for part in source.sources.iter().flatten() {
            maker.projection(part, source.default_mode)?;
        }
    } else {
        return Err(Error::Unsupported);
    }
    Ok(Rendered::Files(maker.tree))
}

struct Maker<'a> {
    context: &'a Context<'a>,
    objects: &'a Objects,
    tree: Tree,
}

impl Maker<'_> {
    fn projection(&mut self, part: &VolumeProjection, mode: Option<i32>) -> Result<(), Error> {
        if let Some(source) = &part.config_map {
            return self.config_map(&source.name, source.items.as_deref(), source.optional, mode);
        }
        if let Some(source) = &part.secret {
            return self.secret(&source.name, source.items.as_deref(), source.optional, mode);
        }
        if let Some(source) = &part.downward_api {
            return self.downward(source.items.as_deref().unwrap_or_default(), mode);
        }
        if let Some(source) = &part.cluster_trust_bundle {
            let contents = bundle::anchors(source, &self.objects.trust_bundles)?;
            return self.add(&source.path, contents, mode);
        }
        let Some(source) = &part.service_account_token else {
            return Err(Error::EmptySource);
        };
        let key = TokenKey::of(source);
        let token = self
            .objects
            .tokens
            .get(&key)
            .ok_or_else(|| Error::NoToken(key.audience.clone()))?;
        let contents = Bytes::copy_from_slice(token.value.expose().as_bytes());
        let security = self
            .context
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.security_context.as_ref());
        let private = security.is_some_and(|own| own.fs_group.is_some() || own.run_as_user.is_some());
        let mode = if private { Some(0o600) } else { mode };
        self.add(&source.path, contents, mode)
    }

    fn config_map(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        let optional = optional == Some(true);
        let Some(found) = self.objects.config_maps.get(name) else {
            return if optional {
                Ok(())
            } else {
                Err(Error::NoConfigMap(name.to_owned()))
            };
        };
        let text = found.data.iter().flatten();
        let text = text.map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value.as_bytes())));
        let binary = found.binary_data.iter().flatten();
        let binary = binary.map(|(key, value)| (key.clone(), Bytes::copy_from_slice(&value.0)));
        self.keys("config", &text.chain(binary).collect(), items, optional, mode)
    }

    fn secret(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        let optional = optional == Some(true);
        let Some(found) = self.objects.secrets.get(name) else {
            return if optional {
                Ok(())
            } else {
                Err(Error::NoSecret(name.to_owned()))
            };
        };
        let data = found.data.iter().flatten();
        let data = data
            .map(|(key, value)| (key.clone(), Bytes::copy_from_slice(&value.0)))
            .collect();
        self.keys("secret", &data, items, optional, mode)
    }

    fn keys(
        &mut self,
        kind: &'static str,
        data: &BTreeMap<String, Bytes>,
        items: Option<&[KeyToPath]>,
        optional: bool,
        mode: Option<i32>,
    ) -> Result<(), Error> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return data
                .iter()
                .try_for_each(|(key, value)| self.add(key, value.clone(), mode));
        };
        for item in items {
            match data.get(&item.key) {
                Some(value) => self.add(&item.path, value.clone(), item.mode.or(mode))?,
                None if optional => {}
                None => {
                    return Err(Error::NoKey {
                        kind,
                        key: item.key.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: &[DownwardAPIVolumeFile], mode: Option<i32>) -> Result<(), Error> {
        for item in items {
            let value = if let Some(source) = &item.field_ref {
                field(self.context, &source.field_path)?
            } else if let Some(source) = &item.resource_field_ref {
                resource(self.context, source, None)?
            } else {
                return Err(Error::Unsupported);
            };
            self.add(&item.path, Bytes::from(value), item.mode.or(mode))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, contents: Bytes, mode: Option<i32>) -> Result<(), Error> {
        let path = inner_path(path).ok_or_else(|| Error::Path(path.to_owned()))?;
        let mode = u32::try_from(mode.unwrap_or(MODE)).unwrap_or(0o600) & 0o777;
        self.tree.insert(path, File { contents, mode });
        Ok(())
    }
}

/// A path that stays inside, in its plainest form. Names that begin with `..` belong to the folder itself.
pub(super) fn inner_path(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    let reserved = parts.first().is_none_or(|first| first.starts_with(".."));
    (!reserved).then(|| parts.join("/"))
}
