//! What happens to hosts: the bootstrapper of the provider by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russet_api::machine::StepState;
use russet_capi_provider::bootstrap::{
    Bootstrapper as _, Done, Failed, HostConfigHash, HostFacts, Job, Kind, LoginKey, Progress, Ssh,
};
use russet_capi_provider::claims::Holder;
use russet_sim_mac::macos::SshFault;
use russet_stages::macs::rack::Rack;
use russet_telemetry::Secret;
use tokio_util::sync::CancellationToken;

use super::stage::{STAYS, ssh};

/// The machine may have a hundred other things to do.
const WITHIN: Duration = Duration::from_mins(4);
/// A token nobody may ever read anywhere.
const CANARY: &str = "c4n4ry.0123456789abcdef";

/// What a run told.
type Told = Vec<(String, StepState, Option<String>)>;

struct World {
    rack: Rack,
    key: LoginKey,
}

impl World {
    async fn with(count: u32) -> Self {
        let rack = Rack::new(count).await.unwrap();
        rack.put("agent", STAYS).unwrap();
        Self { rack, key: fresh_key() }
    }

    fn bootstrapper(&self) -> Ssh {
        ssh(&self.rack, &[]).unwrap()
    }

    fn job(&self, number: usize) -> Job {
        let mini = self.rack.host(number).unwrap();
        let name = format!("mac-{number}");
        Job {
            kind: Kind::First,
            machine: Holder {
                namespace: "fleet".to_owned(),
                name: name.clone(),
                uid: format!("uid-{number}"),
            },
            address: mini.address,
            ssh_user: mini.username.clone(),
            sudo_password: Some(Secret::new(mini.password.clone())),
            fingerprint: None,
            key: Some(self.key.clone()),
            node_name: name,
            provider_id: format!("scw-applesilicon://{}/{}", mini.zone, mini.server_id),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "macos".to_owned())]),
            taints: Vec::new(),
            join_kubeconfig: Some(Secret::new(format!("users:\n- user:\n    token: {CANARY}\n"))),
            tailnet_key: None,
            vlan: None,
            runner: None,
            facts: HostFacts::default(),
            hash: HostConfigHash::new("any"),
        }
    }

    /// Runs a job and sees to it that nothing it tells is secret.
    async fn run(&self, ssh: &Ssh, job: Job) -> (Result<Done, Failed>, Told) {
        let password = job.sudo_password.clone().unwrap_or_default();
        let told: Arc<Mutex<Told>> = Arc::default();
        let listener = {
            let told = Arc::clone(&told);
            Progress::new(move |name, state, message| {
                told.lock().unwrap().push((name.to_owned(), state, message));
            })
        };
        let run = ssh.run(job, listener, CancellationToken::new());
        let done = tokio::time::timeout(WITHIN, run).await.expect("it ends");
        let told = told.lock().unwrap().clone();
        let said = format!("{told:?} {done:?}");
        assert!(!said.contains(CANARY), "{said}");
        assert!(
            password.expose().is_empty() || !said.contains(password.expose().as_str()),
            "{said}"
        );
        (done, told)
    }
}

