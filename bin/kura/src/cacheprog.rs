//! `kura cacheprog`: Go's build cache on this node, through the helper protocol of `GOCACHEPROG`.
//!
//! ```text
//!  go build ──JSON lines──► cacheprog ──► folder on this machine          always, and first
//!                                    └──► /go/{project} of a kura node    if it answers, and only if the bytes are right
//! ```
//! The remote side is a bonus that must never cost a build: every fault of it is a miss, bytes that do not hash to their id are
//! thrown away, a server that keeps failing is left alone for the rest of the build, and uploads happen behind Go's back, with
//! a limit on how long the end of the build waits for them.

mod disk;
mod protocol;
mod remote;

use anyhow::Context as _;
use disk::Disk;
use protocol::{Command, Request, Response};
use remote::{Remote, Settings};
use russet_telemetry::Secret;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Settings of `kura cacheprog`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  GOCACHEPROG='kura cacheprog --url http://cache:4000/go/my-project' go build ./...

  # with a token, which is never an argument:
  export KURA_CACHEPROG_URL=http://cache:4000/go/my-project
  export KURA_CACHEPROG_TOKEN_FILE=/run/secrets/cache-token
  GOCACHEPROG='kura cacheprog' go test ./...

The token is read from KURA_CACHEPROG_TOKEN or from the file. Without a URL only the local folder is used.
A cache that is away, refuses or sends wrong bytes costs hits, never a build.")]
pub struct Args {
    /// Where the cache is: http://host:port/go/{project}
    #[arg(long, env = "KURA_CACHEPROG_URL")]
    url: Option<String>,
    /// File with the token
    #[arg(long, env = "KURA_CACHEPROG_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Folder of the local copy [default: kura/go in the user's cache folder]
    #[arg(long, env = "KURA_CACHEPROG_DIR")]
    dir: Option<PathBuf>,
    /// Only read from the remote cache
    #[arg(long, env = "KURA_CACHEPROG_READ_ONLY")]
    read_only: bool,
    /// How long a silent server is waited for
    #[arg(long, env = "KURA_CACHEPROG_TIMEOUT_MS", default_value_t = 10_000)]
    timeout_ms: u64,
    /// How long the end of a build waits for uploads
    #[arg(long, env = "KURA_CACHEPROG_FLUSH_MS", default_value_t = 30_000)]
    flush_ms: u64,
    /// Say at the end what was found where
    #[arg(long, env = "KURA_CACHEPROG_VERBOSE")]
    verbose: bool,
}

