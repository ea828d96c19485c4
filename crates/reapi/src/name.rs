//! Resource names of ByteStream.
//!
//! ```text
//! read   [instance/]blobs/[function/]hash/size            [instance/]compressed-blobs/zstd/[function/]hash/size
//! write  [instance/]uploads/uuid/<one of these>[/anything]
//! ```
//! An instance may have several segments, none of which is a word of the grammar.

use crate::digest::{Digest, Function, hash_of_hex};

/// Longest name anyone will look at.
pub const MAX_NAME: usize = 4096;
/// Longest upload id: a UUID has 36 bytes.
const MAX_UPLOAD: usize = 128;
/// Words no instance may contain.
const RESERVED: [&str; 7] = [
    "blobs",
    "compressed-blobs",
    "uploads",
    "actions",
    "actionResults",
    "operations",
    "capabilities",
];

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As they are.
    Identity,
    /// As zstd frames.
    Zstd,
}

/// Why a name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not the grammar.
    #[error("the resource name must be [instance/]blobs/hash/size, or uploads/uuid/blobs/hash/size below an instance")]
    Shape,
    /// Not a hash.
    #[error("the hash of the resource name must be 64 hexadecimal digits in lower case")]
    Hash,
    /// Not a size.
    #[error("the size of the resource name must be a number that is not negative")]
    Size,
    /// A compressor nobody here knows.
    #[error("this compressor is not supported; use zstd")]
    Compressor,
    /// A digest function nobody here knows.
    #[error("this digest function is not supported; use SHA-256 or blake3")]
    Function,
}

/// Something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The instance; empty is the default one.
    pub instance: &'a str,
    /// What to read.
    pub digest: Digest,
    /// How to send it.
    pub encoding: Encoding,
}

/// Something to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink<'a> {
    /// The instance; empty is the default one.
    pub instance: &'a str,
    /// What tells this upload from others of the same content.
    pub upload: &'a str,
    /// What will be written.
    pub digest: Digest,
    /// How it is sent.
    pub encoding: Encoding,
}

/// Parses the name of something to read.
pub fn read(name: &str) -> Result<Source<'_>, Error> {
    let (instance, rest) = instance(name, &["blobs", "compressed-blobs"])?;
    let mut segments = rest.split('/');
    let (digest, encoding) = blob(&mut segments)?;
    if segments.next().is_some() {
        return Err(Error::Shape);
    }
    Ok(Source {
        instance,
        digest,
        encoding,
    })
}

/// Parses the name of something to write.
pub fn write(name: &str) -> Result<Sink<'_>, Error> {
    let (instance, rest) = instance(name, &["uploads"])?;
    let mut segments = rest.split('/').skip(1);
    let upload = segments
        .next()
        .filter(|upload| !upload.is_empty() && upload.len() <= MAX_UPLOAD)
        .ok_or(Error::Shape)?;
    let (digest, encoding) = blob(&mut segments)?;
    Ok(Sink {
        instance,
        upload,
        digest,
        encoding,
    })
}

/// Splits the instance off; the rest begins with one of these words.
fn instance<'a>(name: &'a str, words: &[&str]) -> Result<(&'a str, &'a str), Error> {
    if name.len() > MAX_NAME {
        return Err(Error::Shape);
    }
    let mut start = 0;
    for segment in name.split('/') {
        if words.contains(&segment) {
            let instance = name.get(..start.max(1) - 1).ok_or(Error::Shape)?;
            return Ok((instance, name.get(start..).ok_or(Error::Shape)?));
        }
        if segment.is_empty() || RESERVED.contains(&segment) {
            return Err(Error::Shape);
        }
        start += segment.len() + 1;
    }
    Err(Error::Shape)
}

fn blob<'a>(segments: &mut impl Iterator<Item = &'a str>) -> Result<(Digest, Encoding), Error> {
    let mut next = || segments.next().ok_or(Error::Shape);
    let encoding = match next()? {
        "blobs" => Encoding::Identity,
        "compressed-blobs" if next()? == "zstd" => Encoding::Zstd,
        "compressed-blobs" => return Err(Error::Compressor),
        _ => return Err(Error::Shape),
    };
    let mut hash = next()?;
    let function = match hash {
        "blake3" => Function::Blake3,
        "sha1" | "md5" | "vso" | "sha384" | "sha512" | "murmur3" | "sha256tree" | "gitsha1" => {
            return Err(Error::Function);
        }
        _ => Function::Sha256,
    };
    if matches!(hash, "blake3" | "sha256") {
        hash = next()?;
    }
    let size = next()?;
    if size.is_empty() || !size.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Error::Size);
    }
    // The protocol's sizes are signed.
    let size = size.parse::<i64>().map_err(|_| Error::Size)?;
    Ok((
        Digest {
            function,
            hash: hash_of_hex(hash.as_bytes()).ok_or(Error::Hash)?,
            size: size.cast_unsigned(),
        },
        encoding,
    ))
}

