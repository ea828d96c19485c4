//! Action results and trees: any bytes are decoded or refused, what a result says survives fields it does not know, and the readers of
//! both protocols find what the library's decoder finds.
#![no_main]

use kura::action::{Outline, leaves, outline, outline_json};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use russet_reapi::digest::hash_of_hex;
use russet_reapi::proto::reapi;
use russet_reapi::result::{Node, Reference, of_action, of_directory, of_tree};
use russet_reapi::wire::RawDigest;
use russet_reapi::{Digest, Function};

/// Blobs, then trees. None: one of them is no digest.
type Named = Option<(Vec<Digest>, Vec<Digest>)>;

fn of_raw(raw: &RawDigest<'_>) -> Option<Digest> {
    raw.digest(Function::Sha256).ok()
}

fn of_library(digest: &reapi::Digest) -> Option<Digest> {
    Some(Digest {
        function: Function::Sha256,
        hash: hash_of_hex(digest.hash.as_bytes())?,
        size: u64::try_from(digest.size_bytes).ok()?,
    })
}

/// As the gRPC surface reads it; the outer none: it is no message.
fn named_here(data: &[u8]) -> Option<Named> {
    let (mut blobs, mut trees) = (Vec::new(), Vec::new());
    let whole = of_action(data, |reference| {
        match reference {
            Reference::Blob(raw) | Reference::Directory(raw) => blobs.push(of_raw(&raw)),
            Reference::Tree(raw) => trees.push(of_raw(&raw)),
        }
        true
    });
    whole.ok()?;
    let all = |found: Vec<Option<Digest>>| found.into_iter().collect::<Option<Vec<_>>>();
    Some(all(blobs).zip(all(trees)))
}

/// As the library reads it, in the order in which the library writes it.
fn named_there(result: &reapi::ActionResult) -> Named {
    let (mut blobs, mut trees) = (Vec::new(), Vec::new());
    for file in &result.output_files {
        blobs.extend(file.digest.as_ref().map(of_library));
    }
    for directory in &result.output_directories {
        trees.extend(directory.tree_digest.as_ref().map(of_library));
        blobs.extend(directory.root_directory_digest.as_ref().map(of_library));
    }
    blobs.extend(result.stdout_digest.as_ref().map(of_library));
    blobs.extend(result.stderr_digest.as_ref().map(of_library));
    let all = |found: Vec<Option<Digest>>| found.into_iter().collect::<Option<Vec<_>>>();
    all(blobs).zip(all(trees))
}

fn files(tree: &[u8]) -> Option<Option<Vec<Digest>>> {
    let mut found = Vec::new();
    let whole = of_tree(tree, |raw| {
        found.push(of_raw(&raw));
        true
    });
    whole.ok()?;
    Some(found.into_iter().collect())
}

fn sorted(mut digests: Vec<Digest>) -> Vec<Digest> {
    digests.sort_by_key(|digest| (digest.hash, digest.size));
    digests
}

fn order((blobs, trees): (Vec<Digest>, Vec<Digest>)) -> (Vec<Digest>, Vec<Digest>) {
    (sorted(blobs), trees)
}

/// An outline keeps directories apart from files.
fn in_order(said: Outline) -> (Vec<Digest>, Vec<Digest>) {
    order(([said.blobs, said.directories].concat(), said.trees))
}

fn check_result(data: &[u8]) {
    if let (Ok(said), Some(named)) = (outline(data), named_here(data)) {
        assert_eq!(Some(in_order(said)), named.map(order), "two readers of one result");
    }
    let Ok(result) = reapi::ActionResult::decode(data) else {
        return;
    };
    let (written, named) = (result.encode_to_vec(), named_there(&result));
    assert_eq!(
        named_here(&written),
        Some(named.clone()),
        "what the library writes is refused"
    );
    match (outline(&written), named) {
        (Ok(said), named) => assert_eq!(Some(in_order(said)), named.map(order)),
        (Err(_), Some(_)) => assert!(written.is_empty(), "what the library writes is refused"),
        (Err(_), None) => {}
    }
    // What merges two values of one field is not what either of them says: then our reader refuses.
    if let Some(Some((blobs, trees))) = named_here(data) {
        let (theirs, their_trees) = named_there(&result).expect("usable here, and not there");
        assert_eq!((sorted(blobs), sorted(trees)), (sorted(theirs), sorted(their_trees)));
    }
}

fn check_tree(data: &[u8]) {
    if let (Ok(found), Some(files)) = (leaves(data), files(data)) {
        assert_eq!(Some(found), files, "two readers of one tree");
    }
    let Ok(tree) = reapi::Tree::decode(data) else {
        return;
    };
    let directories = tree.root.iter().chain(&tree.children);
    let theirs: Option<Vec<_>> = directories
        .flat_map(|directory| directory.files.iter().filter_map(|file| file.digest.as_ref()))
        .map(of_library)
        .collect();
    let written = tree.encode_to_vec();
    assert_eq!(
        files(&written),
        Some(theirs.clone()),
        "what the library writes is refused"
    );
    assert_eq!(leaves(&written).ok(), theirs);
}

fn check_directory(data: &[u8]) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let read = of_directory(data, |node| match node {
        Node::File(raw) => files.push(of_raw(&raw)),
        Node::Directory(raw) => directories.push(of_raw(&raw)),
    });
    let (Ok(()), Ok(theirs)) = (read, reapi::Directory::decode(data)) else {
        return;
    };
    let of = |digest: Option<&reapi::Digest>| digest.map(of_library);
    assert_eq!(
        files,
        theirs
            .files
            .iter()
            .filter_map(|node| of(node.digest.as_ref()))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        directories,
        theirs
            .directories
            .iter()
            .filter_map(|node| of(node.digest.as_ref()))
            .collect::<Vec<_>>()
    );
}

fuzz_target!(|data: &[u8]| {
    let _ = outline_json(data);
    check_result(data);
    check_tree(data);
    check_directory(data);
    let Ok(said) = outline(data) else {
        return;
    };
    assert!(!data.is_empty(), "nothing is no result");
    // Field 100, three bytes long, which no version of the message has.
    let mut longer = data.to_vec();
    longer.extend_from_slice(&[0xa2, 0x06, 3, 1, 2, 3]);
    assert_eq!(outline(&longer), Ok(said));
});
