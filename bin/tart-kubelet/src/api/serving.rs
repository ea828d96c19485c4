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

/// What the API is served with.
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) node: String,
    pub(crate) state: PathBuf,
    pub(crate) client_ca: String,
    pub(crate) client: watch::Receiver<Option<Client>>,
    pub(crate) address: Arc<dyn Fn() -> Option<IpAddr> + Send + Sync>,
    pub(crate) kubelet: Arc<Kubelet>,
}

/// Serves for as long as it is not dropped. What it cannot have yet, an address or a certificate, is waited for.
pub(crate) async fn serve(options: Options) {
    let serving = Serving::empty();
    let server = Server::new(
        russet_kubelet_api::Options {
            node: options.node.clone(),
            client_ca: options.client_ca,
            serving: serving.clone(),
            limits: Limits::default(),
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
    let listener = listen(options.listen).await;
    tracing::info!(address = %options.listen, "the kubelet API listens");
    let stop = CancellationToken::new();
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

/// Asks with whatever certificate the node has at the moment.
struct Reviewing(watch::Receiver<Option<Client>>);

impl Reviewing {
    fn now(&self) -> Result<KubeReviewer, ReviewError> {
        let client = self.0.borrow().clone();
        client.map(KubeReviewer::new).ok_or(ReviewError::Late)
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
