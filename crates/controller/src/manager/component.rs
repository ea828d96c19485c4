//! Parts of a process that run while it leads.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::BoxError;
use crate::error::Classify;
use crate::runner::{Outcome, Runner};
use crate::scope::Namespaced;

/// Something that runs while we lead, until it is told to stop.
pub struct Component {
    pub(super) name: String,
    pub(super) run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Component {
    /// What it is called in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Any task: it must end soon after its token fires, and not before.
    pub fn new<F, Fut, E>(name: &str, run: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let run = move |stop| -> BoxFuture<'static, Result<(), BoxError>> {
            Box::pin(async move { run(stop).await.map_err(Into::into) })
        };
        Self {
            name: name.to_owned(),
            run: Box::new(run),
        }
    }

    /// A controller.
    pub fn controller<K, Ctx, F, Fut, E>(runner: Runner<K>, context: Arc<Ctx>, reconcile: F) -> Self
    where
        K: Namespaced,
        Ctx: Send + Sync + 'static,
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Classify + Send + Sync + 'static,
    {
        Self::new(runner.name(), move |stop| async move {
            runner.run(context, reconcile, stop).await
        })
    }
}
