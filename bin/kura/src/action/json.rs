//! Action results as JSON, which moon sends over HTTP.
//!
//! The document is kept as it came and given back to who asks for JSON; here it is only read for its digests. Every object with
//! a hash and a size is one, wherever it stands and in whichever of the two spellings.

use super::{Invalid, Outline};
use russet_reapi::digest::hash_of_hex;
use russet_reapi::{Digest, Function};
use serde_json::Value;

pub(super) fn outline(bytes: &[u8]) -> Result<Outline, Invalid> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| Invalid)?;
    let fields = value.as_object().filter(|fields| !fields.is_empty()).ok_or(Invalid)?;
    let known = [
        "outputFiles",
        "output_files",
        "outputDirectories",
        "output_directories",
        "outputSymlinks",
        "output_symlinks",
        "exitCode",
        "exit_code",
        "stdoutDigest",
        "stdout_digest",
        "stderrDigest",
        "stderr_digest",
        "stdoutRaw",
        "stdout_raw",
        "stderrRaw",
        "stderr_raw",
        "executionMetadata",
        "execution_metadata",
    ];
    if !fields.keys().any(|name| known.contains(&name.as_str())) {
        return Err(Invalid);
    }
    let mut outline = Outline::default();
    collect(&value, "", &mut outline)?;
    Ok(outline)
}

fn collect(value: &Value, name: &str, outline: &mut Outline) -> Result<(), Invalid> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, name, outline)),
        Value::Object(fields) => {
            if let Some(hash) = fields.get("hash").and_then(Value::as_str) {
                let size = fields
                    .get("sizeBytes")
                    .or_else(|| fields.get("size_bytes"))
                    .ok_or(Invalid)?;
                // Protobuf's JSON writes 64-bit numbers as text.
                let size = size.as_u64().or_else(|| size.as_str()?.parse().ok()).ok_or(Invalid)?;
                let digest = Digest {
                    function: Function::Sha256,
                    hash: hash_of_hex(hash.as_bytes()).ok_or(Invalid)?,
                    size,
                };
                let list = match name {
                    "treeDigest" | "tree_digest" => &mut outline.trees,
                    "rootDirectoryDigest" | "root_directory_digest" => &mut outline.directories,
                    _ => &mut outline.blobs,
                };
                list.push(digest);
                return Ok(());
            }
            fields
                .iter()
                .try_for_each(|(name, value)| collect(value, name, outline))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_in_both_spellings() {
        let hash = "ab".repeat(32);
        let text = format!(
            r#"{{"output_files":[{{"path":"a","digest":{{"hash":"{hash}","size_bytes":3}}}}],
                "outputDirectories":[{{"treeDigest":{{"hash":"{hash}","sizeBytes":"7"}}}}],"exit_code":0}}"#
        );
        let outline = outline(text.as_bytes()).unwrap();
        assert_eq!((outline.blobs[0].size, outline.trees[0].size), (3, 7));
    }

    #[test]
    fn other_documents_are_no_results() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"a":1}"#,
            r#"{"exitCode":0,"x":{"hash":"zz","sizeBytes":1}}"#,
            "null",
        ] {
            assert!(outline(text.as_bytes()).is_err(), "{text}");
        }
    }
}
