//! What a host can do with VMs. See the crate's documentation for the rules that every implementation keeps.

use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::log::Rotation;
use crate::name::VmName;
use crate::process::Process;
use futures::future::BoxFuture;
use jiff::Timestamp;
use russet_telemetry::Secret;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

/// The VMs of one host.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// What to show as the Node's runtime version, such as `tart://2.32.1`.
    fn version(&self) -> BoxFuture<'_, Result<String, Error>>;

    /// Downloads an image unless it is here. Always asks the registry, so a tag that moved is noticed.
    fn pull<'a>(&'a self, image: &'a ImageRef, how: Pull<'a>) -> BoxFuture<'a, Result<Digest, Error>>;

    /// The digest of an image that was pulled before; asks nobody.
    fn resolve<'a>(&'a self, image: &'a ImageRef) -> BoxFuture<'a, Result<Option<Digest>, Error>>;

    /// Remembers credentials for all later pulls from a registry.
    fn login<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<(), Error>>;

    /// Drops a pulled image. Not being there is success.
    fn remove_image<'a>(&'a self, image: &'a Pinned) -> BoxFuture<'a, Result<(), Error>>;

    /// Makes a VM. Never replaces one: [`Error::Exists`].
    fn clone_vm<'a>(&'a self, source: &'a Source, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>>;

    /// Changes a VM that does not run.
    fn configure<'a>(&'a self, name: &'a VmName, hardware: Hardware) -> BoxFuture<'a, Result<(), Error>>;

    /// Starts a VM and returns once its process runs. Whether the guest comes up shows later: a VM that could not start is
    /// [`Power::Ended`] with [`How::Failed`]. Starting what runs is [`Error::Running`].
    fn start<'a>(&'a self, name: &'a VmName, launch: &'a Launch) -> BoxFuture<'a, Result<Process, Error>>;

    /// What a VM does; `None` if there is none.
    fn power<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Power>, Error>>;

    /// Waits until a VM has ended, also one that an earlier agent started. At once if it does not run.
    fn ended<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Exit, Error>>;

    /// The address of a VM that runs, if it has one yet.
    fn address<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Ipv4Addr>, Error>>;

    /// Runs a program in the guest, tied to the caller: it ends when the [`Exec`] is dropped.
    fn exec<'a>(&'a self, name: &'a VmName, request: ExecRequest) -> BoxFuture<'a, Result<Exec, Error>>;

    /// Runs a program in the guest that outlives the caller: output goes to a file, and its end is remembered. `id` names it
    /// among those of this VM; the same one twice is [`Error::Running`] or starts it anew.
    fn spawn<'a>(
        &'a self,
        name: &'a VmName,
        id: &'a str,
        command: &'a GuestCommand,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// What such a program does; `None` if it was never started.
    fn step<'a>(&'a self, name: &'a VmName, id: &'a str) -> BoxFuture<'a, Result<Option<Step>, Error>>;

    /// Asks the guest to shut down, waits as long as `grace`, then stops it. Returns when it has ended, also if it had before.
    fn stop<'a>(&'a self, name: &'a VmName, grace: Duration) -> BoxFuture<'a, Result<(), Error>>;

    /// Deletes a VM that does not run, and what is remembered of it. Not being there is success.
    fn delete<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>>;

    /// Everything on the host, other people's VMs included.
    fn list(&self) -> BoxFuture<'_, Result<Listing, Error>>;

    /// Room where the VMs are.
    fn disk(&self) -> BoxFuture<'_, Result<DiskUsage, Error>>;
}

/// How to pull.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pull<'a> {
    /// For this pull only.
    pub credentials: Option<&'a Credentials>,
    /// Told the percentage.
    pub progress: Option<&'a watch::Sender<u8>>,
}

/// What a registry wants to see.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The registry, with its port.
    pub host: String,
    /// Who.
    pub username: String,
    /// Never in an argument, never in a text.
    pub password: Secret<String>,
}

/// What a VM is made from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A golden base.
    Vm(VmName),
    /// A pulled image.
    Image(Pinned),
}

/// What a VM has. `None` leaves what the image says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Cores.
    pub cpu: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// The disk in GB; it can only grow.
    pub disk_gb: Option<u64>,
    /// A serial number and MAC address of its own. Two VMs with one serial break software updates in the guest.
    pub own_identity: bool,
}

/// How a VM starts.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Folders of the host in the guest, at `/Volumes/My Shared Files/<name>`.
    pub shares: Vec<Share>,
    /// What it draws on.
    pub screen: Screen,
}

/// A folder of the host in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Which folder.
    pub path: PathBuf,
    /// Whether the guest may write.
    pub access: Access,
}

/// Whether the guest may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may not.
    ReadOnly,
    /// It may.
    ReadWrite,
}

