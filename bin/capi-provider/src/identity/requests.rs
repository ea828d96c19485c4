//! Signing requests at hand.
//!
//! A request that was granted stays for an hour. When a thousand Macs are given back within one, each of them would read the requests
//! of all others from the API server, five kilobytes a piece; the approver watches them anyway.

use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::Store;

use crate::pages;

/// The requests as the approver last saw them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<OnceLock<Store<CertificateSigningRequest>>>);

impl Requests {
    /// From now on they are taken from here. Only the first counts.
    pub(super) fn show(&self, store: Store<CertificateSigningRequest>) {
        let _ = self.0.set(store);
    }

    /// Those that a predicate picks. Read from the API server as long as no approver has seen them all: one that lags behind a request
    /// denies it, since it asks for the machine itself.
    pub(super) async fn filter(
        &self,
        client: &kube::Client,
        pick: impl Fn(&CertificateSigningRequest) -> bool,
    ) -> Result<Vec<Arc<CertificateSigningRequest>>, kube::Error> {
        let filled = |store: &&Store<_>| matches!(store.wait_until_ready().now_or_never(), Some(Ok(())));
        if let Some(store) = self.0.get().filter(filled) {
            let all = store.state().into_iter();
            return Ok(all.filter(|request| pick(request)).collect());
        }
        let api: Api<CertificateSigningRequest> = Api::all(client.clone());
        let mut picked = Vec::new();
        pages::each(&api, &ListParams::default(), |request| {
            if pick(&request) {
                picked.push(Arc::new(request));
            }
        })
        .await?;
        Ok(picked)
    }
}
