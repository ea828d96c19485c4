//! A node whose containers are processes of this machine.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use russet_kubelet_api::stats::{Cpu, Memory, Node, Summary};
use russet_kubelet_api::{
    Backend, Check, ContainerRef, Duplex, Exec, Exit, Io, LogEntry, LogOptions, LogStream, Metrics, Page, PodRef,
    Refusal, RunningPod,
};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, Command};
use tokio::sync::{broadcast, watch};

/// What one run of a container wrote.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Mutex<Vec<LogEntry>>,
    /// Number of entries, and whether there will be no more.
    state: watch::Sender<(usize, bool)>,
}

impl Log {
    fn new() -> Arc<Self> {
        let state = watch::Sender::new((0, false));
        Arc::new(Self {
            entries: Mutex::default(),
            state,
        })
    }

    pub(crate) fn write(&self, at: Timestamp, text: &str) {
        let mut entries = self.entries.lock().unwrap();
        let text = Bytes::copy_from_slice(text.as_bytes());
        entries.push(LogEntry {
            at,
            text,
            partial: false,
        });
        self.state.send_modify(|state| state.0 = entries.len());
    }

    pub(crate) fn end(&self) {
        self.state.send_modify(|state| state.1 = true);
    }

    /// How many callers are reading it.
    pub(crate) fn readers(&self) -> usize {
        self.state.receiver_count()
    }

    fn follow(self: Arc<Self>, options: &LogOptions) -> LogStream {
        let (length, _) = *self.state.borrow();
        let tail = options.tail.map_or(length, |tail| usize::try_from(tail).unwrap());
        let first = length.saturating_sub(tail);
        let last = if options.follow { usize::MAX } else { length };
        let watcher = self.state.subscribe();
        futures::stream::unfold((self, first, watcher), move |(log, index, mut watcher)| async move {
            if index >= last {
                return None;
            }
            let more = watcher.wait_for(|(length, ended)| index < *length || *ended);
            more.await.ok()?;
            let entry = log.entries.lock().unwrap().get(index).cloned()?;
            Some((Ok(entry), (log, index + 1, watcher)))
        })
        .boxed()
    }
}

/// The process of a container, for those who attach.
struct Main {
    stdin: tokio::sync::Mutex<ChildStdin>,
    output: broadcast::Sender<Bytes>,
}

/// The one container `c` of a Pod.
#[derive(Clone)]
pub(crate) struct Container {
    /// Oldest first; the last is the current one.
    pub(crate) runs: Vec<Arc<Log>>,
    main: Option<Arc<Main>>,
}

pub(crate) struct Local {
    pods: Mutex<BTreeMap<String, Container>>,
}

impl Local {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { pods: Mutex::default() })
    }

    /// A Pod with one container that has run before `runs - 1` times.
    pub(crate) fn add(&self, pod: &str, runs: usize) -> Vec<Arc<Log>> {
        let runs: Vec<_> = (0..runs).map(|_| Log::new()).collect();
        let container = Container {
            runs: runs.clone(),
            main: None,
        };
        self.pods.lock().unwrap().insert(pod.to_owned(), container);
        runs
    }

    /// A Pod whose container runs a shell script that can be attached to.
    pub(crate) fn start(&self, pod: &str, script: &str) {
        let log = self.add(pod, 1).remove(0);
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = broadcast::Sender::new(64);
        let main = Main {
            stdin: tokio::sync::Mutex::new(child.stdin.take().unwrap()),
            output: output.clone(),
        };
        self.pods.lock().unwrap().get_mut(pod).unwrap().main = Some(Arc::new(main));
        let stdout = child.stdout.take().unwrap();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.write(Timestamp::now(), &line);
                let _ = output.send(Bytes::from(format!("{line}\n")));
            }
            log.end();
            let _ = child.wait().await;
        });
    }

    /// How many callers are attached to a container.
    pub(crate) fn attached(&self, pod: &str) -> usize {
        let pods = self.pods.lock().unwrap();
        pods[pod].main.as_ref().map_or(0, |main| main.output.receiver_count())
    }

    fn container(&self, wanted: &ContainerRef) -> Result<Container, Refusal> {
        let pods = self.pods.lock().unwrap();
        let (pod, container) = (wanted.pod.name.clone(), wanted.container.clone());
        match pods.get(&pod) {
            None => Err(Refusal::NoPod { pod }),
            Some(found) if container == "c" => Ok(found.clone()),
            Some(_) => Err(Refusal::NoContainer { pod, container }),
        }
    }
}

