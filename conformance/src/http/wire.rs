//! An HTTP/1.1 client that sends exactly the bytes it is told to, and reads exactly what comes back.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};

/// Longest head a server may answer with.
const MAX_HEAD: usize = 64 * 1024;

/// What a connection runs over: a socket, or TLS on one.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// Method and target of the request, where one was made as a whole.
    pub asked: String,
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field; several are joined as the RFC says.
    pub fn field(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .fields
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).with_context(|| format!("not text: {self}"))
    }

    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {self}"))
    }

    /// The text of an error of the contract: `{"message": …}` as JSON.
    pub fn message(&self) -> Result<String> {
        let value = self.expect_media("application/json")?.json()?;
        let message = value.get("message").and_then(|message| message.as_str());
        Ok(message.with_context(|| format!("no message in {self}"))?.to_owned())
    }

    /// Whether the server announced that this is its last answer here.
    pub fn closes(&self) -> bool {
        self.field("connection")
            .is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }

    pub fn expect(&self, status: u16) -> Result<&Self> {
        self.expect_any(&[status])
    }

    pub fn expect_any(&self, statuses: &[u16]) -> Result<&Self> {
        ensure!(statuses.contains(&self.status), "expected {statuses:?}, got {self}");
        Ok(self)
    }

    /// Fails unless the request was refused, in whatever words.
    pub fn expect_refusal(&self) -> Result<&Self> {
        ensure!((400..500).contains(&self.status), "expected a refusal, got {self}");
        Ok(self)
    }

    pub fn expect_message(&self, status: u16, message: &str) -> Result<&Self> {
        let found = self.expect(status)?.message()?;
        ensure!(found == message, "expected {message:?}, got {found:?}: {self}");
        Ok(self)
    }

    pub fn expect_field(&self, name: &str, value: &str) -> Result<&Self> {
        let found = self.field(name);
        let right = found.as_deref() == Some(value);
        ensure!(right, "{name} is {found:?}, not {value:?}: {self}");
        Ok(self)
    }

    pub fn expect_media(&self, media: &str) -> Result<&Self> {
        let found = self.field("content-type").unwrap_or_default();
        ensure!(found.starts_with(media), "the media type is {found:?}: {self}");
        Ok(self)
    }

    pub fn expect_body(&self, body: &[u8]) -> Result<&Self> {
        let length = body.len();
        ensure!(
            self.body == body,
            "the body differs: {length} bytes expected, got {self}"
        );
        Ok(self)
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.body.get(..self.body.len().min(120)).unwrap_or_default();
        if !self.asked.is_empty() {
            write!(f, "{}: ", self.asked)?;
        }
        write!(f, "status {}, {} bytes", self.status, self.body.len())?;
        if !shown.is_empty() {
            write!(f, " {:?}", String::from_utf8_lossy(shown))?;
        }
        Ok(())
    }
}

/// One connection.
#[expect(missing_debug_implementations, reason = "a socket has nothing to show")]
pub struct Wire {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    buffer: Vec<u8>,
    patience: Duration,
}

impl Wire {
    pub fn new(stream: impl Stream + 'static, patience: Duration) -> Self {
        let boxed: Box<dyn Stream> = Box::new(stream);
        let (reader, writer) = tokio::io::split(boxed);
        Self {
            reader,
            writer,
            buffer: Vec::new(),
            patience,
        }
    }

    /// Writes; a server that has already said its last word may refuse to listen, so that is no error here.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let writing = async {
            self.writer.write_all(bytes.as_ref()).await?;
            self.writer.flush().await
        };
        let _ = tokio::time::timeout(self.patience, writing).await;
    }

    /// Says that nothing more will be written, and goes on reading.
    pub async fn finish(&mut self) {
        let _ = self.writer.shutdown().await;
    }

    /// Writes a whole request while listening: a server may answer before it has read everything.
    pub async fn exchange(&mut self, method: &str, bytes: &[u8]) -> Result<Response> {
        let Self {
            reader,
            writer,
            buffer,
            patience,
        } = self;
        let mut reading = Reading { reader, buffer };
        let writing = async {
            let _ = writer.write_all(bytes).await;
            let _ = writer.flush().await;
            std::future::pending::<()>().await;
        };
        let answered = async {
            tokio::select! {
                answer = reading.response(method) => answer,
                () = writing => bail!("the writer ended before the answer"),
            }
        };
        tokio::time::timeout(*patience, answered)
            .await
            .context("no whole answer in time")?
    }

    /// The next answer, which belongs to a request of that method.
    pub async fn response(&mut self, method: &str) -> Result<Response> {
        tokio::time::timeout(self.patience, self.reading().response(method))
            .await
            .context("no whole answer in time")?
    }

    /// Everything until the server closes. An error means that it did not.
    pub async fn rest(&mut self) -> Result<Vec<u8>> {
        let (patience, mut reading) = (self.patience, self.reading());
        let all = async { while reading.more().await.unwrap_or(0) > 0 {} };
        tokio::time::timeout(patience, all)
            .await
            .context("the server did not close the connection")?;
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Ends the request here, and returns everything until the server closes.
    pub async fn end(&mut self) -> Result<String> {
        self.finish().await;
        Ok(String::from_utf8_lossy(&self.rest().await?).into_owned())
    }

    /// Fails unless the server closes without another word.
    pub async fn expect_closed(&mut self) -> Result<()> {
        let rest = self.rest().await?;
        let text = String::from_utf8_lossy(&rest);
        ensure!(rest.is_empty(), "more came before the end: {text:?}");
        Ok(())
    }

    fn reading(&mut self) -> Reading<'_> {
        Reading {
            reader: &mut self.reader,
            buffer: &mut self.buffer,
        }
    }
}

