//! zstd, with bounds: on what comes out, on what goes in, and on the memory between.

use std::fmt;
use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation as _, OutBuffer};

/// Largest window of a frame: what every decoder of RFC 8878 is asked to support, and all that levels up to 19 use.
const WINDOW_LOG: u32 = 23;
/// Memory one decoder may need.
pub const WINDOW: u64 = 1 << WINDOW_LOG;
/// Bytes that come out at a time.
const PIECE: usize = 64 * 1024;
/// Level for what is compressed on its way out: the fastest, since a client waits.
const LEVEL: i32 = 1;

/// Why compressed bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not zstd, damaged, or with a window larger than 8 MiB.
    #[error("the bytes are not zstd frames with windows of at most 8 MiB")]
    Damaged,
    /// The last frame is not complete.
    #[error("the last zstd frame is not complete")]
    Cut,
    /// More comes out than was announced.
    #[error("more bytes were compressed than the digest says")]
    TooLong,
    /// Far more goes in than any compression of so little needs.
    #[error("the compressed form is far larger than the content")]
    Bloated,
}

/// A decoder for content of known size.
pub struct Inflate {
    decoder: Decoder<'static>,
    taken: u64,
    given: u64,
    size: u64,
    between: bool,
    piece: Box<[u8]>,
}

impl fmt::Debug for Inflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inflate({} of {})", self.given, self.size)
    }
}

impl Inflate {
    /// For content of `size` bytes.
    pub fn new(size: u64) -> Result<Self, Error> {
        let mut decoder = Decoder::new().map_err(|_| Error::Damaged)?;
        decoder
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
            .map_err(|_| Error::Damaged)?;
        let piece = usize::try_from(size.max(1)).unwrap_or(PIECE).min(PIECE);
        Ok(Self {
            decoder,
            taken: 0,
            given: 0,
            size,
            between: true,
            piece: vec![0; piece].into(),
        })
    }

    /// Takes what it needs off the front of `input` and gives the next piece of content, at most 64 KiB. An empty piece with
    /// nothing taken means that more input is needed.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<&[u8], Error> {
        let mut source = InBuffer::around(input);
        let mut target = OutBuffer::around(&mut *self.piece);
        let left = self.decoder.run(&mut source, &mut target).map_err(|_| Error::Damaged)?;
        let (taken, written) = (source.pos(), target.pos());
        if taken > 0 || written > 0 {
            self.between = left == 0;
        }
        *input = input.get(taken..).unwrap_or_default();
        self.taken += taken as u64;
        self.given += written as u64;
        if self.given > self.size {
            return Err(Error::TooLong);
        }
        if self.taken > self.size.saturating_mul(2).saturating_add(1 << 20) {
            return Err(Error::Bloated);
        }
        Ok(self.piece.get(..written).unwrap_or_default())
    }

    /// Takes all of `input`, gives content in pieces. An error of `give` ends it.
    pub fn push<E: From<Error>>(
        &mut self,
        mut input: &[u8],
        give: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push_some(&mut input, u64::MAX, give).map(drop)
    }

    /// The same, but rests after about `most` bytes of content, which may come out of very little. `false`: there is more, in
    /// what is left of `input` or, if that is empty, in the decoder.
    pub fn push_some<E: From<Error>>(
        &mut self,
        input: &mut &[u8],
        most: u64,
        mut give: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let full = self.piece.len();
        let end = self.given.saturating_add(most);
        loop {
            let before = input.len();
            let piece = self.step(input)?;
            if !piece.is_empty() {
                give(piece)?;
            }
            let idle = piece.is_empty() && input.len() == before;
            if idle || (input.is_empty() && piece.len() < full) {
                return Ok(true);
            }
            if self.given >= end {
                return Ok(false);
            }
        }
    }

    /// All input was given. Whether it was complete.
    pub fn finish(&self) -> Result<(), Error> {
        if self.between { Ok(()) } else { Err(Error::Cut) }
    }

    /// Bytes of content so far.
    pub fn given(&self) -> u64 {
        self.given
    }
}

/// Decodes content of known size that is in memory.
pub fn inflate(input: &[u8], size: u64) -> Result<Vec<u8>, Error> {
    let mut decoder = Inflate::new(size)?;
    // What is announced is not allocated before it comes.
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(PIECE).min(PIECE));
    decoder.push(input, |piece| {
        content.extend_from_slice(piece);
        Ok::<_, Error>(())
    })?;
    decoder.finish()?;
    Ok(content)
}

/// An encoder for content of known size, in one frame.
pub struct Deflate {
    encoder: Encoder<'static>,
}

impl fmt::Debug for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deflate")
    }
}

impl Deflate {
    /// For content of `size` bytes.
    pub fn new(size: u64) -> Result<Self, Error> {
        Self::at_level(LEVEL, size)
    }

    /// The same at a level of choice.
    pub fn at_level(level: i32, size: u64) -> Result<Self, Error> {
        let mut encoder = Encoder::new(level).map_err(|_| Error::Damaged)?;
        encoder
            .set_parameter(CParameter::ContentSizeFlag(true))
            .map_err(|_| Error::Damaged)?;
        encoder.set_pledged_src_size(Some(size)).map_err(|_| Error::Damaged)?;
        Ok(Self { encoder })
    }

