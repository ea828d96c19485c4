use super::*;
use std::path::Path;

pub(crate) fn layout() -> Layout {
    Layout::new(Path::new("/home/me/russet"), Path::new(".russet"))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn part(name: &str, pid: u32) -> run::Part {
    run::Part {
        name: name.into(),
        state: run::PartState::Running,
        pid: Some(pid),
        restarts: 0,
        started_at: Some(at("2026-03-01T10:00:01Z")),
        ready_after_seconds: Some(1.25),
        last_exit: None,
        address: Some("https://127.0.0.1:40001".into()),
        log: layout().log(name),
    }
}

fn run() -> run::Run {
    run::Run {
        pid: 100,
        russet: "0.1.0".into(),
        started_at: at("2026-03-01T10:00:00Z"),
        phase: run::Phase::Ready,
        ready_after_seconds: Some(9.5),
        server: Some("https://127.0.0.1:40001".into()),
        kubeconfig: Some(layout().kubeconfig()),
        cluster_api: true,
        parts: vec![part("etcd", 101), part("kube-apiserver", 102), part("capi-core", 103)],
        steps: vec![],
    }
}

fn cluster() -> Cluster {
    Cluster {
        server: Some("https://127.0.0.1:40001".into()),
        kubeconfig: layout().kubeconfig(),
        context: None,
        reachable: true,
        error: None,
        version: Some("v1.35.4".into()),
        nodes: Nodes { total: 1, ready: 1 },
        crds: vec![Crd {
            name: "runnerpools.tuist.dev".into(),
            established: true,
        }],
        cluster_api: ClusterApi {
            installed: true,
            ready: false,
            wanted: false,
        },
        fleet: Some(fleet()),
    }
}

fn sample(pid: u32, mib: u64, cpu_seconds: f64, cpu_percent: Option<f64>) -> (u32, Sample) {
    let sample = Sample {
        memory: mib << 20,
        cpu_seconds,
        cpu_percent,
    };
    (pid, sample)
}

fn facts(layout: &Layout) -> Facts<'_> {
    Facts {
        now: at("2026-03-01T11:02:05Z"),
        layout,
        holder: Some(Holder {
            pid: 100,
            started: 1,
            command: "up".into(),
        }),
        run: Some(run()),
        existing: None,
        samples: [
            sample(100, 20, 2.0, Some(0.1)),
            sample(101, 45, 12.5, Some(1.26)),
            sample(102, 271, 80.0, Some(4.0)),
            sample(103, 67, 8.0, None),
        ]
        .into(),
        cluster: Some(cluster()),
        account: Some(account()),
    }
}

pub(crate) fn healthy() -> Document {
    judge(facts(&layout()))
}

pub(crate) fn degraded() -> Document {
    let layout = layout();
    let mut facts = facts(&layout);
    let run = facts.run.as_mut().unwrap();
    let apiserver = run.parts.get_mut(1).unwrap();
    apiserver.state = run::PartState::BackingOff;
    apiserver.pid = None;
    apiserver.restarts = 3;
    apiserver.last_exit = Some("signal 9 (SIGKILL)".into());
    let cluster = facts.cluster.as_mut().unwrap();
    cluster.reachable = false;
    cluster.error = Some("connection refused".into());
    judge(facts)
}

pub(crate) fn stopped() -> Document {
    let layout = layout();
    judge(Facts {
        holder: None,
        cluster: None,
        ..facts(&layout)
    })
}

#[test]
fn the_json_document_keeps_its_fields() {
    insta::assert_json_snapshot!(healthy());
}

#[test]
fn all_running_is_ready_without_a_problem() {
    let document = healthy();
    assert_eq!(document.state, Health::Ready);
    assert_eq!(document.problems, [""; 0]);
    assert!(document.cluster.unwrap().cluster_api.ready);
}

