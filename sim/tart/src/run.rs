//! `tart run`: takes lock and slot, boots the guest, stays until it ends.

use crate::arguments::Parsed;
use crate::config::Config;
use crate::failure::Failure;
use crate::guest::{self, Birth};
use crate::host;
use crate::image::Os;
use crate::print::{complain, say};
use crate::run_arguments;
use crate::running::{Note, Slot};
use crate::store::Home;
use crate::switches::Switches;
use crate::vm::{VmDir, random_mac};
use crate::{counted, lease, locks};
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) fn run(home: &Home, config: &Config, parsed: &Parsed) -> Result<u8, Failure> {
    let shares = run_arguments::validate(parsed)?;
    let name = parsed.at(0).to_owned();
    // It opens the VM while validating, so this one error looks and counts differently.
    let dir = home.local(&name).map_err(|failure| match failure {
        Failure::Own(text, _) => Failure::Thrown(text),
        other => other,
    })?;
    let switches = Switches::load(home)?;
    let starting = locks::exclusive(&home.sim().join("home.lock"))?;
    if locks::runner(&dir).is_some() {
        return Err(Failure::Own(format!("VM \"{name}\" is already running!"), 2));
    }
    let mut settings = dir.config()?;
    if others(home, &name)?
        .into_iter()
        .any(|(_, mac)| mac == settings.mac_address)
    {
        say(&format!(
            "There is already a running VM with MAC address {}!",
            settings.mac_address
        )); // texts: guess
        settings.mac_address = random_mac();
        dir.write_config(&settings)?;
        say(&format!(
            "Resetting VM to assign a new MAC address {}...",
            settings.mac_address
        ));
    }
    let origin = dir.origin()?;
    // From here on this process must not open config.json again: closing it would drop the lock.
    let Some(lock) = locks::become_runner(&dir)? else {
        return Err(Failure::Own(format!("VM \"{name}\" is already running!"), 2));
    };
    // Nor without its login keychain.
    if switches.keychain_locked || !aqua(config, &switches) {
        // Code and texts are known; how they are put together is a guess.
        return Err(Failure::Own(
            "Error Domain=VZErrorDomain Code=-9 \"The virtual machine encountered a security error.\" \
             UserInfo={NSLocalizedFailure=Unable to access security information., NSLocalizedFailureReason=Failed to get current host \
             key., NSUnderlyingError=Failed to create new HostKey.}"
                .to_owned(),
            1,
        ));
    }
    let Some(auxiliary) = locks::try_exclusive(&dir.0.join("nvram.bin"))? else {
        return Err(Failure::Own(
            "Error Domain=VZErrorDomain Code=2 \"Failed to lock auxiliary storage.\"".to_owned(),
            1,
        ));
    };
    let slot = match origin.image.os {
        Os::Linux => None,
        Os::Darwin => match Slot::take(home, switches.vm_limit)? {
            Some(slot) => Some(slot),
            None => return Err(Failure::Own(limit(&others(home, &name)?), 1)),
        },
    };
    for share in &shares {
        if !share.path.is_dir() {
            return Err(Failure::Thrown(format!(
                "the folder \"{}\" does not exist",
                share.path.display()
            ))); // guess
        }
    }
    let address = lease::choose(home, &settings.mac_address)?;
    let _ = std::fs::remove_file(dir.saved_state());
    drop(starting);
    let vnc = vnc(config, parsed)?;
    let birth = Birth {
        shares,
        address,
        boot: origin.image.boot,
        agent: origin.image.agent && !switches.no_agent,
        agent_ms: switches.agent_ms,
        network: !switches.no_network,
        deaf: switches.deaf_guest,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let vm = Vm {
        home,
        name: &name,
        dir: &dir,
        mac: &settings.mac_address,
        address,
        switches: &switches,
        suspendable: parsed.has("--suspendable"),
    };
    let ended = runtime.block_on(vm.drive(&birth));
    Note::remove(home, &name);
    let _ = std::fs::remove_file(dir.0.join("control.sock"));
    if let (true, Some(slot)) = (Switches::load(home)?.leak_slot, slot) {
        slot.leak()?;
    }
    drop((lock, auxiliary, vnc));
    ended?;
    Ok(0)
}

/// Running VMs besides this one, with their MAC addresses.
fn others(home: &Home, name: &str) -> Result<Vec<(String, String)>, Failure> {
    let others = home.local_names()?.into_iter().filter(|other| other != name);
    Ok(others
        .filter_map(|other| {
            let dir = VmDir(home.vms().join(&other));
            locks::runner(&dir)?;
            Some((other, dir.config().ok()?.mac_address))
        })
        .collect())
}

fn limit(others: &[(String, String)]) -> String {
    let names: Vec<_> = others.iter().map(|(name, _)| name.as_str()).collect();
    let which = match names.as_slice() {
        [] => String::new(),
        names => format!(" (other running VMs: {})", names.join(", ")),
    };
    format!("The number of VMs exceeds the system limit{which}")
}

/// Virtualization.framework makes its host key only for the user of an Aqua session.
fn aqua(config: &Config, switches: &Switches) -> bool {
    if let Some(told) = switches.aqua {
        return told;
    }
    let Some(launchctl) = config
        .path
        .iter()
        .map(|folder| folder.join("launchctl"))
        .find(|path| path.is_file())
    else {
        return true;
    };
    let uid = rustix::process::getuid().as_raw();
    std::process::Command::new(launchctl)
        .args(["print", &format!("gui/{uid}")])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("session = Aqua"))
}

