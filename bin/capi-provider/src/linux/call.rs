//! Calls that change something at Scaleway, and what must hold right before each.

use russet_api::values::ServerId;
use russet_scaleway::{PrivateNetworkId, ProjectId};

use super::server::{ADOPTED_TAG, Server, State, Volume};

/// A call. What it says besides, such as a script with a token in it, is made when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Make the Private Network.
    CreateNetwork,
    /// Make or order the server.
    Create,
    /// Write on a server that it is taken.
    Tag,
    /// Let a server be on Private Networks.
    EnableNetworking,
    /// Put it on this one.
    Attach(PrivateNetworkId),
    /// Give it the script of its first boot.
    GiveUserData,
    /// Install its operating system.
    Install,
    /// Switch it on.
    PowerOn,
    /// Take the script away again: it has a token in it.
    DropUserData,
    /// Switch it off.
    PowerOff,
    /// Take it off a Private Network, by the id of the attachment or, on bare metal, of the network.
    Detach(String),
    /// Let it be on Private Networks no longer: that is paid for.
    DisableNetworking,
    /// Delete it.
    Delete,
    /// Delete one of its volumes.
    DeleteVolume(Volume),
    /// Give up one of its addresses.
    DeleteIp(String),
    /// Wipe it and install it again.
    Wipe,
    /// Write on it that it is free.
    Untag,
}

impl Call {
    /// The word in the record and in the steps of a machine.
    pub const fn step(&self) -> &'static str {
        match self {
            Self::CreateNetwork => "create-network",
            Self::Create => "create",
            Self::Tag => "tag",
            Self::EnableNetworking => "enable-networking",
            Self::Attach(_) => "attach",
            Self::GiveUserData => "user-data",
            Self::Install => "install",
            Self::PowerOn => "power-on",
            Self::DropUserData => "forget-user-data",
            Self::PowerOff => "power-off",
            Self::Detach(_) => "detach",
            Self::DisableNetworking => "disable-networking",
            Self::Delete => "delete",
            Self::DeleteVolume(_) => "delete-volume",
            Self::DeleteIp(_) => "delete-ip",
            Self::Wipe => "wipe",
            Self::Untag => "untag",
        }
    }

    /// Whether it costs nothing, destroys nothing and does no harm twice. Only then a look of some seconds ago will do.
    pub const fn is_safe_to_repeat(&self) -> bool {
        matches!(
            self,
            Self::Attach(_) | Self::GiveUserData | Self::DropUserData | Self::Detach(_)
        )
    }

    /// Whether that the thing is gone already means that it is done.
    pub const fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::DropUserData
                | Self::Detach(_)
                | Self::DisableNetworking
                | Self::Delete
                | Self::DeleteVolume(_)
                | Self::DeleteIp(_)
        )
    }
}

/// What is looked at right before a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The servers of this machine, past every cache.
    Mine,
    /// This server.
    Server(ServerId),
    /// The Private Network of the machine.
    Network,
    /// Nothing: the call is about something only we know.
    Nothing,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The servers of this machine.
    Mine(Vec<Server>),
    /// The server, if it exists.
    Server(Option<Box<Server>>),
    /// Whether there is a Private Network.
    Network(bool),
    /// Nothing was looked at.
    Nothing,
}

/// Who asks, for what a guard has to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The machine.
    pub uid: String,
    /// Our project.
    pub project: ProjectId,
    /// The machine names this very server in `spec.providerID`, so it is ours whatever its tags say. After `clusterctl move`
    /// the tags have the uid of the object that was left behind.
    pub named: bool,
}

impl Guard {
    /// Whether a server is this machine's; else what is wrong.
    pub fn is_ours(&self, server: &Server) -> Result<(), String> {
        if server.project != self.project {
            return Err("the server belongs to another project".to_owned());
        }
        match server.owner() {
            Some(owner) if owner != self.uid && !self.named => Err(format!(
                "the server is tagged as belonging to the machine with uid {owner}"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the call may be sent; else why not.
    pub fn check(&self, call: &Call, sight: Option<&Sight>) -> Result<(), String> {
        match sight {
            None => Err("it could not be looked at".to_owned()),
            Some(Sight::Nothing | Sight::Network(false)) => Ok(()),
            Some(Sight::Network(true)) => Err("the Private Network is there already".to_owned()),
            Some(Sight::Mine(servers)) if servers.is_empty() => Ok(()),
            Some(Sight::Mine(_)) => Err("a server of this machine is there already".to_owned()),
            Some(Sight::Server(None)) => Err("the server is gone".to_owned()),
            Some(Sight::Server(Some(server))) => {
                self.is_ours(server)?;
                match call {
                    Call::Tag if server.state != State::Running => Err("the server is not ready any more".to_owned()),
                    Call::Tag if server.owner().is_some_and(|owner| owner != self.uid) => {
                        Err("somebody else has taken the server".to_owned())
                    }
                    Call::Delete if server.is_adopted() => {
                        Err("the server was taken, not ordered; it is freed and never deleted".to_owned())
                    }
                    Call::DisableNetworking | Call::Wipe | Call::Untag if !server.is_adopted() => {
                        Err(format!("the server does not bear the tag {ADOPTED_TAG} any more"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}
