use super::*;
use crate::config::Durability;
use russet_reapi::Function;

fn world() -> (tempfile::TempDir, Blobs, Vec<u8>, Name, Uploads) {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let name = Name::new("x", "u", Function::Sha256.digest(&content), Encoding::Identity);
    (dir, blobs, content, name, Uploads::default())
}

/// How a write is refused.
async fn refused(claim: &mut Claim<'_>, blobs: &Blobs, bytes: &[u8]) -> Code {
    write(claim, blobs, bytes).await.unwrap_err().code
}

async fn write(claim: &mut Claim<'_>, blobs: &Blobs, bytes: &[u8]) -> Result<(), Status> {
    claim.take(blobs, Bytes::copy_from_slice(bytes)).await?;
    claim.flush(blobs).await
}

#[tokio::test]
async fn an_interrupted_upload_goes_on_where_it_ended() {
    let (_dir, blobs, content, name, uploads) = world();
    let begin = |name: &Name| Partial::begin(&blobs, name);
    let mut first = uploads.claim(name.clone(), 0, begin).unwrap();
    write(&mut first, &blobs, &content[..150_000]).await.unwrap();
    drop(first);
    assert_eq!(uploads.committed(&name), Some(150_000));
    let elsewhere = uploads.claim(name.clone(), 7, begin).unwrap_err();
    assert_eq!(elsewhere.code, Code::InvalidArgument);
    let mut second = uploads.claim(name.clone(), 150_000, begin).unwrap();
    write(&mut second, &blobs, &content[150_000..]).await.unwrap();
    let hidden = !blobs.has("x", &name.digest).unwrap();
    assert!(hidden, "not visible before it is verified");
    assert_eq!(second.commit(&blobs).await.unwrap().0, Put::Created);
    assert!(blobs.has("x", &name.digest).unwrap());
    assert_eq!(uploads.committed(&name), None);
}

#[tokio::test]
async fn a_second_stream_takes_an_upload_over() {
    let (_dir, blobs, content, name, uploads) = world();
    let begin = |name: &Name| Partial::begin(&blobs, name);
    let mut first = uploads.claim(name.clone(), 0, begin).unwrap();
    write(&mut first, &blobs, &content[..10]).await.unwrap();
    let mut second = uploads.claim(name.clone(), 10, begin).unwrap();
    assert_eq!(refused(&mut first, &blobs, &content[10..]).await, Code::Aborted);
    drop(first);
    write(&mut second, &blobs, &content[10..]).await.unwrap();
    assert_eq!(second.commit(&blobs).await.unwrap().1, content.len() as u64);
}

#[tokio::test]
async fn wrong_content_is_forgotten_at_once() {
    let (_dir, blobs, mut content, name, uploads) = world();
    let begin = |name: &Name| Partial::begin(&blobs, name);
    content[77] ^= 1;
    let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
    write(&mut claim, &blobs, &content).await.unwrap();
    assert_eq!(claim.commit(&blobs).await.unwrap_err().code, Code::InvalidArgument);
    assert_eq!(uploads.committed(&name), None);
    assert!(!blobs.has("x", &name.digest).unwrap());
    let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
    content.push(0);
    assert_eq!(refused(&mut claim, &blobs, &content).await, Code::InvalidArgument);
    drop(claim);
    assert_eq!(uploads.committed(&name), None);
}

/// Writes of gRPC streams waited for a slow disk on the thread that serves, and everybody else of that thread with them.
#[tokio::test]
async fn while_the_disk_is_slow_another_thread_writes() {
    let (_dir, blobs, content, name, uploads) = world();
    let now = Instant::now();
    blobs.pace().took(now, now + Duration::from_secs(1));
    let begin = |name: &Name| Partial::begin(&blobs, name);
    let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
    for piece in content.chunks(100_000) {
        write(&mut claim, &blobs, piece).await.unwrap();
    }
    assert_eq!(blobs.pace().moved(), 4);
    assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
    let hit = blobs.content("x", &name.digest).unwrap().unwrap();
    assert!(hit.read_all().unwrap().unwrap() == content);
}

