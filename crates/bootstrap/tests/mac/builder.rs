//! Builders: a GitHub Actions runner in the desktop session of a host.

use crate::harness::{CANARY, STAYS, World};
use russet_bootstrap::mac::{Failed, Host, Runner};
use russet_sim_mac::macos::Xcode;
use russet_telemetry::Secret;

const AGENT: &str = "gui/501/actions.runner.tuist.mac-1";

/// The runner's own scripts, as strict as they are: no root, no token but from the environment.
const CONFIG: &str = r#"#!/bin/bash
[ "$(id -u)" != 0 ] || { echo 'Must not run with sudo'; exit 1; }
case $* in *--token*) echo 'the token is in the arguments'; exit 1 ;; esac
[ -n "${ACTIONS_RUNNER_INPUT_TOKEN:-}" ] || { echo 'Invalid configuration provided for token.'; exit 1; }
case $ACTIONS_RUNNER_INPUT_TOKEN in bad*) echo "Http response code: NotFound for $ACTIONS_RUNNER_INPUT_TOKEN" >&2; exit 1 ;; esac
echo "{\"agentName\": \"$*\"}" >.runner && echo '{}' >.credentials
"#;
const SERVICE: &str = r#"#!/bin/bash
[ "$(id -u)" != 0 ] || { echo 'Must not run with sudo'; exit 1; }
[ "$1" = install ] || exit 1
mkdir -p ~/Library/LaunchAgents
cat >~/Library/LaunchAgents/actions.runner.tuist.mac-1.plist <<END
<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>Label</key><string>actions.runner.tuist.mac-1</string>
<key>ProgramArguments</key><array><string>/opt/actions-runner/runsvc.sh</string></array>
<key>RunAtLoad</key><true/></dict></plist>
END
"#;

/// The archive of the runner comes from GitHub, which nobody here reaches: a curl that knows only this one address.
async fn runner_is_there(world: &World) {
    let files = [
        ("config.sh", CONFIG),
        ("svc.sh", SERVICE),
        ("runsvc.sh", STAYS),
        ("bin/Runner.Listener", STAYS),
    ];
    let archive = world.archive("runner.tar.gz", &files);
    let root = world.mac().await.root().to_owned();
    std::fs::copy(archive.path(), root.join("private/var/tmp/runner.tar.gz")).unwrap();
    let curl = "#!/bin/bash\n[ \"$1 $2 $4\" = \"-fsSL -o https://github.com/actions/runner/releases/download/v2.336.0/\
                actions-runner-osx-arm64-2.336.0.tar.gz\" ] || exit 22\nexec cat /var/tmp/runner.tar.gz >\"$3\"\n";
    let path = root.join("usr/local/bin/curl");
    russet_program::write(&path, curl).unwrap();
}

fn builder(world: &World, token: &str) -> Host {
    Host {
        runner: Some(Runner {
            org: "tuist".to_owned(),
            labels: "self-hosted,macos,vm-image-builder".to_owned(),
            version: "2.336.0".to_owned(),
            token: Secret::new(token.to_owned()),
        }),
        ..world.host()
    }
}

async fn runner_pid(world: &World) -> String {
    world
        .root(&format!("launchctl print {AGENT} | sed -n \"s/.*pid = //p\""))
        .await
        .trim()
        .to_owned()
}

