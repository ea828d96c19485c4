//! Capabilities and the content-addressable storage.

use super::{World, batch, code, noise, unwire, wire};
use prost::Message as _;
use russet_reapi::client::tonic::{Code, Request};
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function, pack};

#[tokio::test]
async fn capabilities_say_what_the_server_does() {
    let world = World::start(&[]).await;
    let ask = |request: Request<reapi::GetCapabilitiesRequest>| async {
        let answer = world
            .capabilities()
            .get_capabilities(request)
            .await
            .unwrap()
            .into_inner();
        answer.cache_capabilities.unwrap()
    };
    let cache = ask(Request::new(reapi::GetCapabilitiesRequest::default())).await;
    assert_eq!(cache.digest_functions, [1, 9]);
    assert_eq!(
        (cache.supported_compressors, cache.supported_batch_update_compressors),
        (vec![1], vec![1])
    );
    assert!(cache.action_cache_update_capabilities.unwrap().update_enabled);
    assert!(!cache.split_blob_support && !cache.splice_blob_support);
    assert_eq!(cache.max_cas_blob_size_bytes, 2 << 30, "half of the capacity");
    let mut request = Request::new(reapi::GetCapabilitiesRequest::default());
    request
        .metadata_mut()
        .insert("x-tuist-account-handle", "default".parse().unwrap());
    assert_eq!(ask(request).await.max_batch_total_size_bytes, 32 << 20);
}

/// A batch of exactly the advertised size is stored and read; one byte more is refused, and stores nothing.
#[tokio::test]
async fn the_advertised_batch_size_is_honoured_to_the_byte() {
    let world = World::start(&[]).await;
    let limit = world
        .capabilities()
        .get_capabilities(reapi::GetCapabilitiesRequest::default())
        .await
        .unwrap()
        .into_inner()
        .cache_capabilities
        .unwrap()
        .max_batch_total_size_bytes;
    let limit = usize::try_from(limit).unwrap();
    let exact: Vec<Vec<u8>> = vec![noise(1, limit / 2), noise(2, limit - limit / 2)];
    let named = |parts: &[Vec<u8>]| -> Vec<Digest> { parts.iter().map(|part| Function::Sha256.digest(part)).collect() };
    let digests = named(&exact);
    let pairs: Vec<_> = digests.iter().copied().zip(exact.iter().map(Vec::as_slice)).collect();
    assert_eq!(world.put(&pairs).await, [0, 0]);
    let request = |digests: &[Digest]| reapi::BatchReadBlobsRequest {
        digests: digests.iter().map(wire).collect(),
        ..Default::default()
    };
    let answer = world
        .cas()
        .batch_read_blobs(request(&digests))
        .await
        .unwrap()
        .into_inner();
    for (one, content) in answer.responses.iter().zip(&exact) {
        assert!(one.data == content[..] && one.status.as_ref().is_none_or(|status| status.code == 0));
    }
    let small = world.store(b"!").await;
    let more: Vec<Digest> = digests.iter().copied().chain([small]).collect();
    assert_eq!(
        code(world.cas().batch_read_blobs(request(&more)).await),
        Code::InvalidArgument
    );
    let over = [noise(3, limit), vec![7]];
    let digests = named(&over);
    let pairs: Vec<_> = digests.iter().copied().zip(over.iter().map(Vec::as_slice)).collect();
    assert_eq!(
        code(world.cas().batch_update_blobs(batch(&pairs)).await),
        Code::InvalidArgument
    );
    assert_eq!(world.missing(&digests).await, digests);
}

#[tokio::test]
async fn both_digest_functions_store_and_find_their_own() {
    let world = World::start(&[]).await;
    for function in Function::ALL {
        let content = noise(9, 5000);
        let digest = function.digest(&content);
        let absent = function.digest(b"absent");
        assert_eq!(world.missing(&[digest, absent]).await, [digest, absent]);
        assert_eq!(world.put(&[(digest, &content)]).await, [0]);
        assert_eq!(world.missing(&[digest, absent]).await, [absent]);
        let wrong_size = Digest { size: 4999, ..digest };
        assert_eq!(
            world.missing(&[wrong_size]).await,
            [wrong_size],
            "another size is another blob"
        );
        let segment = if function == Function::Blake3 { "blake3/" } else { "" };
        assert_eq!(
            world.read(&format!("blobs/{segment}{digest}"), 0, 0).await.unwrap(),
            content
        );
        let missing = world.read(&format!("blobs/{segment}{wrong_size}"), 0, 0).await;
        assert_eq!(code(missing), Code::NotFound);
    }
    // The same hash under the other function is another blob.
    let digest = Function::Sha256.digest(&noise(9, 5000));
    let other = Digest {
        function: Function::Blake3,
        ..digest
    };
    assert_eq!(world.missing(&[other]).await, [other]);
}

