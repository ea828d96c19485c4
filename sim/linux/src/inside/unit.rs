//! Unit files, as far as the services of a node need them. Strict: a directive that would change what happens and is not
//! understood is an error, never quietly ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where unit files are, in the order in which they are looked for.
pub(crate) const FOLDERS: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
];

/// Directives of `[Service]` that make no difference here: limits, accounting and sandboxing of one machine among many.
const IGNORED: [&str; 24] = [
    "CPUAccounting",
    "Delegate",
    "ExecReload",
    "IOSchedulingClass",
    "KillSignal",
    "LimitCORE",
    "LimitMEMLOCK",
    "LimitNOFILE",
    "LimitNPROC",
    "MemoryAccounting",
    "Nice",
    "NotifyAccess",
    "OOMScoreAdjust",
    "PrivateTmp",
    "ProtectHome",
    "ProtectSystem",
    "RestartPreventExitStatus",
    "Slice",
    "StandardError",
    "StandardOutput",
    "StartLimitBurst",
    "StartLimitInterval",
    "SyslogIdentifier",
    "TasksMax",
];

/// Why a unit cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BadUnit {
    #[error("Unit {0} could not be found.")]
    Unknown(String),
    #[error("{unit}: line {line}: {text:?} is neither a section nor an assignment")]
    Line { unit: String, line: usize, text: String },
    #[error("{unit}: [Service] {key}={value}: the emulated server does not know this")]
    Directive { unit: String, key: String, value: String },
    #[error("{unit}: the command {command:?} cannot be split into words: {why}")]
    Command {
        unit: String,
        command: String,
        why: &'static str,
    },
    #[error("{unit}: has no ExecStart")]
    NoCommand { unit: String },
    #[error("{unit}: only .service units are emulated")]
    Kind { unit: String },
}

/// When a service counts as started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As soon as it runs.
    Simple,
    /// When it says so on its notification socket.
    Notify,
    /// When its commands have ended.
    Oneshot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    No,
    Always,
    OnFailure,
}

/// One command of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exec {
    /// A leading `-`: its failure does not count.
    pub(crate) tolerant: bool,
    words: Vec<Word>,
}

/// A word before its variables are replaced. `$NAME` on its own becomes as many words as the value has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) kind: Kind,
    pub(crate) start_pre: Vec<Exec>,
    pub(crate) start: Vec<Exec>,
    pub(crate) start_post: Vec<Exec>,
    pub(crate) stop: Vec<Exec>,
    pub(crate) environment: Vec<(String, String)>,
    /// With whether it may be absent.
    pub(crate) environment_files: Vec<(PathBuf, bool)>,
    pub(crate) restart: Restart,
    pub(crate) restart_after: Duration,
    pub(crate) remain_after_exit: bool,
    /// Folders below `/run` it wants.
    pub(crate) runtime_directories: Vec<String>,
    /// Only the main process is ended: containers outlive their runtime.
    pub(crate) kill_main_only: bool,
    pub(crate) working_directory: Option<PathBuf>,
    /// Started with it, before it.
    pub(crate) needs: Vec<String>,
    pub(crate) after: Vec<String>,
    pub(crate) condition_paths: Vec<String>,
    pub(crate) wanted_by: Vec<String>,
}

