//! A wall clock that steps by hours, both ways, under an agent that runs.

use crate::stage::{Mac, is, phase, restarts, until};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

const HOUR: i64 = 3600;

/// What the agent is told when it asks for the time of day. Time that only passes is left as it is.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int done = syscall(SYS_clock_gettime, id, t);
    const char *path = getenv("CLOCK_STEP");
    if (done == 0 && id == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) t->tv_sec += atol(text);
            close(file);
        }
    }
    return done;
}
"#;

/// The wall clock of one agent.
struct Clock(PathBuf);

impl Clock {
    /// The clock that agents of this Mac see from now on.
    fn of(mac: &mut Mac) -> Result<Self> {
        let clock = Self(mac.host.path("clock"));
        clock.step(0)?;
        let (source, library) = (mac.host.path("clock.c"), mac.host.path("clock.so"));
        std::fs::write(&source, SOURCE)?;
        // Rust itself links with it.
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()?;
        ensure!(made.success(), "the clock cannot be made");
        mac.host.env = vec![
            ("LD_PRELOAD".to_owned(), library.display().to_string()),
            ("CLOCK_STEP".to_owned(), clock.0.display().to_string()),
        ];
        Ok(clock)
    }

    /// So many seconds from what it is for everybody else.
    fn step(&self, seconds: i64) -> Result<()> {
        let fresh = self.0.with_extension("new");
        std::fs::write(&fresh, seconds.to_string())?;
        Ok(std::fs::rename(fresh, &self.0)?)
    }
}

/// The Node is heard, although its clock says what it says.
async fn until_renewed(mac: &Mac) -> Result<()> {
    mac.host.until_renewed(mac.host.renewed().await?).await
}

/// Probes stood still until the clock was where it had been; a Lease that was renewed "earlier" was no sign of life for the node
/// controller; graces were over at once.
pub(crate) async fn a_clock_that_steps_by_hours_ends_nothing_and_holds_up_nothing() -> Result<()> {
    let mut mac = Mac::new("clock1").await?;
    let clock = Clock::of(&mut mac)?;
    let agent = mac.start()?;
    let script = "trap 'echo told >/opt/work/told; until [ -e /opt/work/go ]; do sleep 0.1; done; exit 7' TERM; \
                  echo up >/opt/work/up; while :; do sleep 0.1; done";
    let ask = "cp /etc/token/token /opt/work/.t && mv /opt/work/.t /opt/work/token; \
               echo asked >>/opt/work/asked; test -e /opt/work/ready";
    let more = json!({
        "metadata": {"finalizers": ["test.russet.dev/look"]},
        "spec": {
            "terminationGracePeriodSeconds": 600,
            "containers": [{
                "readinessProbe": {
                    "exec": {"command": ["/bin/sh", "-c", ask]}, "periodSeconds": 1, "timeoutSeconds": 60,
                },
                "volumeMounts": [{}, {"name": "token", "mountPath": "/etc/token"}],
            }],
            "volumes": [{}, {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "audience": "test", "expirationSeconds": 3600}},
            ]}}],
        },
    });
    let pod = mac.run("job", script, more).await?;
    let asked = || {
        let text = std::fs::read_to_string(mac.work(&pod).join("asked")).unwrap_or_default();
        text.lines().count()
    };
    let until_asked = || async {
        let before = asked();
        until("further questions", || Ok(asked() > before + 1)).await
    };
    mac.until("job", "a container that runs", |pod| phase(pod) == "Running")
        .await?;
    until_asked().await?;
    let vm = mac.control.running()?;
    // What the guest reads, as it was when it was last asked.
    let token = || std::fs::read_to_string(mac.work(&pod).join("token"));
    let first = token().context("the token in the guest")?;

    clock.step(-3 * HOUR)?;
    until_asked().await?;
    clock.step(5 * HOUR)?;
    until_asked().await?;
    std::fs::write(mac.work(&pod).join("ready"), "")?;
    mac.until("job", "a Pod that is ready", |pod| is(pod, "Ready")).await?;
    until_renewed(&mac).await?;
    // By this clock it has ended. Nobody tells the Pod; it has to be noticed.
    until("another token in the guest", || Ok(token()? != first)).await?;
    // It is right again, which is hours back.
    clock.step(0)?;
    until_renewed(&mac).await?;
    ensure!(mac.control.running()? == vm, "{:?}", mac.control.running()?);

    // An agent that starts while the clock is wrong, and learns the right time later. No more than so much: the API server's
    // certificate is an hour old for whoever believes the right time.
    agent.killed().await?;
    clock.step(-HOUR / 2)?;
    let agent = mac.start()?;
    until_asked().await.context("an agent whose clock is behind")?;
    clock.step(0)?;
    until_renewed(&mac).await?;
    let same = mac.until_running("job").await?;
    ensure!(restarts(&same) == Some(0));
    ensure!(mac.control.running()? == vm, "{:?}", mac.control.running()?);

    mac.delete("job").await?;
    mac.until_there(&pod, "told").await?;
    clock.step(5 * HOUR)?;
    until_renewed(&mac).await?;
    ensure!(mac.control.running()? == vm, "its grace was over at once");
    mac.go(&pod)?;
    mac.until_code("job", 7).await?;
    mac.let_go("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await?;
    drop(agent);
    Ok(())
}
