//! What the hash of a fleet depends on.

use super::{api_server, artifact, bare, builder, full, plain};
use crate::mac::{Agent, ApiServer, Firewall, Fleet, Host, LogShipping, Step, Tailnet, desired, plan};

type Change = (&'static str, fn(&mut Fleet));

/// One change of each field. Taking the types apart without `..` makes a new field an error here.
fn changes() -> Vec<Change> {
    let Fleet {
        agent,
        api_server: server,
        tart: _,
        tailnet,
        node_exporter: _,
        logs,
        firewall,
        login_from: _,
        cache_volume_gib: _,
    } = full();
    let Agent {
        program: _,
        cpu: _,
        memory_mb: _,
        max_pods: _,
        tailnet_only: _,
        extra: _,
    } = agent;
    let ApiServer { url: _, ca_pem: _ } = &*server.unwrap();
    let Some(Tailnet {
        archive: _,
        tags: _,
        accept_routes: _,
        login_server: _,
    }) = tailnet
    else {
        panic!("the full fleet is on a tailnet");
    };
    let Some(LogShipping {
        program: _,
        url: _,
        env: _,
    }) = logs
    else {
        panic!("the full fleet ships logs");
    };
    let Firewall {
        services: _,
        dns: _,
        cache_network: _,
    } = firewall;
    vec![
        ("agent.program", |fleet| fleet.agent.program = artifact("new")),
        ("agent.cpu", |fleet| fleet.agent.cpu = 7),
        ("agent.memory_mb", |fleet| fleet.agent.memory_mb = 7),
        ("agent.max_pods", |fleet| fleet.agent.max_pods = 7),
        ("agent.tailnet_only", |fleet| fleet.agent.tailnet_only = false),
        ("agent.extra", |fleet| fleet.agent.extra.clear()),
        ("api_server.url", |fleet| {
            fleet.api_server = Some(api_server("https://203.0.113.8:6443", "one"));
        }),
        ("api_server.ca_pem", |fleet| {
            fleet.api_server = Some(api_server("https://203.0.113.7:6443", "two"));
        }),
        ("no api_server", |fleet| fleet.api_server = None),
        ("tart", |fleet| fleet.tart = Some(artifact("new"))),
        ("no tart", |fleet| fleet.tart = None),
        ("tailnet.archive", |fleet| tailnet_of(fleet).archive = artifact("new")),
        ("tailnet.tags", |fleet| tailnet_of(fleet).tags.clear()),
        ("tailnet.accept_routes", |fleet| tailnet_of(fleet).accept_routes = false),
        ("tailnet.login_server", |fleet| tailnet_of(fleet).login_server = None),
        ("no tailnet", |fleet| fleet.tailnet = None),
        ("node_exporter", |fleet| fleet.node_exporter = Some(artifact("new"))),
        ("no node_exporter", |fleet| fleet.node_exporter = None),
        ("logs.program", |fleet| logs_of(fleet).program = artifact("new")),
        ("logs.url", |fleet| {
            logs_of(fleet).url = "https://other.example".to_owned();
        }),
        ("logs.env", |fleet| logs_of(fleet).env = "production".to_owned()),
        ("no logs", |fleet| fleet.logs = None),
        ("firewall.services", |fleet| {
            fleet.firewall.services = Some("10.0.0.0/16".to_owned());
        }),
        ("firewall.dns", |fleet| fleet.firewall.dns = None),
        ("firewall.cache_network", |fleet| fleet.firewall.cache_network = None),
        ("login_from", |fleet| fleet.login_from = Some(Vec::new())),
        ("no login_from", |fleet| fleet.login_from = None),
        ("cache_volume_gib", |fleet| fleet.cache_volume_gib = Some(7)),
        ("no cache_volume_gib", |fleet| fleet.cache_volume_gib = None),
    ]
}

fn tailnet_of(fleet: &mut Fleet) -> &mut Tailnet {
    fleet.tailnet.as_mut().unwrap()
}

fn logs_of(fleet: &mut Fleet) -> &mut LogShipping {
    fleet.logs.as_mut().unwrap()
}

/// What a plan does to a host, as text.
fn rendered(fleet: &Fleet, host: &Host) -> String {
    plan(fleet, host)
        .iter()
        .flat_map(|step| &step.resources)
        .map(|resource| [resource.check(&host.user), resource.change(&host.user)].concat())
        .collect()
}

/// The update once left `node_exporter` out while the hash had it in: every host counted as up to date and none was. Here the hash is
/// made of the plan, so what one knows the other does. (incident drift-path-forgets-a-step)
#[test]
fn each_field_of_a_fleet_changes_the_hash_and_what_is_done_to_a_host() {
    let fleet = full();
    assert_eq!(
        desired(&fleet),
        desired(&full()),
        "it does not depend on where files are"
    );
    let mut seen = vec![desired(&fleet)];
    for (field, change) in changes() {
        let mut other = full();
        change(&mut other);
        assert_ne!(other, fleet, "{field}");
        let hash = desired(&other);
        assert!(!seen.contains(&hash), "{field}");
        seen.push(hash);
        assert_ne!(rendered(&other, &builder()), rendered(&fleet, &builder()), "{field}");
    }
}

/// By its type the hash cannot see a host. This is the other half: hosts of every kind run the same steps in the same order.
#[test]
fn every_host_of_every_fleet_runs_the_same_steps() {
    let names = |fleet: &Fleet, host: &Host| plan(fleet, host).iter().map(Step::name).collect::<Vec<_>>();
    let all = names(&full(), &builder());
    assert_eq!(names(&full(), &bare()), all);
    assert_eq!(names(&plain(), &builder()), all);
    assert_eq!(names(&plain(), &bare()), all);
}

/// A word of a script that every builder runs belongs to the fleet, though no field of it does.
#[test]
fn what_only_builders_run_is_part_of_the_hash() {
    let blanks = Host::blanks();
    let runner = |host: &Host| {
        let steps = plan(&plain(), host);
        let step = steps.iter().find(|step| step.name() == "github-runner").unwrap();
        step.resources.len()
    };
    assert_eq!(blanks.iter().map(runner).filter(|count| *count > 0).count(), 1);
}
