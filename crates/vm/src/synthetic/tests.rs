use super::{Host, Plain, Settings, Synthetic};
use crate::image::ImageRef;
use crate::name::{PodVm, VmName};
use crate::runtime::{How, Launch, Power, Pull, Runtime as _, Source};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const UID: &str = "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70";

fn name(index: u32) -> VmName {
    PodVm::new("ci", "pod", "main", UID, index).unwrap().into()
}

fn host(script: Plain) -> Host {
    Host::new(Settings {
        script: Arc::new(script),
        ..Settings::default()
    })
}

/// Pulls, and makes some VMs.
async fn stock(host: &Host, count: u32) -> Synthetic {
    let (agent, image) = (
        Synthetic::new(host.clone()),
        ImageRef::parse("ghcr.io/acme/mac:v1").unwrap(),
    );
    host.publish(&image, "one").unwrap();
    let digest = agent.pull(&image, Pull::default()).await.unwrap();
    for index in 0..count {
        agent
            .clone_vm(&Source::Image(image.at(digest.clone())), &name(index))
            .await
            .unwrap();
    }
    agent
}

#[tokio::test(start_paused = true)]
async fn everything_takes_the_time_that_the_script_says() {
    let host = host(Plain::like_a_mini());
    let begin = Instant::now();
    let agent = stock(&host, 1).await;
    assert_eq!(begin.elapsed().as_secs(), 25 * 60 + 1);
    agent.start(&name(0), &Launch::default()).await.unwrap();
    assert_eq!(agent.address(&name(0)).await.unwrap(), None);
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(agent.address(&name(0)).await.unwrap(), None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(agent.address(&name(0)).await.unwrap().is_some());
    // Three seconds are more than a grace of two.
    agent.stop(&name(0), Duration::from_secs(2)).await.unwrap();
    assert_eq!(agent.ended(&name(0)).await.unwrap().how, How::Stopped);
}

#[tokio::test]
async fn after_a_reboot_nobody_knows_how_a_vm_ended() {
    let host = host(Plain::default());
    let agent = stock(&host, 1).await;
    agent.start(&name(0), &Launch::default()).await.unwrap();
    host.reboot();
    let exit = agent.ended(&name(0)).await.unwrap();
    assert_eq!((exit.how, exit.finished), (How::Unknown, None));
}

#[derive(Clone, Debug)]
enum Deed {
    Start(u32),
    Stop(u32),
    Crash(u32),
    Delete(u32),
    Reboot,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..5_u32).prop_map(Deed::Start),
        2 => (0..5_u32).prop_map(Deed::Stop),
        1 => (0..5_u32).prop_map(Deed::Crash),
        1 => (0..5_u32).prop_map(Deed::Delete),
        1 => Just(Deed::Reboot),
    ]
}

proptest! {
    #[test]
    fn never_more_than_two_vms_run_whatever_happens(deeds in proptest::collection::vec(deed(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = host(Plain::default());
            let agent = stock(&host, 5).await;
            for deed in deeds {
                match deed {
                    Deed::Start(index) => drop(agent.start(&name(index), &Launch::default()).await),
                    Deed::Stop(index) => agent.stop(&name(index), Duration::ZERO).await.unwrap(),
                    Deed::Crash(index) => host.crash(&name(index)),
                    Deed::Delete(index) => drop(agent.delete(&name(index)).await),
                    Deed::Reboot => host.reboot(),
                }
                let running = agent.list().await.unwrap().vms.iter().filter(|vm| vm.running).count();
                assert!(running <= 2, "{running} run");
                for index in 0..5 {
                    if let Some(Power::Ended(exit)) = agent.power(&name(index)).await.unwrap() {
                        assert_ne!(exit.how, How::ShutDown, "nobody asked a guest");
                    }
                }
            }
        });
    }
}
