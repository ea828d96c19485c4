//! What decisions need to know about a Mac.

use std::net::IpAddr;

use jiff::Timestamp;
use russet_api::values::ServerId;
use russet_scaleway::apple_silicon::{Os, Password, Server, ServerStatus};
use russet_scaleway::{OsId, ProjectId};

/// A Mac, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its id.
    pub id: ServerId,
    /// Its name: whose it is.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// Hardware, such as `M2-L`.
    pub type_: String,
    /// What is installed on it.
    pub os: Option<Image>,
    /// What it does at the moment.
    pub status: ServerStatus,
    /// It was handed over once.
    pub delivered: bool,
    /// It goes as soon as it may.
    pub leaving: bool,
    /// Its public address.
    pub address: Option<IpAddr>,
    /// Whether Scaleway still tells its password.
    pub password: PasswordState,
}

/// Whether Scaleway still tells the password of a Mac.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PasswordState {
    /// It does.
    Known,
    /// It does not any more.
    Sealed,
    /// There is none yet.
    Missing,
}

/// An operating system image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id.
    pub id: OsId,
    /// Such as `macos-tahoe-26.3`.
    pub name: String,
    /// Such as `Tahoe`.
    pub family: String,
    /// Such as `26.3`.
    pub version: String,
    /// Not released yet.
    pub is_beta: bool,
}

impl From<&Os> for Image {
    fn from(os: &Os) -> Self {
        Self {
            id: os.id.clone(),
            name: os.name.clone(),
            family: os.family.clone(),
            version: os.version.clone(),
            is_beta: os.is_beta,
        }
    }
}

impl From<&Server> for Host {
    fn from(server: &Server) -> Self {
        Self {
            id: server.id.clone(),
            name: server.name.clone(),
            project: server.project_id.clone(),
            type_: server.type_.clone(),
            os: server.os.as_ref().map(Image::from),
            status: server.status.clone(),
            delivered: server.delivered,
            leaving: server.deletion_scheduled,
            address: server.ip,
            password: match server.password() {
                Password::Known(_) => PasswordState::Known,
                Password::Sealed => PasswordState::Sealed,
                Password::Missing => PasswordState::Missing,
            },
        }
    }
}

/// One look at one host, by its id. A look that failed is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// There it is.
    There(Box<Host>),
    /// It does not exist. Only "not found", or a whole list without it, proves that.
    Gone,
}

/// Something with an id that a list of a zone has.
pub trait Listed: Clone + PartialEq {
    /// Its id.
    fn id(&self) -> &ServerId;
}

impl Listed for Host {
    fn id(&self) -> &ServerId {
        &self.id
    }
}

/// All Macs, or other servers, of a zone and project, from the poll that everybody shares. It may lag behind.
#[derive(Clone, Debug)]
pub struct Inventory<H = Host> {
    /// When it was read.
    pub at: Option<Timestamp>,
    /// The hosts.
    pub hosts: Vec<H>,
}

impl<H> Default for Inventory<H> {
    fn default() -> Self {
        Self {
            at: None,
            hosts: Vec::new(),
        }
    }
}

impl<H: Listed> Inventory<H> {
    /// The host of this id.
    pub fn get(&self, id: &ServerId) -> Option<&H> {
        self.hosts.iter().find(|host| host.id() == id)
    }
}
