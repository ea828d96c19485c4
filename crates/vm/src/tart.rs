//! VMs by the `tart` command. Nothing else in this project starts it.
//!
//! What can be had as JSON is read as JSON; what only exists as a sentence is understood in [`words`] and nowhere else.
//! Every call has a deadline, and a call that is dropped kills its `tart`, `tart run` apart, which belongs to a supervisor.

mod call;
mod exec;
mod images;
mod json;
mod lifecycle;
mod words;

use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::name::VmName;
use crate::process::Process;
use crate::runtime::{
    Credentials, DiskUsage, Exec, ExecRequest, Exit, GuestCommand, Hardware, Launch, Listing, Power, Pull, Runtime,
    Source, Step,
};
use crate::supervise::Supervisor;
use futures::future::BoxFuture;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Where things are.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `tart` command.
    pub program: PathBuf,
    /// `TART_HOME`; always said, so that the agent, its supervisors and a later agent mean the same VMs.
    pub home: PathBuf,
    /// What is remembered of running VMs. Must survive the agent; need not survive a reboot.
    pub state: PathBuf,
    /// How to start a supervisor.
    pub supervisor: Supervisor,
}

/// The VMs of a Mac.
#[derive(Clone, Debug)]
pub struct Tart {
    options: Options,
}

impl Tart {
    /// Touches nothing.
    pub fn new(mut options: Options) -> Self {
        // Supervisors work elsewhere, and later agents may start elsewhere.
        for path in [&mut options.home, &mut options.state] {
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        Self { options }
    }

    /// What `tart run` of a VM said. May hold the password of a screen, so it is not for Pods' logs.
    pub fn log(&self, name: &VmName) -> PathBuf {
        self.folder(name).join("tart.log")
    }

    /// Where the VM's processes are remembered.
    fn folder(&self, name: &VmName) -> PathBuf {
        self.options.state.join(name.to_string())
    }
}

impl Runtime for Tart {
    fn version(&self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(self.tell_version())
    }

    fn pull<'a>(&'a self, image: &'a ImageRef, how: Pull<'a>) -> BoxFuture<'a, Result<Digest, Error>> {
        Box::pin(self.pull_image(image, how))
    }

    fn resolve<'a>(&'a self, image: &'a ImageRef) -> BoxFuture<'a, Result<Option<Digest>, Error>> {
        Box::pin(self.resolve_image(image))
    }

    fn login<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.remember_login(credentials))
    }

    fn remove_image<'a>(&'a self, image: &'a Pinned) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.drop_image(image))
    }

    fn clone_vm<'a>(&'a self, source: &'a Source, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.copy_vm(source, name))
    }

    fn configure<'a>(&'a self, name: &'a VmName, hardware: Hardware) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.set_up(name, hardware))
    }

    fn start<'a>(&'a self, name: &'a VmName, launch: &'a Launch) -> BoxFuture<'a, Result<Process, Error>> {
        Box::pin(self.start_vm(name, launch))
    }

    fn power<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Power>, Error>> {
        Box::pin(self.power_of(name))
    }

    fn ended<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Exit, Error>> {
        Box::pin(self.end_of(name))
    }

    fn address<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Ipv4Addr>, Error>> {
        Box::pin(self.address_of(name))
    }

    fn exec<'a>(&'a self, name: &'a VmName, request: ExecRequest) -> BoxFuture<'a, Result<Exec, Error>> {
        Box::pin(self.run_in_guest(name, request))
    }

    fn spawn<'a>(
        &'a self,
        name: &'a VmName,
        id: &'a str,
        command: &'a GuestCommand,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.leave_in_guest(name, id, command))
    }

    fn step<'a>(&'a self, name: &'a VmName, id: &'a str) -> BoxFuture<'a, Result<Option<Step>, Error>> {
        Box::pin(async move { self.step_of(name, id) })
    }

    fn stop<'a>(&'a self, name: &'a VmName, grace: Duration) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.stop_vm(name, grace))
    }

    fn delete<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.delete_vm(name))
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, Error>> {
        Box::pin(self.list_all())
    }

    fn disk(&self) -> BoxFuture<'_, Result<DiskUsage, Error>> {
        Box::pin(async move { self.room() })
    }
}