/// What the command gets from the environment besides its arguments.
#[derive(Debug, Default)]
pub struct Environment {
    /// `KURA_CACHEPROG_TOKEN`.
    pub token: Option<Secret<String>>,
    /// The user's cache folder.
    pub cache_dir: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Counts {
    local: AtomicU64,
    remote: AtomicU64,
    misses: AtomicU64,
    stored: AtomicU64,
}

struct Helper {
    disk: Disk,
    remote: Option<Remote>,
    counts: Counts,
}

/// Speaks with Go on standard input and output until it closes.
pub fn run(args: Args, environment: Environment) -> anyhow::Result<()> {
    let verbose = args.verbose;
    let flush = Duration::from_millis(args.flush_ms);
    let helper = Arc::new(prepare(args, environment)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(converse(Arc::clone(&helper), flush))?;
    // A read of standard input cannot be called back; nobody waits for it.
    runtime.shutdown_background();
    if verbose {
        complain(&helper.summary());
    }
    Ok(())
}

fn prepare(args: Args, environment: Environment) -> anyhow::Result<Helper> {
    let dir = args
        .dir
        .or_else(|| environment.cache_dir.map(|dir| dir.join("kura").join("go")))
        .context("there is no cache folder to use; name one with --dir")?;
    let disk = Disk::open(&dir).with_context(|| format!("cannot use the folder {}", dir.display()))?;
    let token = match (environment.token, args.token_file) {
        (Some(token), _) => Some(token),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read the token from {}", path.display()))?;
            Some(Secret::new(text.trim().to_owned()))
        }
        (None, None) => None,
    };
    let remote = args.url.filter(|url| !url.is_empty()).map(|url| {
        Remote::new(Settings {
            url,
            token,
            read_only: args.read_only,
            timeout: Duration::from_millis(args.timeout_ms),
        })
    });
    Ok(Helper {
        disk,
        remote: remote.transpose()?,
        counts: Counts::default(),
    })
}

/// Tells whoever watches the build. Standard output belongs to Go.
fn complain(text: &str) {
    use std::io::Write as _;
    // Standard error that is gone cannot be told so.
    let _ = writeln!(std::io::stderr(), "kura cacheprog: {text}");
}

async fn converse(helper: Arc<Helper>, flush: Duration) -> anyhow::Result<()> {
    let mut input = BufReader::with_capacity(256 * 1024, tokio::io::stdin());
    let (answers, queue) = unbounded_channel();
    let printing = tokio::spawn(print(queue));
    let mut uploads = JoinSet::new();
    // Whoever cannot be told has closed its end, which is noticed when reading.
    let _ = answers.send(Response::greeting());
    while let Some(request) = protocol::read(&mut input).await? {
        while uploads.try_join_next().is_some() {}
        match request.command {
            Command::Close => {
                let _ = tokio::time::timeout(flush, async { while uploads.join_next().await.is_some() {} }).await;
                let _ = answers.send(Response::new(request.id));
                break;
            }
            Command::Get => {
                let (helper, answers) = (Arc::clone(&helper), answers.clone());
                tokio::spawn(async move {
                    let _ = answers.send(helper.get(&request).await);
                });
            }
            Command::Put => helper.put(request, &answers, &mut uploads).await,
        }
    }
    uploads.abort_all();
    let disk = helper.disk.clone();
    let _ = tokio::task::spawn_blocking(move || disk.trim(std::time::SystemTime::now())).await;
    drop(answers);
    // Answers of look-ups that are still under way are of no interest after the close.
    let _ = tokio::time::timeout(Duration::from_secs(1), printing).await;
    Ok(())
}

async fn print(mut queue: UnboundedReceiver<Response>) -> std::io::Result<()> {
    let mut output = tokio::io::stdout();
    while let Some(response) = queue.recv().await {
        output.write_all(response.line().as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

impl Helper {
    async fn get(&self, request: &Request) -> Response {
        let Some(action) = request.action else {
            return Response::miss(request.id);
        };
        let disk = self.disk.clone();
        let found = tokio::task::spawn_blocking(move || disk.find(&action)).await;
        if let Ok(Some(found)) = found {
            self.counts.local.fetch_add(1, Ordering::Relaxed);
            return Response::hit(request.id, &found);
        }
        if let Some(remote) = &self.remote
            && let Some(fetched) = remote.get(&action, &self.disk).await
        {
            let disk = self.disk.clone();
            // A copy that cannot be kept is no copy: Go wants a path.
            if let Ok(Ok(found)) = tokio::task::spawn_blocking(move || disk.keep(&action, fetched)).await {
                self.counts.remote.fetch_add(1, Ordering::Relaxed);
                return Response::hit(request.id, &found);
            }
        }
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        Response::miss(request.id)
    }

    async fn put(self: &Arc<Self>, request: Request, answers: &UnboundedSender<Response>, uploads: &mut JoinSet<()>) {
        let Request {
            id,
            action,
            output,
            body,
            ..
        } = request;
        let (Some(action), Some(output)) = (action, output) else {
            let _ = answers.send(Response::error(id, "put without ids"));
            return;
        };
        let disk = self.disk.clone();
        let stored = tokio::task::spawn_blocking(move || {
            let found = disk.store(&action, &output, &body)?;
            Ok::<_, std::io::Error>((found, disk::sha256(&body) == output))
        });
        match stored.await {
            Ok(Ok((found, sound))) => {
                self.counts.stored.fetch_add(1, Ordering::Relaxed);
                let path = found.path.clone();
                let _ = answers.send(Response::stored(id, &found));
                // Should Go ever name outputs otherwise than by their hash, they stay here: nobody could check them.
                if sound && self.remote.as_ref().is_some_and(Remote::writes) {
                    let helper = Arc::clone(self);
                    uploads.spawn(async move {
                        if let Some(remote) = &helper.remote {
                            remote.put(&action, &output, &path).await;
                        }
                    });
                }
            }
            Ok(Err(error)) => drop(answers.send(Response::error(id, &format!("cannot store: {error}")))),
            Err(_) => drop(answers.send(Response::error(id, "cannot store"))),
        }
    }

    fn summary(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let uploaded = self.remote.as_ref().map_or(0, Remote::uploaded);
        format!(
            "{} local hits, {} remote hits, {} misses, {} stored, {uploaded} uploaded",
            count(&self.counts.local),
            count(&self.counts.remote),
            count(&self.counts.misses),
            count(&self.counts.stored),
        )
    }
}
