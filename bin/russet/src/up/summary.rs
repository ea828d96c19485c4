//! The table at the end of `up`: where everything is and how to use it.

use super::linux::Plan;
use crate::cli;
use crate::table::{Cell, Colour, Table, Tone};
use std::path::{Path, PathBuf};

/// The fleet of Macs.
#[derive(Debug)]
pub enum Fleet {
    Runs {
        /// URL of the emulated Scaleway.
        account: String,
        /// How many Macs serve.
        macs: u32,
    },
    /// Asked to be left out.
    LeftOut,
    /// Its programs are not beside russet.
    NotBuilt,
}

impl Fleet {
    /// What was asked for, and whether there is an account.
    pub fn of(args: &cli::Up, account: Option<String>) -> Self {
        match account {
            Some(account) => Self::Runs {
                account,
                macs: args.macs,
            },
            None if args.no_fleet || args.no_capi => Self::LeftOut,
            None => Self::NotBuilt,
        }
    }
}

/// What the newcomer needs next.
#[derive(Debug)]
pub struct Summary {
    pub server: String,
    pub kubeconfig: PathBuf,
    pub kubectl: Option<PathBuf>,
    pub logs: PathBuf,
    pub crds: usize,
    pub cluster_api: bool,
    /// URL of the cache node, when one was started.
    pub cache: Option<String>,
    pub fleet: Fleet,
    pub(super) linux: Plan,
    pub ready_after: f64,
    /// The directory, when it is not the default and must be named in commands.
    pub dir: Option<PathBuf>,
    pub background: bool,
}

impl Summary {
    pub fn render(&self, colour: Colour) -> String {
        let mut table = Table::new(&[]);
        let mut row = |name: &'static str, text: String| table.row([Cell::new(name, Tone::Dim), Cell::from(text)]);
        row("API server", self.server.clone());
        row("Kubeconfig", shown(&self.kubeconfig));
        if let Some(kubectl) = &self.kubectl {
            row("kubectl", shown(kubectl));
        }
        row("Logs", shown(&self.logs));
        row("CRDs", format!("{} Established", self.crds));
        row(
            "Cluster API",
            if self.cluster_api { "core running" } else { "left out" }.to_owned(),
        );
        row(
            "Build cache",
            self.cache
                .clone()
                .unwrap_or_else(|| "left out: no kura beside russet (cargo build --package kura)".to_owned()),
        );
        match &self.fleet {
            Fleet::Runs { account, macs } => {
                row("Macs", format!("{macs} serve, emulated"));
                row("Scaleway", format!("{account} (emulated; an hour passes in a minute)"));
            }
            Fleet::LeftOut => row("Macs", "left out".to_owned()),
            Fleet::NotBuilt => row(
                "Macs",
                "left out: no capi-provider, sim-scaleway and sim-mac beside russet (make up builds them)".to_owned(),
            ),
        }
        if !matches!(self.fleet, Fleet::NotBuilt) {
            row("Cache nodes", cache_nodes(&self.linux));
        }
        let dir = self
            .dir
            .as_ref()
            .map(|dir| format!(" --dir {}", shown(dir)))
            .unwrap_or_default();
        let ready = colour.paint(Tone::Good, &format!("Ready after {:.1} s.", self.ready_after));
        let stop = if self.background {
            format!("russet down{dir}")
        } else {
            "Ctrl-C (keeps the data), then `russet up` goes on".to_owned()
        };
        let mut uses = Table::new(&[]);
        let mut usage = |what: &'static str, how: String| uses.row([Cell::new(what, Tone::Dim), Cell::from(how)]);
        match &self.fleet {
            Fleet::Runs { macs, .. } => {
                usage(
                    "Use it",
                    format!("russet kubectl{dir} get nodes,machines,samm,semm,sim -A"),
                );
                let [macos, ..] = super::macs::shares(*macs);
                usage(
                    "Scale it",
                    format!(
                        "russet kubectl{dir} scale machinedeployment macos -n russet-system --replicas {}",
                        macos + 1
                    ),
                );
            }
            Fleet::LeftOut | Fleet::NotBuilt => usage("Use it", format!("russet kubectl{dir} get crd")),
        }
        usage("", format!("export KUBECONFIG={}", shown(&self.kubeconfig)));
        usage("Look at it", format!("russet status{dir} --watch"));
        usage("Read a log", format!("russet logs{dir} kube-apiserver -f"));
        usage("Stop it", stop);
        if !self.background {
            usage("Remove it", format!("russet down{dir}"));
        }
        format!("\n{ready}\n\n{}\n{}", table.render(colour), uses.render(colour))
    }
}

fn cache_nodes(plan: &Plan) -> String {
    let kinds = "1 Elastic Metal and 1 Instance serve";
    match plan {
        Plan::Real(_) => format!("{kinds}, emulated with a real kubelet each"),
        Plan::Synthetic(_, why) => format!("{kinds}, synthetic: Nodes without machines, no Pod runs there ({why})"),
        Plan::LeftOut => "left out".to_owned(),
        Plan::NotBuilt => "left out: no sim-linux beside russet (make up builds it)".to_owned(),
    }
}

/// Quoted for a shell where it must be.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=@:,".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            server: "https://127.0.0.1:40001".into(),
            kubeconfig: "/home/me/.russet/kubeconfig".into(),
            kubectl: Some("/home/me/.cache/russet/parts/kubectl".into()),
            logs: "/home/me/.russet/logs".into(),
            crds: 8,
            cluster_api: true,
            cache: Some("http://127.0.0.1:40002".into()),
            fleet: Fleet::Runs {
                account: "http://127.0.0.1:40003".into(),
                macs: 2,
            },
            linux: Plan::Real("/home/me/bin/sim-linux".into()),
            ready_after: 11.27,
            dir: None,
            background: false,
        }
    }

    #[test]
    fn the_table_says_where_everything_is_and_how_to_use_it() {
        insta::assert_snapshot!(summary().render(Colour::Never));
    }

    #[test]
    fn cache_nodes_that_are_no_machines_are_said_to_be_none() {
        let text = cache_nodes(&Plan::Synthetic("/p".into(), "a node needs root".into()));
        let told = text.contains("synthetic") && text.contains("a node needs root");
        assert!(told, "{text}");
        assert_eq!(cache_nodes(&Plan::LeftOut), "left out");
    }

    #[test]
    fn another_directory_is_named_in_every_command() {
        let elsewhere = Summary {
            dir: Some("/tmp/my second".into()),
            kubectl: None,
            cluster_api: false,
            cache: None,
            fleet: Fleet::NotBuilt,
            background: true,
            ..summary()
        };
        insta::assert_snapshot!(elsewhere.render(Colour::Never));
    }
}
