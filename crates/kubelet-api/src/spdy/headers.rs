//! Header blocks: name-value pairs, compressed with one zlib stream per direction that lasts as long as the connection.
//!
//! Because the stream is shared, a block that cannot be read makes every later one unreadable: such an error ends the connection.

use std::sync::LazyLock;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Adler-32 of the dictionary, by which a zlib stream names it.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;
/// Far more than Kubernetes sends (three short pairs), and a bound on what a stranger can make us hold.
const MAX_INFLATED: usize = 64 * 1024;
const MAX_PAIRS: u32 = 64;
const STEP: usize = 4096;

/// The words of the SPDY/3 dictionary that are preceded by their length.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-ranges|age|\
allow|authorization|cache-control|connection|content-base|content-encoding|content-language|content-length|content-location|\
content-md5|content-range|content-type|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|\
if-unmodified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|retry-after|\
server|te|trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|\
HTTP/1.1|url|public|set-cookie|keep-alive|origin";

/// The rest of it, as it stands.
const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative \
Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server \
Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, \
Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

static DICTIONARY: LazyLock<Bytes> = LazyLock::new(|| {
    let mut dictionary = BytesMut::new();
    for word in WORDS.split('|') {
        put_text(&mut dictionary, word);
    }
    dictionary.put_slice(REST.as_bytes());
    dictionary.freeze()
});

/// Why a header block was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Not a zlib stream, or not the one of this connection.
    #[error("the header block is not compressed as SPDY/3 says")]
    Corrupt,
    /// Larger than anybody needs.
    #[error("the header block is larger than {MAX_INFLATED} bytes or {MAX_PAIRS} pairs")]
    TooLarge,
    /// The pairs inside make no sense.
    #[error("the header block is not a list of names and values")]
    Malformed,
}

/// Names and values of a stream, as sent. Names are lower case on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// From pairs.
    pub fn new(pairs: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(pairs.collect())
    }

    /// The first value under this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn parse(mut block: &[u8]) -> Result<Self, HeaderError> {
        let count = block.try_get_u32().map_err(|_| HeaderError::Malformed)?;
        if count > MAX_PAIRS {
            return Err(HeaderError::TooLarge);
        }
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((take_text(&mut block)?, take_text(&mut block)?));
        }
        if block.is_empty() {
            Ok(Self(pairs))
        } else {
            Err(HeaderError::Malformed)
        }
    }

    fn write(&self) -> BytesMut {
        let mut plain = BytesMut::new();
        put_length(&mut plain, self.0.len());
        for (name, value) in &self.0 {
            put_text(&mut plain, name);
            put_text(&mut plain, value);
        }
        plain
    }
}

fn put_length(out: &mut BytesMut, length: usize) {
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

fn put_text(out: &mut BytesMut, text: &str) {
    put_length(out, text.len());
    out.put_slice(text.as_bytes());
}

fn take_text(block: &mut &[u8]) -> Result<String, HeaderError> {
    let length = block.try_get_u32().map_err(|_| HeaderError::Malformed)?;
    let length = usize::try_from(length).map_err(|_| HeaderError::Malformed)?;
    let (text, rest) = block.split_at_checked(length).ok_or(HeaderError::Malformed)?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| HeaderError::Malformed)
}

/// Reads the blocks of one direction.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, HeaderError> {
        Headers::parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, HeaderError> {
        let mut rest = block;
        let mut plain = Vec::new();
        loop {
            if plain.len() == plain.capacity() {
                if plain.len() >= MAX_INFLATED {
                    return Err(HeaderError::TooLarge);
                }
                plain.reserve_exact(STEP);
            }
            let (read, written) = (self.0.total_in(), plain.len());
            let outcome = self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            let consumed = usize::try_from(self.0.total_in() - read).map_err(|_| HeaderError::Corrupt)?;
            rest = rest.get(consumed..).ok_or(HeaderError::Corrupt)?;
            match outcome {
                Ok(Status::Ok | Status::BufError) => {}
                Err(error) if error.needs_dictionary() == Some(DICTIONARY_ID) => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| HeaderError::Corrupt)?;
                    continue;
                }
                // The stream lasts as long as the connection; one that ends can carry no further block.
                Ok(Status::StreamEnd) | Err(_) => return Err(HeaderError::Corrupt),
            }
            let room = plain.len() < plain.capacity();
            if rest.is_empty() && room {
                return Ok(plain);
            }
            if consumed == 0 && plain.len() == written && room {
                return Err(HeaderError::Corrupt);
            }
        }
    }
}

/// Writes the blocks of one direction.
#[derive(Debug)]
pub(super) struct Deflater(Compress);

impl Deflater {
    pub(super) fn new() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        // Refused only after the first byte. Without it the blocks are longer and just as right, so there is nothing to report.
        let _ = compress.set_dictionary(&DICTIONARY);
        Self(compress)
    }

    pub(super) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, HeaderError> {
        let plain = headers.write();
        let mut rest: &[u8] = &plain;
        let mut block = Vec::new();
        loop {
            block.reserve(STEP);
            let read = self.0.total_in();
            self.0
                .compress_vec(rest, &mut block, FlushCompress::Sync)
                .map_err(|_| HeaderError::Corrupt)?;
            let consumed = usize::try_from(self.0.total_in() - read).map_err(|_| HeaderError::Corrupt)?;
            rest = rest.get(consumed..).ok_or(HeaderError::Corrupt)?;
            if rest.is_empty() && block.len() < block.capacity() {
                return Ok(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_every_peer_knows() {
        assert_eq!(DICTIONARY.len(), 1423);
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in DICTIONARY.iter() {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((b << 16) | a, DICTIONARY_ID);
    }

    #[test]
    fn blocks_share_one_stream_per_direction() {
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
        let headers = Headers::new([("streamtype", "data".to_owned()), ("port", "8080".to_owned())]);
        let first = deflater.write(&headers).unwrap();
        assert!(first.starts_with(&[0x78]), "{first:x?}");
        assert_eq!(first.get(2..6), Some(&DICTIONARY_ID.to_be_bytes()[..]));
        let second = deflater.write(&headers).unwrap();
        assert!(second.len() < first.len(), "the second block leans on the first");
        assert_eq!(inflater.read(&first).unwrap(), headers);
        assert_eq!(inflater.read(&second).unwrap(), headers);
        assert_eq!(Inflater::new().read(&second), Err(HeaderError::Corrupt));
    }

    /// A peer may answer with plain stored blocks and no dictionary; these bytes were accepted by a real apiserver.
    #[test]
    fn a_stored_block_without_dictionary_is_read() {
        let block = [0x78, 1, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let mut inflater = Inflater::new();
        assert_eq!(inflater.read(&block).unwrap(), Headers::default());
        assert_eq!(inflater.read(&block[2..]).unwrap(), Headers::default());
    }

    #[test]
    fn a_block_that_swells_is_refused() {
        let huge = Headers::new([("a", "x".repeat(MAX_INFLATED))]);
        let block = Deflater::new().write(&huge).unwrap();
        assert!(block.len() < 1024);
        assert_eq!(Inflater::new().read(&block), Err(HeaderError::TooLarge));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for plain in [
            &[0, 0][..],
            &[0, 0, 0, 1, 0, 0, 0, 9, b'a'],
            &[0, 0, 0, 0, 1],
            &[0, 0, 0, 1, 255, 255, 255, 255],
        ] {
            assert_eq!(Headers::parse(plain), Err(HeaderError::Malformed), "{plain:?}");
        }
        assert_eq!(Headers::parse(&[1, 0, 0, 0]), Err(HeaderError::TooLarge));
    }
}