/// `kubelet` is `kubelet.service`.
pub(crate) fn full_name(name: &str) -> String {
    if name.contains('.') {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// Reads a unit with its drop-ins from a root directory.
pub(crate) fn load(root: &Path, name: &str) -> Result<Unit, BadUnit> {
    let name = full_name(name);
    if !name.ends_with(".service") || name.contains('/') {
        return Err(BadUnit::Kind { unit: name });
    }
    let text = FOLDERS
        .iter()
        .find_map(|folder| std::fs::read_to_string(root.join(folder).join(&name)).ok())
        .ok_or_else(|| BadUnit::Unknown(name.clone()))?;
    let mut drop_ins: BTreeMap<String, PathBuf> = BTreeMap::new();
    // Of two drop-ins of one name the one in the earlier folder counts.
    for folder in FOLDERS.iter().rev() {
        let folder = root.join(folder).join(format!("{name}.d"));
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            if entry.path().extension().is_some_and(|extension| extension == "conf") {
                drop_ins.insert(file, entry.path());
            }
        }
    }
    let mut texts = vec![text];
    texts.extend(drop_ins.values().filter_map(|path| std::fs::read_to_string(path).ok()));
    parse(&name, &texts)
}

/// A unit from its file and drop-ins.
pub(crate) fn parse(name: &str, texts: &[String]) -> Result<Unit, BadUnit> {
    let settings = Settings::read(name, texts)?;
    settings.unit(name)
}

#[derive(Default)]
struct Settings(BTreeMap<(String, String), Vec<String>>);

impl Settings {
    fn read(unit: &str, texts: &[String]) -> Result<Self, BadUnit> {
        let mut settings = Self::default();
        for text in texts {
            let mut section = String::new();
            let mut pending = String::new();
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if pending.is_empty() && (line.is_empty() || line.starts_with(['#', ';'])) {
                    continue;
                }
                if let Some(more) = line.strip_suffix('\\') {
                    pending.push_str(more);
                    pending.push(' ');
                    continue;
                }
                pending.push_str(line);
                let whole = std::mem::take(&mut pending);
                if let Some(name) = whole.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                    name.clone_into(&mut section);
                } else if let Some((key, value)) = whole.split_once('=') {
                    settings.assign(&section, key.trim(), value.trim());
                } else {
                    return Err(BadUnit::Line {
                        unit: unit.to_owned(),
                        line: number + 1,
                        text: whole,
                    });
                }
            }
        }
        Ok(settings)
    }

    /// An empty value takes back what was assigned before.
    fn assign(&mut self, section: &str, key: &str, value: &str) {
        let values = self.0.entry((section.to_owned(), key.to_owned())).or_default();
        if value.is_empty() {
            values.clear();
        } else {
            values.push(value.to_owned());
        }
    }

    fn all(&self, section: &str, key: &str) -> &[String] {
        self.0
            .get(&(section.to_owned(), key.to_owned()))
            .map_or(&[], Vec::as_slice)
    }

    fn last(&self, section: &str, key: &str) -> Option<&str> {
        self.all(section, key).last().map(String::as_str)
    }

    fn words(&self, section: &str, key: &str) -> Vec<String> {
        let values = self.all(section, key).iter();
        values
            .flat_map(|value| value.split_whitespace().map(str::to_owned))
            .collect()
    }

    fn unit(&self, name: &str) -> Result<Unit, BadUnit> {
        let odd = |key: &str, value: &str| BadUnit::Directive {
            unit: name.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let commands = |key: &str| {
            let lines = self.all("Service", key).iter();
            lines.map(|line| Exec::parse(name, line)).collect::<Result<Vec<_>, _>>()
        };
        for (key, values) in self.0.iter().filter(|((section, _), _)| section == "Service") {
            if !KNOWN.contains(&key.1.as_str()) && !IGNORED.contains(&key.1.as_str()) {
                return Err(odd(&key.1, &values.join(" ")));
            }
        }
        let kind = match self.last("Service", "Type").unwrap_or("simple") {
            "simple" | "exec" => Kind::Simple,
            "notify" | "notify-reload" => Kind::Notify,
            "oneshot" => Kind::Oneshot,
            other => return Err(odd("Type", other)),
        };
        let restart = match self.last("Service", "Restart").unwrap_or("no") {
            "no" => Restart::No,
            "always" => Restart::Always,
            "on-failure" | "on-abnormal" => Restart::OnFailure,
            other => return Err(odd("Restart", other)),
        };
        let restart_after = match self.last("Service", "RestartSec") {
            None => Duration::from_millis(100),
            Some(text) => seconds(text).ok_or_else(|| odd("RestartSec", text))?,
        };
        let remain_after_exit = match self.last("Service", "RemainAfterExit").unwrap_or("no") {
            "yes" | "true" | "1" => true,
            "no" | "false" | "0" => false,
            other => return Err(odd("RemainAfterExit", other)),
        };
        let kill_main_only = match self.last("Service", "KillMode").unwrap_or("control-group") {
            "process" => true,
            "control-group" | "mixed" => false,
            other => return Err(odd("KillMode", other)),
        };
        if let Some(user) = self.last("Service", "User").filter(|user| *user != "root") {
            return Err(odd("User", user));
        }
        let mut environment = Vec::new();
        for line in self.all("Service", "Environment") {
            for word in split(line).map_err(|why| BadUnit::Command {
                unit: name.to_owned(),
                command: line.clone(),
                why,
            })? {
                let (key, value) = word.text.split_once('=').ok_or_else(|| odd("Environment", line))?;
                environment.push((key.to_owned(), value.to_owned()));
            }
        }
        let environment_files = self.all("Service", "EnvironmentFile").iter().map(|path| {
            let optional = path.strip_prefix('-');
            (PathBuf::from(optional.unwrap_or(path)), optional.is_some())
        });
        let needs = [self.words("Unit", "Wants"), self.words("Unit", "Requires")].concat();
        let unit = Unit {
            name: name.to_owned(),
            description: self.last("Unit", "Description").unwrap_or(name).to_owned(),
            kind,
            start_pre: commands("ExecStartPre")?,
            start: commands("ExecStart")?,
            start_post: commands("ExecStartPost")?,
            stop: commands("ExecStop")?,
            environment,
            environment_files: environment_files.collect(),
            restart,
            restart_after,
            remain_after_exit,
            runtime_directories: self.words("Service", "RuntimeDirectory"),
            kill_main_only,
            working_directory: self.last("Service", "WorkingDirectory").map(PathBuf::from),
            // Targets and the like are how the rest of the machine is ordered, which is there already.
            needs: needs.into_iter().filter(|unit| unit.ends_with(".service")).collect(),
            after: self.words("Unit", "After"),
            condition_paths: self.words("Unit", "ConditionPathExists"),
            wanted_by: self.words("Install", "WantedBy"),
        };
        if unit.start.is_empty() || (unit.kind != Kind::Oneshot && unit.start.len() != 1) {
            return Err(BadUnit::NoCommand { unit: name.to_owned() });
        }
        Ok(unit)
    }
}

