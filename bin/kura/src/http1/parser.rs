//! The request head: strict, borrowed, allocation-free.
//!
//! Where RFC 9112 lets a server be lenient this one is not, because a proxy in front of it may be lenient in another way and
//! the difference is a smuggled request. Refused: bare line feeds, folded lines, white space around field names, more than one
//! `Content-Length`, `Content-Length` beside `Transfer-Encoding`, any coding but `chunked`, a missing or second `Host`.

use crate::http::head::{Fields, Head, Method};

/// More fields than any client of a cache sends.
pub const MAX_FIELDS: usize = 64;
/// Longest head accepted, in bytes: room for a large token, no more.
pub const MAX_HEAD: usize = 32 * 1024;

/// Why a head is refused. All of these end the connection, because its framing can no longer be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A line ends in LF without CR.
    #[error("Line feed without carriage return")]
    BareLineFeed,
    /// The head does not end within [`MAX_HEAD`] bytes.
    #[error("Request header exceeds the allowed size")]
    HeadTooLarge,
    /// More than [`MAX_FIELDS`] fields.
    #[error("Too many request header fields")]
    TooManyFields,
    /// Not `method SP target SP version`.
    #[error("Malformed request line")]
    RequestLine,
    /// A target that is neither `/path` nor `http://authority/path`, or holds bytes a URI cannot.
    #[error("Malformed request target")]
    Target,
    /// Neither HTTP/1.1 nor HTTP/1.0.
    #[error("HTTP version not supported")]
    Version,
    /// A field line without a colon, with a bad name, or with a control character in its value.
    #[error("Malformed header field")]
    Field,
    /// A field continued on the next line.
    #[error("Folded header field")]
    Folded,
    /// `Content-Length` twice or not a number.
    #[error("Invalid Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` that is not exactly `chunked`, or sent to us in HTTP/1.0.
    #[error("Unsupported Transfer-Encoding")]
    TransferEncoding,
    /// Both framings at once.
    #[error("Content-Length together with Transfer-Encoding")]
    TwoFramings,
    /// HTTP/1.1 without `Host`, or `Host` twice.
    #[error("Exactly one Host header field is required")]
    Host,
    /// A field that decides something was sent twice.
    #[error("Repeated header field")]
    Repeated,
    /// An expectation other than `100-continue`.
    #[error("Expectation not supported")]
    Expectation,
}

impl Refusal {
    /// The status that tells the client what it did.
    pub fn status(self) -> u16 {
        match self {
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::Version => 505,
            Self::Expectation => 417,
            Self::TransferEncoding => 501,
            _ => 400,
        }
    }
}

/// How the body of a request is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// That many bytes.
    Length(u64),
    /// Chunks until the empty one.
    Chunked,
}

/// What the connection must know about a request, apart from what the handlers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Delimitation of the body.
    pub framing: Framing,
    /// The client is willing to send another request.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// HTTP/1.0: answers must say that the connection stays open, and chunks are not understood.
    pub old: bool,
}

/// One parsed head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack of one request; a box would cost an allocation"
)]
pub enum Parsed<'a> {
    /// A request to serve here.
    Request(Head<'a>, Terms),
    /// The first line of the HTTP/2 preface: the connection belongs to the library.
    Http2Preface,
}

/// Parses a head that [`super::head_end::Search`] found complete (it ends in an empty line).
pub fn parse(head: &[u8]) -> Result<Parsed<'_>, Refusal> {
    let mut lines = Lines(head);
    let line = lines.next().ok_or(Refusal::RequestLine)?;
    if line == b"PRI * HTTP/2.0" {
        return Ok(Parsed::Http2Preface);
    }
    let (method, target, old) = request_line(line)?;
    let (path, query) = split_target(method, target)?;
    let mut found = Found::default();
    for (count, line) in lines.enumerate() {
        if line.is_empty() {
            break;
        }
        if count == MAX_FIELDS {
            return Err(Refusal::TooManyFields);
        }
        let (name, value) = field(line)?;
        found.take(name, value)?;
    }
    let terms = found.terms(old)?;
    let head = Head {
        method: Method::of(method),
        path,
        query,
        fields: found.fields,
    };
    Ok(Parsed::Request(head, terms))
}

/// Lines of a head whose every line feed is known to follow a carriage return.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.0)?;
        let line = self.0.get(..end.checked_sub(1)?)?;
        self.0 = self.0.get(end + 1..)?;
        Some(line)
    }
}

fn request_line(line: &[u8]) -> Result<(&[u8], &[u8], bool), Refusal> {
    let first = memchr::memchr(b' ', line).ok_or(Refusal::RequestLine)?;
    let (method, rest) = line.split_at_checked(first).ok_or(Refusal::RequestLine)?;
    let rest = rest.get(1..).ok_or(Refusal::RequestLine)?;
    let second = memchr::memchr(b' ', rest).ok_or(Refusal::RequestLine)?;
    let (target, version) = rest.split_at_checked(second).ok_or(Refusal::RequestLine)?;
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
        return Err(Refusal::RequestLine);
    }
    match version {
        b" HTTP/1.1" => Ok((method, target, false)),
        b" HTTP/1.0" => Ok((method, target, true)),
        other if other.starts_with(b" HTTP/") && !other.iter().skip(1).any(|&byte| byte == b' ') => {
            Err(Refusal::Version)
        }
        _ => Err(Refusal::RequestLine),
    }
}

