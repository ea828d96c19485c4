//! Programs in a synthetic guest.

use super::host::Host;
use super::script::{Op, Reply};
use crate::error::Error;
use crate::name::VmName;
use crate::runtime::{Exec, ExecRequest, GuestCommand, How, Step};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

const BUFFER: usize = 16 * 1024;

pub(super) fn exec(host: &Host, name: &VmName, request: ExecRequest) -> Exec {
    let (host, vm) = (host.clone(), name.to_string());
    let (stdin, mut input) = tokio::io::duplex(BUFFER);
    let (mut output, stdout) = tokio::io::duplex(BUFFER);
    let (mut errors, stderr) = tokio::io::duplex(BUFFER);
    let reads = request.stdin;
    let exit = async move {
        let mut bytes = Vec::new();
        if reads {
            let _ = input.read_to_end(&mut bytes).await;
        }
        host.pause(Op::Exec, &vm).await;
        let reply = host.script().run(&vm, &request.words, &bytes);
        let write = async |to: &mut DuplexStream, bytes: &[u8]| {
            // A caller that does not read is gone.
            let _ = to.write_all(bytes).await;
            let _ = to.shutdown().await;
        };
        tokio::join!(write(&mut output, &reply.stdout), write(&mut errors, &reply.stderr));
        tokio::time::sleep(reply.lasts).await;
        finish(&host, &vm, &reply).await
    };
    let terminal = request.terminal.map(|size| tokio::sync::watch::channel(size).0);
    Exec {
        stdin: reads.then(|| Box::new(stdin) as _),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        resize: terminal,
        exit: Box::pin(exit),
    }
}

/// The end of a program: by itself, or with its VM.
async fn finish(host: &Host, vm: &str, reply: &Reply) -> Result<i32, Error> {
    if reply.shuts_down {
        host.end(vm, How::ShutDown);
    } else if reply.hangs {
        host.until_over(vm).await;
        return Err(Error::NoAgent {
            vm: vm.to_owned(),
            why: "the VM ended".to_owned(),
        });
    }
    Ok(reply.code)
}

/// Belongs to the host: it goes on when the agent is gone.
pub(super) fn spawn(host: &Host, name: &VmName, id: &str, command: &GuestCommand) -> Result<(), Error> {
    host.require_agent(name)?;
    let vm = name.to_string();
    host.begin_step(&vm, id)?;
    let (host, id, command) = (host.clone(), id.to_owned(), command.clone());
    tokio::spawn(async move {
        let work = async {
            host.pause(Op::Exec, &vm).await;
            let reply = host.script().run(&vm, &command.words, &[]);
            let log = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&command.log);
            if let Ok(mut log) = log {
                let _ = log.write_all(&reply.stdout).and_then(|()| log.write_all(&reply.stderr));
            }
            tokio::time::sleep(reply.lasts).await;
            if !reply.hangs {
                host.end_step(
                    &vm,
                    &id,
                    Step::Ended {
                        code: reply.code,
                        finished: jiff::Timestamp::now(),
                    },
                );
            }
            let _ = finish(&host, &vm, &reply).await;
        };
        tokio::select! {
            () = work => {}
            () = host.until_over(&vm) => {}
        }
    });
    Ok(())
}
