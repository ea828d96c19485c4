//! Container images made here, without a registry and without a builder.
//!
//! A node on a laptop or in CI cannot be assumed to reach a registry, and a test must not depend on one. So the two
//! images every node needs (`pause` and `busybox`) are written as an OCI archive from one static binary, and callers
//! build theirs the same way. Archives are reproducible: the same input gives the same digests.

use std::{io, path::Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The image of the container that holds a pod's namespaces.
pub const PAUSE: &str = "localhost/pause:1";
/// A small userland (`sh`, `wget`, `httpd`, `nc`, …) for tests and helper pods.
pub const BUSYBOX: &str = "localhost/busybox:1";

/// A file tree that becomes the root of a container.
pub struct Layer {
    tar: Builder<Vec<u8>>,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("bytes", &self.tar.get_ref().len())
            .finish()
    }
}

impl Default for Layer {
    fn default() -> Self {
        Self {
            tar: Builder::new(Vec::new()),
        }
    }
}

impl Layer {
    pub fn directory(mut self, path: &str, mode: u32) -> io::Result<Self> {
        let mut header = entry(EntryType::Directory, mode, 0);
        self.tar.append_data(&mut header, format!("{path}/"), io::empty())?;
        Ok(self)
    }

    pub fn file(mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<Self> {
        let mut header = entry(EntryType::Regular, mode, content.len());
        self.tar.append_data(&mut header, path, content)?;
        Ok(self)
    }

    pub fn symlink(mut self, path: &str, target: &str) -> io::Result<Self> {
        let mut header = entry(EntryType::Symlink, 0o777, 0);
        self.tar.append_link(&mut header, path, target)?;
        Ok(self)
    }

    /// A userland from a static busybox and the list of its applets.
    pub fn busybox(binary: &[u8], applets: &[String]) -> io::Result<Self> {
        let mut layer = Self::default();
        for directory in [
            "bin", "dev", "etc", "home", "proc", "root", "run", "sys", "usr", "var", "var/log",
        ] {
            layer = layer.directory(directory, 0o755)?;
        }
        layer = layer
            .directory("tmp", 0o1777)?
            .symlink("sbin", "bin")?
            .symlink("usr/bin", "../bin")?
            .file(
                "etc/passwd",
                0o644,
                b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
            )?
            .file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?
            .file("bin/busybox", 0o755, binary)?;
        for applet in applets.iter().filter(|applet| *applet != "busybox") {
            layer = layer.symlink(&format!("bin/{applet}"), "busybox")?;
        }
        Ok(layer)
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.tar.into_inner()
    }
}

/// How the processes of an image start.
#[derive(Clone, Debug, Default)]
pub struct Command {
    pub name: String,
    pub entrypoint: Vec<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// The two images of every node, both on the busybox layer.
pub fn standard() -> [Command; 2] {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    [
        // Process 1 of a pod that shares its process namespace adopts orphans: the shell's `wait` reaps them.
        Command {
            name: PAUSE.to_owned(),
            entrypoint: words(&[
                "/bin/sh",
                "-c",
                "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait; done",
            ]),
            ..Command::default()
        },
        Command {
            name: BUSYBOX.to_owned(),
            args: words(&["/bin/sh"]),
            env: vec![("PATH".to_owned(), "/bin".to_owned())],
            ..Command::default()
        },
    ]
}

/// Writes an OCI archive in which every command is an image of its own over the one layer.
pub fn write_archive(dest: &Path, layer: Layer, commands: &[Command]) -> io::Result<()> {
    let layer = layer.finish()?;
    let mut blobs = vec![layer];
    let layer_descriptor = describe("application/vnd.oci.image.layer.v1.tar", blobs.last());
    let mut manifests = Vec::new();
    for command in commands {
        blobs.push(serde_json::to_vec(&config(command, &layer_descriptor))?);
        let config = describe("application/vnd.oci.image.config.v1+json", blobs.last());
        blobs.push(serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer_descriptor],
        }))?);
        let mut manifest = describe("application/vnd.oci.image.manifest.v1+json", blobs.last());
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert(
                "annotations".to_owned(),
                json!({ "io.containerd.image.name": command.name }),
            );
            fields.insert(
                "platform".to_owned(),
                json!({ "os": "linux", "architecture": architecture() }),
            );
        }
        manifests.push(manifest);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });

    let mut archive = Layer::default()
        .file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?
        .file("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    for blob in &blobs {
        archive = archive.file(&format!("blobs/sha256/{}", digest(blob)), 0o644, blob)?;
    }
    std::fs::write(dest, archive.finish()?)
}

fn config(command: &Command, layer: &Value) -> Value {
    let env: Vec<_> = command
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": command.entrypoint, "Cmd": command.args, "Env": env },
        // The layer is not compressed, so its digest is also the digest of its content.
        "rootfs": { "type": "layers", "diff_ids": [layer.get("digest")] },
    })
}

fn describe(media_type: &str, blob: Option<&Vec<u8>>) -> Value {
    let blob = blob.map(Vec::as_slice).unwrap_or_default();
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", digest(blob)), "size": blob.len() })
}

pub fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn entry(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Go's name for the architecture this program was built for.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use super::*;

    fn archive() -> BTreeMap<String, Vec<u8>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("images.tar");
        let layer = Layer::busybox(b"\x7fELF", &["sh".to_owned(), "busybox".to_owned()]).unwrap();
        write_archive(&path, layer, &standard()).unwrap();
        entries(&std::fs::read(path).unwrap())
    }

    fn entries(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(bytes);
        let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_every_reference_resolves() {
        let files = archive();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap()
                .to_owned();
            let content = files[&format!("blobs/sha256/{digest}")].clone();
            assert_eq!(digest, super::digest(&content));
            assert_eq!(descriptor["size"], content.len());
            content
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let mut names = Vec::new();
        for descriptor in index["manifests"].as_array().unwrap() {
            names.push(
                descriptor["annotations"]["io.containerd.image.name"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
            let manifest: Value = serde_json::from_slice(&blob(descriptor)).unwrap();
            let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
            assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
            assert!(entries(&blob(&manifest["layers"][0])).contains_key("bin/sh"));
        }
        assert_eq!(names, [PAUSE, BUSYBOX]);
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        assert_eq!(archive(), archive());
    }
}
