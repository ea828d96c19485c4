//! The way to the API server, which can lead astray: to one that shows the same certificate and knows nobody, as one does that was
//! started with the wrong authority for its clients.

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What an API server says to strangers.
const REFUSAL: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;

/// A way. It leads to the API server until it leads astray.
pub(crate) struct Way {
    url: String,
    astray: watch::Sender<bool>,
    refused: Refused,
    task: JoinHandle<()>,
}

/// The first lines of what was refused.
type Refused = Arc<Mutex<Vec<String>>>;

impl Way {
    /// To a server that is told by its URL, with the files of its certificate and key.
    pub(crate) async fn to(server: &str, certificate: &Path, key: &Path) -> Result<Self> {
        let address = server.trim_start_matches("https://").trim_end_matches('/');
        let far: SocketAddr = address
            .parse()
            .with_context(|| format!("no address and port: {server}"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let (astray, seen) = watch::channel(false);
        let refused = Refused::default();
        let task = tokio::spawn(lead(listener, far, Arc::new(config), seen, Arc::clone(&refused)));
        Ok(Self {
            url,
            astray,
            refused,
            task,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends what goes over it, and leads astray or home from now on.
    pub(crate) fn leads_astray(&self, astray: bool) {
        self.astray.send_replace(astray);
    }

    /// How many calls that begin so were refused.
    pub(crate) fn refused(&self, beginning: &str) -> usize {
        let lines = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.starts_with(beginning)).count()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn lead(
    listener: TcpListener,
    far: SocketAddr,
    config: Arc<ServerConfig>,
    mut astray: watch::Receiver<bool>,
    refused: Refused,
) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, _)) = accepted else { continue };
                if *astray.borrow() {
                    let (config, refused) = (Arc::clone(&config), Arc::clone(&refused));
                    calls.spawn(async move {
                        // Either end may hang up at any time.
                        let _ = refuse(near, config, refused).await;
                    });
                } else {
                    calls.spawn(call(near, far));
                }
            }
            Ok(()) = astray.changed() => calls.abort_all(),
            Some(_) = calls.join_next(), if !calls.is_empty() => {}
        }
    }
}

async fn call(mut near: TcpStream, far: SocketAddr) {
    if let Ok(mut far) = TcpStream::connect(far).await {
        // Either end may hang up at any time.
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}

/// Refuses one call, whoever makes it.
async fn refuse(mut near: TcpStream, config: Arc<ServerConfig>, refused: Refused) -> io::Result<()> {
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut gathered: Vec<u8> = Vec::new();
    let mut wire = vec![0_u8; 16 << 10];
    loop {
        let count = near.read(&mut wire).await?;
        if count == 0 {
            return Ok(());
        }
        let mut read = wire.get(..count).unwrap_or_default();
        while !read.is_empty() {
            tls.read_tls(&mut read)?;
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let mut plain = vec![0_u8; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut plain)?;
            gathered.extend(plain);
        }
        let whole = first_line(&gathered);
        if let Some(line) = &whole {
            refused
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.clone());
            let head = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-type: application/json";
            write!(
                tls.writer(),
                "{head}\r\ncontent-length: {}\r\n\r\n{REFUSAL}",
                REFUSAL.len()
            )?;
            tls.send_close_notify();
        }
        let mut answer: Vec<u8> = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut answer)?;
        }
        near.write_all(&answer).await?;
        if whole.is_some() {
            return near.shutdown().await;
        }
    }
}

/// The first line of a call that is there as a whole: who is answered before he has said all does not listen.
fn first_line(gathered: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(gathered).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(Some(0), |(_, length)| length.trim().parse().ok())?;
    (body.len() >= length).then(|| head.lines().next().unwrap_or_default().to_owned())
}
