//! The input of a container, which others are attached to, and its terminal.
//!
//! ```text
//!   kubectl attach -i ──▶ feed: cat ──▶ fifo in the guest ──▶ the container's program
//!                                        ▲ held open by a process of its own, until it is told that there is no more
//! ```
//!
//! A program reads before anybody is attached and after everybody has left, so the pipe is in the guest and somebody always holds
//! its other end; letting go of it is the end of input. A container is told as running a moment before its pipe is there, so whoever
//! brings input waits for it; where it was taken away the input is over, and whoever comes later is told that.

use std::fmt::Write as _;

use russet_vm::TerminalSize;

use super::{SHARES, STATUS, quoted};

/// The pipe, in the guest. A VM has one container, so one name is enough.
pub(super) const PIPE: &str = "/tmp/.tart-kubelet-input";
/// How [`feed`] ends when the input of the container is over.
pub(crate) const OVER: i32 = 75;
/// How [`feed`] ends when the container has no input although it should have had one long ago.
pub(crate) const ABSENT: i32 = 76;
/// For so many fifths of a second the pipe is waited for: longer than a guest needs to put its volumes in place.
const TRIES: u32 = 300;
/// The name of the container's terminal, in [`STATUS`].
const TERMINAL: &str = "main.tty";

/// Makes the pipe the input of what follows.
pub(super) fn open(text: &mut String) {
    let _ = write!(
        text,
        r#"input={PIPE}
rm -f "$input" "$input.over" "$input.ended"
mkfifo -m 600 "$input.over" "$input" || fail "the input of the container could not be made"
exec 3<>"$input"
( ( read -r _ <"$input.over"; : >"$input.ended"; rm -f "$input" "$input.over" ) >/dev/null 2>&1 & )
exec <"$input" 3>&-
"#
    );
}

/// The words that run a program on a terminal. `script` is the only program of macOS that makes one; that of Linux, which is in
/// emulated guests, takes other words.
pub(super) fn on_terminal(text: &mut String, command: &str) {
    let inner = format!(
        "/usr/bin/tty >\"{SHARES}/{STATUS}/{TERMINAL}\"; PATH=/usr/bin:/bin stty rows 24 cols 80 2>/dev/null\n{command}"
    );
    let _ = writeln!(
        text,
        "if /usr/bin/script --version >/dev/null 2>&1; then exec /usr/bin/script -qefc {0} /dev/null; fi\nexec /usr/bin/script -q /dev/null /bin/sh -c {0}",
        quoted(&inner)
    );
}

/// The words that pass their input on to the container. A shell that opens what was taken away in that moment makes a file, which
/// nobody reads.
pub(crate) fn feed() -> Vec<String> {
    shell(&format!(
        r#"input={PIPE} tries=0
until [ -p "$input" ]; do
  [ ! -e "$input.ended" ] || exit {OVER}
  [ $tries -lt {TRIES} ] || exit {ABSENT}
  tries=$((tries + 1))
  sleep 0.2
done
exec 4>"$input"
if [ ! -p /dev/fd/4 ]; then rm -f "$input"; exit {OVER}; fi
exec cat >&4 4>&-"#
    ))
}

/// The words that end the container's input.
pub(crate) fn end() -> Vec<String> {
    shell(&format!("[ -p {PIPE}.over ] && echo >{PIPE}.over"))
}

/// The words that give the container's terminal another size.
pub(crate) fn resize(size: TerminalSize) -> Vec<String> {
    let TerminalSize { columns, rows } = size;
    shell(&format!(
        "stty rows {rows} cols {columns} <\"$(cat \"{SHARES}/{STATUS}/{TERMINAL}\")\""
    ))
}

fn shell(script: &str) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    /// Runs a script as a guest would, with its pipe in a folder of its own.
    fn run(dir: &Path, script: &str) -> Child {
        let script = script.replace(PIPE, &dir.join("input").display().to_string());
        Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn container(dir: &Path, program: &str) -> Child {
        let mut script = "fail() { exit 125; }\n".to_owned();
        open(&mut script);
        run(dir, &(script + program))
    }

    fn told(dir: &Path, words: &[String]) -> Child {
        run(dir, words.last().unwrap())
    }

    fn code(mut child: Child) -> Option<i32> {
        child.wait().unwrap().code()
    }

    /// `kubectl run -i` attaches as soon as the container is told as running. Its pipe was not there yet, and what was typed was gone.
    #[test]
    fn what_is_said_before_the_pipe_is_there_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let mut early = told(dir.path(), &feed());
        early.stdin.take().unwrap().write_all(b"early words").unwrap();
        assert!(early.try_wait().unwrap().is_none(), "it waits for the pipe");
        let container = container(dir.path(), "exec cat");
        assert_eq!(code(early), Some(0));
        assert_eq!(code(told(dir.path(), &end())), Some(0));
        let heard = container.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&heard.stdout), "early words");
    }

    /// Whoever came after the end of input was told that all was heard.
    #[test]
    fn whoever_comes_after_the_end_of_the_input_learns_that_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let container = container(dir.path(), "exec cat");
        let mut first = told(dir.path(), &feed());
        first.stdin.take().unwrap().write_all(b"all of it").unwrap();
        assert_eq!(code(first), Some(0));
        assert_eq!(code(told(dir.path(), &end())), Some(0));
        let heard = container.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&heard.stdout), "all of it");
        assert_eq!(code(told(dir.path(), &feed())), Some(OVER));
    }

    /// What came in the moment in which the input ended went into a file, and counted as heard.
    #[test]
    fn whoever_comes_in_the_moment_of_the_end_learns_that_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let container = container(dir.path(), "exec cat");
        let opens = "exec 4>";
        let words = feed()
            .last()
            .unwrap()
            .replace(opens, &format!("rm -f \"$input\"; {opens}"));
        assert_ne!(&words, feed().last().unwrap());
        assert_eq!(code(run(dir.path(), &words)), Some(OVER));
        assert!(!dir.path().join("input").exists(), "nothing is left of it");
        assert_eq!(code(told(dir.path(), &end())), Some(0));
        assert_eq!(container.wait_with_output().unwrap().stdout, b"");
    }
}
