//! The node itself: its start as a list of steps, and its end.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::{Api, Client};
use russet_parts::Tools;
use serde_json::Value;

use super::{
    Error, Options, Range, agents, cgroup,
    containerd::{self, Snapshotter},
    holder::{Holder, Isolation, Plan},
    image, join, machine,
    object::NodeObject,
    owner,
    seat::Seat,
    system,
};
use crate::{
    ControlPlane, Supervisor,
    files::{self, Access},
    kubeconfig,
    pki::Profile,
    process::{Probe, Restart, Spec},
};

/// A running node. Dropping it ends everything it consists of; the Node object stays, as it does when a machine breaks.
#[derive(Debug)]
pub struct LinuxNode {
    name: String,
    pods: Range,
    directory: PathBuf,
    logs: PathBuf,
    /// `PATH` of programs inside.
    path: String,
    restart: Restart,
    /// `None` only while the node ends.
    holder: Option<Holder>,
    ctr: PathBuf,
    seat: Seat,
    supervisor: Supervisor,
    /// Names of supervised programs, in start order.
    programs: Arc<Mutex<Vec<String>>>,
    object: NodeObject,
}

/// What becomes of the Node object when a node is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Deleted: the machine is gone for good.
    Delete,
    /// Kept: the machine is merely off, and will be seen as unreachable.
    Keep,
}

impl LinuxNode {
    /// Starts a node and waits until it is Ready. `tools` must hold [`super::TOOLS`], and the control plane must listen on the
    /// gateway of the node's network.
    pub async fn start(
        tools: &Tools,
        supervisor: &Supervisor,
        control_plane: &ControlPlane,
        options: Options,
    ) -> Result<Self, Error> {
        system::check()?;
        options.validate()?;
        reachable(control_plane.server(), options.network.gateway())?;
        let client = control_plane
            .client()
            .await
            .map_err(|error| Error::ControlPlane(error.into()))?;

        let cgroup = owner::cgroup_name(options.network.directory(), &options.name);
        let mut node = Self::hold(tools, supervisor, &options, &cgroup, client.clone()).await?;
        node.start_containerd(tools).await?;
        let started = Timestamp::now();
        let token = join::invite(&client, started).await?;
        let joined = node.join(tools, control_plane, &options, &cgroup, &token).await;
        join::revoke(&client, &token).await;
        node.pods = joined?;
        node.seat.publish(node.pods).await?;
        node.write("cni/10-russet.conflist", &containerd::pod_network(node.pods))?;
        node.start_proxy(tools, control_plane).await?;
        node.object.ready(started).await?;
        Ok(node)
    }

    /// A machine with a network and nothing running on it yet.
    async fn hold(
        tools: &Tools,
        supervisor: &Supervisor,
        options: &Options,
        cgroup: &str,
        client: Client,
    ) -> Result<Self, Error> {
        // First of all, so that a name given twice cannot touch the files of the node that has it.
        let seat = options.network.seat(&options.name)?;
        let network = seat.network();
        let directory = owner::directory(network.directory(), &options.name);
        owner::ensure_free(&directory, &options.name)?;
        // A start is a machine freshly installed: old images, pods and certificates would only be half of a state.
        owner::remove(&directory)?;
        machine::prepare(&directory)?;
        files::create_dir(&options.logs)?;
        owner::Owner::this_process(cgroup).write(&directory)?;
        let setup = machine::script(&options.name, &directory, &machine::keep(tools, &directory)?);
        let shim = tools.path("containerd-shim-runc-v2")?;
        let ctr = tools.path("ctr")?.to_owned();

        // From here on the guard of the namespaces has something to clean up, so nothing may fail in between.
        cgroup::create(cgroup)?;
        let holder = Holder::start(Plan {
            name: format!("russet-node-{}", options.name),
            isolation: Isolation::Machine,
            setup,
            cgroups: cgroup::trees(cgroup)?,
            log: options.logs.join(format!("{}-namespaces.log", options.name)),
        })
        .await?;
        seat.plug_in(&holder).await?;
        let node = Self {
            name: options.name.clone(),
            pods: network.pods(),
            directory,
            logs: options.logs.clone(),
            path: shim.parent().map_or_else(
                || system::PATH.to_owned(),
                |shim| format!("{}:{}", shim.display(), system::PATH),
            ),
            restart: options.restart,
            ctr,
            seat,
            supervisor: supervisor.clone(),
            programs: Arc::default(),
            object: NodeObject {
                api: Api::all(client),
                name: options.name.clone(),
                kubelet_log: options.logs.join(format!("{}-kubelet.log", options.name)),
            },
            holder: Some(holder),
        };
        node.stop_programs_with_holder();
        Ok(node)
    }

