//! Logs of containers, from the files that outlive the agent.
//!
//! ```text
//! a program that we started ──▶ its supervisor ──▶ log, in several files, beside it when what was said
//! an image that does all by itself ──▶ runner.log, one file in the folder that the guest writes: nothing there is believed
//! ```

mod choose;
mod read;

use std::io;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Container;
use russet_kubelet_api::{ContainerRef, LogOptions, LogStream, Refusal, Writer};
use russet_pod::spec;
use russet_vm::PodVm;
use tokio::io::AsyncWriteExt as _;

use crate::pods::directory::{Handle, Instance, Shown};
use crate::pods::journal::Origin;
use read::Source;

/// The log of a container.
pub(super) fn open(
    handle: &Handle,
    shown: &Shown,
    container: &ContainerRef,
    options: &LogOptions,
) -> Result<LogStream, Refusal> {
    let vm = choose::choose(shown, container, options.previous)?;
    let (pod, name) = (container.pod.name.clone(), container.container.clone());
    let Some((_, spec)) = spec::container(&shown.pod, &name) else {
        return Err(Refusal::NoContainer { pod, container: name });
    };
    if handle.ledger.get(&vm).is_none() {
        // Of a start that is forgotten nothing is left, which is not the same as a start that said nothing.
        return Err(if options.previous {
            Refusal::NoPrevious { pod, container: name }
        } else {
            Refusal::NotAvailable { pod, container: name }
        });
    }
    let source = Source {
        follow: options.follow,
        ..source(handle, spec, vm)
    };
    Ok(source.reading(options.tail).entries())
}

/// What a container says from now on, each piece as soon as it is said.
pub(super) async fn from_now(handle: &Handle, instance: &Instance, container: &Container) -> io::Result<LogStream> {
    let source = Source {
        follow: true,
        pieces: true,
        ..source(handle, container, instance.vm.clone())
    };
    let mut reading = source.reading(Some(0));
    // Where now is, is found now and not when somebody listens.
    reading.more().await?;
    Ok(reading.entries())
}

/// The log of one start of a container. Which of the two it is, is decided by what the container is and not by what is there: a
/// guest that is still booting has left nothing yet.
fn source(handle: &Handle, container: &Container, vm: PodVm) -> Source {
    let room = handle.folders.room(&vm);
    let mut words = container.command.iter().chain(&container.args).flatten();
    let origin = if words.next().is_some() {
        Origin::Kept(room.log())
    } else {
        Origin::Left(room.left_log())
    };
    Source {
        origin,
        marks: room.marks(),
        ledger: handle.ledger.clone(),
        vm,
        follow: false,
        pieces: false,
    }
}

/// Passes it on to whoever wants it, to its end.
pub(super) async fn pass(mut entries: LogStream, to: Option<Writer>) -> Result<(), Refusal> {
    let Some(mut to) = to else {
        while entries.next().await.is_some() {}
        return Ok(());
    };
    while let Some(entry) = entries.next().await {
        let entry = entry.map_err(super::failed)?;
        let mut text = entry.text.to_vec();
        if !entry.partial {
            text.push(b'\n');
        }
        if to.write_all(&text).await.is_err() {
            return Ok(());
        }
    }
    let _ = to.shutdown().await;
    Ok(())
}
