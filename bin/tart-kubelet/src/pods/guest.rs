//! What a container is in a guest: a script that puts its volumes where it wants them and runs its command. Pure.
//!
//! A guest sees folders of the host at one place only, so a mount path is a link to it. Everything a container must not show to
//! others of the host, such as its environment, is in the script and never in the arguments of a process there.

pub(crate) mod input;
mod late;

pub(crate) use self::late::{fill_in, stand_in};

use std::fmt::Write as _;

/// Where macOS mounts the folders of the host.
pub(crate) const SHARES: &str = "/Volumes/My Shared Files";
/// The share with what the container is started with.
pub(crate) const ENV: &str = "env";
/// The share for what the guest leaves.
pub(crate) const STATUS: &str = "status";
/// The script, in [`ENV`].
pub(crate) const START: &str = "start.sh";
/// The script that runs another program beside the container, in [`ENV`].
pub(crate) const ENTER: &str = "enter.sh";
/// The environment as images of runners read it, in [`ENV`].
pub(crate) const TUIST_ENV: &str = "tuist.env";
/// The token that a runner shows to dispatch, as images of runners read it, in [`ENV`].
pub(crate) const SA_TOKEN: &str = "sa_token";
/// The number of the container's process, in [`STATUS`].
const PID: &str = "main.pid";
/// What the container left for its owner, in [`STATUS`].
pub(crate) const LAST_WORDS: &str = "termination-log";
/// A volume in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Which share, and what of it.
    pub(crate) source: String,
    /// Where the container wants it.
    pub(crate) target: String,
    /// A folder that need not be there yet.
    pub(crate) make: bool,
}

/// What runs in a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Names and values.
    pub(crate) env: Vec<(String, String)>,
    /// Where it starts; by default at home.
    pub(crate) dir: Option<String>,
    /// Volumes.
    pub(crate) links: Vec<Link>,
    /// Where it leaves its last words.
    pub(crate) last_words: Option<String>,
    /// It reads what those say who are attached to it.
    pub(crate) input: bool,
    /// It runs on a terminal.
    pub(crate) terminal: bool,
}

const HEAD: &str = r#"#!/bin/sh
shares='/Volumes/My Shared Files'
fail() {
  echo "tart-kubelet: $1" >&2
  exit 125
}
place() {
  parent=$(dirname "$2")
  { [ -d "$parent" ] || mkdir -p "$parent" || sudo -n mkdir -p "$parent"; } 2>/dev/null ||
    fail "$parent cannot be made; macOS allows no new folders at the root of its disk"
  if [ -e "$2" ] && [ ! -L "$2" ]; then
    { mv "$2" "$2.of-image" || sudo -n mv "$2" "$2.of-image"; } 2>/dev/null || fail "what is at $2 is in the way"
  fi
  { ln -sfn "$1" "$2" || sudo -n ln -sfn "$1" "$2"; } 2>/dev/null || fail "nothing can be put at $2"
}
or_not() {
  { ln -sfn "$1" "$2" || sudo -n ln -sfn "$1" "$2"; } 2>/dev/null
}
"#;

