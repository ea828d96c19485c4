//! Hooks before stops: a VM is told when its hook is over, and not before.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::Instant;

/// The hooks that run, by container, and until when each may.
#[derive(Debug, Default)]
pub(super) struct Partings(BTreeMap<String, watch::Sender<Instant>>);

impl Partings {
    /// A hook begins, and has until then.
    pub(super) fn begin(&mut self, container: &str, by: Instant) -> watch::Receiver<Instant> {
        let (sender, receiver) = watch::channel(by);
        self.0.insert(container.to_owned(), sender);
        receiver
    }

    /// A container has to end by then. Its hook has no longer, either; `false` if none runs, so that its VM is told at once.
    pub(super) fn hurry(&self, container: &str, by: Instant) -> bool {
        let Some(until) = self.0.get(container) else {
            return false;
        };
        until.send_if_modified(|until| {
            let sooner = by < *until;
            *until = by.min(*until);
            sooner
        });
        true
    }

    /// The hook of a container is over, or the container is. By when it has to end.
    pub(super) fn over(&mut self, container: &str) -> Option<Instant> {
        Some(*self.0.remove(container)?.borrow())
    }
}

/// Runs a hook for as long as it may, which can become less meanwhile. `None` if that was too short.
pub(super) async fn part<T>(hook: impl Future<Output = T>, mut by: watch::Receiver<Instant>) -> Option<T> {
    tokio::pin!(hook);
    loop {
        let until = *by.borrow_and_update();
        tokio::select! {
            done = &mut hook => return Some(done),
            () = tokio::time::sleep_until(until) => return None,
            Ok(()) = by.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOOK: Duration = Duration::from_secs(100);

    /// Somebody deleted a Pod with five minutes, and again with one while its hook of 100 seconds ran. Its container got TERM at once,
    /// beside the hook that was to come first. The same happened when the clock of the host was set back.
    #[tokio::test(start_paused = true)]
    async fn less_patience_shortens_a_hook_and_its_vm_is_told_when_that_is_over() {
        let (mut partings, begun) = (Partings::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!partings.hurry("a", at(300)), "no hook runs");
        let hook = tokio::spawn(part(tokio::time::sleep(HOOK), partings.begin("a", at(300))));
        tokio::time::sleep_until(at(10)).await;
        assert!(partings.hurry("a", at(310)), "the clock went back");
        assert!(partings.hurry("a", at(60)) && !partings.hurry("b", at(60)));
        assert_eq!((hook.await.unwrap(), Instant::now()), (None, at(60)));
        assert!(partings.hurry("a", at(50)), "until somebody has heard that it is over");
        assert_eq!(partings.over("a"), Some(at(50)));
        assert!(!partings.hurry("a", at(40)) && partings.over("a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_has_the_time_runs_to_its_end() {
        let (mut partings, begun) = (Partings::default(), Instant::now());
        let hook = tokio::spawn(part(tokio::time::sleep(HOOK), partings.begin("a", begun + 3 * HOOK)));
        assert!(partings.hurry("a", begun + 2 * HOOK));
        // Its container has ended, and so nobody is left to shorten it.
        assert_eq!(partings.over("a"), Some(begun + 2 * HOOK));
        assert_eq!((hook.await.unwrap(), begun.elapsed()), (Some(()), HOOK));
    }
}
