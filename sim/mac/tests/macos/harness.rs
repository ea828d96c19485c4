//! An emulated Scaleway with emulated Macs, and a client that logs in to them.

use russet_sim_mac::macos::{Mac, Macs, Options};
use russet_sim_scaleway::{AddressPlan, Factor, Host, Minis, Sim};
use russh::ChannelMsg;
use russh::client::{self, AuthResult};
use russh::keys::{PublicKey, PublicKeyOrCertificate};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use crate::shared;
pub(crate) use crate::shared::{PATIENCE, until};

/// A second of launchd.
pub(crate) const SECOND: Duration = Duration::from_millis(40);

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) macs: Macs,
    _dir: TempDir,
    _port: TcpListener,
}

impl World {
    pub(crate) async fn with(count: u32) -> Self {
        Self::made(count, |_| {}).await
    }

    pub(crate) async fn made(count: u32, change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // No machine has this address; holding the port here keeps other tests from taking it on theirs.
        let port = TcpListener::bind("127.77.255.254:0").await.unwrap();
        let mut options = Options::new(dir.path().join("macs"), env!("CARGO_BIN_EXE_sim-mac"));
        options.zsh = Some(zsh().await);
        options.second = SECOND;
        options.reboot = Duration::from_millis(100);
        change(&mut options);
        let macs = Macs::new(options).unwrap();
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            addresses: AddressPlan::LoopbackEach {
                ssh_port: port.local_addr().unwrap().port(),
            },
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await.unwrap();
        sim.handle()
            .add_minis(Minis {
                count,
                ..Minis::default()
            })
            .unwrap();
        let world = Self {
            sim,
            macs,
            _dir: dir,
            _port: port,
        };
        for number in 1..=count {
            let host = world.host(number);
            until("the Mac exists", || async {
                world.macs.mac(&host.server_id).await.is_some()
            })
            .await;
        }
        world
    }

    pub(crate) fn host(&self, number: u32) -> Host {
        shared::host(&self.sim, number)
    }

    pub(crate) async fn mac(&self) -> Mac {
        self.macs.mac(&self.host(1).server_id).await.unwrap()
    }

    /// One Mac, logged in to.
    pub(crate) async fn and_client() -> (Self, Client) {
        let world = Self::with(1).await;
        let client = world.login().await;
        (world, client)
    }

    /// The same, and sudo asks for no password.
    pub(crate) async fn and_free_client() -> (Self, Client) {
        let (world, client) = Self::and_client().await;
        client.free_sudo(&world.host(1)).await;
        (world, client)
    }

    /// Logs in to the first Mac with its password.
    pub(crate) async fn login(&self) -> Client {
        Client::login(&self.host(1)).await.unwrap()
    }

    /// What the provider does at Scaleway.
    pub(crate) async fn act(&self, host: &Host, action: &str) {
        shared::act(&self.sim, host, action).await;
    }
}

/// Waits until sshd answers.
pub(crate) async fn until_answers(host: &Host) {
    until("the Mac answers", || async { Client::connect(host).await.is_ok() }).await;
}

/// Waits until nothing listens where sshd did.
pub(crate) async fn until_closed(host: &Host) {
    let place = (host.address, host.ssh_port);
    until("the port is closed", || async {
        tokio::net::TcpStream::connect(place).await.is_err()
    })
    .await;
}

/// As macOS keeps the password of the account that is logged in at boot.
pub(crate) fn encoded(password: &str) -> Vec<u8> {
    const KEY: [u8; 11] = [0x7d, 0x89, 0x52, 0x23, 0xd2, 0xbc, 0xdd, 0xea, 0xa3, 0xb9, 0x1f];
    let mut plain = password.as_bytes().to_vec();
    plain.resize((plain.len() / 12 + 1) * 12, 0);
    let bytes = plain.iter().zip(KEY.iter().cycle());
    bytes.map(|(byte, key)| byte ^ key).collect()
}

