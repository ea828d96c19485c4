//! VMs that exist only in memory, with the states and the manners of real ones and the delays one asks for.
//!
//! For a thousand hosts in one process. What a VM takes to boot, and what its programs answer, is up to a [`Script`]. A [`Host`]
//! outlives its runtimes as a Mac outlives its agents: make a second [`Synthetic`] over the same one, and it finds everything.

mod guest;
mod host;
mod script;
#[cfg(test)]
mod tests;

pub use host::{Host, Settings};
pub use script::{Op, Plain, Reply, Script};

use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::name::VmName;
use crate::process::Process;
use crate::runtime::{
    Credentials, DiskUsage, Exec, ExecRequest, Exit, GuestCommand, Hardware, How, Launch, Listing, Power, Pull,
    Runtime, Source, Step,
};
use futures::future::BoxFuture;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The runtime of one agent on a synthetic host.
#[derive(Clone, Debug)]
pub struct Synthetic {
    host: Host,
}

impl Synthetic {
    /// An agent starts on this host.
    pub fn new(host: Host) -> Self {
        Self { host }
    }
}

impl Runtime for Synthetic {
    fn version(&self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(async { Ok("synthetic://1".to_owned()) })
    }

    fn pull<'a>(&'a self, image: &'a ImageRef, how: Pull<'a>) -> BoxFuture<'a, Result<Digest, Error>> {
        Box::pin(async move {
            let digest = self.host.published(image, how.credentials)?;
            if self.host.pulled(&image.at(digest.clone())) {
                self.host.take(image, &digest);
                return Ok(digest);
            }
            let step = self.host.delay(Op::Pull, &image.to_string()) / 4;
            for percent in [0, 25, 50, 75] {
                if let Some(progress) = how.progress {
                    progress.send_replace(percent);
                }
                tokio::time::sleep(step).await;
            }
            if let Some(progress) = how.progress {
                progress.send_replace(100);
            }
            self.host.take(image, &digest);
            Ok(digest)
        })
    }

    fn resolve<'a>(&'a self, image: &'a ImageRef) -> BoxFuture<'a, Result<Option<Digest>, Error>> {
        Box::pin(async move { Ok(self.host.resolved(image)) })
    }

    fn login<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { self.host.login(credentials) })
    }

    fn remove_image<'a>(&'a self, image: &'a Pinned) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.host.drop_image(image);
            Ok(())
        })
    }

    fn clone_vm<'a>(&'a self, source: &'a Source, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.host.check_clone(source, name)?;
            self.host.pause(Op::Clone, &name.to_string()).await;
            self.host.clone_vm(source, name)
        })
    }

    fn configure<'a>(&'a self, name: &'a VmName, hardware: Hardware) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.host.pause(Op::Configure, &name.to_string()).await;
            self.host.configure(name, hardware)
        })
    }

    fn start<'a>(&'a self, name: &'a VmName, _launch: &'a Launch) -> BoxFuture<'a, Result<Process, Error>> {
        Box::pin(async move {
            self.host.pause(Op::Start, &name.to_string()).await;
            self.host.start(name)
        })
    }

    fn power<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Power>, Error>> {
        Box::pin(async move { Ok(self.host.power(name)) })
    }

    fn ended<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Exit, Error>> {
        Box::pin(self.host.ended(name))
    }

    fn address<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Ipv4Addr>, Error>> {
        Box::pin(async move { self.host.address(name) })
    }

    fn exec<'a>(&'a self, name: &'a VmName, request: ExecRequest) -> BoxFuture<'a, Result<Exec, Error>> {
        Box::pin(async move {
            self.host.require_agent(name)?;
            Ok(guest::exec(&self.host, name, request))
        })
    }

    fn spawn<'a>(
        &'a self,
        name: &'a VmName,
        id: &'a str,
        command: &'a GuestCommand,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { guest::spawn(&self.host, name, id, command) })
    }

    fn step<'a>(&'a self, name: &'a VmName, id: &'a str) -> BoxFuture<'a, Result<Option<Step>, Error>> {
        Box::pin(async move { Ok(self.host.step(name, id)) })
    }

    fn stop<'a>(&'a self, name: &'a VmName, grace: Duration) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let text = name.to_string();
            if !matches!(self.host.power(name), Some(Power::Running(_))) {
                return Ok(());
            }
            // The time a guest needs to shut down is its own; when it is longer than the grace, it is stopped.
            let needs = self.host.delay(Op::ShutDown, &text);
            tokio::time::sleep(needs.min(grace)).await;
            self.host.end(
                &text,
                if needs <= grace && !grace.is_zero() {
                    How::ShutDown
                } else {
                    How::Stopped
                },
            );
            Ok(())
        })
    }

    fn delete<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.host.pause(Op::Delete, &name.to_string()).await;
            self.host.delete(name)
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, Error>> {
        Box::pin(async move { Ok(self.host.list()) })
    }

    fn disk(&self) -> BoxFuture<'_, Result<DiskUsage, Error>> {
        Box::pin(async move { Ok(self.host.disk()) })
    }
}
