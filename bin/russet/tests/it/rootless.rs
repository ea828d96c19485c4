//! `up` by somebody who is not root.

use crate::fleet::{are_macs, is_built};
use crate::guests;
use crate::sandbox::Sandbox;

/// Without root there were only stand-ins, and a Pod on one waited for ever.
#[tokio::test]
async fn without_root_a_pod_is_a_virtual_machine_all_the_same() {
    assert!(is_built(), "build the workspace first: cargo build --workspace --bins");
    let sandbox = match Sandbox::without_root() {
        Ok(sandbox) => sandbox,
        Err(why) => return russet_skip::skipped(russet_skip::test_name!(), &why),
    };
    sandbox.ok("up --detach --no-linux --pool 1 --macs 1");
    sandbox.until_well().await;
    assert!(are_macs(&sandbox));
    guests::one_can_be_looked_into(&sandbox).await;
    guests::a_job_reaches_its_cache(&sandbox).await;
    sandbox.run(&["down"]).expect(0);
}
