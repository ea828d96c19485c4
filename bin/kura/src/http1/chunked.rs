//! The chunked coding, decoded strictly and in place.
//!
//! Sizes are hexadecimal digits and nothing else (extensions are refused: no client of a cache sends them, and they are where
//! decoders disagree); every line ends in CR LF; trailers must be empty. Anything else is [`Broken`], a 400.

/// The longest size line: sixteen digits would be 2^64.
const MAX_DIGITS: u8 = 15;

/// The coding was violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Malformed chunked body")]
pub struct Broken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u8 },
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    EndCr,
    EndLf,
    Done,
}

/// Where in the coding the decoder is. Owns no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoder(State);

/// What the next bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Skip that many bytes of framing, which are used up; more input is needed after them.
    More(usize),
    /// Skip `skip` bytes, then `length` bytes are body. They count as used up.
    Data {
        /// Framing before the data.
        skip: usize,
        /// Body bytes.
        length: usize,
    },
    /// The body ended after that many bytes; what follows is the next request.
    End(usize),
}

impl Default for Decoder {
    fn default() -> Self {
        Self(State::Size { value: 0, digits: 0 })
    }
}

impl Decoder {
    /// Decodes from the start of `input`, up to the first run of body bytes.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Broken> {
        let mut used = 0;
        loop {
            if let State::Data(left) = self.0 {
                let here = input.len() - used;
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                if length == 0 {
                    return Ok(Step::More(used));
                }
                let left = left - length as u64;
                self.0 = if left == 0 { State::DataCr } else { State::Data(left) };
                return Ok(Step::Data { skip: used, length });
            }
            if self.0 == State::Done {
                return Ok(Step::End(used));
            }
            let Some(&byte) = input.get(used) else {
                return Ok(Step::More(used));
            };
            self.0 = self.0.after(byte)?;
            used += 1;
        }
    }
}

impl State {
    fn after(self, byte: u8) -> Result<Self, Broken> {
        Ok(match (self, byte) {
            (Self::Size { value, digits }, b'\r') if digits > 0 => Self::SizeLf(value),
            (Self::Size { value, digits }, byte) if digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).ok_or(Broken)?;
                Self::Size {
                    value: value * 16 + u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Self::SizeLf(0), b'\n') => Self::EndCr,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { value: 0, digits: 0 },
            (Self::EndCr, b'\r') => Self::EndLf,
            (Self::EndLf, b'\n') => Self::Done,
            _ => return Err(Broken),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `input` in pieces that end at `cuts`; the body and how many bytes were used.
    fn decode(input: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, Option<usize>), Broken> {
        let mut decoder = Decoder::default();
        let mut body = Vec::new();
        let mut at = 0;
        for &cut in cuts.iter().chain([&input.len()]) {
            let cut = cut.clamp(at, input.len());
            while at < cut {
                match decoder.step(&input[at..cut])? {
                    Step::More(used) => {
                        at += used;
                        break;
                    }
                    Step::Data { skip, length } => {
                        body.extend_from_slice(&input[at + skip..at + skip + length]);
                        at += skip + length;
                    }
                    Step::End(used) => return Ok((body, Some(at + used))),
                }
            }
        }
        Ok((body, None))
    }

    #[test]
    fn chunks_are_joined_and_the_next_request_is_left_alone() {
        let input = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET";
        assert_eq!(decode(input, &[]), Ok((b"hello world".to_vec(), Some(input.len() - 3))));
    }

    #[test]
    fn every_violation_is_broken() {
        for input in [
            &b"\r\n"[..],
            b"g\r\n",
            b" 5\r\nhello",
            b"5 \r\nhello",
            b"+5\r\nhello",
            b"0x5\r\nhello",
            b"5;name=value\r\nhello",
            b"5\nhello",
            b"5\r\nhelloX\r\n",
            b"5\r\nhello\n",
            b"0\r\nTrailer: x\r\n\r\n",
            b"0\r\nX",
            b"0\r\n\rX",
            b"1000000000000000\r\n",
        ] {
            assert_eq!(decode(input, &[]), Err(Broken), "{:?}", String::from_utf8_lossy(input));
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_body(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in proptest::collection::vec(0usize..200, 0..8),
            rest in proptest::collection::vec(any::<u8>(), 0..5),
        ) {
            let mut input = Vec::new();
            for chunk in &chunks {
                input.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                input.extend_from_slice(chunk);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            let end = input.len();
            input.extend_from_slice(&rest);
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(decode(&input, &cuts), Ok((chunks.concat(), Some(end))));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused_the_same_way_however_they_are_cut(
            input in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'2'), Just(b'a')], 0..40),
        ) {
            let whole = decode(&input, &[]);
            let every: Vec<usize> = (1..input.len()).collect();
            let bytewise = decode(&input, &every);
            match (whole, bytewise) {
                (Ok(left), Ok(right)) => prop_assert_eq!(left, right),
                (Err(_), Err(_)) => {}
                (left, right) => prop_assert!(false, "{left:?} against {right:?}"),
            }
        }
    }
}
