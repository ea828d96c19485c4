//! Folders of the host that a Pod may have as they are: `hostPath`, and persistent volumes that are such folders.
//!
//! A VM is given folders and nothing else, so a volume that is a file, a device or a disk somewhere on a network is refused in
//! words. What the agent itself keeps is never given away: its key opens the API server, and Secrets of other Pods lie beside it.

use super::Error;
use crate::admit::term_matches;
use crate::objects::Claim;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// A folder of the host, as a volume asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFolder {
    /// Where.
    pub path: PathBuf,
    /// Nobody in a VM may write.
    pub read_only: bool,
    /// It is made if it is not there.
    pub create: bool,
}

/// What a VM cannot do with a hostPath, if there is something.
pub(crate) fn unsupported_host_path(source: &HostPathVolumeSource) -> Option<&'static str> {
    if !is_plain(Path::new(&source.path)) {
        return Some("a hostPath must be absolute and must not contain '..'");
    }
    match source.type_.as_deref().unwrap_or_default() {
        "" | "Directory" | "DirectoryOrCreate" => None,
        _ => Some("a VM is given folders, not single files or devices; name the folder and use a subPath"),
    }
}

pub(super) fn host_path(source: &HostPathVolumeSource, read_only: bool) -> Result<HostFolder, Error> {
    match unsupported_host_path(source) {
        Some(why) => Err(Error::HostPath(why)),
        None => Ok(HostFolder {
            path: PathBuf::from(&source.path),
            read_only,
            create: source.type_.as_deref() == Some("DirectoryOrCreate"),
        }),
    }
}

/// The claim that a volume names, and whether it may only be read. That of a generic ephemeral volume is made for the Pod, and
/// named after both.
pub(crate) fn claim_of(pod: &Pod, volume: &Volume) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), source.read_only == Some(true)));
    }
    volume.ephemeral.as_ref()?;
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    Some((format!("{pod}-{}", volume.name), false))
}

/// The folder behind a claim.
pub(super) fn claimed(
    pod: &Pod,
    volume: &Volume,
    name: &str,
    read_only: bool,
    known: Option<&Claim>,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> Result<HostFolder, Error> {
    let refused = |why: String| Error::Claim {
        claim: name.to_owned(),
        why,
    };
    let Some(Claim { claim, volume: bound }) = known else {
        return Err(Error::NoClaim(name.to_owned()));
    };
    if volume.ephemeral.is_some() && !is_owned(claim, pod) {
        return Err(refused(
            "was not made for this Pod; delete it, or rename the Pod".to_owned(),
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(refused("is being deleted".to_owned()));
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let Some(bound) = bound.as_ref().filter(|_| phase == Some("Bound")) else {
        return Err(refused("is not bound to a volume yet".to_owned()));
    };
    let spec = bound.spec.clone().unwrap_or_default();
    let owner = spec.claim_ref.as_ref().and_then(|owner| owner.uid.as_deref());
    if owner != claim.metadata.uid.as_deref() {
        return Err(refused("names a volume that belongs to another claim".to_owned()));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(refused("is a block device, which a VM cannot be given".to_owned()));
    }
    let here = spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    if here.is_some_and(|here| {
        !here
            .node_selector_terms
            .iter()
            .any(|term| term_matches(term, node, labels))
    }) {
        return Err(refused("is bound to a volume of another node".to_owned()));
    }
    let read_only = read_only || spec.mount_options.iter().flatten().any(|option| option == "ro");
    if let Some(local) = &spec.local {
        let source = HostPathVolumeSource {
            path: local.path.clone(),
            type_: Some("Directory".to_owned()),
        };
        return host_path(&source, read_only);
    }
    match &spec.host_path {
        Some(source) => host_path(source, read_only),
        None => Err(refused(format!(
            "is bound to {}, which a Mac cannot attach; only volumes of kind local and hostPath can be shared with a VM",
            described(bound)
        ))),
    }
}

fn is_owned(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    let uid = pod.metadata.uid.as_deref();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| owner.kind == "Pod" && Some(owner.uid.as_str()) == uid)
}

fn described(volume: &PersistentVolume) -> String {
    format!("the volume {}", volume.metadata.name.as_deref().unwrap_or_default())
}

/// Why a folder of the host cannot be given to a VM.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Nothing is there.
    #[error("hostPath type check failed: {0} is not a directory")]
    NoFolder(PathBuf),
    /// It is ours.
    #[error(
        "{0} holds what the node keeps for itself, its key and Secrets of Pods, so no Pod can have it; name another folder"
    )]
    Kept(PathBuf),
    /// It cannot be made or looked at.
    #[error("{path} could not be opened: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl HostFolder {
    /// Finds the folder, or makes it, and says where it really is: a link that is changed later changes nothing. `kept` are
    /// folders and files of which no Pod may have any part.
    pub fn open(&self, kept: &[PathBuf]) -> Result<PathBuf, HostError> {
        let failed = |source| HostError::Io {
            path: self.path.clone(),
            source,
        };
        if self.create {
            self.check(&real(&self.path).map_err(failed)?, kept)?;
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&self.path)
                .map_err(failed)?;
        }
        let path = match fs::canonicalize(&self.path) {
            Ok(path) if path.is_dir() => path,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => return Err(HostError::NoFolder(self.path.clone())),
        };
        self.check(&path, kept)?;
        Ok(path)
    }

    fn check(&self, path: &Path, kept: &[PathBuf]) -> Result<(), HostError> {
        let touches = |kept: &PathBuf| {
            let kept = real(kept).unwrap_or_else(|_| kept.clone());
            path.starts_with(&kept) || kept.starts_with(path) || is_within(path, &kept) || is_within(&kept, path)
        };
        if kept.iter().any(touches) {
            return Err(HostError::Kept(self.path.clone()));
        }
        Ok(())
    }
}

