//! `WriteRequest` messages as a stream of events, so that no message has to be in memory at once.
//!
//! Bytes arrive in pieces that have nothing to do with messages. The decoder walks them one field at a time and hands data on
//! as slices of the very pieces it was given.

/// Longest resource name that is collected.
const MAX_NAME: usize = crate::name::MAX_NAME;

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not messages, or not these messages.
    #[error("the message cannot be decoded")]
    Malformed,
    /// Compressed by gRPC itself, which was not agreed.
    #[error("compressed messages are not supported; upload to compressed-blobs instead")]
    Compressed,
    /// Name or offset after the data.
    #[error("resource_name and write_offset must precede data")]
    Order,
}

/// What happens in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message begins; its name and offset are known. Every message has exactly one.
    Start {
        /// The resource name, if the message has one.
        name: Option<String>,
        /// Where its data goes.
        offset: i64,
    },
    /// Some of its data.
    Data(&'a [u8]),
    /// The message ends.
    End {
        /// No more data will come.
        finish: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Prefix {
        have: u8,
    },
    Tag,
    Number {
        field: u32,
    },
    Length {
        field: u32,
    },
    Name {
        left: u64,
    },
    Data {
        left: u64,
    },
    Skip {
        left: u64,
    },
    /// The start was told; the data that made it due comes next.
    Ended,
}

/// The decoder.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    prefix: [u8; 5],
    /// Bytes of the message not yet seen.
    left: u64,
    value: u64,
    shift: u32,
    name: Option<Vec<u8>>,
    offset: i64,
    finish: bool,
    started: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            state: State::Prefix { have: 0 },
            prefix: [0; 5],
            left: 0,
            value: 0,
            shift: 0,
            name: None,
            offset: 0,
            finish: false,
            started: false,
        }
    }
}

impl Decoder {
    /// Between two messages, where a stream may end.
    pub fn is_between(&self) -> bool {
        self.state == State::Prefix { have: 0 }
    }

