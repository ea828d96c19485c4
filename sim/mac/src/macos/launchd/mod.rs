//! launchd: domains, jobs, and what `launchctl` does to them. [facts 1]
//!
//! Decisions are in [`job`], without a clock; what they lead to is done in [`drive`]. A new boot forgets the jobs and reads the folders
//! of property lists again; the store of disabled labels and Background Task Management remember.

pub(super) mod btm;
pub(super) mod domain;
pub(super) mod drive;
pub(super) mod job;
pub(super) mod print;
pub(super) mod spec;

use super::amfi::Amfi;
use super::faults::Quirks;
use super::image::UID;
use super::tree::{Kind, Tree};
use btm::Btm;
use domain::Domain;
use job::{Effect, Job, State};
use spec::Refused;
use std::collections::BTreeMap;

/// Where a job is.
pub(super) type Key = (Domain, String);

/// The first of the numbers that sessions of the window server get.
const FIRST_SESSION: u32 = 100_015;
/// What the emulator plays itself. loginwindow has a number that no real process gets so early.
pub(super) const LOGINWINDOW: &str = "com.apple.loginwindow";
pub(super) const SSHD: &str = "com.openssh.sshd";
pub(super) const LOGINWINDOW_PID: i32 = 415;

/// Somebody is logged in at the (missing) screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) uid: u32,
    pub(super) number: u32,
}

/// The state of launchd.
#[derive(Debug)]
pub(super) struct Launchd {
    pub(super) jobs: BTreeMap<Key, Job>,
    pub(super) session: Option<Session>,
    pub(super) btm: Btm,
    pub(super) amfi: Amfi,
    serial: u64,
    sessions: u32,
}

/// What a bootstrap needs to look at.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) tree: &'a Tree,
    pub(super) quirks: &'a Quirks,
}

impl Default for Launchd {
    fn default() -> Self {
        let mut launchd = Self {
            jobs: BTreeMap::new(),
            session: None,
            btm: Btm::default(),
            amfi: Amfi::default(),
            serial: 0,
            sessions: FIRST_SESSION,
        };
        launchd.reboot();
        launchd
    }
}

impl Launchd {
    /// Forgets what a boot forgets; Apple's own jobs are there again.
    pub(super) fn reboot(&mut self) {
        self.jobs.clear();
        self.session = None;
        self.amfi.reboot();
        for (label, program, path) in [
            (
                LOGINWINDOW,
                "/System/Library/CoreServices/loginwindow.app/Contents/MacOS/loginwindow",
                "com.apple.loginwindow.plist",
            ),
            (SSHD, "/usr/libexec/sshd-keygen-wrapper", "ssh.plist"),
            ("com.apple.pfctl", "/sbin/pfctl", "com.apple.pfctl.plist"),
            (
                "com.apple.WindowServer",
                "/System/Library/PrivateFrameworks/SkyLight.framework/Resources/WindowServer",
                "com.apple.WindowServer.plist",
            ),
        ] {
            self.serial += 1;
            let mut job = Job::new(
                built_in(label, program),
                format!("/System/Library/LaunchDaemons/{path}"),
                self.serial,
            );
            job.built_in = true;
            if label == LOGINWINDOW {
                job.state = State::Running { pid: LOGINWINDOW_PID };
                job.runs = 1;
            }
            self.jobs.insert((Domain::System, label.to_owned()), job);
        }
    }

    /// Whether a domain can be used; else the number launchd answers. [facts 1.1]
    pub(super) fn check_domain(&self, domain: Domain) -> Result<(), Refused> {
        match domain {
            Domain::User(uid) | Domain::Gui(uid) if !domain::exists(uid) => Err(Refused(112)),
            Domain::System | Domain::User(_) => Ok(()),
            Domain::Gui(uid) => match self.session {
                Some(session) if session.uid == uid => Ok(()),
                _ => Err(Refused(125)),
            },
        }
    }

    /// Loads a property list. [facts 1.2, 1.4]
    pub(super) fn bootstrap(
        &mut self,
        world: &World<'_>,
        domain: Domain,
        path: &str,
        new: bool,
    ) -> Result<(Key, Vec<Effect>), Refused> {
        self.check_domain(domain)?;
        let meta = world.tree.meta(path).ok_or(Refused(5))?;
        if meta.kind != Kind::File {
            return Err(Refused(5));
        }
        let trusted = meta.uid == 0 || meta.uid == domain.owner();
        if (world.tree.has_owners() && !trusted) || meta.mode & 0o022 != 0 {
            return Err(Refused(122));
        }
        let spec = spec::parse(&world.tree.read(path).map_err(|_| Refused(5))?)?;
        fits(&spec, domain)?;
        let key = (domain, spec.label.clone());
        if let Some(there) = self.jobs.get(&key) {
            return Err(Refused(if there.is_leaving() { 5 } else { 37 }));
        }
        if is_disabled(world.tree, domain, &spec) {
            return Err(Refused(if world.quirks.disabled_is_119 { 119 } else { 5 }));
        }
        self.serial += 1;
        let built_in = path.starts_with("/System/");
        let mut job = Job::new(spec, path.to_owned(), self.serial);
        job.built_in = built_in;
        if !built_in {
            let uid = domain.owner();
            let again = self.btm.register(&key.1, uid, path, &job.spec.program, new);
            job.loses_keep_alive = again >= world.quirks.btm_cap;
            if world.quirks.pins_cdhash {
                job.pinned = self.amfi.cdhash(world.tree, &job.spec.program);
            }
        }
        let effects = if built_in { Vec::new() } else { job.loaded() };
        self.jobs.insert(key.clone(), job);
        Ok((key, effects))
    }

