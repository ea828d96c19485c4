//! Long lists, a page at a time.
//!
//! A thousand objects of a kind are tens of megabytes once they are decoded. Whoever looks through all of them keeps a few words of
//! each, so no more than a page is ever held as a whole.

use std::fmt::Debug;

use kube::api::{Api, ListParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::de::DeserializeOwned;

/// Objects on a page.
const SIZE: u32 = 100;

/// Hands each object of a list to `take`, all of one moment.
pub(crate) async fn each<K>(api: &Api<K>, params: &ListParams, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone().limit(SIZE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The same for metadata alone: what an object holds is not even sent.
pub(crate) async fn each_metadata<K>(
    api: &Api<K>,
    params: &ListParams,
    mut take: impl FnMut(ObjectMeta),
) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone().limit(SIZE);
    loop {
        let page = api.list_metadata(&params).await?;
        let metadata = |object: PartialObjectMeta<K>| object.metadata;
        page.items.into_iter().map(metadata).for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}