    /// Appends what becomes of these bytes of content.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut source = InBuffer::around(input);
        while source.pos() < input.len() {
            let start = out.len();
            out.reserve(PIECE);
            let mut target = OutBuffer::around_pos(out, start);
            self.encoder.run(&mut source, &mut target).map_err(|_| Error::Damaged)?;
        }
        Ok(())
    }

    /// Ends the frame.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            let start = out.len();
            out.reserve(PIECE);
            let mut target = OutBuffer::around_pos(out, start);
            if self.encoder.finish(&mut target, true).map_err(|_| Error::Damaged)? == 0 {
                return Ok(());
            }
        }
    }
}

/// Compresses what is in memory.
pub fn deflate(content: &[u8], level: i32) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut encoder = Deflate::at_level(level, content.len() as u64)?;
    encoder.push(content, &mut out)?;
    encoder.finish(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn much_that_comes_out_of_little_can_be_taken_in_turns() {
        let zeros = deflate(&vec![0; 10 << 20], 3).unwrap();
        let mut decoder = Inflate::new(10 << 20).unwrap();
        let (mut input, mut turns, mut given) = (&zeros[..], 0, 0);
        loop {
            let before = given;
            let done = decoder.push_some(&mut input, 1 << 20, |piece| {
                given += piece.len();
                Ok::<_, Error>(())
            });
            turns += 1;
            assert!(given - before < 2 << 20);
            if done.unwrap() {
                break;
            }
        }
        assert!(turns >= 10 && given == 10 << 20 && input.is_empty());
        decoder.finish().unwrap();
    }

    #[test]
    fn a_bomb_is_stopped_at_the_announced_size() {
        let zeros = deflate(&vec![0; 64 << 20], 19).unwrap();
        assert!(zeros.len() < 16 << 10);
        let mut decoder = Inflate::new(1000).unwrap();
        let mut most = 0;
        let stopped = decoder.push(&zeros, |piece| {
            most += piece.len();
            Ok(())
        });
        assert_eq!(stopped, Err(Error::TooLong));
        assert!(most <= 1000);
    }

    #[test]
    fn a_flood_of_empty_frames_is_stopped() {
        let empty = deflate(b"", 1).unwrap();
        let flood = empty.repeat((3 << 20) / empty.len());
        let mut decoder = Inflate::new(10).unwrap();
        assert_eq!(decoder.push(&flood, |_| Ok::<_, Error>(())), Err(Error::Bloated));
    }

    #[test]
    fn what_is_cut_damaged_or_too_wide_is_refused() {
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let whole = deflate(&content, 3).unwrap();
        assert_eq!(inflate(&whole, content.len() as u64).as_deref(), Ok(&content[..]));
        let cut = inflate(&whole[..whole.len() - 1], content.len() as u64);
        assert_eq!(cut, Err(Error::Cut));
        assert_eq!(inflate(b"nonsense", 8), Err(Error::Damaged));
        let mut encoder = Encoder::new(1).unwrap();
        encoder.set_parameter(CParameter::WindowLog(26)).unwrap();
        let mut wide = vec![0; 1 << 20];
        let mut target = OutBuffer::around(&mut wide[..]);
        encoder.run(&mut InBuffer::around(&[1; 1000]), &mut target).unwrap();
        encoder.finish(&mut target, true).unwrap();
        let length = target.pos();
        assert_eq!(inflate(&wide[..length], 1000), Err(Error::Damaged));
    }

    #[test]
    fn frames_may_follow_each_other() {
        let mut both = deflate(b"one", 1).unwrap();
        both.extend_from_slice(&deflate(b"two", 1).unwrap());
        assert_eq!(inflate(&both, 6).as_deref(), Ok(&b"onetwo"[..]));
        assert_eq!(inflate(&[], 0).as_deref(), Ok(&b""[..]));
    }

    proptest! {
        #[test]
        fn content_comes_back_however_it_is_cut(content: Vec<u8>, repeat in 1_usize..2000, step in 1_usize..5000) {
            let content = content.repeat(repeat);
            let packed = deflate(&content, 1).unwrap();
            let mut decoder = Inflate::new(content.len() as u64).unwrap();
            let mut out = Vec::new();
            for piece in packed.chunks(step) {
                decoder.push(piece, |bytes| { out.extend_from_slice(bytes); Ok::<_, Error>(()) }).unwrap();
            }
            prop_assert_eq!(decoder.finish(), Ok(()));
            prop_assert_eq!(decoder.given(), content.len() as u64);
            prop_assert_eq!(out, content);
        }

        #[test]
        fn hostile_bytes_give_no_more_than_was_announced(bytes: Vec<u8>, size in 0_u64..100) {
            if let Ok(content) = inflate(&bytes, size) {
                prop_assert!(content.len() as u64 <= size);
            }
        }
    }
}