/// Where a path really leads, also if its last parts are not there.
fn real(path: &Path) -> io::Result<PathBuf> {
    for above in path.ancestors() {
        match fs::canonicalize(above) {
            Ok(found) => return Ok(path.strip_prefix(above).map_or(found.clone(), |rest| found.join(rest))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

/// Whether one is below the other or the same, by what they are: a name can be written in several ways on a disk that takes large
/// letters for small ones.
fn is_within(path: &Path, folder: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let wanted = id(folder);
    wanted.is_some() && path.ancestors().any(|above| id(above) == wanted)
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::{Value, json};
    use std::os::unix::fs::symlink;

    fn folder(path: &Path, create: bool) -> HostFolder {
        HostFolder {
            path: path.to_owned(),
            read_only: false,
            create,
        }
    }

    /// A link in a folder that one Pod may write to must not lead another to the key of the node.
    #[test]
    fn what_the_node_keeps_is_given_to_nobody_whatever_the_path_looks_like() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let state = root.join("state");
        fs::create_dir_all(state.join("pods")).unwrap();
        fs::create_dir(root.join("data")).unwrap();
        symlink(&state, root.join("data/innocent")).unwrap();
        let kept = [state.clone()];
        for path in [
            &root,
            &state,
            &state.join("pods"),
            &root.join("data/innocent"),
            &root.join("data/innocent/pods"),
        ] {
            assert!(
                matches!(folder(path, false).open(&kept), Err(HostError::Kept(_))),
                "{path:?}"
            );
        }
        let inside = root.join("data/innocent/new");
        assert!(matches!(folder(&inside, true).open(&kept), Err(HostError::Kept(_))));
        assert!(!state.join("new").exists(), "it was made before it was refused");
        let found = folder(&root.join("data"), false).open(&kept).unwrap();
        assert_eq!(found, root.join("data"));
    }

    #[test]
    fn a_folder_is_there_or_made_if_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, file) = (dir.path().join("a/b"), dir.path().join("file"));
        fs::write(&file, "").unwrap();
        assert!(matches!(folder(&missing, false).open(&[]), Err(HostError::NoFolder(_))));
        assert!(matches!(folder(&file, false).open(&[]), Err(HostError::NoFolder(_))));
        assert!(folder(&missing, true).open(&[]).unwrap().is_dir());
    }

    fn claim(claim: Value, bound: Value) -> Result<HostFolder, Error> {
        let known = Claim {
            claim: serde_json::from_value(claim).unwrap(),
            volume: serde_json::from_value(bound).unwrap(),
        };
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let volume = serde_json::from_value(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})).unwrap();
        let labels = [("kubernetes.io/hostname".to_owned(), "mac1".to_owned())].into();
        claimed(&pod, &volume, "c", false, Some(&known), "mac1", &labels)
    }

    fn bound() -> Value {
        json!({"metadata": {"name": "c", "uid": "u1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
    }

    fn on(host: &str, source: &Value) -> Value {
        let mut spec = json!({
            "claimRef": {"name": "c", "uid": "u1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]},
            ]}]}},
        });
        let Value::Object(source) = source else {
            panic!("{source}")
        };
        spec.as_object_mut().unwrap().extend(source.clone());
        json!({"metadata": {"name": "pv"}, "spec": spec})
    }

    #[test]
    fn a_claim_leads_to_a_folder_of_this_host() {
        let local = json!({"local": {"path": "/Volumes/data"}});
        let found = claim(bound(), on("mac1", &local)).unwrap();
        assert_eq!(
            (found.path.to_str(), found.read_only, found.create),
            (Some("/Volumes/data"), false, false)
        );
        let mut read_only = local.clone();
        read_only["mountOptions"] = json!(["ro"]);
        assert!(claim(bound(), on("mac1", &read_only)).unwrap().read_only);
        let host_path = json!({"hostPath": {"path": "/Volumes/x", "type": "DirectoryOrCreate"}});
        assert!(claim(bound(), on("mac1", &host_path)).unwrap().create);
    }

    #[test]
    fn a_claim_that_leads_nowhere_is_refused_in_words() {
        let local = json!({"local": {"path": "/Volumes/data"}});
        let waits = json!({"metadata": {"name": "c", "uid": "u1"}, "status": {"phase": "Pending"}});
        let other = json!({"metadata": {"name": "c", "uid": "u2"}, "status": {"phase": "Bound"}});
        let mut block = local.clone();
        block["volumeMode"] = json!("Block");
        let cases = [
            (waits, on("mac1", &local), "not bound"),
            (other, on("mac1", &local), "belongs to another claim"),
            (bound(), on("mac2", &local), "of another node"),
            (bound(), on("mac1", &block), "block device"),
            (
                bound(),
                on("mac1", &json!({"nfs": {"path": "/", "server": "s"}})),
                "the volume pv, which a Mac cannot attach",
            ),
            (
                bound(),
                on("mac1", &json!({"hostPath": {"path": "/x", "type": "File"}})),
                "use a subPath",
            ),
        ];
        for (known, volume, words) in cases {
            let error = claim(known, volume).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    /// Somebody made a claim with the name that the Pod's own would have.
    #[test]
    fn the_claim_of_an_ephemeral_volume_is_that_of_its_pod() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let volume: Volume = serde_json::from_value(json!({"name": "v", "ephemeral": {}})).unwrap();
        assert_eq!(claim_of(&pod, &volume), Some(("job-v".to_owned(), false)));
        let owned = |uid: &str| {
            let mut claim = bound();
            claim["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": uid, "controller": true}]);
            let known = Claim {
                claim: serde_json::from_value(claim).unwrap(),
                volume: serde_json::from_value(on("mac1", &json!({"local": {"path": "/v"}}))).unwrap(),
            };
            let labels = [("kubernetes.io/hostname".to_owned(), "mac1".to_owned())].into();
            claimed(&pod, &volume, "job-v", false, Some(&known), "mac1", &labels)
        };
        assert!(owned("0b5d7f3c").is_ok());
        assert!(
            owned("another")
                .unwrap_err()
                .to_string()
                .contains("was not made for this Pod")
        );
    }
}
