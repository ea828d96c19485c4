//! One tool, one guarded node, and a fresh proxy between them for every build.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use russet_clients::{Build, Counts, Kit, Settings, Target, Tool, Workshop};
use russet_parts::Bars;
use russet_stages::kura::{Node, Options, Program};
use russet_telemetry::Secret;
use russet_testkit::wait::{self, Look};
use tempfile::TempDir;

use crate::damage;
use crate::proxy::{Fault, Proxy};

/// Longer than any tool takes on a busy machine, Maven's patience with a 503 included.
const PATIENCE: Duration = Duration::from_mins(3);
/// What a tool sends after it has ended, it sends at once.
const UPLOADS: Duration = Duration::from_secs(20);
const PROJECT: &str = "tiny";
const WRITER: &str = "a-token-that-may-write-0123456789";
const READER: &str = "a-token-that-may-read-0123456789";
const UNKNOWN: &str = "a-token-that-nobody-knows-0123456789";

/// As whom a build comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Writer,
    Reader,
    Unknown,
}

impl Who {
    fn token(self) -> Secret<String> {
        let token = match self {
            Self::Writer => WRITER,
            Self::Reader => READER,
            Self::Unknown => UNKNOWN,
        };
        Secret::new(token.to_owned())
    }
}

/// What a tool made.
pub(crate) type Outputs = Vec<(String, Option<Vec<u8>>)>;

/// One build, seen from both sides.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) build: Build,
    pub(crate) counted: Counts,
    pub(crate) outputs: Outputs,
    pub(crate) uploads: Vec<Vec<u8>>,
    pub(crate) requests: Vec<String>,
}

impl Seen {
    /// Everything there is to know when a row fails.
    pub(crate) fn story(&self) -> String {
        format!(
            "{} after {:.1} s, claims {:?}, server counted {:?}\nrequests:\n  {}\nthe tool said:\n{}",
            self.build.exit,
            self.build.took.as_secs_f64(),
            self.build.claim,
            self.counted,
            self.requests.join("\n  "),
            self.build.output
        )
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    tool: Tool,
    workshop: Workshop,
    node: Option<Node>,
    /// Where the tool finds the cache, whatever stands there at the moment.
    front: Option<SocketAddr>,
    program: Program,
    home: TempDir,
    _site: TempDir,
}

impl Stage {
    pub(crate) async fn open(tool: Tool) -> Result<Self> {
        let program = Program::built()?;
        let settings = Settings::from_env(Some(program.path().to_owned()));
        let kit = Kit::ensure(tool, &settings, &Bars::lines())
            .await
            .with_context(|| format!("{tool} is needed for this test"))?;
        let (home, site) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let tokens = format!(
            "[[token]]\nname = \"writer\"\nsecret = \"{WRITER}\"\nwrite = [\"default\", \"default/{PROJECT}\"]\n\
             [[token]]\nname = \"reader\"\nsecret = \"{READER}\"\nread = [\"default\", \"default/{PROJECT}\"]\n"
        );
        std::fs::write(home.path().join("tokens.toml"), tokens)?;
        let workshop = Workshop::new(kit, site.path(), "first")?;
        let mut stage = Self {
            tool,
            workshop,
            node: None,
            front: None,
            program,
            home,
            _site: site,
        };
        stage.start().await?;
        Ok(stage)
    }

    /// Starts the node on what is in its folder.
    pub(crate) async fn start(&mut self) -> Result<()> {
        let tokens = self.home.path().join("tokens.toml").display().to_string();
        let options = Options::default()
            .args(["--bind-address", "127.0.0.1", "--auth-tokens-file", &tokens])
            .args(["--auth-anonymous", "none"]);
        self.node = Some(Node::start(&self.program, self.home.path(), &options).await?);
        Ok(())
    }

    fn node(&self) -> Result<&Node> {
        self.node.as_ref().context("the node does not run")
    }

    pub(crate) fn reseed(&mut self, seed: &str) {
        self.workshop.reseed(seed);
    }

    async fn counts(&self) -> Result<Counts> {
        Ok(Counts::fetch(&self.node()?.url(), self.tool.producers()).await?)
    }

    /// Builds from nothing, and waits until the server has counted at least what the row expects: some tools end before their last upload.
    pub(crate) async fn build(&mut self, who: Who, fault: Fault, at_least: Counts) -> Result<Seen> {
        let before = self.counts().await?;
        let proxy = Proxy::start(self.front, self.node()?.address, fault).await?;
        self.front = Some(proxy.address());
        let target = Target::new(&proxy.url(), PROJECT).with_token(Some(who.token()));
        let build = self.workshop.build(&target, PATIENCE).await?;
        let counted = wait::until("the server to count what was sent", UPLOADS, || async {
            let now = self.counts().await? - before;
            Ok(if now.hits >= at_least.hits && now.stored >= at_least.stored {
                Look::Done(now)
            } else {
                Look::NotYet(format!("{now:?}; requests {:#?}; output {}", proxy.log(), build.output))
            })
        })
        .await?;
        Ok(Seen {
            outputs: self.workshop.outputs(),
            uploads: proxy.uploads().iter().map(|body| body.to_vec()).collect(),
            requests: proxy.log(),
            build,
            counted,
        })
    }

    /// Builds while the node is killed at request `at`. Afterwards there is no node.
    pub(crate) async fn build_while_killed(&mut self, who: Who, at: u32) -> Result<Seen> {
        let node = self.node.take().context("the node does not run")?;
        let pid = i32::try_from(node.pid()?)?;
        let proxy = Proxy::start(self.front, node.address, Fault::KillAt(at, pid)).await?;
        let target = Target::new(&proxy.url(), PROJECT).with_token(Some(who.token()));
        let build = self.workshop.build(&target, PATIENCE).await?;
        ensure!(
            proxy.requests() >= at,
            "the node was to be killed at request {at}, but there were {} only: {:#?}",
            proxy.requests(),
            proxy.log()
        );
        Ok(Seen {
            outputs: self.workshop.outputs(),
            uploads: Vec::new(),
            requests: proxy.log(),
            build,
            counted: Counts::default(),
        })
    }

    /// Stops the node, flips a bit of everything it stored that contains a needle, and starts it again.
    pub(crate) async fn damage(&mut self, needles: &[Vec<u8>]) -> Result<usize> {
        self.node()?.stop().await?;
        self.node = None;
        let flipped = damage::flip(&self.home.path().join("data"), needles)?;
        self.start().await?;
        Ok(flipped)
    }
}