/// Every frame of a stream was handed to the writing thread on its own, and changing threads cost more than writing.
#[tokio::test]
async fn pieces_for_another_thread_go_there_together() {
    let (_dir, blobs, content, name, uploads) = world();
    let now = Instant::now();
    blobs.pace().took(now, now + Duration::from_secs(1));
    let begin = |name: &Name| Partial::begin(&blobs, name);
    let mut claim = uploads.claim(name.clone(), 0, begin).unwrap();
    for piece in content.chunks(10_000) {
        claim.take(&blobs, Bytes::copy_from_slice(piece)).await.unwrap();
    }
    assert_eq!(claim.taken(), content.len() as u64);
    let committed = uploads.committed(&name);
    assert_eq!(committed, Some(0), "nobody counts on what is not written");
    claim.flush(&blobs).await.unwrap();
    assert_eq!(blobs.pace().moved(), 1);
    assert_eq!(uploads.committed(&name), Some(content.len() as u64));
    assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
}

/// The piece of a stream that is gone may still be on its way to the disk when another stream was told how far the upload
/// came: what follows would be stored in the wrong place.
#[tokio::test]
async fn a_piece_that_comes_late_does_not_shift_what_follows() {
    let (_dir, blobs, content, name, uploads) = world();
    let begin = |name: &Name| Partial::begin(&blobs, name);
    let first = uploads.claim(name.clone(), 0, begin).unwrap();
    let mut late = Writing {
        upload: Arc::clone(&first.upload),
        owner: first.owner,
        position: 0,
        blobs: blobs.clone(),
        waiting: VecDeque::from([Bytes::copy_from_slice(&content[..10])]),
    };
    let mut second = uploads.claim(name.clone(), 0, begin).unwrap();
    assert_eq!(late.write().unwrap_err().code, Code::Aborted, "it is too late");
    // The same, had it begun before the second stream came.
    late.owner = second.owner;
    late.write().unwrap();
    assert_eq!(refused(&mut second, &blobs, &content[..50]).await, Code::Aborted);
    drop(second);
    let committed = uploads.committed(&first.name).unwrap();
    let mut third = uploads.claim(name, committed, begin).unwrap();
    write(&mut third, &blobs, &content[10..]).await.unwrap();
    assert_eq!(third.commit(&blobs).await.unwrap().0, Put::Created);
}

/// A gigabyte of zeros is 32 KiB of zstd: one message, and a second of work.
#[tokio::test]
async fn much_that_comes_out_of_little_lets_others_have_their_turn() {
    let (_dir, blobs, _, _, uploads) = world();
    let zeros = vec![0; 64 << 20];
    let compressed = russet_reapi::pack::deflate(&zeros, 1).unwrap();
    let name = Name::new("x", "u", Function::Sha256.digest(&zeros), Encoding::Zstd);
    let mut claim = uploads.claim(name, 0, |name| Partial::begin(&blobs, name)).unwrap();
    let mut turns = 0;
    {
        let mut writing = std::pin::pin!(write(&mut claim, &blobs, &compressed));
        while futures::poll!(&mut writing).is_pending() {
            turns += 1;
            tokio::task::yield_now().await;
        }
    }
    assert!(turns >= 15, "{turns}");
    assert_eq!(claim.commit(&blobs).await.unwrap().0, Put::Created);
}

#[test]
fn the_oldest_of_too_many_interrupted_uploads_is_forgotten() {
    let (_dir, blobs, _, name, uploads) = world();
    let named = |number: usize| Name {
        upload: number.to_string().into(),
        ..name.clone()
    };
    for number in 0..=KEPT {
        let claim = uploads.claim(named(number), 0, |name| Partial::begin(&blobs, name));
        drop(claim.unwrap());
    }
    assert_eq!(uploads.committed(&named(0)), None);
    assert_eq!(uploads.committed(&named(1)), Some(0));
    uploads.forget(Instant::now() + KEEP + Duration::from_secs(1));
    assert_eq!(uploads.committed(&named(KEPT)), None);
}