/// The name under which something is read.
pub fn of_source(source: &Source<'_>) -> String {
    format!(
        "{}{}{}",
        prefix(source.instance),
        kind(source.digest.function, source.encoding),
        source.digest
    )
}

/// The name under which something is written.
pub fn of_sink(sink: &Sink<'_>) -> String {
    format!(
        "{}uploads/{}/{}{}",
        prefix(sink.instance),
        sink.upload,
        kind(sink.digest.function, sink.encoding),
        sink.digest
    )
}

fn prefix(instance: &str) -> String {
    if instance.is_empty() {
        String::new()
    } else {
        format!("{instance}/")
    }
}

fn kind(function: Function, encoding: Encoding) -> String {
    let mut text = match encoding {
        Encoding::Identity => "blobs/".to_owned(),
        Encoding::Zstd => "compressed-blobs/zstd/".to_owned(),
    };
    if let Some(segment) = function.segment() {
        text.push_str(segment);
        text.push('/');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn names_of_real_clients_are_understood() {
        for (name, instance, upload) in [
            (format!("uploads/u-1/blobs/{HASH}/7"), "", "u-1"),
            (format!("inst/uploads/u/blobs/{HASH}/7"), "inst", "u"),
            (format!("a/b/uploads/u/blobs/{HASH}/7/and/more"), "a/b", "u"),
        ] {
            let sink = write(&name).unwrap();
            let seen = (sink.instance, sink.upload, sink.digest.size);
            assert_eq!(seen, (instance, upload, 7), "{name}");
        }
        let moon = format!("moon-outputs/uploads/u/compressed-blobs/zstd/blake3/{HASH}/8000000");
        let zstd = write(&moon).unwrap();
        let seen = (zstd.encoding, zstd.digest.function);
        assert_eq!(seen, (Encoding::Zstd, Function::Blake3));
        assert_eq!(read(&format!("blobs/{HASH}/0")).unwrap().instance, "");
        let other = read(&format!("x/compressed-blobs/zstd/{HASH}/1")).unwrap().encoding;
        assert_eq!(other, Encoding::Zstd);
    }

    #[test]
    fn wrong_names_say_what_is_wrong() {
        for (name, error) in [
            (String::new(), Error::Shape),
            (format!("/blobs/{HASH}/1"), Error::Shape),
            (format!("a//blobs/{HASH}/1"), Error::Shape),
            (format!("blobs/{HASH}"), Error::Shape),
            (format!("blobs/{HASH}/1/more"), Error::Shape),
            (format!("operations/blobs/{HASH}/1"), Error::Shape),
            (format!("blobs/{HASH}/-1"), Error::Size),
            (format!("blobs/{HASH}/+1"), Error::Size),
            (format!("blobs/{HASH}/"), Error::Size),
            (format!("blobs/{HASH}/9223372036854775808"), Error::Size),
            ("blobs/xyz/1".to_owned(), Error::Hash),
            (format!("blobs/{}/1", HASH.to_uppercase()), Error::Hash),
            (format!("compressed-blobs/brotli/{HASH}/1"), Error::Compressor),
            (format!("blobs/sha1/{HASH}/1"), Error::Function),
            ("a".repeat(MAX_NAME + 1), Error::Shape),
        ] {
            assert_eq!(read(&name), Err(error), "{name}");
        }
        for name in [
            format!("uploads//blobs/{HASH}/1"),
            format!("blobs/{HASH}/1"),
            format!("uploads/u/{HASH}/1"),
        ] {
            assert_eq!(write(&name), Err(Error::Shape), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(
            instance in "|[a-z]{1,8}(/[a-z0-9]{1,8}){0,2}",
            upload in "[a-z0-9-]{1,36}",
            hash: [u8; 32],
            size in 0_u64..=i64::MAX as u64,
            zstd: bool,
            blake3: bool,
        ) {
            prop_assume!(!instance.split('/').any(|segment| RESERVED.contains(&segment)));
            let function = if blake3 { Function::Blake3 } else { Function::Sha256 };
            let encoding = if zstd { Encoding::Zstd } else { Encoding::Identity };
            let digest = Digest { function, hash, size };
            let sink = Sink { instance: &instance, upload: &upload, digest, encoding };
            let name = of_sink(&sink);
            prop_assert_eq!(write(&name), Ok(sink));
            let source = Source { instance: &instance, digest, encoding };
            let name = of_source(&source);
            prop_assert_eq!(read(&name), Ok(source));
        }

        #[test]
        fn no_name_makes_the_parser_panic(name in "(/|blobs|uploads|compressed-blobs|zstd|[0-9a-f]{0,70}|\\PC){0,12}") {
            let _ = (read(&name), write(&name));
        }
    }
}