/// A VNC server that greets and says no more.
fn vnc(config: &Config, parsed: &Parsed) -> Result<Option<std::thread::JoinHandle<()>>, Failure> {
    if !parsed.has("--vnc") && !parsed.has("--vnc-experimental") {
        return Ok(None);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let words = ["apple", "berry", "cedar", "delta"];
    let url = format!("vnc://:{}@127.0.0.1:{port}", words.join("-"));
    if parsed.has("--no-graphics") || config.ci {
        say(&format!("VNC server is running at {url}"));
    } else {
        say(&format!("Opening {url}..."));
    }
    Ok(Some(std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"RFB 003.008\n");
        }
    })))
}

struct Vm<'a> {
    home: &'a Home,
    name: &'a str,
    dir: &'a VmDir,
    mac: &'a str,
    address: Ipv4Addr,
    switches: &'a Switches,
    suspendable: bool,
}

impl Vm<'_> {
    async fn drive(&self, birth: &Birth) -> Result<(), Failure> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut suspend = signal(SignalKind::user_defined1())?;
        let mut shutdown = signal(SignalKind::user_defined2())?;
        let (mut child, mut stdin) = self.boot(birth).await?;
        let mut said = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?).lines();
        loop {
            tokio::select! {
                line = said.next_line() => match line {
                    Ok(Some(line)) => self.heard(&line)?,
                    _ => return self.ended(&mut child).await,
                },
                Some(()) = next(&mut interrupt) => {
                    if self.switches.deaf_run {
                        continue;
                    }
                    say("Stopping VM...");
                    child.kill().await?;
                    return Ok(());
                }
                Some(()) = next(&mut suspend), if self.suspendable => {
                    std::fs::write(self.dir.saved_state(), "")?;
                    child.kill().await?;
                    return Ok(());
                }
                Some(()) = next(&mut shutdown) => stdin.write_all(b"shutdown\n").await?,
            }
        }
    }

    async fn boot(&self, birth: &Birth) -> Result<(Child, ChildStdin), Failure> {
        let mut command = Command::new(host::program("unshare"));
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut child = command
            .args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--"])
            .arg(std::env::current_exe()?)
            .arg(guest::WORD)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .current_dir(&self.dir.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::io("guests need unshare (util-linux) and user namespaces, or root", &error))?;
        let mut stdin = child.stdin.take().ok_or_else(no_pipe)?;
        let mut line = serde_json::to_vec(birth)?;
        line.push(b'\n');
        stdin.write_all(&line).await?;
        Note {
            run: std::process::id(),
            guest: child.id().unwrap_or_default(),
            counted_in: counted::here(),
        }
        .write(self.home, self.name)?;
        Ok((child, stdin))
    }

    fn heard(&self, line: &str) -> Result<(), Failure> {
        match line {
            "network" => lease::grant(self.home, self.mac, self.address)?,
            // Opening and closing the file is all it takes to lose a record lock.
            "up" if self.switches.lose_lock => drop(File::open(self.dir.config_path())?),
            "up" => {}
            other => complain(&format!("sim-tart: guest: {other}")),
        }
        Ok(())
    }

    /// The guest is gone; a crash ends with 0 as well.
    async fn ended(&self, child: &mut Child) -> Result<(), Failure> {
        if child.wait().await?.success() {
            say("guest has stopped the virtual machine");
        } else {
            say(
                "guest has stopped the virtual machine due to error: Error Domain=VZErrorDomain Code=1 \"The virtual machine \
                 stopped unexpectedly.\"",
            );
        }
        Ok(())
    }
}

fn no_pipe() -> Failure {
    Failure::Emulator("the guest has no pipe".to_owned())
}

async fn next(signal: &mut Signal) -> Option<()> {
    signal.recv().await
}
