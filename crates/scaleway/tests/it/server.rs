//! An HTTP/1.1 server that expects exact requests in an exact order, and can fail in the ways servers fail.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What is expected, and what happens then.
pub(crate) struct Step {
    /// Method, path and query.
    request: &'static str,
    body: Option<Sent>,
    then: Then,
}

/// What the body of a request has to be.
enum Sent {
    Json(Value),
    Text(&'static str),
}

enum Then {
    Answer {
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: String,
    },
    /// Read the request and close the connection without a word.
    Close,
    /// Read the request and say nothing.
    Hang,
}

/// Text of an answer.
pub(crate) struct Body(String);

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

/// Expected requests, in order.
#[derive(Default)]
pub(crate) struct Script(Vec<Step>);

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn answer(self, request: &'static str, status: u16, body: impl Into<Body>) -> Self {
        self.step(
            request,
            None,
            Then::Answer {
                status,
                headers: Vec::new(),
                body: body.into().0,
            },
        )
    }

    pub(crate) fn answer_with(
        self,
        request: &'static str,
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: impl Into<Body>,
    ) -> Self {
        self.step(
            request,
            None,
            Then::Answer {
                status,
                headers,
                body: body.into().0,
            },
        )
    }

    /// An answer to a request that must have exactly this body.
    pub(crate) fn exchange(self, request: &'static str, sent: Value, status: u16, body: impl Into<Body>) -> Self {
        self.step(
            request,
            Some(Sent::Json(sent)),
            Then::Answer {
                status,
                headers: Vec::new(),
                body: body.into().0,
            },
        )
    }

    /// An answer to a request that must have exactly this text as its body.
    pub(crate) fn text(self, request: &'static str, sent: &'static str, status: u16, body: impl Into<Body>) -> Self {
        self.step(
            request,
            Some(Sent::Text(sent)),
            Then::Answer {
                status,
                headers: Vec::new(),
                body: body.into().0,
            },
        )
    }

    /// A page of a list of the Instance API, which counts in a header.
    pub(crate) fn counted(self, request: &'static str, total: &'static str, body: impl Into<Body>) -> Self {
        self.answer_with(request, 200, vec![("X-Total-Count", total)], body)
    }

    pub(crate) fn close(self, request: &'static str) -> Self {
        self.step(request, None, Then::Close)
    }

    pub(crate) fn hang(self, request: &'static str) -> Self {
        self.step(request, None, Then::Hang)
    }

    fn step(mut self, request: &'static str, body: Option<Sent>, then: Then) -> Self {
        self.0.push(Step { request, body, then });
        self
    }
}

#[derive(Default)]
struct State {
    steps: Mutex<VecDeque<Step>>,
    complaints: Mutex<Vec<String>>,
    /// A request was read that will never be answered.
    hanging: Notify,
}

pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accept: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            steps: Mutex::new(script.0.into()),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { address, state, accept }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn hanging(&self) {
        self.state.hanging.notified().await;
    }

    pub(crate) fn finish(self) {
        self.accept.abort();
        let complaints = self.state.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
        let left: Vec<&str> = self
            .state
            .steps
            .lock()
            .unwrap()
            .iter()
            .map(|step| step.request)
            .collect();
        assert!(left.is_empty(), "never asked for: {left:?}");
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    while let Some((head, body)) = read_request(&mut stream).await {
        let step = state.steps.lock().unwrap().pop_front();
        let complaint = check(step.as_ref(), &head, &body);
        if let Some(complaint) = complaint {
            state.complaints.lock().unwrap().push(complaint);
        }
        match step.map(|step| step.then) {
            Some(Then::Answer { status, headers, body }) => {
                let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
                for (name, value) in headers {
                    text.extend([name, ": ", value, "\r\n"]);
                }
                text.push_str("\r\n");
                text.push_str(&body);
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            Some(Then::Hang) => {
                state.hanging.notify_one();
                // Until the client goes away.
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
            Some(Then::Close) | None => return,
        }
    }
}

fn check(step: Option<&Step>, head: &str, body: &[u8]) -> Option<String> {
    let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
    let Some(step) = step else {
        return Some(format!("asked once too often: {line}"));
    };
    if line != step.request {
        return Some(format!("expected {:?}, got {line:?}", step.request));
    }
    if !head.contains(&format!("x-auth-token: {}\r\n", super::KEY)) {
        return Some(format!("no key in {line}"));
    }
    let is_json = head.contains("content-type: application/json\r\n");
    match &step.body {
        Some(Sent::Json(_)) if !is_json => Some(format!("{line} is not marked as JSON")),
        Some(Sent::Json(wanted)) if serde_json::from_slice::<Value>(body).ok().as_ref() != Some(wanted) => Some(
            format!("{line}: expected {wanted}, got {}", String::from_utf8_lossy(body)),
        ),
        Some(Sent::Text(_)) if !head.contains("content-type: text/plain\r\n") => {
            Some(format!("{line} is not marked as text"))
        }
        Some(Sent::Text(wanted)) if body != wanted.as_bytes() => Some(format!(
            "{line}: expected {wanted}, got {}",
            String::from_utf8_lossy(body)
        )),
        None if line.starts_with("GET ") && !body.is_empty() => Some(format!("{line} has a body")),
        _ => None,
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length:")
                .map(|v| v.trim().to_owned())
        })
        .map_or(0, |value| value.parse().unwrap());
    let mut body = bytes[end..].to_vec();
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}
