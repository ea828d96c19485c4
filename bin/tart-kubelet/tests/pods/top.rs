//! What is used, as a real metrics-server reads it and a real kubectl prints it.

use crate::reaching::Reached;
use anyhow::{Context, Result, ensure};
use serde_json::json;

/// The number of a cell such as `120m` or `512Mi`.
fn number(cell: Option<&str>, unit: &str) -> Result<u64> {
    let cell = cell.context("a column is missing")?;
    let digits = cell
        .strip_suffix(unit)
        .with_context(|| format!("{cell:?} is not in {unit}"))?;
    digits.parse().with_context(|| format!("{cell:?} is no number"))
}

/// Scraped over TLS that is checked, with the rights of metrics-server's own manifests, and aggregated into the API server.
pub(crate) async fn kubectl_top_shows_what_a_mac_and_its_vms_use() -> Result<()> {
    let there = Reached::new("topped", "127.77.10.40").await?;
    there.mac.host.cluster.metrics_server().await?;
    // A guest that has used nothing is left out, and the `ps` of this one counts whole seconds.
    let script = "i=0; while [ $i -lt 3000000 ]; do i=$((i + 1)); done; exec sleep 100000";
    there.mac.run("job", script, json!({})).await?;
    there.mac.until_running("job").await?;

    let node = there
        .says(&["top", "node", &there.mac.host.node, "--no-headers"])
        .await?;
    let mut cells = node.split_whitespace();
    ensure!(cells.next() == Some(there.mac.host.node.as_str()), "{node}");
    number(cells.next(), "m")?;
    number(cells.next(), "%")?;
    ensure!(number(cells.next(), "Mi")? > 0, "a node without memory: {node}");
    number(cells.next(), "%")?;

    let pod = there
        .says(&["top", "pod", "job", "--containers", "--no-headers"])
        .await?;
    let mut cells = pod.split_whitespace();
    ensure!((cells.next(), cells.next()) == (Some("job"), Some("main")), "{pod}");
    number(cells.next(), "m")?;
    ensure!(number(cells.next(), "Mi")? > 0, "a VM without memory: {pod}");
    there.mac.stayed_within_its_rights()
}
