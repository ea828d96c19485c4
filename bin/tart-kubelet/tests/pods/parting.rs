//! A Pod that is ended, and then has to hurry.

use crate::lives::WAITS;
use crate::stage::Mac;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// Deletes a Pod with so many seconds to end, and waits until its agent has done what follows from that.
async fn delete_within(mac: &Mac, pod: &Pod, seconds: u32) -> Result<()> {
    let grace = DeleteParams::default().grace_period(seconds);
    mac.pods().delete(&pod.name_any(), &grace).await?;
    let uid = pod.uid().unwrap_or_default();
    let path = mac.host.path("state/pods").join(uid).join("facts.json");
    let granted = async || {
        let facts: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        Ok(facts["facts"]["ending"]["grace"]["secs"].clone())
    };
    let seen = mac.host.until("a Pod that has so long to end", granted, |granted| {
        *granted == json!(seconds)
    });
    seen.await.map(drop)
}

/// Somebody deleted a Pod, and again with less patience while its hook ran. Its container got TERM at once, beside the hook that was to
/// come first.
pub(crate) async fn less_patience_ends_no_container_before_its_hook() -> Result<()> {
    let (mac, _agent) = Mac::started("part1").await?;
    let script = "trap 'echo term >>/opt/work/said; cat /opt/work/said >/dev/termination-log; exit 0' TERM; while :; do sleep 0.1; done";
    let hook = "echo hook >>/opt/work/said; while [ ! -e /opt/work/go ]; do sleep 0.1; done; echo bye >>/opt/work/said";
    let more = json!({
        "metadata": {"finalizers": ["test.russet.dev/look"]},
        "spec": {"containers": [{"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", hook]}}}}]},
    });
    let pod = mac.run("job", script, more).await?;
    mac.until_running("job").await?;
    delete_within(&mac, &pod, 3000).await?;
    mac.until_work(&pod, "said", |said| said == "hook\n").await?;
    delete_within(&mac, &pod, 2000).await?;
    mac.go(&pod)?;
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.message.as_deref() == Some("hook\nbye\nterm\n"), "{exit:?}");
    Ok(())
}

/// A Pod that was deleted with hours to end, and ignored TERM, was the first to go when the disk was full. It went on with its hours, and
/// as one goes at a time, nobody else went either.
pub(crate) async fn a_pod_that_takes_hours_to_end_does_not_keep_a_full_disk_full() -> Result<()> {
    let mac = Mac::new("part2").await?;
    let _agent = mac.start_with(&[
        "--node-ip=127.77.9.9",
        "--kubelet-bind-address=0",
        "--housekeeping-interval=1",
    ])?;
    let stubborn = mac
        .run("stubborn", "trap '' TERM; while :; do sleep 0.1; done", json!({}))
        .await?;
    mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    for name in ["stubborn", "job"] {
        mac.until_running(name).await?;
    }
    delete_within(&mac, &stubborn, 6 * 3600).await?;
    // Less than a tenth will be free, whoever goes.
    mac.switch(|switches| switches.capacity_gb = Some(27))?;
    mac.until_gone("stubborn").await?;
    let job = mac.until_failed("job").await?;
    ensure!(
        job.status.and_then(|status| status.reason).as_deref() == Some("Evicted"),
        "the next goes when the first is gone"
    );
    Ok(())
}
