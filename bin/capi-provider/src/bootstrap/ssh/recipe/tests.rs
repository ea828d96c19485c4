use super::*;
use clap::Parser as _;
use russet_bootstrap::mac::ApiServer;

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    host: HostArgs,
}

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["agent", "tart", "tailscale", "exporter", "shipper"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn recipe(&self, flags: &[&str]) -> Result<Recipe, String> {
        let agent = format!("--tartkubelet-binary-path={}", self.path("agent"));
        let tart = format!("--tart-tarball-path={}", self.path("tart"));
        let mut all = vec!["provider", &agent, &tart];
        all.extend(flags);
        let flags = Flags::try_parse_from(all).map_err(|error| error.to_string())?;
        Recipe::new(flags.host).map_err(|error| error.to_string())
    }
}

#[test]
fn a_thousand_questions_read_each_file_once() {
    let files = Files::new();
    let recipe = files.recipe(&[]).unwrap();
    let facts = HostFacts::default();
    let hash = recipe.desired(&facts);
    for _ in 0..1_000 {
        assert_eq!(recipe.desired(&facts), hash);
    }
    assert_eq!(recipe.hashed(), 2);
    let bigger = HostFacts {
        cpu: Some(12),
        ..HostFacts::default()
    };
    assert_ne!(recipe.desired(&bigger), hash);
    assert_eq!(recipe.hashed(), 2);

    let next = files.dir.path().join("next");
    std::fs::write(&next, "another agent").unwrap();
    std::fs::rename(&next, files.path("agent")).unwrap();
    assert_ne!(recipe.desired(&facts), hash, "a new agent is a new configuration");
    assert_eq!(recipe.hashed(), 3);
}

/// Hosts were lost when the API server moved: nobody told them, since nothing they were set up with had changed.
#[test]
fn a_host_that_was_told_another_api_server_has_drifted() {
    let files = Files::new();
    let recipe = files.recipe(&[]).unwrap();
    let at = |url: &str| HostFacts {
        api_server: Some(Arc::new(ApiServer {
            url: url.to_owned(),
            ca_pem: "-----BEGIN CERTIFICATE-----".to_owned(),
        })),
        ..HostFacts::default()
    };
    let (old, new) = (at("https://203.0.113.7:6443"), at("https://203.0.113.8:6443"));
    let hash = recipe.desired(&old);
    assert_eq!(recipe.desired(&at("https://203.0.113.7:6443")), hash);
    assert_ne!(recipe.desired(&new), hash);
    assert_ne!(recipe.desired(&HostFacts::default()), hash);
    assert_eq!(recipe.fleet(&new).unwrap().api_server, new.api_server);
}

/// A file that is exchanged is missing for a moment on some file systems; a fleet was rolled to nothing and back.
#[test]
fn a_file_that_is_gone_is_no_reason_to_roll() {
    let files = Files::new();
    let recipe = files.recipe(&[]).unwrap();
    let hash = recipe.desired(&HostFacts::default());
    std::fs::remove_file(files.path("agent")).unwrap();
    assert_eq!(recipe.desired(&HostFacts::default()), hash);
    assert!(recipe.fleet(&HostFacts::default()).is_err());
}

#[test]
fn a_fleet_has_what_the_flags_say() {
    let files = Files::new();
    let recipe = files
        .recipe(&[
            &format!("--tailscale-binaries-path={}", files.path("tailscale")),
            "--tailscale-auth-key-secret-name=tailnet",
            "--tailscale-tags=tag:mac, tag:ci",
            &format!("--node-exporter-binary-path={}", files.path("exporter")),
            &format!("--log-shipper-binary-path={}", files.path("shipper")),
            "--log-ship-url=http://logs.example/push",
            "--vm-kura-egress-cidr=10.96.0.0/12",
            "--vm-cluster-dns-ip=10.96.0.10",
            "--ssh-ingress-allow-cidrs=51.15.0.0/16",
            "--runner-cache-volume-gib=100",
            "--cache-volume-cas-gib=5",
        ])
        .unwrap();
    let fleet = recipe.fleet(&HostFacts::default()).unwrap();
    assert!(fleet.agent.tailnet_only);
    assert_eq!(fleet.tailnet.unwrap().tags, ["tag:mac", "tag:ci"]);
    assert!(fleet.node_exporter.is_some());
    assert_eq!(fleet.login_from.unwrap(), ["51.15.0.0/16"]);
    assert_eq!(fleet.firewall.dns, Some(Ipv4Addr::new(10, 96, 0, 10)));
    assert_eq!(fleet.agent.extra, ["--cache-volume-cas-gib=5"]);
}

#[test]
fn what_is_only_for_the_tailnet_is_off_without_it() {
    let files = Files::new();
    let exporter = format!("--node-exporter-binary-path={}", files.path("exporter"));
    let recipe = files
        .recipe(&[&exporter, "--ssh-ingress-allow-cidrs=51.15.0.0/16"])
        .unwrap();
    let fleet = recipe.fleet(&HostFacts::default()).unwrap();
    assert!(fleet.node_exporter.is_none() && fleet.login_from.is_none() && !fleet.agent.tailnet_only);
}

#[test]
fn a_flag_that_makes_no_sense_is_named() {
    let files = Files::new();
    for (flag, sentence) in [
        (
            "--tartkubelet-binary-path=/nowhere",
            "--tartkubelet-binary-path: cannot read /nowhere",
        ),
        ("--vm-cache-pn-cidr=172.16.0.0", "--vm-cache-pn-cidr"),
        ("--vm-kura-egress-cidr=10.0.0.0/99", "--vm-kura-egress-cidr"),
        ("--ssh-ingress-allow-cidrs=1.2.3.4", "--ssh-ingress-allow-cidrs"),
        ("--vm-cluster-dns-ip=10.96.0.10", "--vm-kura-egress-cidr is not"),
        (
            "--tailscale-binaries-path=/x",
            "--tailscale-auth-key-secret-name is not",
        ),
        ("--tailscale-auth-key-secret-name=x", "--tailscale-binaries-path is not"),
        ("--log-shipper-binary-path=/x", "--log-ship-url is not"),
    ] {
        let said = match flag.split_once('=') {
            // Given once: clap wants no flag twice.
            Some(("--tartkubelet-binary-path", path)) => {
                let tart = format!("--tart-tarball-path={}", files.path("tart"));
                let flags = ["provider", &format!("--tartkubelet-binary-path={path}"), &tart];
                Recipe::new(Flags::try_parse_from(flags).unwrap().host)
                    .map(drop)
                    .map_err(|error| error.to_string())
            }
            _ => files.recipe(&[flag]).map(drop),
        };
        let said = said.unwrap_err();
        assert!(said.contains(sentence), "{flag}: {said}");
    }
}
