//! What each part is started with. Pure: paths and ports in, [`Spec`]s out.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Durability, Options};
use crate::pki::Pki;
use crate::ports::Ports;
use crate::process::{Probe, Spec};

/// The names of the parts: of their programs, processes and logs.
pub mod name {
    /// etcd.
    pub const ETCD: &str = "etcd";
    /// kube-apiserver.
    pub const APISERVER: &str = "kube-apiserver";
    /// kube-controller-manager.
    pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
    /// kube-scheduler.
    pub const SCHEDULER: &str = "kube-scheduler";
}

const ETCD_PEER_PORT: &str = "etcd-peer";
pub(super) const APISERVER_PORT: &str = name::APISERVER;
/// Ports nobody else needs to reach.
pub(super) const LOOPBACK_PORTS: [&str; 4] = [name::ETCD, ETCD_PEER_PORT, name::CONTROLLER_MANAGER, name::SCHEDULER];

const SERVICE_RANGE: &str = "10.96.0.0/16";
const POD_RANGE: &str = "10.244.0.0/16";

/// Every request once, when it is answered: enough to prove who was denied what, and no secret content.
pub(super) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

pub(super) fn audit_log(options: &Options) -> PathBuf {
    options.logs.join("audit.jsonl")
}

/// Where everything is.
pub(super) struct Layout<'a> {
    pub(super) options: &'a Options,
    pub(super) pki: &'a Pki,
    pub(super) loopback: &'a Ports,
    pub(super) public: &'a Ports,
}

