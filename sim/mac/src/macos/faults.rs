//! How a Mac misbehaves on request, and which way it goes where the sources disagree.

use serde::{Deserialize, Serialize};

/// What is wrong with a Mac right now. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// How SSH is broken.
    pub ssh: SshFault,
    /// `launchctl kickstart` says 0 and does nothing. (incident noop-kickstart)
    pub kickstart_does_nothing: bool,
    /// Jobs that launchd starts die this many seconds later, killed for their signature. (incident crash-loop-pid)
    pub crash_loop_after: Option<u32>,
    /// loginwindow refuses every password and seals /etc/kcpassword. [facts 3]
    pub sealed_password: bool,
    /// A job that is booted out never drains.
    pub bootout_never_ends: bool,
    /// Background Task Management has seen too much: KeepAlive is ignored. (incident btm-cap) [facts 1.5]
    pub btm_cap_reached: bool,
    /// No job of /Library/LaunchDaemons is loaded at boot: backgroundtaskmanagementd died of its database. [facts 1.5]
    pub btm_database_broken: bool,
    /// `kickstart -k` of loginwindow is refused with 150. [facts 1.2]
    pub loginwindow_is_protected: bool,
    /// tailscaled runs and has no address. (incident tailscale-down-no-fallback)
    pub tailscale_down: bool,
    /// The power is cut at the nth command from now.
    pub reboot_at_command: Option<u32>,
}

/// How SSH is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SshFault {
    /// It works.
    #[default]
    None,
    /// Nothing listens.
    Refuse,
    /// Connections are made, and then nothing is ever said.
    Stall,
    /// A connection is cut when it has brought this many bytes.
    DropAfter(u64),
    /// A connection falls silent when it has brought this many bytes.
    StallAfter(u64),
    /// The power is cut when a connection has brought this many bytes.
    RebootAfter(u64),
}

/// Where the sources disagree. The defaults are what the newest of them say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quirks {
    /// launchd holds on to the code hash it saw at bootstrap and kills anything else. [facts 1.5]
    pub pins_cdhash: bool,
    /// A disabled label answers 119 rather than 5. [facts 1.2]
    pub disabled_is_119: bool,
    /// `bootout` of a running job says 36 and is right all the same. [facts 1.2]
    pub bootout_says_36: bool,
    /// `launchctl load` fails with a status, as on Tahoe; on Monterey it did not. [facts 1.2]
    pub legacy_load_fails: bool,
    /// No display: loginwindow does not log in by itself at boot. [facts 3]
    pub headless: bool,
    /// What networksetup says when it does not like its words. [facts 4]
    pub networksetup_fails_with: i32,
    /// Registrations after the first that Background Task Management bears for one label. [facts 1.5; the number is a guess]
    pub btm_cap: u32,
    /// Xcode is there and its licence accepted.
    pub xcode: Xcode,
    /// Wrong passwords after which an account is locked. [facts 5; the number is a guess]
    pub sudo_lockout: u32,
    /// Failed logins after which an address is blocked until the next reboot; 0 is never. [facts 9; the number is not known]
    pub fail2ban_after: u32,
}

/// How far Xcode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Xcode {
    /// Installed, licence accepted.
    #[default]
    Ready,
    /// Installed, licence not accepted: every tool of it fails with 69.
    Unlicensed,
    /// Only the command line tools.
    CommandLineTools,
    /// Nothing.
    Missing,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            pins_cdhash: false,
            disabled_is_119: true,
            bootout_says_36: false,
            legacy_load_fails: true,
            headless: true,
            networksetup_fails_with: 4,
            btm_cap: 10,
            xcode: Xcode::Ready,
            sudo_lockout: 10,
            fail2ban_after: 0,
        }
    }
}
