//! GetTree: a directory and all below it.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi::{Digest, Directory, DirectoryNode, FileNode, GetTreeRequest, GetTreeResponse};
use std::collections::BTreeSet;

use super::target::{Called, Target, digest, expect_code};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    whole, "reapi-get-tree", "REAPI GetTree":
        "every directory below the root comes, the root among them, shared ones at least once";
    paged, "reapi-get-tree-pages", "REAPI GetTreeRequest.page_size":
        "small pages, followed by their tokens, give the same directories";
    missing, "reapi-get-tree-missing-root", "REAPI GetTree":
        "a root that is not there is NOT_FOUND";
    holed, "reapi-get-tree-with-holes", "REAPI GetTree; contract: GetTree" [contract]:
        "what is missing below the root is left out, the root comes first, and no page is larger than asked";
};

fn leaf(name: String, digest: Digest) -> Directory {
    Directory {
        files: vec![FileNode {
            name,
            digest: Some(digest),
            ..FileNode::default()
        }],
        ..Directory::default()
    }
}

fn named(directory: &Directory) -> Digest {
    digest(&directory.encode_to_vec())
}

fn node(name: String, digest: Digest) -> DirectoryNode {
    DirectoryNode {
        name,
        digest: Some(digest),
    }
}

async fn store(target: &Target, all: &[Directory]) -> Result<()> {
    let bodies: Vec<Bytes> = all.iter().map(|directory| directory.encode_to_vec().into()).collect();
    target.store(&bodies.iter().collect::<Vec<_>>()).await.map(drop)
}

/// Forty directories, three deep; one of them is shared by many.
async fn planted(target: &Target) -> Result<(Digest, Vec<Directory>)> {
    let mark = target.name();
    let leaf = |name: &str| leaf(format!("{mark}-{name}"), digest(name.as_bytes()));
    let shared = leaf("shared");
    let mut all = vec![shared.clone()];
    let mut root = Directory::default();
    for number in 0..19 {
        let below = leaf(&format!("leaf-{number}"));
        let mut middle = leaf(&format!("middle-{number}"));
        middle.directories = vec![
            node("below".to_owned(), named(&below)),
            node("shared".to_owned(), named(&shared)),
        ];
        root.directories.push(node(format!("{number:02}"), named(&middle)));
        all.extend([below, middle]);
    }
    all.push(root.clone());
    store(target, &all).await?;
    Ok((named(&root), all))
}

/// The messages of one call.
async fn pages(target: &Target, root: &Digest, page_size: i32, page_token: String) -> Called<Vec<GetTreeResponse>> {
    let request = target.request(GetTreeRequest {
        instance_name: target.instance.clone(),
        root_digest: Some(root.clone()),
        page_size,
        page_token,
        digest_function: 1,
    });
    let mut stream = target.cas().get_tree(request).await?.into_inner();
    let mut pages = Vec::new();
    while let Some(page) = stream.message().await? {
        pages.push(page);
    }
    Ok(pages)
}

/// Everything below the root, by as many calls as it takes.
async fn walked(target: &Target, root: &Digest, page_size: i32) -> Result<Vec<Directory>> {
    let (mut found, mut token) = (Vec::new(), String::new());
    for call in 0..100 {
        let pages = match pages(target, root, page_size, token).await {
            Err(told) if told.0.code() == Code::Unimplemented => return not_applicable("the server has no GetTree"),
            pages => pages?,
        };
        let before = found.len();
        token = pages
            .last()
            .map(|page| page.next_page_token.clone())
            .unwrap_or_default();
        found.extend(pages.into_iter().flat_map(|page| page.directories));
        let empty = call > 0 && page_size > 0 && found.len() == before;
        ensure!(!empty, "a page without directories, and a token for more");
        if token.is_empty() {
            return Ok(found);
        }
    }
    anyhow::bail!("pages without end")
}

fn same(found: &[Directory], planted: &[Directory]) -> Result<()> {
    let set = |list: &[Directory]| -> BTreeSet<_> { list.iter().map(prost::Message::encode_to_vec).collect() };
    let (found, planted) = (set(found), set(planted));
    let (are, right) = (found.len(), planted.len());
    ensure!(found == planted, "{are} directories, where {right} are right");
    Ok(())
}

async fn whole(target: &Target) -> Result<()> {
    let (root, all) = planted(target).await?;
    same(&walked(target, &root, 0).await?, &all)
}

async fn paged(target: &Target) -> Result<()> {
    let (root, all) = planted(target).await?;
    same(&walked(target, &root, 7).await?, &all)
}

async fn missing(target: &Target) -> Result<()> {
    planted(target).await?;
    let absent = digest(&target.body(100));
    match pages(target, &absent, 0, String::new()).await {
        Err(told) if told.0.code() == Code::Unimplemented => not_applicable("the server has no GetTree"),
        outcome => expect_code(outcome, &[Code::NotFound]).context("a root that is not there"),
    }
}

async fn holed(target: &Target) -> Result<()> {
    let mark = target.name();
    let folder = |name: &str, directories: Vec<DirectoryNode>| Directory {
        directories,
        ..leaf(format!("{mark}-{name}"), digest(b""))
    };
    let (leaf, gone) = (folder("leaf", Vec::new()), digest(&target.body(100)));
    let below = || {
        let shared = node("shared".to_owned(), named(&leaf));
        vec![node("gone".to_owned(), gone.clone()), shared]
    };
    let middles: Vec<Directory> = (0..5).map(|number| folder(&format!("{number}"), below())).collect();
    let nodes = middles.iter().enumerate();
    let nodes = nodes.map(|(number, middle)| node(format!("d{number}"), named(middle)));
    let root = folder("root", nodes.collect());
    let expected = [vec![root.clone()], middles, vec![leaf.clone()]].concat();
    store(target, &expected).await?;
    let all = pages(target, &named(&root), 2, String::new()).await?;
    let most = all.iter().map(|page| page.directories.len()).max();
    ensure!(most.is_none_or(|most| most <= 2), "{most:?} on a page");
    let found: Vec<Directory> = all.iter().flat_map(|page| page.directories.clone()).collect();
    same(&found, &expected)?;
    let in_order = found.first() == expected.first() && found.last() == expected.last();
    ensure!(in_order, "in another order");
    let ended = all.last().is_some_and(|page| page.next_page_token.is_empty());
    ensure!(ended, "pages after the last");
    let token = all.first().context("a page")?.next_page_token.clone();
    let rest = pages(target, &named(&root), 2, token).await?;
    let next = rest.first().context("a page")?.directories.as_slice();
    ensure!(Some(next) == found.get(2..4), "the token leads elsewhere");
    Ok(())
}
