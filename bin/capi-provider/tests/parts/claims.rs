//! The claims for hosts, on a real API server.

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use russet_api::values::ServerId;
use russet_capi_provider::claims::Holder;
use russet_capi_provider::claims_store::{ClaimStore, Taken};

use crate::support;

/// A thousand objects were held as a whole to look at a few words of each. They come a hundred at a time now, and none may be missing:
/// a claim that is not seen is a host that is given away twice.
#[tokio::test]
async fn all_claims_are_seen_although_they_come_in_pages() -> Result<()> {
    let sandbox = support::cluster().await?.sandbox("claims").await?;
    let store = ClaimStore::new(sandbox.client().await?, sandbox.namespace());
    let holder = |number: usize| Holder {
        uid: format!("uid-{number}"),
        namespace: sandbox.namespace().to_owned(),
        name: format!("mac-{number}"),
    };
    let server = |number: usize| -> Result<ServerId> { Ok(format!("server-{number}").parse()?) };
    stream::iter(0..230)
        .map(|number| {
            let (store, holder) = (&store, holder(number));
            async move {
                let taken = store.take(&server(number)?, &holder, &format!("id-{number}")).await?;
                ensure!(taken == Taken::Yes);
                Ok(())
            }
        })
        .buffer_unordered(8)
        .try_collect::<()>()
        .await?;
    let claims = store.live().await?;
    for number in 0..230 {
        let claim = claims.held(&server(number)?, &format!("uid-{number}"));
        ensure!(
            claim.is_some_and(|claim| claim.id == format!("id-{number}")),
            "claim {number} was not seen"
        );
    }
    Ok(())
}
