//! What both suites do with the emulated Scaleway.

use russet_sim_scaleway::{DEFAULT_SECRET_KEY, Host, Sim};
use std::time::Duration;

/// The machine may have a hundred other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// One of the minis, counted from 1.
pub(crate) fn host(sim: &Sim, number: u32) -> Host {
    let handle = sim.handle();
    // A single mini has no number.
    let host = handle.host(format!("tuist-pool-{number}").as_str());
    host.or_else(|| handle.host("tuist-pool")).unwrap()
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// What the provider does at Scaleway.
pub(crate) async fn act(sim: &Sim, host: &Host, action: &str) {
    let (zone, id) = (&host.zone, &host.server_id);
    let url = format!(
        "{}/apple-silicon/v1alpha1/zones/{zone}/servers/{id}/{action}",
        sim.url()
    );
    let request = client().post(url).header("x-auth-token", DEFAULT_SECRET_KEY);
    let answer = request.json(&serde_json::json!({})).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

/// Looks until it is so.
#[track_caller]
pub(crate) fn until<F, Fut>(what: &'static str, look: F) -> impl Future<Output = ()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = bool>,
{
    let place = std::panic::Location::caller();
    async move {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !look().await {
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain until {what} ({place})"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
