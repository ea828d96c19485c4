//! GetTree: a directory and all below it.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::{Code, Status};
use russet_reapi::proto::reapi::{Digest, Directory, DirectoryNode, FileNode, GetTreeRequest};

use super::target::{Target, digest, expect_code, told};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    whole, "reapi-get-tree", "REAPI GetTree":
        "every directory below the root comes, the root among them, shared ones at least once";
    paged, "reapi-get-tree-pages", "REAPI GetTreeRequest.page_size":
        "small pages, followed by their tokens, give the same directories";
    missing, "reapi-get-tree-missing-root", "REAPI GetTree":
        "a root that is not there is NOT_FOUND";
    holed, "reapi-get-tree-with-holes", "REAPI GetTree; contract: GetTree":
        "what is missing below the root is left out, the root comes first, and no page is larger than asked";
};

/// Forty directories, three deep; one of them is shared by many.
async fn planted(target: &Target) -> Result<(Digest, Vec<Directory>)> {
    let mark = target.name();
    let leaf = |name: &str| Directory {
        files: vec![FileNode {
            name: format!("{mark}-{name}"),
            digest: Some(digest(name.as_bytes())),
            ..FileNode::default()
        }],
        ..Directory::default()
    };
    let node = |name: String, directory: &Directory| DirectoryNode {
        name,
        digest: Some(digest(&directory.encode_to_vec())),
    };
    let shared = leaf("shared");
    let mut all = vec![shared.clone()];
    let mut root = Directory::default();
    for number in 0..19 {
        let below = leaf(&format!("leaf-{number}"));
        let mut middle = leaf(&format!("middle-{number}"));
        middle.directories = vec![node("below".to_owned(), &below), node("shared".to_owned(), &shared)];
        root.directories.push(node(format!("{number:02}"), &middle));
        all.extend([below, middle]);
    }
    all.push(root.clone());
    let bodies: Vec<Bytes> = all.iter().map(|directory| directory.encode_to_vec().into()).collect();
    target.store(&bodies.iter().collect::<Vec<_>>()).await?;
    Ok((digest(&root.encode_to_vec()), all))
}

/// One call; directories and the token of the next page.
async fn page(target: &Target, root: &Digest, size: i32, token: String) -> Result<(Vec<Directory>, String), Status> {
    let request = GetTreeRequest {
        instance_name: target.instance.clone(),
        root_digest: Some(root.clone()),
        page_size: size,
        page_token: token,
        digest_function: 1,
    };
    let mut stream = target.cas().get_tree(target.request(request)).await?.into_inner();
    let (mut all, mut token) = (Vec::new(), String::new());
    while let Some(answer) = stream.message().await? {
        all.extend(answer.directories);
        token = answer.next_page_token;
    }
    Ok((all, token))
}

fn implemented<V>(outcome: Result<V, Status>) -> Result<V> {
    match outcome {
        Err(status) if status.code() == Code::Unimplemented => not_applicable("the server has no GetTree"),
        outcome => outcome.map_err(told),
    }
}

fn same(found: &[Directory], planted: &[Directory]) -> Result<()> {
    let set = |list: &[Directory]| {
        let mut set: Vec<Vec<u8>> = list.iter().map(prost::Message::encode_to_vec).collect();
        set.sort();
        set.dedup();
        set
    };
    let (found, planted) = (set(found), set(planted));
    ensure!(
        found == planted,
        "{} directories, where {} are right",
        found.len(),
        planted.len()
    );
    Ok(())
}

async fn whole(target: &Target) -> Result<()> {
    let (root, all) = planted(target).await?;
    let (mut found, mut token) = implemented(page(target, &root, 0, String::new()).await)?;
    while !token.is_empty() {
        let (more, next) = page(target, &root, 0, token).await.map_err(told)?;
        found.extend(more);
        token = next;
    }
    same(&found, &all)
}

async fn paged(target: &Target) -> Result<()> {
    let (root, all) = planted(target).await?;
    let (mut found, mut token) = implemented(page(target, &root, 7, String::new()).await)?;
    let mut calls = 1;
    while !token.is_empty() {
        let (more, next) = page(target, &root, 7, token).await.map_err(told)?;
        ensure!(!more.is_empty(), "a page without directories, and a token for more");
        found.extend(more);
        token = next;
        calls += 1;
        ensure!(calls < 100, "pages without end");
    }
    same(&found, &all)
}

async fn missing(target: &Target) -> Result<()> {
    planted(target).await?;
    let absent = digest(&target.body(100));
    match page(target, &absent, 0, String::new()).await {
        Err(status) if status.code() == Code::Unimplemented => not_applicable("the server has no GetTree"),
        outcome => expect_code(outcome, &[Code::NotFound]).context("a root that is not there"),
    }
}

async fn holed(target: &Target) -> Result<()> {
    target.contract()?;
    let mark = target.name();
    let folder = |name: &str, directories: Vec<DirectoryNode>| Directory {
        files: vec![FileNode {
            name: format!("{mark}-{name}"),
            digest: Some(digest(b"")),
            ..FileNode::default()
        }],
        directories,
        ..Directory::default()
    };
    let node = |name: &str, digest: Digest| DirectoryNode {
        name: name.to_owned(),
        digest: Some(digest),
    };
    let named = |directory: &Directory| digest(&directory.encode_to_vec());
    let (leaf, gone) = (folder("leaf", Vec::new()), digest(&target.body(100)));
    let below = || vec![node("gone", gone.clone()), node("shared", named(&leaf))];
    let middles: Vec<Directory> = (0..5).map(|number| folder(&format!("{number}"), below())).collect();
    let nodes = middles
        .iter()
        .enumerate()
        .map(|(number, middle)| node(&format!("d{number}"), named(middle)));
    let root = folder("root", nodes.collect());
    let mut expected = vec![root.clone()];
    expected.extend(middles);
    expected.push(leaf);
    let bodies: Vec<Bytes> = expected
        .iter()
        .map(|directory| directory.encode_to_vec().into())
        .collect();
    target.store(&bodies.iter().collect::<Vec<_>>()).await?;
    let mut request = GetTreeRequest {
        instance_name: target.instance.clone(),
        root_digest: Some(named(&root)),
        page_size: 2,
        ..GetTreeRequest::default()
    };
    let mut pages = Vec::new();
    let mut stream = target
        .cas()
        .get_tree(target.request(request.clone()))
        .await
        .map_err(told)?
        .into_inner();
    while let Some(page) = stream.message().await.map_err(told)? {
        ensure!(page.directories.len() <= 2, "{} on a page", page.directories.len());
        pages.push(page);
    }
    let found: Vec<Directory> = pages.iter().flat_map(|page| page.directories.clone()).collect();
    same(&found, &expected)?;
    ensure!(
        found.first() == expected.first() && found.last() == expected.last(),
        "in another order"
    );
    ensure!(
        pages.last().is_some_and(|page| page.next_page_token.is_empty()),
        "pages after the last"
    );
    request
        .page_token
        .clone_from(&pages.first().context("a page")?.next_page_token);
    let mut stream = target
        .cas()
        .get_tree(target.request(request))
        .await
        .map_err(told)?
        .into_inner();
    let page = stream.message().await.map_err(told)?.context("a page")?;
    ensure!(
        Some(page.directories.as_slice()) == found.get(2..4),
        "the token leads elsewhere"
    );
    Ok(())
}
