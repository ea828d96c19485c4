//! As much of the Remote Execution API's messages as is needed to find digests in them.

use super::Digest;

/// Not an action result, or one that says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Body is not an action result")]
pub struct Invalid;

/// The digests of an action result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// Output files, standard output and error.
    pub blobs: Vec<Digest>,
    /// Trees of output directories.
    pub trees: Vec<Digest>,
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a message, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Invalid> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Invalid)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Invalid);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Invalid)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Invalid> {
        let length = usize::try_from(length).map_err(|_| Invalid)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Invalid)?;
        self.0 = rest;
        Ok(taken)
    }

    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Invalid> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return Err(Invalid);
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed
            }
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed
            }
            _ => return Err(Invalid),
        };
        Ok(Some((number, value)))
    }
}

/// `Digest`: hash 1, size 2.
fn digest(bytes: &[u8]) -> Result<Digest, Invalid> {
    let (mut hash, mut size) = (None, 0);
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(text)) => hash = Some(text),
            (2, Value::Number(value)) => size = value,
            (1 | 2, _) => return Err(Invalid),
            _ => {}
        }
    }
    // A negative size has its highest bit set.
    i64::try_from(size).map_err(|_| Invalid)?;
    Digest::parse(hash.ok_or(Invalid)?, size).ok_or(Invalid)
}

/// A message with a path (or name) in field 1 and a digest in field `number`: `OutputFile`, `OutputDirectory`, `FileNode`.
fn named(bytes: &[u8], number: u64) -> Result<Option<Digest>, Invalid> {
    let mut found = None;
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(path)) => {
                std::str::from_utf8(path).map_err(|_| Invalid)?;
            }
            (1, _) => return Err(Invalid),
            (at, Value::Bytes(bytes)) if at == number => found = Some(digest(bytes)?),
            _ => {}
        }
    }
    Ok(found)
}

/// `ActionResult`. One in which no known field is set, as an empty body or one of foreign bytes, is no result: a client takes
/// it for a success without outputs, and fails.
pub fn outline(bytes: &[u8]) -> Result<Outline, Invalid> {
    let mut outline = Outline::default();
    let mut said = false;
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            // output_files; a file without a digest has its contents inline.
            (2, Value::Bytes(bytes)) => outline.blobs.extend(named(bytes, 2)?),
            // output_directories: the tree, and the directory it may name instead.
            (3, Value::Bytes(bytes)) => {
                outline.trees.extend(named(bytes, 3)?);
                outline.blobs.extend(named(bytes, 5)?);
            }
            // exit_code; then stdout_raw, stderr_raw, execution_metadata and the three kinds of symlinks.
            (4, Value::Number(_)) | (5 | 7 | 9 | 10 | 11 | 12, Value::Bytes(_)) => {}
            // stdout_digest, stderr_digest
            (6 | 8, Value::Bytes(bytes)) => outline.blobs.push(digest(bytes)?),
            (2..=12, _) => return Err(Invalid),
            _ => continue,
        }
        said = true;
    }
    if said { Ok(outline) } else { Err(Invalid) }
}

/// The files of a `Tree`: root 1, children 2, each a `Directory` with files in 1.
pub fn leaves(bytes: &[u8]) -> Result<Vec<Digest>, Invalid> {
    let mut found = Vec::new();
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        let (1 | 2, Value::Bytes(directory)) = field else {
            continue;
        };
        let mut nodes = Fields(directory);
        while let Some(node) = nodes.next()? {
            if let (1, Value::Bytes(file)) = node {
                found.extend(named(file, 2)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(number: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(body.len()).unwrap()];
        bytes.extend_from_slice(body);
        bytes
    }

    fn digest_of(fill: &str, size: u8) -> Vec<u8> {
        let mut bytes = message(1, fill.repeat(32).as_bytes());
        bytes.extend_from_slice(&[2 << 3, size]);
        bytes
    }

    fn file(fill: &str) -> Vec<u8> {
        [message(1, b"a"), message(2, &digest_of(fill, 5))].concat()
    }

    #[test]
    fn every_digest_of_a_result_is_found() {
        let directory = [message(1, b"d"), message(3, &digest_of("cc", 9))].concat();
        let result = [
            message(2, &file("aa")),
            message(3, &directory),
            vec![4 << 3, 0],
            message(6, &digest_of("bb", 1)),
            message(9, b""),
        ]
        .concat();
        let outline = outline(&result).unwrap();
        assert_eq!(
            outline.blobs.iter().map(|digest| digest.hash[0]).collect::<Vec<_>>(),
            [0xaa, 0xbb]
        );
        assert_eq!((outline.trees.len(), outline.trees[0].size), (1, 9));
    }

    #[test]
    fn the_leaves_of_a_tree_are_found_at_every_depth() {
        let root = [message(1, &file("aa")), message(2, b"")].concat();
        let child = message(1, &file("bb"));
        let tree = [message(1, &root), message(2, &child)].concat();
        assert_eq!(leaves(&tree).unwrap().len(), 2);
    }

    /// Both Bazel versions of the facts take an empty result for a success and fail the build over its missing outputs.
    #[test]
    fn bodies_that_say_nothing_are_no_results() {
        for body in [
            Vec::new(),
            b"garbage that is no protobuf".to_vec(),
            message(13, b"an unknown field"),
            message(4, b"an exit code of the wrong type"),
            message(2, &[message(1, b"a"), message(2, b"no digest")].concat()),
            message(6, &digest_of("BB", 1)),
            vec![2 << 3 | 2, 200],
            vec![0x80; 20],
        ] {
            assert_eq!(outline(&body), Err(Invalid), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = outline(&bytes);
            let _ = leaves(&bytes);
        }
    }
}
