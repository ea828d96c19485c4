//! Folders of the host that Pods ask for, looked at beside everything else.
//!
//! Such a folder may be on a mount whose server is gone, and who looks at it then waits for ever. On the one thread of the agent that
//! was the end of everything: no Lease, no exec, no deletion of any Pod. So a thread of its own looks, and nobody waits for it for
//! long. A thread that hangs cannot be ended, so the next look at that folder waits for it: a Pod that is tried again and again costs
//! one thread, not thousands. They are no threads of tokio, which would wait for them when the agent ends.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use russet_pod::volumes::{HostError, HostFolder};
use tokio::sync::oneshot;

/// A folder that is there answers in no time, and a disk that has to wake up within seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who looks at which folder; entries go with their last user.
type Turns = BTreeMap<PathBuf, Weak<tokio::sync::Mutex<()>>>;

/// The way to folders of the host. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach(Arc<Mutex<Turns>>);

impl Reach {
    /// Finds a folder of the host, or makes it; see [`HostFolder::open`].
    pub(crate) async fn open(&self, folder: &HostFolder, kept: Vec<PathBuf>) -> Result<PathBuf, HostError> {
        let (path, folder) = (folder.path.clone(), folder.clone());
        match self.look(&path, move || folder.open(&kept)).await {
            Ok(answer) => answer,
            Err(source) => Err(HostError::Io { path, source }),
        }
    }

    /// What a look at this path finds, if it finds anything in time.
    async fn look<T: Send + 'static>(&self, path: &Path, look: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let turn = self.turn(path);
        let found = async move {
            let turn = turn.lock_owned().await;
            let (tell, told) = oneshot::channel();
            std::thread::Builder::new()
                .name("host-folder".to_owned())
                .spawn(move || {
                    let found = look();
                    drop(turn);
                    // Whoever asked may have gone.
                    tell.send(found).ok()
                })?;
            told.await.map_err(io::Error::other)
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it did not answer within 10 s; if it is on a mount, look whether the server of that is there",
            )),
        }
    }

    fn turn(&self, path: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(path).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(path.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// The server of a mount was gone, and a Pod that named a folder on it stopped the agent for good.
    #[tokio::test(start_paused = true)]
    async fn a_folder_that_never_answers_is_refused_in_words_and_holds_up_nobody_else() {
        let reach = Reach::default();
        let (free, hangs) = mpsc::channel::<()>();
        let dead = Path::new("/Volumes/dead");
        let error = reach.look(dead, move || hangs.recv().is_err()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let words = HostError::Io {
            path: dead.to_owned(),
            source: error,
        }
        .to_string();
        assert!(
            words.contains("/Volumes/dead could not be opened: it did not answer"),
            "{words}"
        );
        // The next look does not cost another thread.
        let (began, heard) = mpsc::channel();
        let again = reach.look(dead, move || began.send(())).await;
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        drop(free);
    }

    #[tokio::test]
    async fn a_folder_that_answers_again_is_looked_at_again_and_others_were_all_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let reach = Reach::default();
        let (free, hangs) = mpsc::channel::<()>();
        let waits = {
            let reach = reach.clone();
            tokio::spawn(async move {
                reach
                    .look(Path::new("/Volumes/slow"), move || hangs.recv().is_err())
                    .await
            })
        };
        tokio::task::yield_now().await;
        let folder = HostFolder {
            path: dir.path().to_owned(),
            read_only: false,
            create: false,
        };
        let found = reach.open(&folder, Vec::new()).await.unwrap();
        assert_eq!(found, dir.path().canonicalize().unwrap());
        let missing = HostFolder {
            path: dir.path().join("missing"),
            ..folder
        };
        let refused = reach.open(&missing, Vec::new()).await.unwrap_err();
        assert!(matches!(refused, HostError::NoFolder(_)), "{refused}");
        drop(free);
        waits.await.unwrap().unwrap();
        let again = reach.look(Path::new("/Volumes/slow"), || 7).await.unwrap();
        assert_eq!((again, reach.0.lock().unwrap().len()), (7, 1));
    }
}
