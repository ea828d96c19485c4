//! What an action result refers to. A hit is worth nothing unless all of it is there.

use crate::digest::{Digest, Function};
use crate::proto::reapi;
use crate::wire::{Fields, Malformed, RawDigest, set_once};
use prost::Message as _;

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
///
/// A field of the wrong type makes the whole malformed, as it does for every client.
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
            // The exit code.
            4 => value.number().map(|_| true)?,
            6 | 8 => found(Reference::Blob(RawDigest::read(value.bytes()?)?)),
            // What was printed, how it was run, and symlinks.
            5 | 7 | 9..=12 => value.bytes().map(|_| true)?,
            _ => true,
        };
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether any field of an `ActionResult` is set that we know. One without, as an empty body or one of foreign bytes, is a
/// success without outputs to a client, which then fails over the outputs that are missing.
pub fn says_something(result: &[u8]) -> bool {
    Fields::new(result).any(|field| matches!(field, Ok((2..=12, _))))
}

/// The digest in that field of a message whose first field is a path or a name.
fn inner(message: &[u8], wanted: u32) -> Result<Option<RawDigest<'_>>, Malformed> {
    let mut found = None;
    for field in Fields::new(message) {
        let (number, value) = field?;
        if number == 1 {
            value.text()?;
        } else if number == wanted {
            set_once(&mut found, RawDigest::read(value.bytes()?)?)?;
        }
    }
    Ok(found)
}

/// All digests of an action result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Output files, and what was printed.
    pub blobs: Vec<Digest>,
    /// Trees of output directories.
    pub trees: Vec<Digest>,
    /// Output directories that are not trees.
    pub directories: Vec<Digest>,
}

impl Outline {
    /// An action result that refers to the same, for who has it in another form.
    pub fn to_result(&self) -> Vec<u8> {
        let digest = |digest: &Digest| {
            Some(reapi::Digest {
                hash: digest.hex(),
                size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
            })
        };
        let tree = |tree: &Digest| reapi::OutputDirectory {
            tree_digest: digest(tree),
            ..Default::default()
        };
        let directory = |directory: &Digest| reapi::OutputDirectory {
            root_directory_digest: digest(directory),
            ..Default::default()
        };
        let file = |file: &Digest| reapi::OutputFile {
            digest: digest(file),
            ..Default::default()
        };
        let directories = self.directories.iter().map(directory);
        reapi::ActionResult {
            output_files: self.blobs.iter().map(file).collect(),
            output_directories: self.trees.iter().map(tree).chain(directories).collect(),
            ..Default::default()
        }
        .encode_to_vec()
    }
}

/// The digests of an action result that says something.
pub fn outline(result: &[u8], function: Function) -> Result<Outline, Malformed> {
    let mut outline = Outline::default();
    if !says_something(result) {
        return Err(Malformed);
    }
    let whole = of_action(result, |reference| {
        let (list, raw) = match reference {
            Reference::Blob(raw) => (&mut outline.blobs, raw),
            Reference::Tree(raw) => (&mut outline.trees, raw),
            Reference::Directory(raw) => (&mut outline.directories, raw),
        };
        let digest = raw.digest(function);
        list.extend(digest);
        digest.is_ok()
    })?;
    if whole { Ok(outline) } else { Err(Malformed) }
}

/// The files of a serialized `Tree`.
pub fn leaves(tree: &[u8], function: Function) -> Result<Vec<Digest>, Malformed> {
    let mut found = Vec::new();
    let whole = of_tree(tree, |raw| {
        let digest = raw.digest(function);
        found.extend(digest);
        digest.is_ok()
    })?;
    if whole { Ok(found) } else { Err(Malformed) }
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
    use proptest::prelude::*;

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
        let named = [("blob", 1), ("tree", 2), ("directory", 3), ("blob", 4), ("blob", 5)];
        assert_eq!(sizes, named);
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
        let all = of_tree(&tree, |raw| {
            sizes.push(raw.size());
            true
        });
        assert_eq!((all, sizes), (Ok(true), vec![1, 2, 3]));
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
        let (file, tree, root) = (within(2, &twice(2)), within(3, &twice(3)), within(3, &twice(5)));
        for result in [file, tree, root, twice(6), twice(8)] {
            assert_eq!(of_action(&result, |_| true), Err(Malformed), "{result:?}");
        }
        assert_eq!(of_tree(&within(1, &within(1, &twice(2))), |_| true), Err(Malformed));
    }

    #[test]
    fn an_outline_has_everything_and_can_be_made_a_result_again() {
        let result = reapi::ActionResult {
            output_files: vec![reapi::OutputFile {
                digest: digest(1),
                ..Default::default()
            }],
            output_directories: vec![reapi::OutputDirectory {
                tree_digest: digest(2),
                root_directory_digest: digest(3),
                ..Default::default()
            }],
            stdout_digest: digest(4),
            ..Default::default()
        };
        let all = outline(&result.encode_to_vec(), Function::Sha256).unwrap();
        let sizes = |list: &[Digest]| list.iter().map(|digest| digest.size).collect::<Vec<_>>();
        let found = [sizes(&all.blobs), sizes(&all.trees), sizes(&all.directories)];
        assert_eq!(found, [vec![1, 4], vec![2], vec![3]]);
        assert_eq!(outline(&all.to_result(), Function::Sha256), Ok(all));
    }

    /// Both Bazel versions of the facts take an empty result for a success and fail the build over its missing outputs.
    #[test]
    fn bodies_that_say_nothing_are_no_results() {
        let field = |number: u8, body: &[u8]| [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat();
        let upper = [field(1, "BB".repeat(32).as_bytes()), vec![2 << 3, 1]].concat();
        for body in [
            Vec::new(),
            b"garbage that is no protobuf".to_vec(),
            field(13, b"an unknown field"),
            field(4, b"an exit code of the wrong type"),
            field(2, &[field(1, b"a"), field(2, b"no digest")].concat()),
            field(2, &field(1, b"\xff no path")),
            field(6, &upper),
            vec![2 << 3 | 2, 200],
            vec![0x80; 20],
        ] {
            assert_eq!(outline(&body, Function::Sha256), Err(Malformed), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = outline(&bytes, Function::Sha256);
            let _ = leaves(&bytes, Function::Blake3);
            let _ = of_action(&bytes, |_| true);
            let _ = of_tree(&bytes, |_| true);
            let _ = of_directory(&bytes, |_| {});
        }
    }
}
