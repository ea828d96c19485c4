//! VMs and what they do.

use super::call::{CLONE, DELETE, QUICK, SET, STOP};
use super::images::gone;
use super::json::Row;
use super::{Tart, words};
use crate::error::Error;
use crate::name::VmName;
use crate::process::Process;
use crate::runtime::{Access, Exit, Hardware, Launch, Power, Screen, Source};
use crate::supervise::{self, NotStarted, Order, Seen, Started};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

/// How much of the end of a log is looked at for last words.
const TAIL: u64 = 64 * 1024;
/// How long `tart stop` waits between its interrupt and its kill.
const HARD: &str = "10";
/// How long a process that was sent a signal may take.
const SIGNALLED: Duration = Duration::from_secs(15);

impl Tart {
    pub(super) async fn copy_vm(&self, source: &Source, name: &VmName) -> Result<(), Error> {
        let new = name.to_string();
        let from = match source {
            Source::Vm(name) => name.to_string(),
            Source::Image(image) => image.to_string(),
        };
        // `tart clone` would replace it without a word, even while it runs.
        if self.row(&new).await?.is_some() {
            return Err(Error::Exists(new));
        }
        // A remote source that is not here would be pulled now, within the deadline of a clone.
        if let Source::Image(image) = source
            && self.resolve_image(&image.to_ref()).await?.is_none()
        {
            return Err(Error::Missing(from));
        }
        match self.call(&["clone", &from, &new], CLONE).await? {
            Ok(_) => Ok(()),
            Err(refusal) if words::is_missing(refusal.code, &refusal.stderr) => Err(Error::Missing(from)),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    pub(super) async fn set_up(&self, name: &VmName, hardware: Hardware) -> Result<(), Error> {
        let text = name.to_string();
        // `tart set` does not care, and the guest would see half of it.
        if matches!(supervise::look(&self.folder(name))?, Seen::Running(_)) {
            return Err(Error::Running(text));
        }
        let mut words = vec!["set".to_owned(), text.clone()];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("--cpu", hardware.cpu.map(|cpu| cpu.to_string()));
        option("--memory", hardware.memory_mib.map(|memory| memory.to_string()));
        option("--disk-size", hardware.disk_gb.map(|disk| disk.to_string()));
        if hardware.own_identity {
            words.extend(["--random-serial".to_owned(), "--random-mac".to_owned()]);
        }
        if words.len() == 2 {
            return Ok(());
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match self.call(&words, SET).await? {
            Ok(_) => Ok(()),
            Err(refusal) if words::is_missing(refusal.code, &refusal.stderr) => Err(Error::Missing(text)),
            Err(refusal) if words::is_unsuitable(&refusal.stderr) => {
                Err(Error::Unsuitable(words::first_useful(&refusal.stderr)))
            }
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    pub(super) async fn start_vm(&self, name: &VmName, launch: &Launch) -> Result<Process, Error> {
        let text = name.to_string();
        let mut arguments = vec![
            "run".to_owned(),
            text.clone(),
            "--root-disk-opts".to_owned(),
            "caching=cached".to_owned(),
        ];
        let mut environment = BTreeMap::new();
        match launch.screen {
            Screen::None => arguments.push("--no-graphics".to_owned()),
            Screen::Vnc => {
                arguments.extend(["--no-graphics".to_owned(), "--vnc-experimental".to_owned()]);
                environment.insert("CI".to_owned(), "1".to_owned());
            }
        }
        for share in &launch.shares {
            let bad = |why| Error::BadShare {
                path: share.path.clone(),
                why,
            };
            let path = share.path.to_str().ok_or_else(|| bad("its path is not UTF-8"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if path.contains(':') {
                return Err(bad("tart cannot share a path with a colon in it"));
            }
            if share.name.is_empty() || share.name.starts_with('.') || !share.name.chars().all(plain) {
                return Err(bad("its name has to be letters, digits, . _ and -"));
            }
            if !share.path.is_absolute() {
                return Err(bad("its path is not absolute"));
            }
            let access = if share.access == Access::ReadOnly { ":ro" } else { "" };
            arguments.extend(["--dir".to_owned(), format!("{}:{path}{access}", share.name)]);
        }
        if self.row(&text).await?.is_none() {
            return Err(Error::Missing(text));
        }
        let folder = self.folder(name);
        if matches!(supervise::look(&folder)?, Seen::Running(_)) {
            return Err(Error::Running(text));
        }
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(Error::file(&folder))?;
        environment.insert("TART_HOME".to_owned(), self.options.home.to_string_lossy().into_owned());
        environment.insert("TART_NO_AUTO_PRUNE".to_owned(), String::new());
        let order = Order {
            dir: folder,
            program: self.options.program.clone(),
            words: arguments,
            environment,
            log: self.log(name),
            rotation: None,
        };
        match supervise::launch(&self.options.supervisor, &order).await {
            Ok(started) => Ok(started.process),
            Err(NotStarted::Busy) => Err(Error::Running(text)),
            Err(NotStarted::Failed(error)) => Err(error),
        }
    }

    /// The lock of the supervisor decides. What `tart` says counts only where nothing is remembered.
    pub(super) async fn power_of(&self, name: &VmName) -> Result<Option<Power>, Error> {
        let seen = supervise::look(&self.folder(name))?;
        if let Seen::Running(started) = seen {
            return Ok(Some(Power::Running(started.map(|started| started.process))));
        }
        let Some(row) = self.row(&name.to_string()).await? else {
            return Ok(None);
        };
        if row.claims_to_run() {
            return Ok(Some(Power::Running(None)));
        }
        match seen {
            Seen::Ended(started, finished) => Ok(Some(Power::Ended(self.exit(name, &started, finished)))),
            _ => Ok(Some(Power::Off)),
        }
    }

    fn exit(&self, name: &VmName, started: &Started, finished: Option<supervise::Finished>) -> Exit {
        let output = tail(&self.log(name), started.log_offset);
        Exit {
            how: words::how(finished, &output),
            finished: finished.map(|finished| finished.at),
        }
    }

    pub(super) async fn end_of(&self, name: &VmName) -> Result<Exit, Error> {
        loop {
            if let Seen::Ended(started, finished) = supervise::ended(&self.folder(name)).await? {
                return Ok(self.exit(name, &started, finished));
            }
            match self.power_of(name).await? {
                None => return Err(Error::Missing(name.to_string())),
                // Nothing is remembered of it, so nobody will know how it ends.
                Some(Power::Running(_)) => tokio::time::sleep(Duration::from_secs(1)).await,
                Some(Power::Ended(exit)) => return Ok(exit),
                Some(Power::Off) => return Err(Error::NotRunning(name.to_string())),
            }
        }
    }

    /// `tart ip` answers for the dead as well, so life is looked at before and after.
    pub(super) async fn address_of(&self, name: &VmName) -> Result<Option<Ipv4Addr>, Error> {
        let text = name.to_string();
        self.require_running(name).await?;
        let answer = match self.call(&["ip", &text], QUICK).await? {
            Ok(answer) => answer,
            Err(refusal) if words::is_missing(refusal.code, &refusal.stderr) => return Err(Error::Missing(text)),
            Err(refusal) if words::is_no_address(&refusal.stderr) => return Ok(None),
            Err(refusal) => return Err(refusal.into_error()),
        };
        let address = answer.trim().parse().map_err(|_| Error::Answer {
            command: "tart ip".to_owned(),
            why: format!("{:?} is not an address", answer.trim()),
        })?;
        self.require_running(name).await?;
        Ok(Some(address))
    }

    pub(super) async fn require_running(&self, name: &VmName) -> Result<(), Error> {
        match self.power_of(name).await? {
            Some(Power::Running(_)) => Ok(()),
            Some(_) => Err(Error::NotRunning(name.to_string())),
            None => Err(Error::Missing(name.to_string())),
        }
    }

    pub(super) async fn stop_vm(&self, name: &VmName, grace: Duration) -> Result<(), Error> {
        let text = name.to_string();
        self.settle(name).await?;
        let Some(Power::Running(process)) = self.power_of(name).await? else {
            return Ok(());
        };
        if let (false, Some(process)) = (grace.is_zero(), &process) {
            process.signal(Signal::USR2);
            if self.ends_within(name, grace).await? {
                return Ok(());
            }
        }
        // What it answers is not worth much: it takes a VM that lost its lock for stopped.
        let answer = self.call(&["stop", &text, "--timeout", HARD], STOP).await?;
        for signal in [None, Some(Signal::INT), Some(Signal::KILL)] {
            if let (Some(signal), Some(process)) = (signal, &process) {
                process.signal(signal);
            }
            let patience = if signal.is_none() {
                Duration::from_secs(1)
            } else {
                SIGNALLED
            };
            if self.ends_within(name, patience).await? {
                return Ok(());
            }
        }
        match answer {
            Err(refusal) if process.is_none() => Err(refusal.into_error()),
            _ => Err(Error::Undead(text)),
        }
    }

    /// A supervisor that just starts holds the lock and has not said yet what it started; it takes a moment.
    async fn settle(&self, name: &VmName) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + SIGNALLED;
        while supervise::look(&self.folder(name))? == Seen::Running(None) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn ends_within(&self, name: &VmName, patience: Duration) -> Result<bool, Error> {
        let over = async {
            loop {
                supervise::ended(&self.folder(name)).await?;
                if !matches!(self.power_of(name).await?, Some(Power::Running(_))) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        match tokio::time::timeout(patience, over).await {
            Ok(result) => result.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    pub(super) async fn delete_vm(&self, name: &VmName) -> Result<(), Error> {
        let (text, folder) = (name.to_string(), self.folder(name));
        if matches!(supervise::look(&folder)?, Seen::Running(_)) {
            return Err(Error::Running(text));
        }
        match self.call(&["delete", &text], DELETE).await? {
            Err(refusal) if words::is_running(&refusal.stderr) => return Err(Error::Running(text)),
            answer => gone(answer)?,
        }
        // A deletion that was cut short leaves a disk that `tart` does not know any more. Only names of ours come here.
        remove(&self.options.home.join("vms").join(&text))?;
        remove(&folder)
    }

    pub(super) async fn rows(&self, words: &[&str]) -> Result<Vec<Row>, Error> {
        let answer = self.ask(words, QUICK).await?;
        serde_json::from_str(&answer).map_err(|error| Error::Answer {
            command: "tart list".to_owned(),
            why: error.to_string(),
        })
    }

    /// A local VM.
    pub(super) async fn row(&self, name: &str) -> Result<Option<Row>, Error> {
        let rows = self.rows(&["list", "--source", "local", "--format", "json"]).await?;
        Ok(rows.into_iter().find(|row| row.name == name))
    }
}

/// Removes a folder that may be gone already.
fn remove(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file(folder)(error)),
        _ => Ok(()),
    }
}

/// The end of a file, from an offset on.
pub(super) fn tail(path: &Path, offset: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset.max(length.saturating_sub(TAIL))))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}
