//! The input of a container, which others are attached to, and its terminal.
//!
//! ```text
//!   kubectl attach -i ──▶ feed: cat ──▶ fifo in the guest ──▶ the container's program
//!                                        ▲ held open by a process of its own, until it is told that there is no more
//! ```
//!
//! A program reads before anybody is attached and after everybody has left, so the pipe is in the guest and somebody always holds
//! its other end; letting go of it is the end of input.

use std::fmt::Write as _;

use russet_vm::TerminalSize;

use super::{SHARES, STATUS, quoted};

/// The pipe, in the guest. A VM has one container, so one name is enough.
const PIPE: &str = "/tmp/.tart-kubelet-input";
/// The name of the container's terminal, in [`STATUS`].
const TERMINAL: &str = "main.tty";

/// Makes the pipe the input of what follows.
pub(super) fn open(text: &mut String) {
    let _ = write!(
        text,
        r#"input={PIPE}
rm -f "$input" "$input.over"
mkfifo -m 600 "$input" "$input.over" || fail "the input of the container could not be made"
exec 3<>"$input"
( ( read -r _ <"$input.over"; rm -f "$input" "$input.over" ) >/dev/null 2>&1 & )
exec <"$input" 3>&-
"#
    );
}

/// The words that run a program on a terminal. `script` is the only program of macOS that makes one; that of Linux, which is in
/// emulated guests, takes other words.
pub(super) fn on_terminal(text: &mut String, command: &str) {
    let inner = format!("tty >\"{SHARES}/{STATUS}/{TERMINAL}\"; stty rows 24 cols 80 2>/dev/null; exec{command}");
    let _ = writeln!(
        text,
        "if script --version >/dev/null 2>&1; then exec script -qefc {0} /dev/null; fi\nexec script -q /dev/null /bin/sh -c {0}",
        quoted(&inner)
    );
}

/// The words that pass their input on to the container.
pub(crate) fn feed() -> Vec<String> {
    shell(&format!("[ -p {PIPE} ] || exit 0; exec cat >{PIPE}"))
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
