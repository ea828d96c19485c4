//! What the tests of the tools' protocols share.

use crate::node::{GUARDED, Node};
use std::os::unix::fs::PermissionsExt as _;

pub(crate) const WRITER: &str = "0123456789abcdef-writer";
pub(crate) const READER: &str = "0123456789abcdef-reader";

/// A node of the account `acme`: one token of a file may write the project `ios`, one may read it.
pub(crate) fn guarded() -> (Node, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let tokens = format!(
        "[[token]]\nname = \"writer\"\nsecret = \"{WRITER}\"\nwrite = [\"acme/ios\"]\n\
         [[token]]\nname = \"reader\"\nsecret = \"{READER}\"\nread = [\"acme/ios\"]\n"
    );
    std::fs::write(&file, tokens).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tokens = ["--auth-tokens-file", file.to_str().unwrap()];
    (Node::start(&[&GUARDED[..], &tokens].concat()), dir)
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}