/// What a VM draws on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// Nothing.
    #[default]
    None,
    /// A VNC server on the host's loopback.
    Vnc,
}

/// What a VM does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    /// Never started.
    Off,
    /// It runs. The process is unknown if nothing is remembered of its start.
    Running(Option<Process>),
    /// It ran.
    Ended(Exit),
}

/// How a VM ended, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How.
    pub how: How,
    /// When; unknown if nobody saw it.
    pub finished: Option<Timestamp>,
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The guest shut down.
    ShutDown,
    /// The guest crashed. Tart calls that a success.
    Crashed(String),
    /// The host stopped it, or made its guest shut down because it went down itself.
    Stopped,
    /// It never came up.
    Failed(StartFailure),
    /// Its process was killed by a signal.
    Killed(i32),
    /// Nobody saw it: the host went down, or everything was killed at once. Never a success.
    Unknown,
}

/// Why a VM did not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartFailure {
    /// The kernel allows two macOS VMs. Somebody else's count, and it may have lost count, which a reboot cures.
    #[error("the host already runs as many macOS VMs as its licence allows: {0}")]
    TooMany(String),
    /// Nobody is logged in on the screen of the host.
    #[error("nobody is logged in on the host's screen, so macOS refuses to make the key of a VM")]
    NoGuiSession,
    /// The VM runs already, though its state says otherwise.
    #[error("the VM runs already, outside of our control")]
    RunsAlready,
    /// The VM is gone or damaged.
    #[error("the VM is gone or damaged: {0}")]
    Damaged(String),
    /// Something else.
    #[error("the VM did not start: {0}")]
    Other(String),
}

impl StartFailure {
    /// One word for events and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooMany(_) => "TooManyVMs",
            Self::NoGuiSession => "NoGuiSession",
            Self::RunsAlready => "RunsAlready",
            Self::Damaged(_) => "VMDamaged",
            Self::Other(_) => "StartFailed",
        }
    }
}

/// A program to run in the guest.
#[derive(Clone, Debug, Default)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whether it reads.
    pub stdin: bool,
    /// On a terminal of this size.
    pub terminal: Option<TerminalSize>,
}

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// A program that runs in the guest.
pub struct Exec {
    /// Its input, if it was asked for. Dropping it is the end of input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its output; on a terminal, everything.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its errors; empty on a terminal.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Tells it that the terminal has another size.
    pub resize: Option<watch::Sender<TerminalSize>>,
    /// Its exit code.
    pub exit: BoxFuture<'static, Result<i32, Error>>,
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("stdin", &self.stdin.is_some())
            .finish_non_exhaustive()
    }
}

/// All that a program said, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its errors.
    pub stderr: Vec<u8>,
}

/// Lets a program run to its end. What it says beyond `limit` bytes per stream is dropped.
pub async fn collect(exec: Exec, input: &[u8], limit: u64) -> Result<Outcome, Error> {
    let Exec {
        stdin,
        stdout,
        stderr,
        resize: _resize,
        exit,
    } = exec;
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read to the end is no failure.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let (stdout, stderr, code, ()) = tokio::join!(drain(stdout, limit), drain(stderr, limit), exit, write);
    Ok(Outcome {
        code: code?,
        stdout,
        stderr,
    })
}

async fn drain(mut from: Box<dyn AsyncRead + Send + Unpin>, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    // An error is an end: terminals end so.
    let _ = (&mut from).take(limit).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    kept
}

/// A program in the guest whose end is remembered.
#[derive(Clone, Debug)]
pub struct GuestCommand {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Where its output goes, errors included. Appended to.
    pub log: PathBuf,
    /// How large that may become.
    pub rotation: Option<Rotation>,
}

/// What a program in the guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// It has ended by itself.
    Ended {
        /// Its exit code.
        code: i32,
        /// When.
        finished: Timestamp,
    },
    /// It is over, and how is not known: the VM, the host or the line to the guest ended first.
    Lost,
}

/// Everything on the host.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// VMs.
    pub vms: Vec<Listed>,
    /// Pulled images.
    pub images: Vec<Image>,
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Whose it is.
    pub owner: Owner,
    /// Whether it runs, as far as can be known.
    pub running: bool,
    /// What it takes on the disk, if nothing were shared.
    pub bytes: u64,
    /// When it was last used.
    pub accessed: Option<Timestamp>,
}

/// Whose a VM is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Ours.
    Ours(VmName),
    /// Somebody else's. It counts against the limit, and there is no way to touch it.
    Foreign(String),
}

/// A pulled image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By its digest.
    pub image: Pinned,
    /// What it takes on the disk, if nothing were shared.
    pub bytes: u64,
    /// When it was last used.
    pub accessed: Option<Timestamp>,
}

/// Room on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// In all.
    pub total: u64,
    /// Left for us.
    pub free: u64,
}
