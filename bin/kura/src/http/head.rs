//! What a handler sees of a request, whichever engine read it.

/// The methods the routes know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Read without the body.
    Head,
    /// Write.
    Put,
    /// Write, or one step of an upload.
    Post,
    /// Remove.
    Delete,
    /// Ask what is possible.
    Options,
    /// WebDAV: describe a resource.
    Propfind,
    /// WebDAV: make a folder.
    Mkcol,
    /// No route has it.
    Other,
}

impl Method {
    /// The method of that name; names are case-sensitive.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"PUT" => Self::Put,
            b"POST" => Self::Post,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PROPFIND" => Self::Propfind,
            b"MKCOL" => Self::Mkcol,
            _ => Self::Other,
        }
    }

    /// GET and HEAD ask the same question.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// The header fields that change what happens. Each occurs at most once; the engines refuse repetitions, unless it says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Who asks.
    pub authorization: Option<&'a [u8]>,
    /// What the body is.
    pub content_type: Option<&'a [u8]>,
    /// Which bytes are wanted.
    pub range: Option<&'a [u8]>,
    /// Which version the client already has.
    pub if_none_match: Option<&'a [u8]>,
    /// Which version the range belongs to.
    pub if_range: Option<&'a [u8]>,
    /// The trace the request belongs to. May be repeated; the first counts.
    pub traceparent: Option<&'a [u8]>,
    /// What the body hashes to.
    pub content_digest: Option<&'a [u8]>,
    /// Whether the answer should say what it hashes to.
    pub want_content_digest: Option<&'a [u8]>,
    /// What the client would like to get. May be repeated; the first counts.
    pub accept: Option<&'a [u8]>,
    /// Turborepo: the signature of an artifact.
    pub artifact_tag: Option<&'a [u8]>,
    /// Turborepo: how long the task took, in milliseconds.
    pub artifact_duration: Option<&'a [u8]>,
    /// Go: what the body of an action's output must hash to.
    pub output_id: Option<&'a [u8]>,
}

/// One request, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// What to do.
    pub method: Method,
    /// The path as sent; still percent-encoded.
    pub path: &'a str,
    /// What follows the question mark, as sent.
    pub query: &'a str,
    /// The fields that matter.
    pub fields: Fields<'a>,
}

impl Head<'_> {
    /// The client speaks gRPC, whose errors travel inside a 200.
    pub fn is_grpc(&self) -> bool {
        self.fields
            .content_type
            .and_then(|value| value.get(..16))
            .is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
    }
}