fn failed(error: &impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn exit(status: ExitStatus) -> Exit {
    let signal = || 128 + status.signal().unwrap_or_default();
    Exit(status.code().unwrap_or_else(signal))
}

/// With pipes: output is complete when both of them have ended.
async fn piped(mut command: Command, io: Io) -> Result<Exit, Refusal> {
    let stdin = io.stdin.as_ref().map_or_else(Stdio::null, |_| Stdio::piped());
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = async {
        if let (Some(mut from), Some(mut to)) = (io.stdin, stdin) {
            let _ = tokio::io::copy(&mut from, &mut to).await;
        }
        std::future::pending::<()>().await;
    };
    let (out, err) = (drain(stdout.unwrap(), io.stdout), drain(stderr.unwrap(), io.stderr));
    let output = async {
        tokio::join!(out, err);
        child.wait().await
    };
    tokio::select! {
        status = output => status.map(exit).map_err(|error| failed(&error)),
        () = input => unreachable!("input waits for the end of the command"),
    }
}

async fn drain(mut from: impl tokio::io::AsyncRead + Unpin, to: Option<russet_kubelet_api::Writer>) {
    let _ = match to {
        Some(mut to) => tokio::io::copy(&mut from, &mut to).await,
        None => tokio::io::copy(&mut from, &mut tokio::io::sink()).await,
    };
}

/// A terminal: our side, and the side for a process.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (master, slave)
}

