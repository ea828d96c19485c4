//! A control plane that answers as told: well, slowly, with garbage, or not at all.
//!
//! Written on the bare socket, because dropping a connection half way through an answer is part of the repertoire.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russet_identity::Anonymous;
use russet_identity::config::{Client, Config, ControlPlane, Proxy};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status and body.
    Say(u16, String),
    /// Redirects to another place.
    Redirect(String),
    /// Accepts the question and closes the connection.
    Hang,
    /// Sends half an answer and closes the connection.
    Half,
    /// Never answers.
    Stall,
    /// A body without end.
    Flood,
}

impl Reply {
    pub(crate) fn json(body: &Value) -> Self {
        Self::Say(200, body.to_string())
    }
}

#[derive(Debug)]
struct Script {
    introspect: Reply,
    access: Reply,
    /// Requests that get this instead of the reply, one after the other.
    first: Vec<Reply>,
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    questions: Arc<Mutex<Vec<Question>>>,
    open: watch::Sender<bool>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(Script {
                introspect: Reply::json(&serde_json::json!({"active": false})),
                access: Reply::Say(401, "{}".into()),
                first: Vec::new(),
            })),
            questions: Arc::default(),
            open: watch::Sender::new(true),
        };
        let this = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = this.clone();
                tokio::spawn(async move { this.serve(stream).await });
            }
        });
        server
    }

    /// A config that asks this server, with client credentials.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::open(Anonymous::Nothing);
        let mut control_plane = ControlPlane::new(&format!("http://{}/base/", self.address)).unwrap();
        control_plane.proxy = Proxy::Never;
        control_plane.request_timeout = Duration::from_millis(400);
        control_plane.client = Some(Client {
            id: "node".into(),
            secret: "canary-client-secret".into(),
        });
        config.control_plane = Some(control_plane);
        config
    }

    /// The same without client credentials.
    pub(crate) fn config_without_client(&self) -> Config {
        let mut config = self.config();
        config.control_plane.as_mut().unwrap().client = None;
        config
    }

    pub(crate) fn introspect(&self, reply: Reply) {
        self.script.lock().unwrap().introspect = reply;
    }

    pub(crate) fn access(&self, reply: Reply) {
        self.script.lock().unwrap().access = reply;
    }

    pub(crate) fn first(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().unwrap().first = replies.into_iter().collect();
    }

    pub(crate) fn all(&self, reply: &Reply) {
        self.introspect(reply.clone());
        self.access(reply.clone());
    }

    /// Keeps answers back until [`Server::release`].
    pub(crate) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        self.questions.lock().unwrap().clone()
    }

    /// How many questions were asked, of introspection and of access.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let questions = self.questions();
        let count = |path: &str| questions.iter().filter(|q| q.path == path).count();
        (
            count("POST /base/oauth2/introspect"),
            count("GET /base/api/cache/access"),
        )
    }

    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let question = read_question(&mut stream).await?;
        let reply = {
            let mut script = self.script.lock().unwrap();
            if !script.first.is_empty() {
                script.first.remove(0)
            } else if question.path.contains("introspect") {
                script.introspect.clone()
            } else {
                script.access.clone()
            }
        };
        self.questions.lock().unwrap().push(question);
        self.open.subscribe().wait_for(|open| *open).await.ok()?;
        let head = |status: u16, length: usize| {
            format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n")
        };
        let text = match reply {
            Reply::Say(status, body) => format!("{}\r\n{body}", head(status, body.len())),
            Reply::Redirect(to) => format!("{}location: {to}\r\n\r\n", head(307, 0)),
            Reply::Hang => return None,
            Reply::Half => format!("{}\r\n{{\"act", head(200, 100)),
            Reply::Stall => {
                std::future::pending::<()>().await;
                return None;
            }
            Reply::Flood => {
                stream
                    .write_all(format!("{}\r\n", head(200, 1 << 40)).as_bytes())
                    .await
                    .ok()?;
                while stream.write_all(&[b' '; 8192]).await.is_ok() {}
                return None;
            }
        };
        stream.write_all(text.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()
    }
}

async fn read_question(stream: &mut TcpStream) -> Option<Question> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let length: usize = header("content-length").map_or(0, |l| l.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let path = head.lines().next()?.rsplit_once(' ')?.0.to_owned();
    Some(Question {
        path,
        authorization: header("authorization"),
        body: String::from_utf8(bytes[head_end + 4..].to_vec()).ok()?,
    })
}
