//! Which core does what. A child inherits the cores of the thread that starts it, so nothing has to run between fork and exec.

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The server's core and the loader's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) loader: usize,
}

impl Cores {
    pub(crate) fn new(server: usize, loader: usize) -> Result<Self> {
        ensure!(
            server != loader,
            "the server and the loader need a core each; choose them with --server-core and --loader-core"
        );
        let allowed = sched_getaffinity(None).context("failed to ask which cores this process may use")?;
        for core in [server, loader] {
            ensure!(
                core < CpuSet::MAX_CPU && allowed.is_set(core),
                "this process may not use core {core}; choose others with --server-core and --loader-core"
            );
        }
        let cores = Self { server, loader };
        cores.pin(loader)?;
        Ok(cores)
    }

    /// Runs `start`, whose children stay on the server's core.
    pub(crate) fn on_server<T>(self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        self.pin(self.server)?;
        let started = start();
        self.pin(self.loader)?;
        started
    }

    #[expect(clippy::unused_self, reason = "only who has checked cores may pin")]
    fn pin(self, core: usize) -> Result<()> {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).with_context(|| format!("failed to move to core {core}"))
    }
}
