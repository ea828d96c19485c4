//! What outlives the test that put it up: each test has a runtime of its own, and ends it.

use anyhow::{Context, Result};

/// Puts something up on a runtime of its own, which runs until the process ends.
pub async fn for_good<T, F>(name: &str, start: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let _ = sender.send(runtime.block_on(start()));
            runtime.block_on(std::future::pending::<()>());
            Ok::<_, std::io::Error>(())
        })
        .context("failed to start a thread")?;
    receiver
        .await
        .with_context(|| format!("the thread of the {name} ended"))?
}