    /// The next event, taking what it needs off the front of `input`. `None`: more input is needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Error> {
        loop {
            match self.state {
                State::Ended => {
                    self.state = State::Prefix { have: 0 };
                    return Ok(Some(Event::End { finish: self.finish }));
                }
                State::Tag if self.left == 0 => {
                    self.state = State::Ended;
                    if let Some(start) = self.start()? {
                        return Ok(Some(start));
                    }
                }
                State::Data { left: 0 } | State::Skip { left: 0 } | State::Name { left: 0 } => self.state = State::Tag,
                State::Data { left } => {
                    if let Some(start) = self.start()? {
                        return Ok(Some(start));
                    }
                    let data = self.take(input, left);
                    if data.is_empty() {
                        return Ok(None);
                    }
                    self.state = State::Data {
                        left: left - data.len() as u64,
                    };
                    return Ok(Some(Event::Data(data)));
                }
                State::Skip { left } => {
                    let skipped = self.take(input, left).len() as u64;
                    if skipped == 0 {
                        return Ok(None);
                    }
                    self.state = State::Skip { left: left - skipped };
                }
                State::Name { left } => {
                    let part = self.take(input, left);
                    if part.is_empty() {
                        return Ok(None);
                    }
                    self.name.get_or_insert_default().extend_from_slice(part);
                    self.state = State::Name {
                        left: left - part.len() as u64,
                    };
                }
                State::Prefix { .. } | State::Tag | State::Number { .. } | State::Length { .. } => {
                    let Some((byte, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    self.byte(*byte)?;
                }
            }
        }
    }

    /// Up to `most` bytes off the front.
    fn take<'a>(&mut self, input: &mut &'a [u8], most: u64) -> &'a [u8] {
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
        let (taken, rest) = input.split_at_checked(count).unwrap_or((&[], input));
        *input = rest;
        self.left -= taken.len() as u64;
        taken
    }

    fn start<'a>(&mut self) -> Result<Option<Event<'a>>, Error> {
        if self.started {
            return Ok(None);
        }
        self.started = true;
        // An empty name is written by no one and means that there is none.
        let name = self.name.take().filter(|name| !name.is_empty());
        let name = name.map(String::from_utf8).transpose();
        Ok(Some(Event::Start {
            name: name.map_err(|_| Error::Malformed)?,
            offset: self.offset,
        }))
    }

    fn byte(&mut self, byte: u8) -> Result<(), Error> {
        if let State::Prefix { have } = self.state {
            return self.prefix(have, byte);
        }
        self.left = self.left.checked_sub(1).ok_or(Error::Malformed)?;
        let bits = u64::from(byte & 0x7f);
        if self.shift > 63 || (self.shift == 63 && bits > 1) {
            return Err(Error::Malformed);
        }
        self.value |= bits << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return if self.left == 0 { Err(Error::Malformed) } else { Ok(()) };
        }
        let value = std::mem::take(&mut self.value);
        self.shift = 0;
        self.state = match self.state {
            State::Tag => self.tag(value)?,
            State::Number { field } => self.number(field, value)?,
            State::Length { field } => self.length(field, value)?,
            other => other,
        };
        Ok(())
    }

    fn prefix(&mut self, have: u8, byte: u8) -> Result<(), Error> {
        if have == 0 && byte != 0 {
            return Err(if byte == 1 { Error::Compressed } else { Error::Malformed });
        }
        if let Some(place) = self.prefix.get_mut(usize::from(have)) {
            *place = byte;
        }
        if have < 4 {
            self.state = State::Prefix { have: have + 1 };
            return Ok(());
        }
        let [_, length @ ..] = self.prefix;
        *self = Self {
            state: State::Tag,
            left: u64::from(u32::from_be_bytes(length)),
            ..Self::default()
        };
        Ok(())
    }

    fn tag(&self, tag: u64) -> Result<State, Error> {
        let field = crate::wire::field_of(tag).ok_or(Error::Malformed)?;
        let fixed = |count| {
            let left = Some(count)
                .filter(|count| *count <= self.left && !matches!(field, 1 | 2 | 3 | 10))
                .ok_or(Error::Malformed)?;
            Ok(State::Skip { left })
        };
        match tag & 7 {
            0 if self.left > 0 => Ok(State::Number { field }),
            2 if self.left > 0 => Ok(State::Length { field }),
            1 => fixed(8),
            5 => fixed(4),
            _ => Err(Error::Malformed),
        }
    }

    fn number(&mut self, field: u32, value: u64) -> Result<State, Error> {
        match field {
            2 if self.started => return Err(Error::Order),
            2 => self.offset = value.cast_signed(),
            3 => self.finish = value != 0,
            1 | 10 => return Err(Error::Malformed),
            _ => {}
        }
        Ok(State::Tag)
    }

    fn length(&mut self, field: u32, left: u64) -> Result<State, Error> {
        if left > self.left {
            return Err(Error::Malformed);
        }
        match field {
            1 if self.started => Err(Error::Order),
            1 if left > MAX_NAME as u64 || self.name.is_some() => Err(Error::Malformed),
            1 => {
                self.name = Some(Vec::new());
                Ok(State::Name { left })
            }
            2 | 3 => Err(Error::Malformed),
            // The last of two would count, and the first is with the caller already.
            10 if self.started => Err(Error::Malformed),
            10 => Ok(State::Data { left }),
            _ => Ok(State::Skip { left }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::bytestream::WriteRequest;
    use proptest::prelude::*;
    use prost::Message as _;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    /// Name, offset, data and finish of each message, however its bytes were cut.
    #[expect(clippy::type_complexity, reason = "four plain facts per message")]
    fn decode(bytes: &[u8], step: usize) -> Result<Vec<(Option<String>, i64, Vec<u8>, bool)>, Error> {
        let mut decoder = Decoder::default();
        let mut messages = Vec::new();
        let mut current = (None, 0, Vec::new());
        for mut piece in bytes.chunks(step.max(1)) {
            while let Some(event) = decoder.next(&mut piece)? {
                match event {
                    Event::Start { name, offset } => current = (name, offset, Vec::new()),
                    Event::Data(data) => current.2.extend_from_slice(data),
                    Event::End { finish } => {
                        let (name, offset, data) = std::mem::take(&mut current);
                        messages.push((name, offset, data, finish));
                    }
                }
            }
            assert!(piece.is_empty());
        }
        // What ends with a piece is told without another one.
        assert_eq!(decoder.next(&mut &[][..])?, None);
        if decoder.is_between() {
            Ok(messages)
        } else {
            Err(Error::Malformed)
        }
    }

    #[test]
    fn an_empty_message_is_a_message() {
        assert_eq!(decode(&framed(&[]), 1), Ok(vec![(None, 0, vec![], false)]));
    }

    #[test]
    fn names_after_data_and_compressed_messages_are_refused() {
        let data = WriteRequest {
            data: bytes::Bytes::from_static(b"x"),
            ..Default::default()
        }
        .encode_to_vec();
        let message = [&data[..], &[0x0a, 1, b'n']].concat();
        assert_eq!(decode(&framed(&message), 3), Err(Error::Order));
        assert_eq!(decode(&[1, 0, 0, 0, 0], 5), Err(Error::Compressed));
        assert_eq!(decode(&[7, 0, 0, 0, 0], 5), Err(Error::Malformed));
        // finish_write after data is harmless.
        let late = [&data[..], &[0x18, 1]].concat();
        assert_eq!(decode(&framed(&late), 2), Ok(vec![(None, 0, b"x".to_vec(), true)]));
    }

    /// Fuzzing against the library's decoder found messages with two readings: of two `data` the library keeps the last and we
    /// kept both, and known fields of a fixed width, which it refuses, were skipped.
    #[test]
    fn a_message_has_one_reading_or_none() {
        for message in [
            &[0x52, 1, b'a', 0x52, 1, b'b'][..],
            &[0x52, 1, b'a', 0x52, 0],
            &[0x0a, 1, b'a', 0x0a, 1, b'b'],
            &[0x09, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x55, 0, 0, 0, 0],
            // Field number 2^29.
            &[0x80, 0x80, 0x80, 0x80, 0x10, 0],
        ] {
            for step in [1, 100] {
                assert_eq!(decode(&framed(message), step), Err(Error::Malformed), "{message:?}");
            }
        }
        let unknown = [0x59, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0x52, 0, 0x52, 1, b'b'];
        assert_eq!(decode(&framed(&unknown), 1), Ok(vec![(None, 0, b"b".to_vec(), false)]));
    }

    proptest! {
        #[test]
        fn messages_are_read_however_their_bytes_are_cut(
            messages in prop::collection::vec(("[a-z/]{0,20}", any::<i64>(), any::<Vec<u8>>(), any::<bool>()), 0..4),
            step in 1_usize..40,
        ) {
            let mut bytes = Vec::new();
            for (name, offset, data, finish) in &messages {
                let message = WriteRequest {
                    resource_name: name.clone(),
                    write_offset: *offset,
                    finish_write: *finish,
                    data: data.clone().into(),
                };
                bytes.extend_from_slice(&framed(&message.encode_to_vec()));
            }
            let expected: Vec<_> = messages
                .into_iter()
                .map(|(name, offset, data, finish)| (Some(name).filter(|name| !name.is_empty()), offset, data, finish))
                .collect();
            prop_assert_eq!(decode(&bytes, step), Ok(expected));
        }

        #[test]
        fn hostile_bytes_end_in_an_answer(bytes: Vec<u8>, step in 1_usize..9) {
            let _ = decode(&framed(&bytes), step);
            let _ = decode(&bytes, step);
        }
    }
}