impl Layout<'_> {
    pub(super) fn etcd_url(&self) -> String {
        format!("https://{}", self.loopback.socket(name::ETCD))
    }

    pub(super) fn audit_policy(&self) -> PathBuf {
        self.options.dir.join("audit-policy.yaml")
    }

    fn spec(&self, name: &str, program: &Path) -> Spec {
        Spec::new(name, program, self.options.logs.join(format!("{name}.log"))).restart(self.options.restart)
    }

    pub(super) fn etcd(&self, program: &Path) -> Spec {
        let client = self.etcd_url();
        let peer_socket = self.loopback.socket(ETCD_PEER_PORT);
        let peer = format!("https://{peer_socket}");
        let (cert, key, ca) = (
            show(&self.pki.etcd.cert),
            show(&self.pki.etcd.key),
            show(self.pki.etcd_ca().cert()),
        );
        let mut args = vec![
            "--name=default".to_owned(),
            format!("--data-dir={}", show(&self.options.dir.join("etcd"))),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            // The peer address matters on the first start only; later ones find their member in the data, so a peer
            // port that had to be chosen anew does no harm to a cluster of one.
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            format!("--cert-file={cert}"),
            format!("--key-file={key}"),
            format!("--trusted-ca-file={ca}"),
            "--client-cert-auth".to_owned(),
            format!("--peer-cert-file={cert}"),
            format!("--peer-key-file={key}"),
            format!("--peer-trusted-ca-file={ca}"),
            "--peer-client-cert-auth".to_owned(),
        ];
        if self.options.durability == Durability::Throwaway {
            args.push("--unsafe-no-fsync".to_owned());
        }
        self.spec(name::ETCD, program)
            .args(args)
            .listens(self.loopback.socket(name::ETCD))
            .listens(peer_socket)
            .probe(Probe::Https {
                url: format!("{client}/health"),
                ca: self.pki.etcd_ca().cert().to_owned(),
                client: Some(self.pki.apiserver_etcd_client.identity()),
            })
    }

    pub(super) fn apiserver(&self, program: &Path) -> Spec {
        let pki = self.pki;
        let address = self.options.address;
        let socket = self.public.socket(APISERVER_PORT);
        let mut args = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--etcd-cafile={}", show(pki.etcd_ca().cert())),
            format!("--etcd-certfile={}", show(&pki.apiserver_etcd_client.cert)),
            format!("--etcd-keyfile={}", show(&pki.apiserver_etcd_client.key)),
            format!("--bind-address={address}"),
            format!("--secure-port={}", socket.port()),
            format!("--advertise-address={address}"),
            format!("--tls-cert-file={}", show(&pki.apiserver.cert)),
            format!("--tls-private-key-file={}", show(&pki.apiserver.key)),
            format!("--client-ca-file={}", show(pki.ca().cert())),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", show(&pki.service_account_public_key())),
            format!(
                "--service-account-signing-key-file={}",
                show(&pki.service_account_key())
            ),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--service-node-port-range=30000-32767".to_owned(),
            "--allow-privileged=true".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                show(&pki.apiserver_kubelet_client.cert)
            ),
            format!("--kubelet-client-key={}", show(&pki.apiserver_kubelet_client.key)),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
            format!("--requestheader-client-ca-file={}", show(pki.front_proxy_ca().cert())),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", show(&pki.front_proxy_client.cert)),
            format!("--proxy-client-key-file={}", show(&pki.front_proxy_client.key)),
        ];
        if address.is_loopback() {
            // Endpoints may not name a loopback address: the apiserver would complain for ever.
            args.push("--endpoint-reconciler-type=none".to_owned());
        }
        if self.options.audit {
            args.push(format!("--audit-policy-file={}", show(&self.audit_policy())));
            args.push(format!("--audit-log-path={}", show(&audit_log(self.options))));
            args.push("--audit-log-maxsize=200".to_owned());
            args.push("--audit-log-maxbackup=1".to_owned());
        }
        args.extend(self.options.apiserver_args.iter().cloned());
        self.spec(name::APISERVER, program)
            .args(args)
            .listens(socket)
            .ready_within(Duration::from_mins(2))
            .probe(Probe::Https {
                url: format!("https://{socket}/readyz"),
                ca: pki.ca().cert().to_owned(),
                client: None,
            })
    }

    pub(super) fn controller_manager(&self, program: &Path, kubeconfig: &Path, extra: &[String]) -> Spec {
        let pki = self.pki;
        let args = [
            "--use-service-account-credentials=true".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                show(&pki.service_account_key())
            ),
            format!("--root-ca-file={}", show(pki.ca().cert())),
            format!("--cluster-signing-cert-file={}", show(pki.ca().cert())),
            format!("--cluster-signing-key-file={}", show(&pki.ca().key())),
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={POD_RANGE}"),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        ];
        self.behind_apiserver(name::CONTROLLER_MANAGER, program, kubeconfig)
            .args(args)
            .args(extra.iter().cloned())
    }

    pub(super) fn scheduler(&self, program: &Path, kubeconfig: &Path) -> Spec {
        self.behind_apiserver(name::SCHEDULER, program, kubeconfig)
    }

    /// What kube-controller-manager and kube-scheduler have in common.
    fn behind_apiserver(&self, name: &str, program: &Path, kubeconfig: &Path) -> Spec {
        let socket = self.loopback.socket(name);
        let kubeconfig = show(kubeconfig);
        let args = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", Ipv4Addr::LOCALHOST),
            format!("--secure-port={}", socket.port()),
            format!("--tls-cert-file={}", show(&self.pki.loopback.cert)),
            format!("--tls-private-key-file={}", show(&self.pki.loopback.key)),
            "--leader-elect=false".to_owned(),
            // At the default of 20 a second kube-controller-manager spends its first five seconds making ServiceAccounts.
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        self.spec(name, program).args(args).listens(socket).probe(Probe::Https {
            url: format!("https://{socket}/healthz"),
            ca: self.pki.ca().cert().to_owned(),
            client: None,
        })
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_layout(options: &Options, check: impl FnOnce(&Layout<'_>)) {
        let pki = Pki::ensure(&options.dir.join("pki"), options.address).unwrap();
        let loopback = Ports::pick(&options.dir, Ipv4Addr::LOCALHOST, &LOOPBACK_PORTS).unwrap();
        let public = Ports::pick(&options.dir, Ipv4Addr::LOCALHOST, &[APISERVER_PORT]).unwrap();
        check(&Layout {
            options,
            pki: &pki,
            loopback: &loopback,
            public: &public,
        });
    }

    #[test]
    fn only_throwaway_clusters_skip_fsync() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path());
        let skips = |layout: &Layout<'_>| {
            layout
                .etcd(Path::new("etcd"))
                .args
                .contains(&"--unsafe-no-fsync".to_owned())
        };
        with_layout(&options, |layout| assert!(!skips(layout)));
        options.durability = Durability::Throwaway;
        with_layout(&options, |layout| assert!(skips(layout)));
    }

    #[test]
    fn arguments_of_the_caller_come_last_so_that_they_win() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            apiserver_args: vec!["--v=4".to_owned()],
            ..Options::new(dir.path())
        };
        with_layout(&options, |layout| {
            assert_eq!(layout.apiserver(Path::new("a")).args.last().unwrap(), "--v=4");
            let manager = layout.controller_manager(Path::new("a"), Path::new("k"), &["--v=5".to_owned()]);
            assert_eq!(manager.args.last().unwrap(), "--v=5");
        });
    }

    #[test]
    fn auditing_is_off_unless_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path());
        let audits = |layout: &Layout<'_>| {
            layout
                .apiserver(Path::new("a"))
                .args
                .iter()
                .any(|a| a.contains("--audit"))
        };
        with_layout(&options, |layout| assert!(!audits(layout)));
        options.audit = true;
        with_layout(&options, |layout| assert!(audits(layout)));
    }

    #[test]
    fn no_argument_carries_key_material() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            extras: super::super::Extras::all(),
            ..Options::new(dir.path())
        };
        with_layout(&options, |layout| {
            let specs = [
                layout.etcd(Path::new("a")),
                layout.apiserver(Path::new("a")),
                layout.controller_manager(Path::new("a"), Path::new("k"), &[]),
                layout.scheduler(Path::new("a"), Path::new("k")),
            ];
            assert!(
                specs
                    .iter()
                    .flat_map(|spec| &spec.args)
                    .all(|arg| !arg.contains("BEGIN"))
            );
        });
    }
}