#[test]
fn a_part_that_backs_off_degrades_and_is_named() {
    let document = degraded();
    assert_eq!(document.state, Health::Degraded);
    insta::assert_snapshot!(document.problems.join("\n"), @r"
    kube-apiserver is BackingOff, last ended with: signal 9 (SIGKILL); see `russet logs kube-apiserver`
    the API server does not answer: connection refused
    ");
}

#[test]
fn the_file_of_a_dead_run_does_not_make_it_alive() {
    let document = stopped();
    assert_eq!(document.state, Health::Stopped);
    assert!(document.up.is_none());
    let mut parts = document.parts.iter();
    assert!(parts.all(|part| part.pid.is_none() && part.state == run::PartState::Stopped));
}

#[test]
fn a_new_up_over_the_file_of_an_old_one_is_starting() {
    let layout = layout();
    let mut facts = facts(&layout);
    facts.holder = Some(Holder {
        pid: 999,
        started: 1,
        command: "up".into(),
    });
    let document = judge(facts);
    assert_eq!(document.state, Health::Starting);
    assert!(document.parts.iter().all(|part| part.pid.is_none()));
}

#[test]
fn a_missing_crd_or_cluster_api_is_a_problem() {
    let layout = layout();
    let mut facts = facts(&layout);
    facts.cluster.as_mut().unwrap().crds.first_mut().unwrap().established = false;
    facts.run.as_mut().unwrap().parts.pop();
    insta::assert_snapshot!(judge(facts).problems.join("\n"), @r"
    CRD runnerpools.tuist.dev is not Established; `russet up` installs it
    Cluster API core is not ready
    ");
}

#[test]
fn without_cluster_api_its_absence_is_fine() {
    let layout = layout();
    let mut facts = facts(&layout);
    let run = facts.run.as_mut().unwrap();
    run.cluster_api = false;
    run.parts.pop();
    facts.cluster.as_mut().unwrap().cluster_api.installed = false;
    assert_eq!(judge(facts).state, Health::Ready);
}

#[test]
fn an_existing_cluster_is_judged_by_its_answers_alone() {
    let layout = layout();
    let existing = record::Existing {
        kubeconfig: "/k".into(),
        context: Some("dev".into()),
    };
    let mut facts = Facts {
        holder: None,
        run: None,
        existing: Some(existing),
        ..facts(&layout)
    };
    facts.cluster.as_mut().unwrap().cluster_api = ClusterApi::default();
    assert_eq!(judge(facts).state, Health::Ready);
}

#[test]
fn a_clock_that_went_back_gives_no_negative_age() {
    let layout = layout();
    let document = judge(Facts {
        now: at("2026-03-01T09:00:00Z"),
        ..facts(&layout)
    });
    assert_eq!(document.up.unwrap().uptime_seconds, 0);
}

fn account() -> Account {
    Account {
        url: "http://127.0.0.1:40003".into(),
        emulated: true,
        servers: 4,
        pooled: 2,
        pooled_ready: 1,
        per_hour_micro_eur: 680_000,
        total_micro_eur: 16_320_001,
    }
}

fn hosting() -> Hosting {
    let vm = |pod: &str, container: &str, phase: &str| Vm {
        namespace: "default".into(),
        pod: pod.into(),
        container: container.into(),
        image: "ghcr.io/cirruslabs/macos-tahoe-base:latest".into(),
        phase: phase.into(),
        address: (phase == "Running").then(|| "127.160.1.2".into()),
        ready: phase == "Running",
        restarts: 0,
        created_at: Some(at("2026-03-01T11:00:00Z")),
        age_seconds: None,
    };
    Hosting {
        address: Some("127.100.0.1".into()),
        places: Some(2),
        disk_bytes: Some(460 << 30),
        disk_pressure: false,
        images: vec![Image {
            names: vec![
                "ghcr.io/cirruslabs/macos-tahoe-base@sha256:aa".into(),
                "ghcr.io/cirruslabs/macos-tahoe-base:latest".into(),
            ],
            bytes: Some(25 << 30),
        }],
        vms: vec![
            vm("demo", "demo", "Running"),
            vm("pair", "main", "ErrImagePull"),
            vm("pair", "proxy", "Running"),
        ],
    }
}

fn fleet() -> Fleet {
    let mac = |name: &str, phase: &str, message: Option<&str>| Mac {
        name: name.into(),
        namespace: "russet-system".into(),
        fleet: Some("macos".into()),
        phase: phase.into(),
        server_id: message.is_none().then(|| "0b5c0a3e-0000-4000-a000-000000000001".into()),
        address: message.is_none().then(|| "127.64.0.1".into()),
        ready: message.is_none(),
        message: message.map(str::to_owned),
        created_at: None,
        hosting: message.is_none().then(hosting),
    };
    let server = |name: &str, kind: Kind, synthetic: bool| Server {
        name: name.into(),
        namespace: "russet-system".into(),
        kind,
        fleet: Some("kura-fleet".into()),
        zone: Some("fr-par-1".into()),
        phase: "Ready".into(),
        server_id: Some("5e4f0b1d-0000-4000-a000-000000000002".into()),
        private_address: Some("172.28.7.2".into()),
        public_address: Some("10.77.7.194".into()),
        ready: true,
        node_ready: true,
        synthetic,
        per_hour_micro_eur: Some(263_000),
        message: None,
        created_at: None,
    };
    Fleet {
        groups: vec![Group {
            name: "macos".into(),
            namespace: "russet-system".into(),
            kind: Kind::Mac,
            wanted: 2,
            ready: 1,
            available: 1,
        }],
        macs: vec![
            mac("macos-1", "Ready", None),
            mac("macos-2", "Pending", Some("no M2-L is free")),
        ],
        servers: vec![
            server("kura-fleet-1", Kind::ElasticMetal, false),
            server("kura-fleet-2", Kind::Instance, true),
        ],
    }
}

#[test]
fn cache_nodes_show_where_they_are_dialled_what_they_cost_and_whether_they_are_machines() {
    let text = crate::status::view::render(&healthy(), crate::table::Colour::Never);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    for word in ["Elastic Metal", "fr-par-1", "172.28.7.2", "€0.27"] {
        assert!(line("kura-fleet-1").contains(word), "{word}: {text}");
    }
    assert!(!line("kura-fleet-1").contains("synthetic"), "{text}");
    assert!(line("kura-fleet-2").contains("Ready, synthetic"), "{text}");
}

#[test]
fn the_macs_their_pool_and_their_price_are_shown() {
    let text = crate::status::view::render(&healthy(), crate::table::Colour::Never);
    assert!(text.contains("2 free, 1 of them ready to adopt"), "{text}");
    assert!(text.contains("€0.68 an hour, €16.33 so far"), "{text}");
    assert!(text.contains("no M2-L is free"), "{text}");
}