    async fn start_containerd(&self, tools: &Tools) -> Result<(), Error> {
        let snapshotter = Snapshotter::for_directory(&self.directory);
        let config = self.directory.join("containerd.toml");
        let text = containerd::config(tools.path("runc")?, tools.path("cni-plugins")?, snapshotter);
        files::write(&config, text.as_bytes(), Access::Public)?;
        let spec = self
            .spec(
                "containerd",
                tools.path("containerd")?,
                &["--config".to_owned(), config.to_string_lossy().into_owned()],
            )?
            .probe(Probe::File(self.inside(containerd::SOCKET)?));
        self.supervisor.start(spec).await?;

        let busybox = tools.path("busybox")?;
        let applets = system::run("list the tools of busybox", &busybox.to_string_lossy(), &["--list"]).await?;
        let applets: Vec<_> = applets.lines().map(str::to_owned).collect();
        let archive = self.directory.join("images.tar");
        std::fs::read(busybox)
            .and_then(|binary| image::Layer::busybox(&binary, &applets))
            .and_then(|layer| image::write_archive(&archive, layer, &image::standard()))
            .map_err(Error::io("write the images of the node", &archive))?;
        self.import(&archive).await
    }

    /// Starts kubelet, which registers the node, and returns the range of the node's pods.
    async fn join(
        &self,
        tools: &Tools,
        control_plane: &ControlPlane,
        options: &Options,
        cgroup: &str,
        token: &join::Token,
    ) -> Result<Range, Error> {
        let root = self.directory.join("kubelet");
        files::write(&root.join("ca.crt"), control_plane.ca_pem().as_bytes(), Access::Public)?;
        self.write(
            "kubelet/config.json",
            &agents::kubelet(self.address(), cgroup, &options.taints),
        )?;
        let (server, ca) = (control_plane.server(), control_plane.ca_pem());
        kubeconfig::for_token(
            server,
            ca,
            "bootstrap",
            &token.bearer(),
            &root.join("bootstrap-kubeconfig"),
        )?;

        let mut args = vec![
            "--config=/var/lib/kubelet/config.json".to_owned(),
            "--bootstrap-kubeconfig=/var/lib/kubelet/bootstrap-kubeconfig".to_owned(),
            "--kubeconfig=/var/lib/kubelet/kubeconfig".to_owned(),
            "--cert-dir=/var/lib/kubelet/pki".to_owned(),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", self.address()),
        ];
        args.extend(options.provider_id.iter().map(|id| format!("--provider-id={id}")));
        let (own, _) = agents::split_labels(&options.labels);
        if !own.is_empty() {
            let labels: Vec<_> = own.iter().map(|(key, value)| format!("{key}={value}")).collect();
            args.push(format!("--node-labels={}", labels.join(",")));
        }
        let spec = self
            .spec("kubelet", tools.path("kubelet")?, &args)?
            .probe(self.health(agents::KUBELET_HEALTH));
        self.supervisor.start(spec).await?;
        self.object.registered(options).await
    }

