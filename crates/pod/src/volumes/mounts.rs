//! Where a container sees its volumes.

use super::render::inner_path;
use crate::env::Environment;
use k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// A volume in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which volume.
    pub volume: String,
    /// Where in the container.
    pub path: String,
    /// The volume is files of Kubernetes, made by us. Decided by the spec: what is on the disk of an emptyDir or of a folder of the host
    /// was made by guests.
    pub files: bool,
    /// The part of the volume that is shown. Of files it is a copy from the start of the container, which never changes after.
    /// In any other folder it has to be found, and made, inside the guest: on the host, a link that some guest left there would
    /// lead anywhere.
    pub sub_path: Option<String>,
    /// The container may not write.
    pub read_only: bool,
}

/// Why a container cannot have its volumes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMount {
    /// The Pod has no such volume.
    #[error("cannot find volume \"{volume}\" to mount into container \"{container}\"")]
    NoVolume {
        /// Which.
        volume: String,
        /// For whom.
        container: String,
    },
    /// The path leads out of the volume.
    #[error("subPath {0:?} of a volume must be relative and must not contain '..'")]
    SubPath(String),
    /// The path has variables that are not set.
    #[error("missing value for {0:?}: every $(NAME) of a subPathExpr must be set in the environment of the container")]
    Unset(String),
}

fn is_files(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// The volumes of a container. Files of Kubernetes are read-only whatever the mount says.
pub fn mounts(pod: &Pod, container: &Container, env: &Environment) -> Result<Vec<Mount>, BadMount> {
    let volumes = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    let wanted = container.volume_mounts.as_deref().unwrap_or_default();
    let mounts = wanted.iter().map(|mount| {
        let volume: &Volume =
            volumes
                .iter()
                .find(|volume| volume.name == mount.name)
                .ok_or_else(|| BadMount::NoVolume {
                    volume: mount.name.clone(),
                    container: container.name.clone(),
                })?;
        let given = |path: &Option<String>| path.clone().filter(|path| !path.is_empty());
        let expanded = match given(&mount.sub_path_expr) {
            Some(path) => {
                let filled = env.expand(&path);
                if filled.contains("$(") {
                    return Err(BadMount::Unset(path));
                }
                Some(filled)
            }
            None => given(&mount.sub_path),
        };
        let sub_path = expanded
            .map(|path| inner_path(&path).ok_or(BadMount::SubPath(path)))
            .transpose()?;
        Ok(Mount {
            volume: mount.name.clone(),
            path: mount.mount_path.clone(),
            files: is_files(volume),
            sub_path,
            read_only: mount.read_only == Some(true) || is_files(volume),
        })
    });
    mounts.collect()
}
