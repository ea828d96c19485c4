//! What goes wrong on purpose.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::inside::protocol;
use crate::inside::shim::COMMANDS;

pub use protocol::SshFault;

/// Something that goes wrong with a server, from its next boot on until it is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The boot never gets anywhere: no address, no services, no cloud-init.
    BootHangs,
    /// It boots without any network.
    NoNetwork,
    /// SSH misbehaves.
    Ssh(SshFault),
    /// A stubbed command fails, once.
    Command {
        /// Which, for example `apt-get`.
        name: String,
        /// Which of its calls since the boot, counted from 1.
        call: u32,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) hang: bool,
    pub(crate) no_network: bool,
    ssh: Option<SshFault>,
    commands: BTreeMap<String, u32>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> Result<(), Error> {
        match fault {
            Fault::BootHangs => self.hang = true,
            Fault::NoNetwork => self.no_network = true,
            Fault::Ssh(fault) => self.ssh = Some(fault),
            Fault::Command { name, call } => {
                let known: Vec<_> = COMMANDS.iter().map(|(command, _)| *command).collect();
                if !known.contains(&name.as_str()) {
                    return Err(Error::NotStubbed { command: name, known });
                }
                self.commands.insert(name, call);
            }
        }
        Ok(())
    }

    /// What the machine itself has to know.
    pub(crate) fn inside(&self) -> protocol::Faults {
        protocol::Faults {
            hang: self.hang,
            ssh: self.ssh,
            commands: self.commands.clone(),
        }
    }
}