    async fn start_proxy(&self, tools: &Tools, control_plane: &ControlPlane) -> Result<(), Error> {
        let root = self.directory.join("kube-proxy");
        // Kubernetes binds this user to the role `system:node-proxier` by default, and to nothing else.
        let pair = control_plane
            .pki()
            .pair_in(&root, "kube-proxy", &Profile::client("system:kube-proxy", None))?;
        kubeconfig::for_client_cert(
            control_plane.server(),
            control_plane.ca_pem(),
            &pair,
            &root.join("kubeconfig"),
        )?;
        self.write("kube-proxy/config.json", &agents::proxy(self.address(), &self.name))?;
        let args = ["--config=/var/lib/kube-proxy/config.json".to_owned()];
        let spec = self
            .spec("kube-proxy", tools.path("kube-proxy")?, &args)?
            .probe(self.health(agents::PROXY_HEALTH));
        Ok(self.supervisor.start(spec).await?)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's address, reachable from this machine: kubelet, NodePorts and host networking are here.
    pub fn address(&self) -> Ipv4Addr {
        self.seat.address()
    }

    /// The addresses of the node's pods, reachable from this machine too.
    pub fn pods(&self) -> Range {
        self.pods
    }

    /// The node's files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Process 1 of the node. Its end is the node's end.
    pub fn pid(&self) -> Result<u32, Error> {
        self.holder().map(Holder::pid)
    }

    /// A program to be supervised inside the node, beside kubelet and kube-proxy; it is called `<node>-<name>`, and is
    /// stopped with the node. It must not lie below the directories that are the node's own (`/run`, `/var/lib`, `/var/log`).
    pub fn spec(&self, name: &str, program: &Path, args: &[String]) -> Result<Spec, Error> {
        let nsenter = system::find("nsenter").unwrap_or_else(|| PathBuf::from("/usr/bin/nsenter"));
        let process = format!("{}-{name}", self.name);
        let log = self.logs.join(format!("{process}.log"));
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if !programs.contains(&process) {
            programs.push(process.clone());
        }
        drop(programs);
        Ok(Spec::new(process, nsenter, log)
            .args(self.holder()?.enter(&program.to_string_lossy(), args))
            .env("PATH", self.path.as_str())
            .restart(self.restart)
            // The program ends together with nsenter, so there is nothing to wait for.
            .stop_grace(Duration::from_secs(2)))
    }

    /// Runs a program inside the node to its end, and returns what it printed.
    pub async fn run<S: AsRef<str>>(&self, program: &str, args: &[S]) -> Result<String, Error> {
        self.holder()?
            .run(format!("run {program} in node {}", self.name), program, args)
            .await
    }

    /// Makes the images of an archive (see [`image::write_archive`]) available to pods.
    pub async fn import(&self, archive: &Path) -> Result<(), Error> {
        let visible = if machine::is_covered(archive) && !archive.starts_with(&self.directory) {
            let copy = self.directory.join("import.tar");
            std::fs::copy(archive, &copy).map_err(Error::io("copy images into the node", archive))?;
            copy
        } else {
            archive.to_owned()
        };
        let visible = visible.to_string_lossy();
        let args = [
            "--address",
            containerd::SOCKET,
            "--namespace",
            "k8s.io",
            "images",
            "import",
            &visible,
        ];
        let attempt = format!("import images into node {}", self.name);
        self.holder()?
            .run(attempt, &self.ctr.to_string_lossy(), &args)
            .await
            .map(drop)
    }

    /// Stops the node and removes its files.
    pub async fn stop(mut self, object: Object) -> Result<(), Error> {
        stop_all(&self.supervisor, &self.programs).await;
        let holder = self.holder.take();
        let _ = tokio::task::spawn_blocking(move || drop(holder)).await;
        owner::remove(&self.directory)?;
        match object {
            Object::Delete => self.object.delete().await,
            Object::Keep => Ok(()),
        }
    }

    fn holder(&self) -> Result<&Holder, Error> {
        self.holder.as_ref().ok_or_else(|| Error::Namespaces {
            name: self.name.clone(),
            detail: "they have ended".to_owned(),
        })
    }

    fn write(&self, file: &str, content: &Value) -> Result<(), Error> {
        Ok(files::write(
            &self.directory.join(file),
            content.to_string().as_bytes(),
            Access::Public,
        )?)
    }

    /// A path of the node as seen from this machine.
    fn inside(&self, path: &str) -> Result<PathBuf, Error> {
        Ok(PathBuf::from(format!("/proc/{}/root{path}", self.holder()?.pid())))
    }

    fn health(&self, port: u16) -> Probe {
        Probe::Http {
            url: format!("http://{}/healthz", SocketAddr::from((self.address(), port))),
        }
    }

    /// Supervised programs must not be started again once there is nothing to enter: the process id in their
    /// arguments may by then belong to somebody else.
    fn stop_programs_with_holder(&self) {
        let Some(mut ended) = self.holder.as_ref().map(Holder::ended) else {
            return;
        };
        let (supervisor, programs) = (self.supervisor.clone(), self.programs.clone());
        tokio::spawn(async move {
            if ended.wait_for(|ended| *ended).await.is_ok() {
                stop_all(&supervisor, &programs).await;
            }
        });
    }
}

impl Drop for LinuxNode {
    fn drop(&mut self) {
        if self.holder.is_none() {
            return;
        }
        // The first poll hands a request over; its answer is not needed, as all programs end with the holder below.
        for program in in_stop_order(&self.programs) {
            let _ = self.supervisor.stop(&program).now_or_never();
        }
        self.holder.take();
    }
}

async fn stop_all(supervisor: &Supervisor, programs: &Mutex<Vec<String>>) {
    for program in in_stop_order(programs) {
        // A program that was never started is unknown, as is every one after the supervisor was shut down.
        let _ = supervisor.stop(&program).await;
    }
}

fn in_stop_order(programs: &Mutex<Vec<String>>) -> Vec<String> {
    programs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .rev()
        .cloned()
        .collect()
}

fn reachable(server: &str, gateway: Ipv4Addr) -> Result<(), Error> {
    let host = server
        .split_once("://")
        .and_then(|(_, rest)| rest.split([':', '/']).next());
    if host == Some(gateway.to_string().as_str()) {
        return Ok(());
    }
    Err(Error::Unreachable {
        server: server.to_owned(),
        gateway,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_on_another_address_is_refused_before_anything_starts() {
        let gateway = Ipv4Addr::new(10, 77, 3, 1);
        assert!(reachable("https://10.77.3.1:6443", gateway).is_ok());
        for server in ["https://127.0.0.1:6443", "https://10.77.3.10:6443", "nonsense"] {
            let refused = matches!(reachable(server, gateway), Err(Error::Unreachable { .. }));
            assert!(refused, "{server}");
        }
    }
}