fn split_target<'a>(method: &[u8], target: &'a [u8]) -> Result<(&'a str, &'a str), Refusal> {
    let text = std::str::from_utf8(target).map_err(|_| Refusal::Target)?;
    // Only what RFC 3986 allows to stand unescaped; a fragment never reaches a server.
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Refusal::Target);
    }
    let rooted = if text.starts_with('/') {
        text
    } else if text == "*" && method == b"OPTIONS" {
        return Ok((text, ""));
    } else {
        // The absolute form, which a client sends to what it takes for a proxy.
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .ok_or(Refusal::Target)?;
        let slash = rest.find('/').ok_or(Refusal::Target)?;
        let (authority, rooted) = rest.split_at_checked(slash).ok_or(Refusal::Target)?;
        if authority.is_empty() || authority.contains(['?', '@']) {
            return Err(Refusal::Target);
        }
        rooted
    };
    Ok(rooted.split_once('?').unwrap_or((rooted, "")))
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Refusal::Folded);
    }
    let colon = memchr::memchr(b':', line).ok_or(Refusal::Field)?;
    let (name, value) = line.split_at_checked(colon).ok_or(Refusal::Field)?;
    let value = trim(value.get(1..).ok_or(Refusal::Field)?);
    if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
        return Err(Refusal::Field);
    }
    if value.iter().any(|&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
        return Err(Refusal::Field);
    }
    Ok((name, value))
}

/// Optional white space is spaces and tabs. Trimming more would forgive a carriage return alone, which ends a line for some
/// and not for others.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The fields that decide something, as they are met.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each stands for one field of the header; they do not exclude one another"
)]
struct Found<'a> {
    fields: Fields<'a>,
    length: Option<u64>,
    chunked: bool,
    hosts: u8,
    expects: bool,
    close: bool,
    keep: bool,
}

impl<'a> Found<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Refusal> {
        // Sorted out by length first: most fields of most clients match no arm.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts = self.hosts.saturating_add(1),
            5 if name.eq_ignore_ascii_case(b"range") => once(&mut self.fields.range, value)?,
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Refusal::Expectation);
                }
                self.expects = true;
            }
            6 if name.eq_ignore_ascii_case(b"accept") => {
                self.fields.accept.get_or_insert(value);
            }
            8 if name.eq_ignore_ascii_case(b"if-range") => once(&mut self.fields.if_range, value)?,
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            11 if name.eq_ignore_ascii_case(b"traceparent") => {
                self.fields.traceparent.get_or_insert(value);
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => once(&mut self.fields.content_type, value)?,
            13 if name.eq_ignore_ascii_case(b"authorization") => once(&mut self.fields.authorization, value)?,
            13 if name.eq_ignore_ascii_case(b"if-none-match") => once(&mut self.fields.if_none_match, value)?,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(Refusal::ContentLength);
                }
                self.length = Some(decimal(value).ok_or(Refusal::ContentLength)?);
            }
            14 if name.eq_ignore_ascii_case(b"content-digest") => once(&mut self.fields.content_digest, value)?,
            14 if name.eq_ignore_ascii_case(b"x-artifact-tag") => once(&mut self.fields.artifact_tag, value)?,
            16 if name.eq_ignore_ascii_case(b"x-kura-output-id") => once(&mut self.fields.output_id, value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::TransferEncoding);
                }
                self.chunked = true;
            }
            19 if name.eq_ignore_ascii_case(b"want-content-digest") => {
                once(&mut self.fields.want_content_digest, value)?;
            }
            19 if name.eq_ignore_ascii_case(b"x-artifact-duration") => once(&mut self.fields.artifact_duration, value)?,
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',') {
            let option = trim(option);
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn terms(&self, old: bool) -> Result<Terms, Refusal> {
        if self.hosts > 1 || (self.hosts == 0 && !old) {
            return Err(Refusal::Host);
        }
        let framing = match (self.length, self.chunked) {
            (Some(_), true) => return Err(Refusal::TwoFramings),
            (None, true) if old => return Err(Refusal::TransferEncoding),
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Length(length),
        };
        Ok(Terms {
            framing,
            keep_alive: !self.close && (!old || self.keep),
            expects_continue: self.expects && !old && framing != Framing::None,
            old,
        })
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), Refusal> {
    if slot.replace(value).is_some() {
        Err(Refusal::Repeated)
    } else {
        Ok(())
    }
}

/// Digits only: no sign, no list, no white space, no overflow.
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
