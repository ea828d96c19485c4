//! The answer to a read, the same for every protocol: look up, verify, apply the request's conditions.

use crate::blob::{self, Envelope, Hit, Kind};
use crate::http::digest;
use crate::http::egress::Receipt;
use crate::http::head::{Fields, Head, Method};
use crate::http::range::{Range, none_match_names};
use crate::http::reply::{Error, Payload, Reply, Slice};
use crate::http::route::Route;
use crate::http::routes::turborepo;
use crate::http::service::{Plan, Service};
use crate::http::voice::Asked;
use crate::metrics::Outcome;
use crate::tools::Event;

/// How a kind is read on a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) route: Route,
    pub(super) kind: Kind,
    /// As what it is counted: outputs of Go are content like any other, but it was Go that asked.
    pub(super) counted: Kind,
    pub(super) content_type: &'static str,
    /// Body of a miss.
    pub(super) missing: &'static str,
    /// Metadata is stored in front of the body.
    pub(super) enveloped: bool,
}

/// The answer to a read.
pub(super) fn read(
    service: &Service,
    head: &Head<'_>,
    reading: Reading,
    namespace: &str,
    key: &[u8],
) -> Result<Plan, Error> {
    read_with(service, head, reading, namespace, key, Vec::new())
}

/// The same with more fields on a hit.
pub(super) fn read_with(
    service: &Service,
    head: &Head<'_>,
    reading: Reading,
    namespace: &str,
    key: &[u8],
    fields: Vec<(&'static str, String)>,
) -> Result<Plan, Error> {
    let found = match service.shared.blobs.find(reading.kind, namespace, key) {
        Ok(found) => found,
        Err(error) => {
            service.shard.read(reading.counted, Outcome::Error, 0);
            return Err(error.into());
        }
    };
    let Some(hit) = found else {
        return Ok(Plan::Reply(reading.miss(service, namespace)));
    };
    let wanted = Wanted::of(head);
    let fields = Extra::of(service, reading, namespace, key, fields);
    // A description needs no bytes, unless part of it is stored with them.
    let looks = reading.enveloped || head.method != Method::Head;
    if hit.is_unverified() && looks {
        return Ok(Plan::Verify(Box::new(Unverified {
            hit,
            reading,
            namespace: namespace.into(),
            wanted: Kept::of(head),
            fields,
        })));
    }
    let reply = reading.answer(service, namespace, hit, &wanted)?;
    Ok(Plan::Reply(fields.on(reply)))
}

/// What is said about a hit beside its length and tag.
#[derive(Debug)]
struct Extra {
    fields: Vec<(&'static str, String)>,
    /// Of the whole blob.
    digest: Option<String>,
    /// For who is told when bytes have left.
    receipt: Receipt,
}

impl Extra {
    fn of(
        service: &Service,
        reading: Reading,
        namespace: &str,
        key: &[u8],
        fields: Vec<(&'static str, String)>,
    ) -> Self {
        Self {
            fields,
            digest: (reading.kind == Kind::Cas).then(|| digest::of_key(key)).flatten(),
            receipt: service.receipt(reading.counted, reading.route.tool(), namespace, key),
        }
    }

    fn on(self, mut reply: Reply) -> Reply {
        if matches!(reply.payload, Payload::Blob(_) | Payload::Tag(_)) {
            let fields = self.fields.into_iter().map(|(name, value)| (name, value.into()));
            reply.more.extend(fields);
        }
        if matches!(&reply.payload, Payload::Blob(slice) if !slice.described_only && slice.length > 0) {
            reply.receipt = Some(self.receipt);
        }
        // A part hashes to something else.
        if reply.status == 200 {
            reply.digest = self.digest;
        }
        reply
    }
}

impl Reading {
    pub(super) fn miss(&self, service: &Service, namespace: &str) -> Reply {
        service.shard.read(self.counted, Outcome::Known, 0);
        service.count(self.route, namespace, Event::Miss, 0);
        Reply::missing(self.missing)
    }

    /// A hit whose bytes may be looked at.
    fn answer(&self, service: &Service, namespace: &str, mut hit: Hit, wanted: &Wanted<'_>) -> Result<Reply, Error> {
        let mut envelope = Envelope::default();
        if self.enveloped {
            match hit.open_envelope()? {
                Some(opened) => envelope = opened,
                None => return Ok(self.miss(service, namespace)),
            }
        }
        let mut reply = wanted.conditional(hit, self.content_type);
        if self.enveloped {
            turborepo::describe(&mut reply, &envelope);
        }
        let sent = match &reply.payload {
            Payload::Blob(slice) if !slice.described_only => slice.length,
            _ => 0,
        };
        service.shard.read(self.counted, Outcome::Ok, sent);
        // Bytes are counted when they have left.
        service.count(self.route, namespace, Event::Hit, 0);
        Ok(reply)
    }
}

/// A hit whose bytes have not been compared with their checksum since the process started.
#[derive(Debug)]
pub struct Unverified {
    hit: Hit,
    reading: Reading,
    namespace: Box<str>,
    wanted: Kept,
    fields: Extra,
}

impl Unverified {
    /// Compares. Large blobs take a while, so another thread does it; damaged bytes are a miss and never leave the node.
    pub(in crate::http) async fn check(self, service: &Service) -> Reply {
        self.check_with(service, |hit, _| hit.verify()).await
    }

    /// A hit under that key of a namespace.
    pub(super) fn new(
        service: &Service,
        hit: Hit,
        reading: Reading,
        (namespace, key): (&str, &[u8]),
        head: &Head<'_>,
    ) -> Self {
        Self {
            hit,
            reading,
            namespace: namespace.into(),
            wanted: Kept::of(head),
            fields: Extra::of(service, reading, namespace, key, Vec::new()),
        }
    }

    /// The same with another opinion of what makes a hit; it is given the namespace too, must verify, and may block.
    pub(super) async fn check_with(
        self,
        service: &Service,
        examine: impl FnOnce(Hit, &str) -> Result<Option<Hit>, blob::Error> + Send + 'static,
    ) -> Reply {
        let Self {
            hit,
            reading,
            namespace,
            wanted,
            fields,
        } = self;
        let failed = |error: Error| {
            service.shard.read(reading.counted, Outcome::Error, 0);
            service.refuse(reading.route, Asked::Read, error)
        };
        let whose = namespace.clone();
        match tokio::task::spawn_blocking(move || examine(hit, &whose)).await {
            Ok(Ok(Some(hit))) => match reading.answer(service, &namespace, hit, &wanted.wanted()) {
                Ok(reply) => fields.on(reply),
                Err(error) => failed(error),
            },
            Ok(Ok(None)) => reading.miss(service, &namespace),
            Ok(Err(error)) => failed(error.into()),
            Err(_) => failed(Error::refused(500, "Storage failed")),
        }
    }
}

/// The conditions of a request, as long as it is at hand.
struct Wanted<'a> {
    method: Method,
    fields: Fields<'a>,
}

/// The same, kept while bytes are verified.
#[derive(Debug)]
struct Kept {
    method: Method,
    range: Option<Box<[u8]>>,
    if_none_match: Option<Box<[u8]>>,
    if_range: Option<Box<[u8]>>,
}

impl Kept {
    fn of(head: &Head<'_>) -> Self {
        Self {
            method: head.method,
            range: head.fields.range.map(Into::into),
            if_none_match: head.fields.if_none_match.map(Into::into),
            if_range: head.fields.if_range.map(Into::into),
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            method: self.method,
            fields: Fields {
                range: self.range.as_deref(),
                if_none_match: self.if_none_match.as_deref(),
                if_range: self.if_range.as_deref(),
                ..Fields::default()
            },
        }
    }
}

impl<'a> Wanted<'a> {
    fn of(head: &Head<'a>) -> Self {
        Self {
            method: head.method,
            fields: head.fields,
        }
    }

    /// A hit, seen through the conditions of the request.
    fn conditional(&self, hit: Hit, content_type: &'static str) -> Reply {
        let fields = &self.fields;
        if fields
            .if_none_match
            .is_some_and(|value| none_match_names(value, hit.tag().as_str()))
        {
            return Reply {
                payload: Payload::Tag(hit.tag()),
                ..Reply::empty(304)
            };
        }
        // A range that belongs to another version is no range.
        let same = fields
            .if_range
            .is_none_or(|value| value == hit.tag().as_str().as_bytes());
        let range = if self.method == Method::Get && same {
            Range::of(fields.range, hit.length())
        } else {
            Range::Whole
        };
        let (status, start, length) = match range {
            Range::Whole => (200, 0, hit.length()),
            Range::Part { start, length } => (206, start, length),
            Range::Unsatisfiable => {
                return Reply {
                    payload: Payload::Beyond(hit.length()),
                    ..Reply::empty(416)
                };
            }
        };
        Reply {
            payload: Payload::Blob(Slice {
                hit,
                content_type,
                start,
                length,
                described_only: self.method == Method::Head,
            }),
            ..Reply::empty(status)
        }
    }
}