const KNOWN: [&str; 16] = [
    "Environment",
    "EnvironmentFile",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "KillMode",
    "RemainAfterExit",
    "Restart",
    "RestartSec",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "TimeoutStartSec",
    "Type",
    "User",
    "WorkingDirectory",
];

/// `5`, `5s`, `100ms`, `2min`.
fn seconds(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "" | "s" | "sec" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        "min" | "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

impl Exec {
    fn parse(unit: &str, line: &str) -> Result<Self, BadUnit> {
        let bad = |why| BadUnit::Command {
            unit: unit.to_owned(),
            command: line.to_owned(),
            why,
        };
        let program = line.trim_start_matches(['-', '+', '!', ':']);
        let prefix = line.get(..line.len() - program.len()).unwrap_or_default();
        let words = split(program).map_err(bad)?;
        if words.is_empty() {
            return Err(bad("it is empty"));
        }
        Ok(Self {
            tolerant: prefix.contains('-'),
            words,
        })
    }

    /// Program and arguments. A variable that is not set is empty, as systemd has it.
    pub(crate) fn argv(&self, environment: &BTreeMap<String, String>) -> Vec<String> {
        let mut argv = Vec::new();
        for word in &self.words {
            let alone = word.text.strip_prefix('$').filter(|name| is_name(name) && !word.quoted);
            match alone {
                Some(name) => {
                    let value = environment.get(name).map_or("", String::as_str);
                    argv.extend(value.split_whitespace().map(str::to_owned));
                }
                None => argv.push(replace(&word.text, environment)),
            }
        }
        argv
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Replaces `${NAME}`, `$$` and `%%`.
fn replace(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '%']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let named = from
            .strip_prefix("${")
            .and_then(|inner| inner.split_once('}'))
            .filter(|(name, _)| is_name(name));
        if let Some(after) = from.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some(after) = from.strip_prefix("%%") {
            out.push('%');
            rest = after;
        } else if let Some((name, after)) = named {
            out.push_str(environment.get(name).map_or("", String::as_str));
            rest = after;
        } else {
            let (sign, after) = from.split_at(1);
            out.push_str(sign);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Words with single and double quotes and backslashes.
fn split(line: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_with(Word::empty).quoted = true;
            }
            (Some('\''), c) => word.get_or_insert_with(Word::empty).text.push(c),
            (_, '\\') => {
                let next = match chars.next().ok_or("it ends with a backslash")? {
                    'n' => '\n',
                    't' => '\t',
                    's' => ' ',
                    other => other,
                };
                word.get_or_insert_with(Word::empty).text.push(next);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_with(Word::empty).text.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is never closed");
    }
    words.extend(word);
    Ok(words)
}

impl Word {
    fn empty() -> Self {
        Self {
            text: String::new(),
            quoted: false,
        }
    }
}

/// The assignments of an environment file.
pub(crate) fn environment_file(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| {
            let value = value.trim();
            let inner = ['"', '\'']
                .iter()
                .find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
            (key.trim().to_owned(), inner.unwrap_or(value).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELET: &str = "[Unit]\nDescription=kubelet\nWants=network-online.target containerd.service\nAfter=containerd.service\n\
        [Service]\nEnvironmentFile=-/etc/default/kubelet\nEnvironment=\"A=1 2\" B=3\n\
        ExecStart=/usr/bin/kubelet --config=/x \\\n  --node-labels=\"a b\" $KUBELET_EXTRA_ARGS ${B}$$\n\
        Restart=always\nRestartSec=5\nLimitNOFILE=1\n[Install]\nWantedBy=multi-user.target\n";

    fn unit(text: &str) -> Result<Unit, BadUnit> {
        parse("x.service", &[text.to_owned()])
    }

    #[test]
    fn a_kubelet_is_read_as_systemd_reads_it() {
        let unit = unit(KUBELET).unwrap();
        assert_eq!(unit.needs, ["containerd.service"]);
        assert_eq!(
            (unit.restart, unit.restart_after),
            (Restart::Always, Duration::from_secs(5))
        );
        assert_eq!(unit.wanted_by, ["multi-user.target"]);
        assert_eq!(unit.environment_files, [(PathBuf::from("/etc/default/kubelet"), true)]);
        let mut environment: BTreeMap<_, _> = unit.environment.iter().cloned().collect();
        assert_eq!(environment["A"], "1 2");
        environment.insert("KUBELET_EXTRA_ARGS".to_owned(), "--a --b=c".to_owned());
        let argv = unit.start[0].argv(&environment);
        assert_eq!(
            argv,
            [
                "/usr/bin/kubelet",
                "--config=/x",
                "--node-labels=a b",
                "--a",
                "--b=c",
                "3$"
            ]
        );
    }

    #[test]
    fn an_empty_assignment_in_a_drop_in_replaces_the_command() {
        let texts = [
            KUBELET.to_owned(),
            "[Service]\nExecStart=\nExecStart=-/bin/true\n".to_owned(),
        ];
        let unit = parse("x.service", &texts).unwrap();
        assert_eq!(unit.start.len(), 1);
        assert!(unit.start[0].tolerant);
        assert_eq!(unit.start[0].argv(&BTreeMap::new()), ["/bin/true"]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let cases = [
            ("[Service]\nExecStart=/a\nSocketBindDeny=any\n", "SocketBindDeny=any"),
            ("[Service]\nExecStart=/a\nType=dbus\n", "Type=dbus"),
            ("[Service]\nExecStart=/a\nUser=nobody\n", "User=nobody"),
            ("[Service]\nExecStart=/a 'b\n", "never closed"),
            ("[Service]\nType=simple\n", "no ExecStart"),
            ("[Service]\nnonsense\n", "line 2"),
        ];
        for (text, expected) in cases {
            let error = unit(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_environment_file_has_comments_and_quotes() {
        let read = environment_file("# a\nA=1\nB=\"x y\"\n\nC='z'\nnonsense\n");
        let expected = [("A", "1"), ("B", "x y"), ("C", "z")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(read, expected);
    }
}