/// A key of a fleet, as the provider makes it.
fn fresh_key() -> LoginKey {
    let key = ssh_key::PrivateKey::random(&mut ssh_key::rand_core::OsRng, ssh_key::Algorithm::Ed25519).unwrap();
    LoginKey {
        private: Secret::new(key.to_openssh(ssh_key::LineEnding::LF).unwrap().to_string()),
        public: key.public_key().to_openssh().unwrap(),
        id: None,
        sudo_password: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_set_up_by_its_password_once_and_by_the_key_of_its_fleet_from_then_on() {
    let world = World::with(1).await;
    let ssh = world.bootstrapper();
    let (done, told) = world.run(&ssh, world.job(0)).await;
    let done = done.unwrap();
    let pin = done.fingerprint.clone().unwrap();
    assert!(pin.contains("SHA256:"), "{pin}");
    assert_eq!(done.kubelet_sha.as_deref().map(str::len), Some(64));
    for step in ["connect", "sudo", "kubeconfig", "tart-kubelet", "tart-kubelet-job"] {
        let last = told.iter().rev().find(|(name, _, _)| name == step);
        assert!(
            matches!(last, Some((_, StepState::Succeeded, _))),
            "{step}: {last:?} of {told:?}"
        );
    }

    // Nobody knows the password any more; the key and the sudo rule are enough.
    let mut again = world.job(0);
    again.kind = Kind::Update;
    again.fingerprint = Some(pin.clone());
    again.sudo_password = None;
    let (done, told) = world.run(&ssh, again).await;
    let done = done.unwrap();
    assert_eq!(done.fingerprint, Some(pin));
    assert_eq!(done.effort.uploaded, 0, "an unchanged host gets no byte");
    assert!(done.effort.commands <= 3, "{:?}", done.effort);
    assert!(
        !told
            .iter()
            .any(|(name, state, _)| name != "connect" && *state == StepState::Running),
        "an unchanged host was changed: {told:?}"
    );
    assert_eq!(ssh.hashed(), 1, "the agent was read more than once");
    assert_eq!(ssh.desired(&HostFacts::default()), ssh.desired(&HostFacts::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_another_key_is_told_nothing() {
    let world = World::with(1).await;
    let ssh = world.bootstrapper();
    let mut job = world.job(0);
    job.fingerprint = Some("SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8".to_owned());
    let (failed, _) = world.run(&ssh, job).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.step, "login");
    assert!(failed.message.contains("was pinned"), "{}", failed.message);
    assert_eq!(failed.fingerprint, None, "whoever showed it may not be the host");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_down_fails_alone() {
    let world = World::with(2).await;
    let ssh = world.bootstrapper();
    world
        .rack
        .mac(0)
        .await
        .unwrap()
        .set_faults(|faults| faults.ssh = SshFault::Refuse);
    let (down, up) = tokio::join!(world.run(&ssh, world.job(0)), world.run(&ssh, world.job(1)));
    up.0.unwrap();
    let failed = down.0.unwrap_err();
    assert_eq!(failed.step, "connect");
    assert!(failed.message.contains("refuses connections"), "{}", failed.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_knows_neither_key_nor_password_says_what_it_accepts() {
    let world = World::with(1).await;
    let ssh = world.bootstrapper();
    let mut job = world.job(0);
    job.sudo_password = Some(Secret::new("wrong as can be".to_owned()));
    let (failed, _) = world.run(&ssh, job).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.step, "login");
    assert!(failed.message.contains("rejects the password"), "{}", failed.message);
    assert!(failed.fingerprint.is_some(), "the first key that was seen is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_named_and_the_next_run_goes_on_from_there() {
    let world = World::with(1).await;
    world
        .rack
        .put("agent", "#!/bin/bash\necho no config >&2\nexit 3\n")
        .unwrap();
    let ssh = world.bootstrapper();
    let (failed, told) = world.run(&ssh, world.job(0)).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.step, "tart-kubelet-job");
    let last = told.last().unwrap();
    assert_eq!((last.0.as_str(), &last.1), ("tart-kubelet-job", &StepState::Failed));

    world.rack.put("agent", STAYS).unwrap();
    let (done, told) = world.run(&ssh, world.job(0)).await;
    done.unwrap();
    let ran = |step: &str| {
        told.iter()
            .any(|(name, state, _)| name == step && *state == StepState::Running)
    };
    assert!(ran("tart-kubelet") && !ran("sleep"), "{told:?}");
}

/// A release that changes the agent alone must not send anything else, nor the agent twice.
#[tokio::test(flavor = "multi_thread")]
async fn another_agent_is_uploaded_once_to_each_host_and_hashed_once_for_all() {
    let world = World::with(2).await;
    let ssh = world.bootstrapper();
    let before = ssh.desired(&HostFacts::default());
    for number in [0, 1] {
        world.run(&ssh, world.job(number)).await.0.unwrap();
    }
    let agent = format!("{STAYS}# another\n");
    world.rack.put("agent", &agent).unwrap();
    assert_ne!(ssh.desired(&HostFacts::default()), before, "both hosts have drifted");
    for number in [0, 1] {
        let done = world.run(&ssh, world.job(number)).await.0.unwrap();
        assert_eq!(done.effort.uploaded, agent.len() as u64, "{:?}", done.effort);
        let again = world.run(&ssh, world.job(number)).await.0.unwrap();
        assert_eq!(again.effort.uploaded, 0, "{:?}", again.effort);
    }
    assert_eq!(ssh.hashed(), 2, "each agent was read once");
}