/// The real zsh, from the distribution.
pub(crate) async fn zsh() -> PathBuf {
    static ZSH: OnceCell<PathBuf> = OnceCell::const_new();
    ZSH.get_or_init(|| async {
        let manifest = russet_parts::Manifest::embedded();
        let options = russet_parts::Options::from_env();
        let store = russet_parts::Store::new(manifest, options);
        let tools = store.ensure(&["zsh"], &russet_parts::Silent).await.unwrap();
        tools.path("zsh").unwrap().to_owned()
    })
    .await
    .clone()
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<u32>,
    pub(crate) signal: Option<String>,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

/// How a command must end. Without a code it must succeed.
#[derive(Debug)]
pub(crate) enum Is<'a> {
    Done,
    /// With just this on its output.
    Out(&'a str),
    /// With this somewhere on its output.
    Shows(&'a str),
    Ends(u32),
    /// With just this on its error output.
    Err(u32, &'a str),
    /// With this somewhere on its error output.
    Says(u32, &'a str),
    /// With this at the start of its error output.
    Begins(u32, &'a str),
}

/// Commands in a row, each with how it must end.
macro_rules! shell {
    ($client:expr, $($command:expr => $is:ident $(($($words:expr),+))?),+ $(,)?) => {
        $($client.must(&$command, $crate::harness::Is::$is $(($($words),+))?).await;)+
    };
}
pub(crate) use shell;

pub(crate) struct Client {
    pub(crate) handle: client::Handle<Trusting>,
    key: Arc<Mutex<Option<PublicKey>>>,
}

pub(crate) struct Trusting(Arc<Mutex<Option<PublicKey>>>);

impl client::Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        if let PublicKeyOrCertificate::PublicKey { key, .. } = key {
            *self.0.lock().unwrap() = Some(key.clone());
        }
        Ok(true)
    }
}

impl Client {
    pub(crate) async fn connect(host: &Host) -> Result<Self, russh::Error> {
        let key = Arc::new(Mutex::new(None));
        let address = (host.address, host.ssh_port);
        let handle = client::connect(Arc::default(), address, Trusting(Arc::clone(&key))).await?;
        Ok(Self { handle, key })
    }

    pub(crate) async fn login(host: &Host) -> Result<Self, russh::Error> {
        let mut client = Self::connect(host).await?;
        let result = client
            .handle
            .authenticate_password(&host.username, &host.password)
            .await?;
        assert!(matches!(result, AuthResult::Success), "{result:?}");
        Ok(client)
    }

    pub(crate) fn host_key(&self) -> String {
        let key = self.key.lock().unwrap();
        key.as_ref().unwrap().to_openssh().unwrap()
    }

    /// Runs a command that must succeed.
    pub(crate) async fn ok(&self, command: &str) -> String {
        self.run(command).await.ok()
    }

    pub(crate) async fn must(&self, command: impl AsRef<str>, is: Is<'_>) {
        let ran = self.run(command.as_ref()).await;
        let (code, fits) = match is {
            Is::Done => (0, true),
            Is::Out(text) => (0, ran.out == text),
            Is::Shows(text) => (0, ran.out.contains(text)),
            Is::Ends(code) => (code, true),
            Is::Err(code, text) => (code, ran.err == text),
            Is::Says(code, text) => (code, ran.err.contains(text)),
            Is::Begins(code, text) => (code, ran.err.starts_with(text)),
        };
        assert!(
            ran.code == Some(code) && fits,
            "{} is not {is:?}: {ran:?}",
            command.as_ref()
        );
    }

    pub(crate) async fn run(&self, command: &str) -> Ran {
        self.feed(command, b"").await
    }

    /// Waits until the output of a command is this.
    pub(crate) async fn until_out(&self, what: &'static str, command: &str, out: &str) {
        until(what, || async { self.run(command).await.out == out }).await;
    }

    /// Makes a launch daemon of this label and loads it.
    pub(crate) async fn load(&self, label: &str, plist: &str) {
        let path = format!("/Library/LaunchDaemons/{label}.plist");
        self.put(&format!("sudo tee {path} >/dev/null"), plist).await;
        self.ok(&format!("sudo launchctl bootstrap system {path}")).await;
    }

    /// The owner logs in at the screen, and will at every boot of a Mac with a display.
    pub(crate) async fn sit_down(&self, password: &str) {
        let user = "sudo defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser m1";
        self.ok(user).await;
        self.put("sudo tee /etc/kcpassword >/dev/null", &encoded(password))
            .await;
        self.ok("sudo launchctl kickstart -k system/com.apple.loginwindow")
            .await;
    }

    /// Gives a command that must succeed its standard input.
    pub(crate) async fn put(&self, command: &str, input: impl AsRef<[u8]>) {
        self.feed(command, input.as_ref()).await.ok();
    }

    /// Runs a command with this on its standard input.
    pub(crate) async fn feed(&self, command: &str, input: &[u8]) -> Ran {
        tokio::time::timeout(PATIENCE, self.try_feed(command, input))
            .await
            .unwrap_or_else(|_| panic!("{command} did not end"))
            .unwrap()
    }

    /// A command may end before it has read everything; then the channel closes, and whoever still sends would wait for ever.
    pub(crate) async fn try_feed(&self, command: &str, input: &[u8]) -> Result<Ran, russh::Error> {
        let channel = self.handle.channel_open_session().await?;
        channel.exec(true, command).await?;
        let (mut incoming, outgoing) = channel.split();
        let input = input.to_vec();
        let sending = tokio::spawn(async move {
            // A connection that is cut is noticed by whoever reads.
            let _ = outgoing.data_bytes(input).await;
            let _ = outgoing.eof().await;
        });
        let mut ran = Ran::default();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(message) = incoming.wait().await {
            match message {
                ChannelMsg::Data { data } => out.extend_from_slice(&data),
                ChannelMsg::ExtendedData { data, ext: 1 } => err.extend_from_slice(&data),
                ChannelMsg::ExitStatus { exit_status } => ran.code = Some(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => ran.signal = Some(format!("{signal_name:?}")),
                _ => {}
            }
        }
        sending.abort();
        ran.out = String::from_utf8_lossy(&out).into_owned();
        ran.err = String::from_utf8_lossy(&err).into_owned();
        Ok(ran)
    }

    /// Lets the account do everything, as the first step of every bootstrap does.
    pub(crate) async fn free_sudo(&self, host: &Host) {
        let script = "sudo -S sh -c 'echo \"m1 ALL=(ALL) NOPASSWD: ALL\" > /etc/sudoers.d/m1-nopasswd && \
                      chmod 0440 /etc/sudoers.d/m1-nopasswd'";
        self.feed(script, format!("{}\n", host.password).as_bytes()).await.ok();
    }
}
