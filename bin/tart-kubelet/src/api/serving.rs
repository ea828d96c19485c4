//! The server of the kubelet API.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use russet_kubelet_api::auth::{KubeReviewer, ReviewError, Reviewer, User};
use russet_kubelet_api::{Limits, Server, Serving};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Kubelet, certificate};

const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// How long requests and sessions have when the agent ends: half of it to end by themselves, half of it to be told that they are
/// ended. The agent waits for a little longer than this.
const DRAIN: Duration = Duration::from_secs(4);

/// What the API is served with.
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) node: String,
    pub(crate) state: PathBuf,
    pub(crate) client_ca: String,
    pub(crate) client: watch::Receiver<Option<Client>>,
    pub(crate) address: Arc<dyn Fn() -> Option<IpAddr> + Send + Sync>,
    pub(crate) kubelet: Arc<Kubelet>,
    pub(crate) stop: CancellationToken,
}

/// Serves until it is told to stop, and then until everybody was told. What it cannot have yet, an address or a certificate, is
/// waited for.
pub(crate) async fn serve(options: Options) {
    let serving = Serving::empty();
    let server = Server::new(
        russet_kubelet_api::Options {
            node: options.node.clone(),
            client_ca: options.client_ca,
            serving: serving.clone(),
            limits: Limits {
                drain: DRAIN,
                ..Limits::default()
            },
        },
        options.kubelet,
        Reviewing(options.client.clone()),
    );
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            tracing::warn!(%error, "there is no kubelet API; give --client-ca-file");
            return;
        }
    };
    let stop = options.stop;
    let Some(listener) = stop.run_until_cancelled(listen(options.listen)).await else {
        return;
    };
    tracing::info!(address = %options.listen, "the kubelet API listens");
    let address = options.address;
    let certified = certificate::keep(options.node, options.state, options.client, move || address(), serving);
    tokio::select! {
        never = certified => match never {},
        () = server.run(listener, stop) => {}
    }
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut told = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => {
                if !told {
                    tracing::warn!(%address, %error, "the kubelet API cannot listen there; it is tried again");
                    told = true;
                }
                tokio::time::sleep(LISTEN_AGAIN).await;
            }
        }
    }
}

/// Nobody can be asked yet who may do what.
#[derive(Debug, thiserror::Error)]
#[error("the node has not joined its cluster yet, so nobody can be asked who may call it")]
struct NotJoined;

/// Asks with whatever certificate the node has at the moment.
struct Reviewing(watch::Receiver<Option<Client>>);

impl Reviewing {
    fn now(&self) -> Result<KubeReviewer, ReviewError> {
        let client = self.0.borrow().clone();
        let alone = || ReviewError::Kube(Box::new(kube::Error::Service(Box::new(NotJoined))));
        client.map(KubeReviewer::new).ok_or_else(alone)
    }
}

impl Reviewer for Reviewing {
    async fn token(&self, token: &str) -> Result<Option<User>, ReviewError> {
        self.now()?.token(token).await
    }

    async fn access(&self, user: &User, verb: &str, name: &str, subresource: &str) -> Result<bool, ReviewError> {
        self.now()?.access(user, verb, name, subresource).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    /// Whoever called a node that was about to join read that an API server had not answered for 10 s.
    #[tokio::test]
    async fn a_node_that_has_not_joined_says_so() {
        let (_joins, client) = watch::channel(None);
        let user = User::default();
        let error = Reviewing(client)
            .access(&user, "get", "mac", "proxy")
            .await
            .unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("has not joined its cluster yet"), "{cause}");
    }
}