/// A wrong blob in a batch gets its own code and is not stored; the others are.
#[tokio::test]
async fn each_blob_of_a_batch_has_its_own_code() {
    let world = World::start(&[]).await;
    let good = Function::Sha256.digest(b"good");
    let wrong = Digest {
        size: 3,
        ..Function::Sha256.digest(b"other")
    };
    assert_eq!(
        world.put(&[(good, b"good"), (wrong, b"bad"), (good, b"good")]).await,
        [0, 3, 0]
    );
    assert_eq!(world.missing(&[good, wrong]).await, [wrong]);
    let mut request = batch(&[(good, b"good")]);
    request.requests[0].compressor = 3;
    let answer = world.cas().batch_update_blobs(request).await.unwrap().into_inner();
    assert_eq!(answer.responses[0].status.as_ref().unwrap().code, 3);
    let answer = world
        .cas()
        .batch_read_blobs(reapi::BatchReadBlobsRequest {
            digests: vec![wire(&good), wire(&Function::Sha256.digest(b"none"))],
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    let codes: Vec<_> = answer
        .responses
        .iter()
        .map(|one| one.status.clone().unwrap_or_default().code)
        .collect();
    assert_eq!(codes, [0, 5]);
    assert_eq!(answer.responses[0].data, "good");
    assert_eq!(
        unwire(answer.responses[1].digest.as_ref().unwrap(), Function::Sha256),
        Function::Sha256.digest(b"none")
    );
}

#[tokio::test]
async fn the_empty_blob_is_always_there() {
    let world = World::start(&[]).await;
    for function in Function::ALL {
        let empty = function.digest(b"");
        assert_eq!(world.missing(&[empty]).await, []);
        let segment = if function == Function::Blake3 { "blake3/" } else { "" };
        assert_eq!(world.read(&format!("blobs/{segment}{empty}"), 0, 0).await.unwrap(), b"");
        let zstd = world
            .read(&format!("compressed-blobs/zstd/{segment}{empty}"), 0, 0)
            .await
            .unwrap();
        assert_eq!(pack::inflate(&zstd, 0).unwrap(), b"");
        assert_eq!(world.put(&[(empty, b"")]).await, [0]);
        let name = format!("uploads/u/blobs/{segment}{empty}");
        assert_eq!(world.write(&name, b"", 1).await.unwrap(), 0);
        let answer = world
            .cas()
            .batch_read_blobs(reapi::BatchReadBlobsRequest {
                digests: vec![wire(&empty)],
                digest_function: function.value(),
                ..Default::default()
            })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.responses[0].status.clone().unwrap_or_default().code, 0);
    }
    assert_eq!(
        world
            .missing(&[Digest {
                hash: [0; 32],
                ..Function::Sha256.digest(b"")
            }])
            .await
            .len(),
        1,
        "of size 0 is not enough"
    );
}

#[tokio::test]
async fn instances_are_separate_and_the_empty_one_is_called_default() {
    let world = World::start(&[]).await;
    let digest = world.store(b"mine").await;
    let ask = |instance: &str| {
        let request = reapi::FindMissingBlobsRequest {
            instance_name: instance.to_owned(),
            blob_digests: vec![wire(&digest)],
            ..Default::default()
        };
        async {
            world
                .cas()
                .find_missing_blobs(request)
                .await
                .map(|answer| answer.into_inner().missing_blob_digests.len())
        }
    };
    assert_eq!(ask("default").await.unwrap(), 0);
    assert_eq!(ask("Default").await.unwrap(), 0);
    assert_eq!(ask("other").await.unwrap(), 1);
    assert_eq!(ask("other/nested").await.unwrap(), 1);
    for bad in ["../x", "a//b", "a b", "/"] {
        assert_eq!(code(ask(bad).await), Code::InvalidArgument, "{bad}");
    }
    assert_eq!(
        world.read(&format!("default/blobs/{digest}"), 0, 0).await.unwrap(),
        b"mine"
    );
}

/// What was uploaded compressed is stored so, and is served to those who want it plain or compressed, over any protocol.
#[tokio::test]
async fn compressed_blobs_are_the_same_blobs() {
    let world = World::start(&[]).await;
    let content: Vec<u8> = (0..500_000_u32)
        .flat_map(|number| (number / 11).to_le_bytes())
        .collect();
    let packed = pack::deflate(&content, 3).unwrap();
    let digest = Function::Sha256.digest(&content);
    let name = format!("uploads/u/compressed-blobs/zstd/{digest}");
    let written = world.write(&name, &packed, 10_000).await.unwrap();
    assert_eq!(written, i64::try_from(packed.len()).unwrap());
    assert_eq!(
        world.write(&name, &packed, 10_000).await.unwrap(),
        -1,
        "it is there already"
    );
    let plain = format!("uploads/u/blobs/{digest}");
    assert_eq!(
        world.write(&plain, &content, 1 << 20).await.unwrap(),
        2_000_000,
        "in this form too"
    );
    assert_eq!(world.missing(&[digest]).await, []);
    let as_sent = world
        .read(&format!("compressed-blobs/zstd/{digest}"), 0, 0)
        .await
        .unwrap();
    assert_eq!(as_sent, packed, "not compressed again");
    assert_eq!(world.read(&format!("blobs/{digest}"), 0, 0).await.unwrap(), content);
    assert_eq!(
        world.read(&format!("blobs/{digest}"), 1_234_567, 1000).await.unwrap(),
        content[1_234_567..1_235_567]
    );
    let tail = world
        .read(&format!("compressed-blobs/zstd/{digest}"), 1_000_000, 0)
        .await
        .unwrap();
    assert_eq!(pack::inflate(&tail, 1_000_000).unwrap(), content[1_000_000..]);

    let batch = |zstd: bool| reapi::BatchReadBlobsRequest {
        digests: vec![wire(&digest)],
        acceptable_compressors: if zstd { vec![1] } else { vec![] },
        ..Default::default()
    };
    let one = world
        .cas()
        .batch_read_blobs(batch(true))
        .await
        .unwrap()
        .into_inner()
        .responses
        .remove(0);
    assert_eq!((one.compressor, &one.data[..]), (1, &packed[..]));
    let one = world
        .cas()
        .batch_read_blobs(batch(false))
        .await
        .unwrap()
        .into_inner()
        .responses
        .remove(0);
    assert_eq!((one.compressor, &one.data[..]), (0, &content[..]));
}

#[tokio::test]
async fn batches_may_be_compressed_and_are_verified_by_their_content() {
    let world = World::start(&[]).await;
    let content = b"hello hello hello hello hello hello hello hello".repeat(20);
    let incompressible = noise(5, 300);
    let mut request = batch(&[
        (Function::Sha256.digest(&content), &pack::deflate(&content, 3).unwrap()),
        (
            Function::Sha256.digest(&incompressible),
            &pack::deflate(&incompressible, 3).unwrap(),
        ),
        (Function::Sha256.digest(b"wrong"), &pack::deflate(b"right", 3).unwrap()),
        (Function::Sha256.digest(b"not zstd"), b"not zstd"),
        (
            Digest {
                size: 10,
                ..Function::Sha256.digest(&vec![0; 1 << 20])
            },
            &pack::deflate(&vec![0; 1 << 20], 3).unwrap(),
        ),
    ]);
    for one in &mut request.requests {
        one.compressor = 1;
    }
    let answer = world.cas().batch_update_blobs(request).await.unwrap().into_inner();
    let codes: Vec<_> = answer
        .responses
        .iter()
        .map(|one| one.status.clone().unwrap_or_default().code)
        .collect();
    assert_eq!(codes, [0, 0, 3, 3, 3]);
    for stored in [content, incompressible] {
        let digest = Function::Sha256.digest(&stored);
        assert_eq!(world.read(&format!("blobs/{digest}"), 0, 0).await.unwrap(), stored);
        let zstd = world
            .read(&format!("compressed-blobs/zstd/{digest}"), 0, 0)
            .await
            .unwrap();
        assert_eq!(pack::inflate(&zstd, digest.size).unwrap(), stored);
    }
}

#[tokio::test]
async fn trees_are_walked_in_pages() {
    let world = World::start(&[]).await;
    let leaf = reapi::Directory {
        files: vec![reapi::FileNode {
            name: "f".to_owned(),
            digest: Some(wire(&world.store(b"f").await)),
            ..Default::default()
        }],
        ..Default::default()
    };
    let leaf_digest = world.store(&leaf.encode_to_vec()).await;
    let node = |name: &str, digest: &Digest| reapi::DirectoryNode {
        name: name.to_owned(),
        digest: Some(wire(digest)),
    };
    let gone = Function::Sha256.digest(b"gone");
    let mut middles = Vec::new();
    for number in 0..5 {
        let middle = reapi::Directory {
            directories: vec![node("shared", &leaf_digest), node(&format!("gone{number}"), &gone)],
            ..Default::default()
        };
        middles.push(world.store(&middle.encode_to_vec()).await);
    }
    let root = reapi::Directory {
        directories: middles
            .iter()
            .enumerate()
            .map(|(number, digest)| node(&format!("d{number}"), digest))
            .collect(),
        ..Default::default()
    };
    let root_digest = world.store(&root.encode_to_vec()).await;
    let mut client = world.cas();
    let request = reapi::GetTreeRequest {
        root_digest: Some(wire(&root_digest)),
        page_size: 2,
        ..Default::default()
    };
    let mut stream = client.get_tree(request.clone()).await.unwrap().into_inner();
    let mut pages = Vec::new();
    while let Some(page) = stream.message().await.unwrap() {
        pages.push(page);
    }
    let all: Vec<_> = pages.iter().flat_map(|page| page.directories.clone()).collect();
    assert_eq!(
        all.len(),
        7,
        "root, five, and the leaf they share; what is gone is left out"
    );
    assert!(all[0] == root && all[6] == leaf && pages.iter().all(|page| page.directories.len() <= 2));
    assert_eq!(pages.last().unwrap().next_page_token, "");
    let again = reapi::GetTreeRequest {
        page_token: pages[0].next_page_token.clone(),
        ..request
    };
    let mut stream = client.get_tree(again).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().directories, all[2..4]);
    let absent = reapi::GetTreeRequest {
        root_digest: Some(wire(&gone)),
        ..Default::default()
    };
    assert_eq!(code(client.get_tree(absent).await), Code::NotFound);
}
