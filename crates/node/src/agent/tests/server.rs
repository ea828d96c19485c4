//! An API server as far as a node needs one, over plain HTTP: whoever shows no token is taken for a node with a certificate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::Config;
use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const REQUESTS: &str = "/certificatesigningrequests/";

/// An API server. It knows everybody, and signs nothing yet.
pub(super) struct Server {
    url: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            tokens: true,
            nodes: true,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut callers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                callers.spawn(converse(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, task }
    }

    /// What a kubeconfig with a token makes.
    pub(super) fn connection(&self) -> Config {
        let mut config = Config::new(self.url.parse().unwrap());
        config.auth_info = serde_json::from_value(json!({"token": "a-token"})).unwrap();
        // Nobody speaks TLS here; without one, those of this machine would be read each time.
        let authority = rcgen::generate_simple_self_signed(["api".to_owned()]).unwrap();
        config.root_cert = Some(vec![authority.cert.der().to_vec()]);
        config
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Whether it knows tokens and nodes from now on.
    pub(super) fn knows(&self, tokens: bool, nodes: bool) {
        let mut state = self.state();
        (state.tokens, state.nodes) = (tokens, nodes);
    }

    /// Signs all requests, and knows those for whom it did.
    pub(super) fn signs(&self) {
        self.state().signs = true;
    }

    /// Takes an object away, and nothing that belongs to it.
    pub(super) fn delete(&self, path: &str) {
        self.state().objects.remove(path);
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.state().objects.contains_key(path)
    }

    /// Has no answer for the next callers.
    pub(super) fn fails(&self, times: usize) {
        self.state().failures = times;
    }

    /// How often somebody called with a token, and without.
    pub(super) fn asked(&self) -> (usize, usize) {
        self.state().asked
    }

    /// How many certificates were asked for.
    pub(super) fn requests(&self) -> usize {
        let state = self.state();
        state.objects.keys().filter(|place| place.contains(REQUESTS)).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Default)]
struct State {
    tokens: bool,
    nodes: bool,
    signs: bool,
    asked: (usize, usize),
    /// So many calls are answered with nothing of use.
    failures: usize,
    /// By their path.
    objects: BTreeMap<String, Value>,
}

impl State {
    fn answer(&mut self, call: &Call) -> (u16, Value) {
        let known = if call.token {
            self.asked.0 += 1;
            self.tokens
        } else {
            self.asked.1 += 1;
            self.nodes
        };
        if !known {
            return failure(401, "Unauthorized");
        }
        if self.failures > 0 {
            self.failures -= 1;
            return failure(500, "InternalError");
        }
        let path = call.path.trim_end_matches("/status");
        match call.method.as_str() {
            "POST" => {
                let place = format!("{path}/{}", call.body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&place) {
                    return failure(409, "AlreadyExists");
                }
                self.objects.insert(place, call.body.clone());
                (201, call.body.clone())
            }
            "PUT" => {
                self.objects.insert(path.to_owned(), call.body.clone());
                (200, call.body.clone())
            }
            // What a patch changes is of no interest here.
            _ => {
                self.sign(path);
                let found = self.objects.get(path);
                found.map_or_else(|| failure(404, "NotFound"), |object| (200, object.clone()))
            }
        }
    }

    fn sign(&mut self, path: &str) {
        let Some(request) = self.objects.get_mut(path) else {
            return;
        };
        if !self.signs || !path.contains(REQUESTS) || request.get("status").is_some() {
            return;
        }
        let pem = BASE64.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
        let asked = CertificateSigningRequestParams::from_pem(&String::from_utf8(pem).unwrap()).unwrap();
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        let certificate = asked.signed_by(&issuer).unwrap().pem();
        request["status"] = json!({"certificate": BASE64.encode(certificate)});
        self.nodes = true;
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

struct Call {
    method: String,
    path: String,
    token: bool,
    body: Value,
}

impl Call {
    /// A call that is there as a whole, and its length.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (head, rest) = text.split_once("\r\n\r\n")?;
        let (first, fields) = head.split_once("\r\n")?;
        let field = |name: &str| {
            let mut fields = fields.lines().filter_map(|line| line.split_once(':'));
            fields
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim())
        };
        let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
        let body = rest.get(..length)?;
        let mut words = first.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let call = Self {
            method: method.to_owned(),
            path: target.split('?').next()?.to_owned(),
            token: field("authorization").is_some(),
            body: serde_json::from_str(body).unwrap_or_default(),
        };
        Some((call, head.len() + 4 + length))
    }
}

/// Answers one caller until he hangs up.
async fn converse(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        while let Some((call, length)) = Call::parse(&bytes) {
            bytes.drain(..length);
            let (code, body) = state.lock().unwrap().answer(&call);
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if stream.write_all((head + &body).as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