struct Reading<'w> {
    reader: &'w mut ReadHalf<Box<dyn Stream>>,
    buffer: &'w mut Vec<u8>,
}

impl Reading<'_> {
    /// Reads once; a reset counts as the end.
    async fn more(&mut self) -> Result<usize> {
        let mut piece = vec![0; 64 * 1024];
        let count = self.reader.read(&mut piece).await.unwrap_or(0);
        self.buffer.extend_from_slice(piece.get(..count).unwrap_or_default());
        Ok(count)
    }

    async fn need(&mut self, count: usize) -> Result<()> {
        while self.buffer.len() < count {
            ensure!(self.more().await? > 0, "closed in the middle of a body");
        }
        Ok(())
    }

    async fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        self.need(count).await?;
        Ok(self.buffer.drain(..count).collect())
    }

    /// Up to and without the mark, which is dropped.
    async fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                let found = self.buffer.drain(..at).collect();
                self.buffer.drain(..mark.len());
                return Ok(found);
            }
            ensure!(self.buffer.len() <= MAX_HEAD, "no end of a head in {MAX_HEAD} bytes");
            ensure!(
                self.more().await? > 0,
                "closed in the middle of a head: {:?}",
                String::from_utf8_lossy(self.buffer)
            );
        }
    }

    async fn response(&mut self, method: &str) -> Result<Response> {
        let head = String::from_utf8(self.until(b"\r\n\r\n").await?).context("a head is not text")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let mut response = Response {
            status: status
                .and_then(|status| status.parse().ok())
                .with_context(|| format!("no status in {head:?}"))?,
            ..Response::default()
        };
        for line in lines {
            let (name, value) = line.split_once(':').with_context(|| format!("no field: {line:?}"))?;
            response.fields.push((name.to_owned(), value.trim().to_owned()));
        }
        let bare = method == "HEAD" || response.status < 200 || matches!(response.status, 204 | 304);
        if !bare {
            response.body = self.body(&response).await?;
        }
        Ok(response)
    }

    async fn body(&mut self, response: &Response) -> Result<Vec<u8>> {
        if let Some(coding) = response.field("transfer-encoding") {
            ensure!(coding.eq_ignore_ascii_case("chunked"), "unknown coding {coding}");
            return self.chunks().await;
        }
        if let Some(length) = response.field("content-length") {
            return self.take(length.parse().context("no length")?).await;
        }
        while self.more().await? > 0 {}
        Ok(std::mem::take(self.buffer))
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n").await?)?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
                .with_context(|| format!("no chunk size: {line:?}"))?;
            if size == 0 {
                while !self.until(b"\r\n").await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            ensure!(self.take(2).await? == b"\r\n", "a chunk does not end where it should");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(bytes: &[u8], method: &str) -> Result<Response> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(bytes).await?;
        drop(theirs);
        Wire::new(ours, Duration::from_secs(5)).response(method).await
    }

    #[tokio::test]
    async fn answers_are_read_in_every_framing() -> Result<()> {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1;x\r\ni\r\n0\r\n\r\nX";
        for (bytes, method, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiX", "GET", "hi"),
            (chunked, "GET", "hi"),
            ("HTTP/1.0 200 OK\r\n\r\nhi", "GET", "hi"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "HEAD", ""),
            ("HTTP/1.1 204 No Content\r\n\r\nX", "PUT", ""),
        ] {
            let found = answer(bytes.as_bytes(), method).await?.body;
            assert_eq!(found, body.as_bytes(), "{bytes:?}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_torn_answer_is_an_error() {
        for bytes in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
            "HTTP/1.1 200",
            "HTTP/1.1 x OK\r\n\r\n",
        ] {
            assert!(answer(bytes.as_bytes(), "GET").await.is_err(), "{bytes:?}");
        }
    }
}
