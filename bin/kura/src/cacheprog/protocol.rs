//! The messages of `GOCACHEPROG`: one JSON document a line; the body of a put is a line of its own.

use super::disk::{Found, Id};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// What Go asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Command {
    Get,
    Put,
    Close,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: i64,
    pub(super) command: Command,
    pub(super) action: Option<Id>,
    pub(super) output: Option<Id>,
    pub(super) body: Vec<u8>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    #[serde(rename = "ID")]
    id: i64,
    command: Command,
    #[serde(rename = "ActionID", default)]
    action: Option<String>,
    #[serde(rename = "OutputID", default)]
    output: Option<String>,
    #[serde(default)]
    body_size: usize,
}

fn id(text: Option<String>) -> Option<Id> {
    STANDARD.decode(text?).ok()?.try_into().ok()
}

/// The next request; `None` when Go is gone.
pub(super) async fn read<R: AsyncBufRead + Unpin>(input: &mut R) -> anyhow::Result<Option<Request>> {
    let Some(line) = next_line(input).await? else {
        return Ok(None);
    };
    let line: Line = serde_json::from_slice(&line).context("go sent a request that cannot be read")?;
    let mut body = Vec::new();
    if line.body_size > 0 {
        let text = next_line(input).await?.context("go sent no body")?;
        let text = text.trim_ascii();
        let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        body = STANDARD.decode(text.context("go sent a body that is no text")?)?;
        anyhow::ensure!(
            body.len() == line.body_size,
            "go sent a body of another length than it said"
        );
    }
    Ok(Some(Request {
        id: line.id,
        command: line.command,
        action: id(line.action),
        output: id(line.output),
        body,
    }))
}

async fn next_line<R: AsyncBufRead + Unpin>(input: &mut R) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(line));
        }
    }
}

#[derive(Debug, Default, serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Response {
    #[serde(rename = "ID")]
    id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    err: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known_commands: Option<[&'static str; 3]>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    miss: bool,
    #[serde(rename = "OutputID", skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_path: Option<String>,
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(ToOwned::to_owned)
}

impl Response {
    pub(super) fn new(id: i64) -> Self {
        Self { id, ..Self::default() }
    }

    pub(super) fn greeting() -> Self {
        Self {
            known_commands: Some(["get", "put", "close"]),
            ..Self::default()
        }
    }

    pub(super) fn miss(id: i64) -> Self {
        Self {
            miss: true,
            ..Self::new(id)
        }
    }

    pub(super) fn error(id: i64, message: &str) -> Self {
        Self {
            err: Some(message.to_owned()),
            ..Self::new(id)
        }
    }

    pub(super) fn stored(id: i64, found: &Found) -> Self {
        Self {
            disk_path: text(&found.path),
            ..Self::new(id)
        }
    }

    pub(super) fn hit(id: i64, found: &Found) -> Self {
        let time = i64::try_from(found.stored_ms)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        Self {
            output: Some(STANDARD.encode(found.output)),
            size: Some(found.size),
            time: time.map(|time| time.to_string()),
            ..Self::stored(id, found)
        }
    }

    pub(super) fn line(&self) -> String {
        // Nothing in a response can fail to be written.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut input: &[u8]) -> anyhow::Result<Vec<Request>> {
        let mut requests = Vec::new();
        while let Some(request) = read(&mut input).await? {
            requests.push(request);
        }
        Ok(requests)
    }

    #[tokio::test]
    async fn requests_and_bodies_are_taken_apart() {
        let id = STANDARD.encode([7; 32]);
        let text = format!(
            "{{\"ID\":1,\"Command\":\"get\",\"ActionID\":\"{id}\"}}\n\n\
             {{\"ID\":2,\"Command\":\"put\",\"ActionID\":\"{id}\",\"OutputID\":\"{id}\",\"BodySize\":5}}\n\"aGVsbG8=\"\n\
             {{\"ID\":3,\"Command\":\"put\",\"ActionID\":\"{id}\",\"OutputID\":\"{id}\"}}\n{{\"ID\":4,\"Command\":\"close\"}}\n"
        );
        let requests = all(text.as_bytes()).await.unwrap();
        assert_eq!(requests.len(), 4);
        assert_eq!((requests[0].command, requests[0].action), (Command::Get, Some([7; 32])));
        assert_eq!(requests[1].body, b"hello");
        assert!(requests[2].body.is_empty());
        assert_eq!(requests[3].command, Command::Close);
    }

    #[tokio::test]
    async fn nonsense_is_an_error() {
        for text in [
            "nonsense\n",
            "{\"ID\":1,\"Command\":\"dance\"}\n",
            "{\"ID\":1,\"Command\":\"put\",\"BodySize\":5}\n",
            "{\"ID\":1,\"Command\":\"put\",\"BodySize\":5}\n\"aGk=\"\n",
            "{\"ID\":1,\"Command\":\"put\",\"BodySize\":5}\nhello\n",
        ] {
            assert!(all(text.as_bytes()).await.is_err(), "{text}");
        }
    }

    #[test]
    fn responses_have_the_names_go_reads() {
        let found = Found {
            output: [1; 32],
            size: 3,
            stored_ms: 1_700_000_000_123,
            path: "/x/y".into(),
        };
        assert_eq!(
            Response::hit(9, &found).line(),
            "{\"ID\":9,\"OutputID\":\"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\",\"Size\":3,\
             \"Time\":\"2023-11-14T22:13:20.123Z\",\"DiskPath\":\"/x/y\"}\n"
        );
        assert_eq!(Response::miss(1).line(), "{\"ID\":1,\"Miss\":true}\n");
        let greeting = Response::greeting().line();
        assert_eq!(greeting, "{\"ID\":0,\"KnownCommands\":[\"get\",\"put\",\"close\"]}\n");
    }
}
