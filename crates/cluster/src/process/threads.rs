//! Threads that outlive the one a process began with.

/// Whether a process whose first thread has ended still runs: until its last thread has, its ports and files are taken. A process that
/// was killed is in that state for a moment, and on a busy machine the moment is long.
#[cfg(target_os = "linux")]
pub fn has_live_threads(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut told = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    told.any(|line| {
        let state = line.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_some_and(|state| !state.starts_with(['Z', 'X']))
    })
}

/// Only Linux shows such processes as ended.
#[cfg(not(target_os = "linux"))]
pub fn has_live_threads(_: u32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    /// An API server that was killed was taken for dead while its threads still held the port, so the next start moved to another.
    #[test]
    fn a_process_lives_until_its_last_thread_has_ended() {
        let script = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n\
                      print('begun', flush=True)\nctypes.CDLL(None).pthread_exit(None)";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "begun\n");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
        assert!(
            has_live_threads(child.id()),
            "its first thread has ended, another has not"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!has_live_threads(child.id()));
    }
}
