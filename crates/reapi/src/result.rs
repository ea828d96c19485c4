//! What an action result refers to. A hit is worth nothing unless all of it is there.

use crate::wire::{Fields, Malformed, RawDigest, set_once};

/// Something an action result needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// An output file, or what the action printed.
    Blob(RawDigest<'a>),
    /// A serialized `Tree`, and what is in it.
    Tree(RawDigest<'a>),
    /// A serialized `Directory`, and all below it.
    Directory(RawDigest<'a>),
}

/// Calls `found` for all an `ActionResult` refers to directly, until it says stop; whether it never did.
pub fn of_action<'a>(result: &'a [u8], mut found: impl FnMut(Reference<'a>) -> bool) -> Result<bool, Malformed> {
    let (mut stdout, mut stderr) = (None, None);
    for field in Fields::new(result) {
        let (number, value) = field?;
        if let 6 | 8 = number {
            set_once(if number == 6 { &mut stdout } else { &mut stderr }, ())?;
        }
        let go_on = match number {
            2 => inner(value.bytes()?, 2)?.is_none_or(|raw| found(Reference::Blob(raw))),
            3 => {
                let directory = value.bytes()?;
                inner(directory, 3)?.is_none_or(|raw| found(Reference::Tree(raw)))
                    && inner(directory, 5)?.is_none_or(|raw| found(Reference::Directory(raw)))
            }
            6 | 8 => found(Reference::Blob(RawDigest::read(value.bytes()?)?)),
            _ => true,
        };
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The digest in that field of a message.
fn inner(message: &[u8], wanted: u32) -> Result<Option<RawDigest<'_>>, Malformed> {
    let mut found = None;
    for field in Fields::new(message) {
        let (number, value) = field?;
        if number == wanted {
            set_once(&mut found, RawDigest::read(value.bytes()?)?)?;
        }
    }
    Ok(found)
}

/// Calls `found` for every file of a serialized `Tree`, until it says stop; whether it never did.
pub fn of_tree<'a>(tree: &'a [u8], mut found: impl FnMut(RawDigest<'a>) -> bool) -> Result<bool, Malformed> {
    for field in Fields::new(tree) {
        if let (1 | 2, value) = field? {
            let mut go_on = true;
            of_directory(value.bytes()?, |node| {
                if let Node::File(raw) = node {
                    go_on = go_on && found(raw);
                }
            })?;
            if !go_on {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A file.
    File(RawDigest<'a>),
    /// A directory.
    Directory(RawDigest<'a>),
}

/// Calls `found` for every file and directory of a serialized `Directory`.
pub fn of_directory<'a>(directory: &'a [u8], mut found: impl FnMut(Node<'a>)) -> Result<(), Malformed> {
    for field in Fields::new(directory) {
        match field? {
            (1, value) => {
                if let Some(raw) = inner(value.bytes()?, 2)? {
                    found(Node::File(raw));
                }
            }
            (2, value) => {
                if let Some(raw) = inner(value.bytes()?, 2)? {
                    found(Node::Directory(raw));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Function;
    use crate::proto::reapi;
    use proptest::prelude::*;
    use prost::Message as _;

    #[expect(clippy::unnecessary_wraps, reason = "messages are made of options")]
    fn digest(size: i64) -> Option<reapi::Digest> {
        let hash = Function::Sha256.digest(&size.to_le_bytes()).hex();
        Some(reapi::Digest { hash, size_bytes: size })
    }

    #[test]
    fn everything_an_action_needs_is_named() {
        let result = reapi::ActionResult {
            output_files: vec![reapi::OutputFile {
                path: "a".to_owned(),
                digest: digest(1),
                contents: bytes::Bytes::from_static(b"inline"),
                ..Default::default()
            }],
            output_directories: vec![reapi::OutputDirectory {
                tree_digest: digest(2),
                root_directory_digest: digest(3),
                ..Default::default()
            }],
            stdout_digest: digest(4),
            stderr_digest: digest(5),
            output_symlinks: vec![reapi::OutputSymlink::default()],
            ..Default::default()
        }
        .encode_to_vec();
        let mut sizes = Vec::new();
        let all = of_action(&result, |reference| {
            sizes.push(match reference {
                Reference::Blob(raw) => ("blob", raw.size()),
                Reference::Tree(raw) => ("tree", raw.size()),
                Reference::Directory(raw) => ("directory", raw.size()),
            });
            true
        });
        assert_eq!(all, Ok(true));
        assert_eq!(
            sizes,
            [("blob", 1), ("tree", 2), ("directory", 3), ("blob", 4), ("blob", 5)]
        );
        assert_eq!(of_action(&result, |_| false), Ok(false));
    }

    #[test]
    fn trees_name_the_files_of_all_their_directories() {
        let directory = |size| reapi::Directory {
            files: vec![reapi::FileNode {
                digest: digest(size),
                ..Default::default()
            }],
            directories: vec![reapi::DirectoryNode {
                digest: digest(99),
                ..Default::default()
            }],
            ..Default::default()
        };
        let tree = reapi::Tree {
            root: Some(directory(1)),
            children: vec![directory(2), directory(3)],
        }
        .encode_to_vec();
        let mut sizes = Vec::new();
        assert_eq!(
            of_tree(&tree, |raw| {
                sizes.push(raw.size());
                true
            }),
            Ok(true)
        );
        assert_eq!(sizes, [1, 2, 3]);
    }

    /// A reader that merges two digests of one file would ask for a third, which nobody looked for: such a result is none.
    #[test]
    fn a_digest_that_is_said_twice_is_refused() {
        let written = digest(1).unwrap().encode_to_vec();
        let twice = |field| {
            let mut message = Vec::new();
            crate::wire::put_bytes(&mut message, field, &written);
            crate::wire::put_bytes(&mut message, field, &written);
            message
        };
        let within = |field, message: &[u8]| {
            let mut outer = Vec::new();
            crate::wire::put_bytes(&mut outer, field, message);
            outer
        };
        for result in [
            within(2, &twice(2)),
            within(3, &twice(3)),
            within(3, &twice(5)),
            twice(6),
            twice(8),
        ] {
            assert_eq!(of_action(&result, |_| true), Err(Malformed), "{result:?}");
        }
        assert_eq!(of_tree(&within(1, &within(1, &twice(2))), |_| true), Err(Malformed));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = of_action(&bytes, |_| true);
            let _ = of_tree(&bytes, |_| true);
            let _ = of_directory(&bytes, |_| {});
        }
    }
}
