//! Requests read in place: what they say is what the library's decoder reads, and whatever the library writes is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use russet_reapi::proto::reapi;
use russet_reapi::request::{BatchRead, BatchUpdate, Common, FindMissing, GetAction, UpdateAction};
use russet_reapi::wire::{BadDigest, RawDigest};
use russet_reapi::{Digest, Function};

type Told = Result<Digest, BadDigest>;

/// A digest of the library, judged by the same rules.
fn told(digest: Option<&reapi::Digest>) -> Told {
    let digest = digest.cloned().unwrap_or_default();
    let hash = russet_reapi::digest::hash_of_hex(digest.hash.as_bytes()).ok_or(BadDigest::Hash)?;
    Ok(Digest {
        function: Function::Sha256,
        hash,
        size: u64::try_from(digest.size_bytes).map_err(|_| BadDigest::Size)?,
    })
}

fn ours(raw: &RawDigest<'_>) -> Told {
    raw.digest(Function::Sha256)
}

/// Instances and functions agree; a function that is refused may be anything.
fn check_common(common: &Common<'_>, instance: &str, function: i32) {
    assert_eq!(common.instance, instance);
    if let Ok(known) = common.function() {
        assert_eq!(u64::try_from(function).ok().and_then(Function::of_value), Some(known));
    }
}

/// A hash is looked at when it is used, so bytes that are no text may stand there as long as nobody does.
fn usable<'a>(digests: impl IntoIterator<Item = &'a Told>) -> bool {
    digests.into_iter().all(|told| !matches!(told, Err(BadDigest::Hash)))
}

fn find_missing(bytes: &[u8], theirs: Option<&reapi::FindMissingBlobsRequest>) -> bool {
    let Ok(request) = FindMissing::read(bytes) else {
        return false;
    };
    let Ok(raw) = request.digests().collect::<Result<Vec<_>, _>>() else {
        return false;
    };
    assert_eq!(raw.len(), request.count);
    let told_here: Vec<_> = raw.iter().map(ours).collect();
    let Some(theirs) = theirs else {
        assert!(!usable(&told_here), "the library refuses this");
        return true;
    };
    check_common(&request.common, &theirs.instance_name, theirs.digest_function);
    let told_there: Vec<_> = theirs.blob_digests.iter().map(|digest| told(Some(digest))).collect();
    assert_eq!(told_here, told_there);
    // What is sent back as it came is still the same digest.
    for (raw, digest) in raw.iter().zip(&theirs.blob_digests) {
        assert_eq!(reapi::Digest::decode(raw.message).as_ref(), Ok(digest));
    }
    true
}

fn batch_read(bytes: &[u8], theirs: Option<&reapi::BatchReadBlobsRequest>) -> bool {
    let Ok(request) = BatchRead::read(bytes) else {
        return false;
    };
    let Ok(raw) = request.digests().collect::<Result<Vec<_>, _>>() else {
        return false;
    };
    assert_eq!(raw.len(), request.count);
    let told_here: Vec<_> = raw.iter().map(ours).collect();
    let Some(theirs) = theirs else {
        assert!(!usable(&told_here), "the library refuses this");
        return true;
    };
    check_common(&request.common, &theirs.instance_name, theirs.digest_function);
    assert_eq!(request.zstd, theirs.acceptable_compressors.contains(&1));
    let told_there: Vec<_> = theirs.digests.iter().map(|digest| told(Some(digest))).collect();
    assert_eq!(told_here, told_there);
    true
}

fn batch_update(bytes: &[u8], theirs: Option<&reapi::BatchUpdateBlobsRequest>) -> bool {
    let Ok(request) = BatchUpdate::read(bytes) else {
        return false;
    };
    let Ok(updates) = request.updates().collect::<Result<Vec<_>, _>>() else {
        return false;
    };
    assert_eq!(updates.len(), request.count);
    let told_here: Vec<_> = updates.iter().map(|update| ours(&update.digest)).collect();
    let Some(theirs) = theirs else {
        assert!(!usable(&told_here), "the library refuses this");
        return true;
    };
    check_common(&request.common, &theirs.instance_name, theirs.digest_function);
    assert_eq!(updates.len(), theirs.requests.len());
    for ((update, here), there) in updates.iter().zip(told_here).zip(&theirs.requests) {
        assert_eq!(here, told(there.digest.as_ref()));
        assert_eq!(update.data, there.data);
        if let Ok(compressor) = i32::try_from(update.compressor) {
            assert_eq!(compressor, there.compressor);
        }
    }
    true
}

fn get_action(bytes: &[u8], theirs: Option<&reapi::GetActionResultRequest>) -> bool {
    let Ok(request) = GetAction::read(bytes) else {
        return false;
    };
    let Some(theirs) = theirs else {
        assert!(!usable(&[ours(&request.digest)]), "the library refuses this");
        return true;
    };
    check_common(&request.common, &theirs.instance_name, theirs.digest_function);
    assert_eq!(ours(&request.digest), told(theirs.action_digest.as_ref()));
    assert_eq!(
        (request.inline_stdout, request.inline_stderr),
        (theirs.inline_stdout, theirs.inline_stderr)
    );
    assert_eq!(request.inline_files, theirs.inline_output_files);
    true
}

fn update_action(bytes: &[u8], theirs: Option<&reapi::UpdateActionResultRequest>) -> bool {
    let Ok(request) = UpdateAction::read(bytes) else {
        return false;
    };
    // The result is kept as it came, so the library may refuse what is in it.
    let Some(theirs) = theirs else {
        return true;
    };
    check_common(&request.common, &theirs.instance_name, theirs.digest_function);
    assert_eq!(ours(&request.digest), told(theirs.action_digest.as_ref()));
    let result = request.result.map(reapi::ActionResult::decode).transpose();
    assert_eq!(result.as_ref().map(Option::as_ref), Ok(theirs.action_result.as_ref()));
    true
}

/// Reads the bytes, then what the library makes of them.
fn check<T: prost::Message + Default>(data: &[u8], read: fn(&[u8], Option<&T>) -> bool) {
    let theirs = T::decode(data).ok();
    read(data, theirs.as_ref());
    if let Some(theirs) = theirs {
        let written = theirs.encode_to_vec();
        assert!(read(&written, Some(&theirs)), "what the library writes is refused");
    }
}

fuzz_target!(|data: &[u8]| {
    check(data, find_missing);
    check(data, batch_read);
    check(data, batch_update);
    check(data, get_action);
    check(data, update_action);
});