    /// Logs in, as loginwindow does once it has a password. The old session, if any, ends.
    pub(super) fn log_in(&mut self, uid: u32) {
        self.sessions += 1;
        self.session = Some(Session {
            uid,
            number: self.sessions,
        });
    }
}

fn built_in(label: &str, program: &str) -> spec::Spec {
    spec::Spec {
        label: label.to_owned(),
        program: program.to_owned(),
        arguments: vec![program.to_owned()],
        inferred_program: false,
        run_at_load: false,
        keep_alive: spec::KeepAlive::Never,
        throttle: 10,
        exit_timeout: 5,
        start_interval: None,
        stdout: None,
        stderr: None,
        user: None,
        group: None,
        environment: BTreeMap::new(),
        folder: None,
        abandon_group: false,
        session_types: Vec::new(),
        process_type: None,
        disabled: false,
        on_demand: true,
    }
}

/// Whether a property list may be in a domain: an agent without a session type counts as one for Aqua. [facts 1.1]
fn fits(spec: &spec::Spec, domain: Domain) -> Result<(), Refused> {
    let types = &spec.session_types;
    let has = |name: &str| types.iter().any(|kind| kind == name);
    match domain {
        Domain::System => Ok(()),
        Domain::User(_) if has("Background") => Ok(()),
        Domain::User(_) => Err(Refused(134)),
        Domain::Gui(_) if types.is_empty() || has("Aqua") => Ok(()),
        Domain::Gui(_) => Err(Refused(5)),
    }
}

/// The file that remembers which labels are disabled; gui and user share theirs. [facts 1.2]
fn store(domain: Domain) -> String {
    let folder = "/var/db/com.apple.xpc.launchd";
    match domain {
        Domain::System => format!("{folder}/disabled.plist"),
        Domain::User(uid) | Domain::Gui(uid) => format!("{folder}/disabled.{uid}.plist"),
    }
}

/// Labels somebody enabled or disabled: true is disabled.
pub(super) fn overrides(tree: &Tree, domain: Domain) -> BTreeMap<String, bool> {
    let value = tree
        .read(&store(domain))
        .ok()
        .and_then(|bytes| plist::Value::from_reader(std::io::Cursor::new(bytes)).ok());
    let dict = value.and_then(plist::Value::into_dictionary).unwrap_or_default();
    dict.iter()
        .filter_map(|(label, value)| Some((label.clone(), value.as_boolean()?)))
        .collect()
}

/// Remembers it; it wins over the property list and outlives it.
pub(super) fn set_disabled(tree: &Tree, domain: Domain, label: &str, disabled: bool) -> std::io::Result<()> {
    let mut labels = overrides(tree, domain);
    labels.insert(label.to_owned(), disabled);
    let dict: plist::Dictionary = labels
        .into_iter()
        .map(|(label, disabled)| (label, plist::Value::Boolean(disabled)))
        .collect();
    let mut bytes = Vec::new();
    plist::Value::Dictionary(dict)
        .to_writer_xml(&mut bytes)
        .map_err(std::io::Error::other)?;
    tree.write(&store(domain), &bytes, 0o644)
}

fn is_disabled(tree: &Tree, domain: Domain, spec: &spec::Spec) -> bool {
    overrides(tree, domain)
        .get(&spec.label)
        .copied()
        .unwrap_or(spec.disabled)
}

/// The property lists that are loaded at boot, or at login. Links are skipped since macOS 14. [facts 1.4]
pub(super) fn at_start(tree: &Tree, domain: Domain, username: &str) -> Vec<String> {
    let folders: Vec<String> = match domain {
        Domain::System => vec!["/Library/LaunchDaemons".to_owned()],
        Domain::Gui(UID) => vec![
            "/Library/LaunchAgents".to_owned(),
            format!("/Users/{username}/Library/LaunchAgents"),
        ],
        _ => Vec::new(),
    };
    folders
        .iter()
        .flat_map(|folder| {
            tree.list(folder)
                .into_iter()
                .map(move |name| format!("{folder}/{name}"))
        })
        .filter(|path| path.strip_suffix(".plist").is_some())
        .filter(|path| tree.link_meta(path).is_some_and(|meta| meta.kind == Kind::File))
        .collect()
}