/// Until the container's own script is through nothing is where the container has it, and hooks and probes would find that; nor is there
/// anybody who could be asked to end.
const AFTER_START: &str = r#"shares='/Volumes/My Shared Files' tries=0
until [ -s "$shares"/status/main.pid ] || [ $tries -ge 100 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
"#;

impl Program {
    /// The script.
    pub(crate) fn script(&self) -> String {
        let mut text = HEAD.to_owned();
        for Link { source, target, make } in &self.links {
            if *make {
                // What is there may be a file.
                let _ = writeln!(
                    text,
                    "[ -e \"$shares\"/{0} ] || mkdir -p \"$shares\"/{0} || fail {1}",
                    quoted(source),
                    quoted(&format!("the part {source} of a volume cannot be made"))
                );
            }
            let _ = writeln!(text, "place \"$shares\"/{} {}", quoted(source), quoted(target));
        }
        if let Some(path) = &self.last_words {
            let _ = writeln!(text, ": >>\"$shares\"/{STATUS}/{LAST_WORDS}");
            // /dev belongs to the kernel, which lets root put a link there. Most containers leave no last words, so that it
            // cannot be there is no reason not to start.
            let otherwise = if path.starts_with("/dev/") { "or_not" } else { "place" };
            let _ = writeln!(text, "{otherwise} \"$shares\"/{STATUS}/{LAST_WORDS} {}", quoted(path));
        }
        // A terminal whose other end has nothing more to say tells its program that the input is over.
        if self.input || self.terminal {
            input::open(&mut text);
        }
        self.surroundings(&mut text, "fail");
        if self.terminal {
            input::on_terminal(&mut text, &self.waited_for());
        } else {
            text.push_str(&self.waited_for());
        }
        text
    }

    /// The container's program, and a shell that stays to tell how it ended: `tart` tells every end by a signal as 255. The shell hears of
    /// signals and goes on to wait; its own remark on an end, which would quote the command, is for nobody.
    fn waited_for(&self) -> String {
        let become_it = quoted(r#"exec 2>&5 5>&-; echo $$ >"$1"; shift; exec "$@""#);
        let pid = quoted(&format!("{SHARES}/{STATUS}/{PID}"));
        let mut text =
            format!("trap : HUP INT QUIT TERM\nexec 5>&2 2>/dev/null\n/bin/sh -c {become_it} tart-kubelet {pid}");
        self.surrounded(&mut text);
        for word in &self.words {
            let _ = write!(text, " {}", quoted(word));
        }
        text.push_str("\nexit $?\n");
        text
    }

    /// The script that becomes any other program, with the same around it. It stays for nothing: who is not waited for any more, such as a
    /// probe that takes too long, is ended by the guest agent, which knows this process only.
    pub(crate) fn entrance(&self) -> String {
        let mut text = "#!/bin/sh\n".to_owned();
        if !self.words.is_empty() {
            text.push_str(AFTER_START);
        }
        // A folder that is gone by now is no reason to let nobody look.
        self.surroundings(&mut text, ":");
        text.push_str("exec");
        self.surrounded(&mut text);
        text.push_str(" \"$@\"\n");
        text
    }

    /// Variables, and the folder to be in. From here on, programs of the script itself are called by their paths.
    fn surroundings(&self, text: &mut String, otherwise: &str) {
        for (name, value) in self.env.iter().filter(|(name, _)| is_free(name)) {
            let _ = writeln!(text, "export {name}={}", quoted(value));
        }
        if let Some(dir) = &self.dir {
            let why = quoted(&format!("there is no folder {dir} to work in"));
            let _ = writeln!(text, "cd {} || {otherwise} {why}", quoted(dir));
        }
    }

    /// A shell cannot have a variable of any name and value; `env` can, and is gone before anybody looks.
    fn surrounded(&self, text: &mut String) {
        let odd: Vec<_> = self.env.iter().filter(|(name, _)| !is_free(name)).collect();
        if !odd.is_empty() {
            text.push_str(" /usr/bin/env");
        }
        for (name, value) in odd {
            let _ = write!(text, " {}", quoted(&format!("{name}={value}")));
        }
    }

    /// The environment as images of runners read it. A line is a variable; ends of lines are written as `\n` and `\r`.
    pub(crate) fn tuist_env(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.env {
            let value = value.replace('\n', "\\n").replace('\r', "\\r");
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

/// The words that run the script in a guest.
pub(crate) fn start() -> Vec<String> {
    vec!["/bin/sh".to_owned(), format!("{SHARES}/{ENV}/{START}")]
}

/// The words that run a program beside the container, with its environment.
pub(crate) fn enter(words: Vec<String>) -> Vec<String> {
    let script = format!("{SHARES}/{ENV}/{ENTER}");
    [vec!["/bin/sh".to_owned(), script], words].concat()
}

/// The words that ask the container's process to end, as soon as there is one.
pub(crate) fn terminate() -> Vec<String> {
    let script = format!("{AFTER_START}kill -TERM \"$(cat \"{SHARES}/{STATUS}/{PID}\")\"");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
}

/// Whether a shell can have a variable of this name, and leaves it alone. The `sh` of macOS is bash, which ends at once when some of its own are
/// given a value, and gives others one of its own.
fn is_free(name: &str) -> bool {
    const OWN: &[&str] = &[
        "DIRSTACK",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "IFS",
        "LINENO",
        "OPTARG",
        "OPTERR",
        "OPTIND",
        "PIPESTATUS",
        "POSIXLY_CORRECT",
        "PPID",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SRANDOM",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "SHLVL",
        "UID",
        "PWD",
        "OLDPWD",
        "_",
    ];
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with("BASH")
        && !OWN.contains(&name)
}

/// A word that a shell takes as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// A folder in the place of the shares of a guest and of its pipe.
    struct Guest(tempfile::TempDir);

    impl Guest {
        fn new() -> Self {
            let guest = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir_all(guest.path("shares").join(STATUS)).unwrap();
            guest
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn status(&self, name: &str) -> PathBuf {
            self.path("shares").join(STATUS).join(name)
        }

        /// What runs in a guest, as it runs here.
        fn here(&self, text: &str) -> String {
            let text = text.replace(SHARES, &self.path("shares").display().to_string());
            text.replace(input::PIPE, &self.path("input").display().to_string())
        }

        fn told(&self, words: &[String]) -> Command {
            let (program, rest) = words.split_first().unwrap();
            let mut command = Command::new(program);
            command.args(rest.iter().map(|word| self.here(word)));
            command
        }

        fn script(&self, script: &str) -> Command {
            self.told(&["/bin/sh", "-c", script].map(str::to_owned))
        }

        fn ran(&self, program: &Program) -> (Option<i32>, String) {
            let output = self.script(&program.script()).output().unwrap();
            // In a guest the process that holds the pipe of the input ends with the VM.
            let _ = self.told(&input::end()).status().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        }
    }

    fn program(words: &[&str]) -> Program {
        Program {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Program::default()
        }
    }

    fn env(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn a_value_arrives_as_it_is_whatever_is_in_it() {
        let guest = Guest::new();
        let value = "it's $HOME `id` \\n \"x\"\nsecond line\t*";
        let env = [env("A", value), env("odd.name", "x y")].concat();
        let ran = |words: &[&str]| {
            let env = env.clone();
            guest.ran(&Program { env, ..program(words) })
        };
        let (code, output) = ran(&["sh", "-c", "printf '%s' \"$A\"", "it's"]);
        assert_eq!((code, output.as_str()), (Some(0), value));
        // A name that a shell does not know reaches the program all the same.
        assert_eq!(ran(&["printenv", "odd.name"]), (Some(0), "x y\n".to_owned()));
    }

    /// A Pod with a variable `UID` never came up: the `sh` of macOS is bash, which ends where that is given a value. One named `shares` led our
    /// script astray, and one with a `PATH` of its own hid `env` from it.
    #[test]
    fn variables_of_any_name_arrive_whatever_shell_the_guest_has() {
        const NAMES: &str =
            "UID EUID PPID SHELLOPTS BASH_VERSINFO GROUPS RANDOM SHLVL IFS PWD _ shares input odd.name PATH";
        let guest = Guest::new();
        let bash = guest.path("sh");
        std::os::unix::fs::symlink("/bin/bash", &bash).unwrap();
        for shell in ["/bin/sh", bash.to_str().unwrap()] {
            for name in NAMES.split(' ') {
                let env = env(name, "/no where");
                let program = Program {
                    env,
                    ..program(&["/usr/bin/printenv", name])
                };
                let _ = std::fs::remove_file(guest.status(PID));
                for (script, words) in [(program.script(), &[][..]), (program.entrance(), &program.words)] {
                    let output = Command::new(shell)
                        .args(["-c", &guest.here(&script).replace("/bin/sh", shell), "enter"])
                        .args(words)
                        .output()
                        .unwrap();
                    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
                    let ended = (output.status.code(), text.as_str());
                    assert_eq!(ended, (Some(0), "/no where\n"), "{name} {shell}");
                }
                assert!(guest.status(PID).exists());
            }
        }
    }

    #[test]
    fn a_volume_is_where_the_container_wants_it_and_the_exit_code_is_its_own() {
        let guest = Guest::new();
        std::fs::create_dir_all(guest.path("shares/v-config")).unwrap();
        std::fs::write(guest.path("shares/v-config/key"), "value").unwrap();
        // The image has something there already.
        std::fs::create_dir_all(guest.path("mount/config/old")).unwrap();
        let target = guest.path("mount/config").display().to_string();
        let program = Program {
            dir: Some(target.clone()),
            links: vec![Link {
                source: "v-config".to_owned(),
                target,
                make: false,
            }],
            ..program(&["sh", "-c", "cat key; exit 7"])
        };
        // The second time is as after a start that was cut short.
        for _ in 0..2 {
            assert_eq!(guest.ran(&program), (Some(7), "value".to_owned()));
        }
    }

    /// `tart` tells every end by a signal as 255, and so did we. Of the shell that knows better nothing is to be seen in the log: it
    /// would quote the command, with what is secret in it.
    #[test]
    fn an_end_by_a_signal_is_told_as_everywhere_and_nobody_remarks_on_it() {
        let guest = Guest::new();
        // A script that starts a program in the background lets it, and all that it starts, ignore interrupts.
        let plain = Command::new("/bin/sh").args(["-c", "kill -INT $$"]).status().unwrap();
        let interrupt = plain.signal().map(|_| ("INT", 130));
        for terminal in [false, true] {
            let signals = [("KILL", 137), ("TERM", 143), ("SEGV", 139)];
            for (signal, code) in signals.into_iter().chain(interrupt) {
                let program = Program {
                    env: env("odd.name", "secret"),
                    terminal,
                    ..program(&["sh", "-c", &format!("echo said; kill -{signal} $$")])
                };
                let (told, output) = guest.ran(&program);
                assert_eq!((told, output.trim_end()), (Some(code), "said"), "{signal} {terminal}");
            }
        }
    }

    /// A container that was deleted in its first moments was asked to end before it had a process. It heard nothing of it, and was killed at the
    /// end of its grace.
    #[test]
    fn a_container_that_has_only_begun_is_asked_to_end_as_well() {
        let guest = Guest::new();
        let mut program = Command::new("sleep").arg("3600").spawn().unwrap();
        let mut asking = guest.told(&terminate()).spawn().unwrap();
        assert!(asking.try_wait().unwrap().is_none());
        std::fs::write(guest.status(PID), program.id().to_string()).unwrap();
        assert!(asking.wait().unwrap().success());
        assert_eq!(program.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn who_asks_the_container_to_end_asks_its_program() {
        let guest = Guest::new();
        let waits = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
        let mut running = guest
            .script(&program(&["sh", "-c", waits]).script())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(running.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert!(guest.told(&terminate()).status().unwrap().success());
        output.read_to_string(&mut line).unwrap();
        let code = running.wait().unwrap().code();
        assert_eq!((line.as_str(), code), ("ready\nbye\n", Some(3)));
    }

    #[test]
    fn a_folder_that_is_not_there_is_said_in_words() {
        let dir = Some("/nowhere/at/all".to_owned());
        let (code, output) = Guest::new().ran(&Program {
            dir,
            ..program(&["true"])
        });
        assert_eq!(code, Some(125));
        assert!(output.contains("there is no folder /nowhere/at/all"), "{output}");
    }

    #[test]
    fn last_words_are_left_where_the_host_finds_them() {
        let guest = Guest::new();
        let path = guest.path("last").display().to_string();
        let program = Program {
            last_words: Some(path.clone()),
            ..program(&["sh", "-c", &format!("echo bye >{path}")])
        };
        assert_eq!(guest.ran(&program).0, Some(0));
        let left = std::fs::read_to_string(guest.status(LAST_WORDS)).unwrap();
        assert_eq!(left, "bye\n");
    }

    /// A caller writes, leaves, comes back and writes again; then there is no more.
    #[test]
    fn input_ends_when_it_is_said_and_not_before() {
        let guest = Guest::new();
        let program = Program {
            input: true,
            ..program(&["cat"])
        };
        let reader = guest.script(&program.script()).stdout(Stdio::piped()).spawn().unwrap();
        let say = |words: Vec<String>, text: &str| {
            let mut child = guest.told(&words).stdin(Stdio::piped()).spawn().unwrap();
            // A program that does not read has not failed.
            let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
            child.wait().unwrap().code()
        };
        for (words, text) in [(input::feed(), "one "), (input::feed(), "two"), (input::end(), "")] {
            assert_eq!(say(words, text), Some(0));
        }
        let output = reader.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one two");
        let late = say(input::feed(), "nobody reads this, and nobody waits");
        assert_eq!(late, Some(input::OVER));
    }

    /// A hook that was run right after the start did not find the volumes of its container, and failed.
    #[test]
    fn whoever_enters_waits_until_everything_is_in_place() {
        let guest = Guest::new();
        let seen = guest.path("volume");
        let mut entered = guest
            .script(&program(&["true"]).entrance())
            .args([Path::new("enter"), Path::new("cat"), &seen])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(entered.try_wait().unwrap().is_none());
        std::fs::write(&seen, "here").unwrap();
        std::fs::write(guest.status(PID), "1").unwrap();
        let output = entered.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "here");
        let alone = Program::default().entrance();
        assert!(
            !alone.contains("until"),
            "an image that does all by itself has no such script"
        );
    }

    #[test]
    fn the_environment_of_runners_has_a_line_per_variable() {
        let env = [env("A", "1\n2"), env("B", "")].concat();
        let program = Program {
            env,
            ..Program::default()
        };
        assert_eq!(program.tuist_env(), "A=1\\n2\nB=\n");
    }
}
