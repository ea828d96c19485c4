//! Readiness probes.
//!
//! A [`Prober`] keeps its HTTP client between attempts, but reads certificates anew until the client could be built: the
//! process being probed may be the one that writes them.

use std::path::Path;
use std::time::Duration;

use super::{ClientIdentity, Probe};

/// One attempt may take this long; a process that accepts connections and never answers must not use up the deadline.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Delay between attempts: short at first, since most parts are ready within a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Tries `probe` until it passes; writes why it did not into `last`.
pub(super) async fn wait(probe: &Probe, last: &mut String) {
    for part in flatten(probe) {
        let mut prober = Prober {
            probe: part,
            client: None,
        };
        let mut pause = FIRST_PAUSE;
        while let Err(reason) = prober.attempt().await {
            *last = reason;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn flatten(probe: &Probe) -> Vec<&Probe> {
    match probe {
        Probe::All(parts) => parts.iter().flat_map(flatten).collect(),
        single => vec![single],
    }
}

struct Prober<'a> {
    probe: &'a Probe,
    client: Option<reqwest::Client>,
}

impl Prober<'_> {
    async fn attempt(&mut self) -> Result<(), String> {
        match self.probe {
            Probe::None | Probe::All(_) => Ok(()),
            Probe::File(path) => match tokio::fs::metadata(path).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
            Probe::Tcp(address) => match tokio::time::timeout(ATTEMPT, tokio::net::TcpStream::connect(address)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("{address}: {error}")),
                Err(_) => Err(format!("{address}: no answer")),
            },
            Probe::Http { url } => self.get(url, None).await.and_then(|status| good(url, status)),
            Probe::Https { url, ca, client } => self
                .get(url, Some((ca, client.as_ref())))
                .await
                .and_then(|status| good(url, status)),
            Probe::Tls { url, ca } => self.get(url, Some((ca, None))).await.map(drop),
        }
    }

    async fn get(
        &mut self,
        url: &str,
        tls: Option<(&Path, Option<&ClientIdentity>)>,
    ) -> Result<reqwest::StatusCode, String> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(client(tls)?),
        };
        let answer = client.get(url).send().await;
        answer
            .map(|answer| answer.status())
            .map_err(|error| format!("{url}: {}", chain(&error)))
    }
}

fn good(url: &str, status: reqwest::StatusCode) -> Result<(), String> {
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("{url}: {status}"))
    }
}

fn client(tls: Option<(&Path, Option<&ClientIdentity>)>) -> Result<reqwest::Client, String> {
    // Probes go to this machine: a proxy of the user's environment must not see them.
    let mut builder = reqwest::Client::builder().no_proxy().timeout(ATTEMPT);
    if let Some((ca, identity)) = tls {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let roots = reqwest::Certificate::from_pem_bundle(&read(ca)?).map_err(|error| chain(&error))?;
        builder = builder.tls_certs_only(roots);
        if let Some(ClientIdentity { cert, key }) = identity {
            let mut pem = read(cert)?;
            pem.extend(read(key)?);
            builder = builder.identity(reqwest::Identity::from_pem(&pem).map_err(|error| chain(&error))?);
        }
    }
    builder.build().map_err(|error| chain(&error))
}

/// An error with its causes, on one line: reqwest's own message stops at "error sending request".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn answer_once_each(listener: tokio::net::TcpListener, answers: [&'static str; 2]) {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_http_probe_waits_for_a_good_status() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/readyz", listener.local_addr().unwrap());
        let server = tokio::spawn(answer_once_each(listener, ["503 Service Unavailable", "200 OK"]));
        let mut last = String::new();
        wait(&Probe::Http { url }, &mut last).await;
        assert!(last.contains("503"), "{last}");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn all_parts_of_a_probe_must_pass() {
        let dir = tempfile::tempdir().unwrap();
        let present = dir.path().join("present");
        std::fs::write(&present, "").unwrap();
        let absent = dir.path().join("absent");
        let probe = Probe::All(vec![Probe::File(present), Probe::File(absent.clone())]);
        let mut last = String::new();
        let early = tokio::time::timeout(Duration::from_millis(100), wait(&probe, &mut last)).await;
        assert!(early.is_err() && last.contains("absent"), "{last}");
        std::fs::write(&absent, "").unwrap();
        wait(&probe, &mut last).await;
    }
}