pub(crate) fn set_size(terminal: &OwnedFd, width: u16, height: u16) {
    let size = Winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

pub(crate) fn file(fd: &OwnedFd) -> tokio::fs::File {
    tokio::fs::File::from_std(fd.try_clone().unwrap().into())
}

/// The same command, with this terminal as its controlling one.
pub(crate) fn on_terminal(program: &str, args: &[String], slave: &OwnedFd) -> Command {
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait", program])
        .args(args)
        .stdin(Stdio::from(slave.try_clone().unwrap()))
        .stdout(Stdio::from(slave.try_clone().unwrap()))
        .stderr(Stdio::from(slave.try_clone().unwrap()))
        .kill_on_drop(true);
    command
}

async fn with_terminal(exec: &Exec, mut io: Io) -> Result<Exit, Refusal> {
    let (master, slave) = terminal();
    // The first size comes with the streams; a program that asks for it at once must not be faster.
    if let Some(size) = io.resize.as_mut().unwrap().next().await {
        set_size(&master, size.width, size.height);
    }
    let mut child = on_terminal(&exec.command[0], &exec.command[1..], &slave)
        .spawn()
        .map_err(|error| failed(&error))?;
    drop(slave);
    let sizes = async {
        while let Some(size) = io.resize.as_mut().unwrap().next().await {
            set_size(&master, size.width, size.height);
        }
        std::future::pending::<()>().await;
    };
    let (mut keys, mut screen) = (file(&master), file(&master));
    let input = async {
        if let Some(mut stdin) = io.stdin {
            let _ = tokio::io::copy(&mut stdin, &mut keys).await;
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        let mut stdout = io.stdout.unwrap();
        // Ends with an error when the last process has closed the terminal.
        let _ = tokio::io::copy(&mut screen, &mut stdout).await;
        child.wait().await
    };
    tokio::select! {
        status = output => status.map(exit).map_err(|error| failed(&error)),
        () = async { tokio::join!(sizes, input); } => unreachable!("both wait for the end of the command"),
    }
}

impl Backend for Local {
    async fn find_pod(&self, pod: &PodRef) -> Result<(), Refusal> {
        let container = "c".to_owned();
        let pod = pod.clone();
        self.container(&ContainerRef { pod, container }).map(drop)
    }

    async fn find_container(&self, container: &ContainerRef) -> Result<(), Refusal> {
        self.container(container).map(drop)
    }

    async fn pods(&self) -> Result<Vec<Pod>, Refusal> {
        let names: Vec<String> = self.pods.lock().unwrap().keys().cloned().collect();
        let pod = |name| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name);
            pod
        };
        Ok(names.into_iter().map(pod).collect())
    }

    async fn running_pods(&self) -> Result<Vec<RunningPod>, Refusal> {
        let pods = self.pods.lock().unwrap();
        let running = pods.keys().map(|name| RunningPod {
            namespace: "default".to_owned(),
            name: name.clone(),
            uid: format!("uid-of-{name}"),
            containers: vec![("c".to_owned(), "localhost/none".to_owned())],
        });
        Ok(running.collect())
    }

    async fn logs(&self, container: &ContainerRef, options: &LogOptions) -> Result<LogStream, Refusal> {
        let runs = self.container(container)?.runs;
        let run = runs.iter().rev().nth(usize::from(options.previous));
        let log = run.cloned().ok_or_else(|| Refusal::NoPrevious {
            pod: container.pod.name.clone(),
            container: container.container.clone(),
        })?;
        Ok(log.follow(options))
    }

    async fn exec(&self, container: &ContainerRef, exec: Exec, io: Io) -> Result<Exit, Refusal> {
        self.container(container)?;
        if exec.tty {
            return with_terminal(&exec, io).await;
        }
        let mut command = Command::new(&exec.command[0]);
        command.args(&exec.command[1..]).kill_on_drop(true);
        piped(command, io).await
    }

    async fn attach(&self, container: &ContainerRef, _: bool, io: Io) -> Result<(), Refusal> {
        let main = self.container(container)?.main.ok_or_else(|| Refusal::NotRunning {
            pod: container.pod.name.clone(),
            container: container.container.clone(),
        })?;
        let mut output = main.output.subscribe();
        let input = async {
            match io.stdin {
                Some(mut stdin) => {
                    let mut to = main.stdin.lock().await;
                    let _ = tokio::io::copy(&mut stdin, &mut *to).await;
                }
                None => std::future::pending().await,
            }
        };
        let mut stdout = io.stdout.unwrap();
        let show = async {
            while let Ok(bytes) = output.recv().await {
                if stdout.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = input => {}
            () = show => {}
        }
        Ok(())
    }

    async fn dial(&self, _: &PodRef, port: NonZeroU16) -> Result<Box<dyn Duplex>, Refusal> {
        let connection = TcpStream::connect(("127.0.0.1", port.get())).await;
        Ok(Box::new(connection.map_err(|error| failed(&error))?))
    }

    async fn stats(&self) -> Result<Summary, Refusal> {
        let time = Timestamp::now();
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let used = uptime.split(' ').nth(1).unwrap().trim().parse().unwrap();
        let used = std::time::Duration::from_secs_f64(used);
        Ok(Summary {
            node: Node {
                node_name: "mac1".to_owned(),
                start_time: time,
                cpu: Some(Cpu {
                    time,
                    usage_nano_cores: None,
                    usage_core_nano_seconds: Some(used.as_nanos().try_into().unwrap()),
                }),
                memory: Some(Memory {
                    time,
                    available_bytes: None,
                    usage_bytes: None,
                    working_set_bytes: Some(1),
                    rss_bytes: None,
                    page_faults: None,
                    major_page_faults: None,
                }),
                network: None,
                fs: None,
            },
            pods: Vec::new(),
        })
    }

    async fn metrics(&self, which: Metrics) -> Result<Page, Refusal> {
        match which {
            Metrics::Agent => Ok(Page::OpenMetrics("# TYPE up gauge\nup 1\n# EOF\n".to_owned())),
            _ => Ok(Page::Text(String::new())),
        }
    }

    async fn health(&self) -> Vec<Check> {
        let (name, healthy) = ("syncloop", true);
        vec![Check { name, healthy }]
    }

    async fn config(&self) -> serde_json::Value {
        serde_json::json!({"kind": "KubeletConfiguration"})
    }
}