/// (incidents legacy-launchctl, token-in-events, packer-upgrade-revokes-tcc)
#[tokio::test(flavor = "multi_thread")]
async fn a_builder_gets_its_runner_into_the_desktop_session_and_keeps_its_packer() {
    let world = World::made(|options| options.quirks.xcode = Xcode::Unlicensed).await;
    runner_is_there(&world).await;
    let (fleet, host) = (world.fleet(STAYS), builder(&world, CANARY));
    let first = world.run_as(&fleet, &host).await.unwrap();
    assert!(first.changed.contains(&"github-runner"), "{first:?}");
    let pid = runner_pid(&world).await;
    assert!(!pid.is_empty());
    let again = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!(
        (again.changed.as_slice(), again.commands),
        ([].as_slice(), 1),
        "{again:?}"
    );
    assert_eq!(runner_pid(&world).await, pid);
    let mac = world.mac().await;
    assert_eq!(mac.unexpected(), [""; 0]);
    world.holds_no_secret_but_where_it_must().await;

    // The agent died with its session, or somebody ended it.
    world.root(&format!("launchctl bootout {AGENT}")).await;
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, ["github-runner"]);
    assert!(!runner_pid(&world).await.is_empty());

    mac.grant_local_network("/opt/homebrew/bin/packer");
    world.root("sudo -n -H -u m1 /opt/homebrew/bin/brew upgrade").await;
    assert!(
        mac.has_local_network("/opt/homebrew/bin/packer"),
        "pinned is not upgraded"
    );
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().held, []);
    world
        .root("sudo -n -H -u m1 /opt/homebrew/bin/brew unpin packer; sudo -n -H -u m1 /opt/homebrew/bin/brew upgrade packer")
        .await;
    assert!(!mac.has_local_network("/opt/homebrew/bin/packer"));
    for _ in 0..2 {
        let report = world.run_as(&fleet, &host).await.unwrap();
        let (step, why) = report.held.first().unwrap();
        assert_eq!(*step, "github-runner");
        assert!(why.contains("another code signature"), "{why}");
    }
    world.root("rm /usr/local/lib/russet/installed/packer.cdhash").await;
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().held, []);
}

/// A signature that changed was seen when the plan next ran, which on a builder that has what it should have may be months later.
/// (incident packer-upgrade-revokes-tcc)
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_builder_finds_another_packer_with_one_command_and_without_a_token() {
    let world = World::new().await;
    runner_is_there(&world).await;
    let fleet = world.fleet(STAYS);
    world.run_as(&fleet, &builder(&world, CANARY)).await.unwrap();
    let looking = builder(&world, "");
    let fine = world.watch(&looking).await.unwrap();
    assert_eq!((fine.held.len(), fine.commands, fine.uploaded), (0, 1, 0), "{fine:?}");

    let brew = "sudo -n -H -u m1 /opt/homebrew/bin/brew";
    world
        .root(&format!(
            "{brew} unpin packer; {brew} upgrade packer; {brew} pin packer"
        ))
        .await;
    let seen = world.watch(&looking).await.unwrap();
    let (step, why) = seen.held.first().unwrap();
    assert!(
        *step == "github-runner" && why.contains("another code signature"),
        "{why}"
    );
    assert_eq!((seen.commands, seen.uploaded), (1, 0));

    // The agent is gone as well: a look only says so.
    world.root("rm /usr/local/lib/russet/installed/packer.cdhash").await;
    world.root(&format!("launchctl bootout {AGENT}")).await;
    let seen = world.watch(&looking).await.unwrap();
    assert!(seen.changed.is_empty() && seen.held.len() == 1, "{seen:?}");
    assert!(runner_pid(&world).await.is_empty(), "a look changes nothing");
    let node = world.watch(&world.host()).await.unwrap();
    assert_eq!(node.held, [], "a host that is no builder has no runner to look at");
}

/// (incident token-in-events) The runner quotes its token when GitHub does not like it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_github_refuses_is_not_in_what_is_told() {
    let world = World::new().await;
    runner_is_there(&world).await;
    let token = format!("bad-{CANARY}");
    let failed = world
        .run_as(&world.fleet(STAYS), &builder(&world, &token))
        .await
        .unwrap_err();
    let Failed::Step { step, message } = &failed else {
        panic!("{failed}");
    };
    assert_eq!(*step, "github-runner");
    assert!(
        message.contains("could not be registered") && message.contains("(secret)"),
        "{message}"
    );
    assert!(!world.agent_pid().await.is_empty(), "the Node serves all the same");
    world.holds_no_secret_but_where_it_must().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_builder_without_xcode_says_so() {
    let world = World::made(|options| options.quirks.xcode = Xcode::Missing).await;
    runner_is_there(&world).await;
    let failed = world
        .run_as(&world.fleet(STAYS), &builder(&world, CANARY))
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("choose an image with Xcode"), "{failed}");
}
