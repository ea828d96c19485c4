//! What `launchctl print` and `list` say. [facts 1.2, 1.3: order, words and indentation of macOS 26]

use super::domain::Domain;
use super::job::{Job, LastExit, State};
use super::spec::KeepAlive;
use super::{Launchd, overrides};
use crate::macos::tree::Tree;
use std::fmt::Write as _;

fn state(job: &Job) -> &'static str {
    match job.state {
        State::Idle => "not running",
        State::Scheduled => "spawn scheduled",
        State::Starting => "spawning",
        State::Running { .. } => "running",
        State::Terminating { killed: false, .. } => "SIGTERMed",
        State::Terminating { killed: true, .. } => "SIGKILLed",
        State::Draining => "exited",
    }
}

/// One service.
pub(crate) fn service(launchd: &Launchd, domain: Domain, job: &Job, default_user: &str) -> String {
    let spec = &job.spec;
    let mut text = format!("{domain}/{} = {{\n", spec.label);
    // Writing to a string cannot fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "\t{words}");
    };
    line(format!("active count = {}", u32::from(job.pid().is_some())));
    line(format!("path = {}", job.path));
    line(format!(
        "type = {}",
        if domain == Domain::System {
            "LaunchDaemon"
        } else {
            "LaunchAgent"
        }
    ));
    line(format!("state = {}", state(job)));
    line(String::new());
    line(format!("program = {}", spec.program));
    line("arguments = {".to_owned());
    for argument in &spec.arguments {
        line(format!("\t{argument}"));
    }
    line("}".to_owned());
    line(String::new());
    for (name, value) in [
        ("working directory", &spec.folder),
        ("stdout path", &spec.stdout),
        ("stderr path", &spec.stderr),
    ] {
        if let Some(value) = value {
            line(format!("{name} = {value}"));
        }
    }
    line("default environment = {".to_owned());
    line("\tPATH => /usr/bin:/bin:/usr/sbin:/sbin".to_owned());
    line("}".to_owned());
    line(String::new());
    line("environment = {".to_owned());
    line("\tOSLogRateLimit => 64".to_owned());
    for (name, value) in &spec.environment {
        line(format!("\t{name} => {value}"));
    }
    line(format!("\tXPC_SERVICE_NAME => {}", spec.label));
    line("}".to_owned());
    line(String::new());
    match (domain, launchd.session) {
        (Domain::Gui(_), Some(session)) => {
            line(format!("domain = {domain} [{}]", session.number));
            line(format!("asid = {}", session.number));
        }
        _ => line(format!("domain = {domain}")),
    }
    if domain == Domain::System && spec.user.is_some() {
        line(format!("username = {}", spec.user.as_deref().unwrap_or(default_user)));
        line(format!("group = {}", spec.group.as_deref().unwrap_or("staff")));
    }
    line(format!("minimum runtime = {}", job.minimum_runtime()));
    if job.minimum_runtime() != spec.throttle {
        line(format!("base minimum runtime = {}", spec.throttle));
    }
    line(format!("exit timeout = {}", spec.exit_timeout));
    line(format!("runs = {}", job.runs));
    if let Some(pid) = job.pid() {
        line(format!("pid = {pid}"));
        line("immediate reason = speculative".to_owned());
        line("forks = 0".to_owned());
        line("execs = 1".to_owned());
        line("initialized = 1".to_owned());
        line("trampolined = 1".to_owned());
        line("started suspended = 0".to_owned());
        line("proxy started suspended = 0".to_owned());
    }
    line(last_exit(job.last_exit));
    line(String::new());
    line(format!("spawn type = {}", spawn_type(job, domain)));
    line("cpumon = default".to_owned());
    line(format!("job state = {}", job_state(job)));
    line(String::new());
    line(format!("properties = {}", properties(job, domain).join(" | ")));
    text.push_str("}\n");
    text
}

/// The words after a signal are a guess; the others are from captures.
fn last_exit(last: LastExit) -> String {
    match last {
        LastExit::Never => "last exit code = (never exited)".to_owned(),
        LastExit::Code(78) => "last exit code = 78: EX_CONFIG".to_owned(),
        LastExit::Code(code) => format!("last exit code = {code}"),
        LastExit::CodeSigning => "last exit reason = OS_REASON_CODESIGNING".to_owned(),
        LastExit::Signal(signal) => format!("last terminating signal = {}: {signal}", signal_name(signal)),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "Hangup",
        2 => "Interrupt",
        6 => "Abort trap",
        9 => "Killed",
        11 => "Segmentation fault",
        15 => "Terminated",
        _ => "Unknown signal",
    }
}

fn spawn_type(job: &Job, domain: Domain) -> &'static str {
    match job.spec.process_type.as_deref() {
        Some("Interactive") => "interactive (4)",
        Some("Background") => "background (5)",
        _ if domain == Domain::System => "daemon (3)",
        _ => "interactive (4)",
    }
}

fn job_state(job: &Job) -> &'static str {
    match (job.state, job.last_exit) {
        (State::Running { .. } | State::Terminating { .. }, _) => "running",
        (_, LastExit::CodeSigning | LastExit::Code(78)) => "spawn failed",
        _ => "exited",
    }
}

fn properties(job: &Job, domain: Domain) -> Vec<&'static str> {
    let spec = &job.spec;
    let mut properties = Vec::new();
    for (is_so, word) in [
        (spec.keep_alive != KeepAlive::Never, "keepalive"),
        (spec.run_at_load, "runatload"),
        (spec.inferred_program, "inferred program"),
        (domain == Domain::System, "system service"),
        (domain == Domain::System && job.built_in, "tle system"),
        (job.penalty_box, "penalty box"),
        (job.pinned.is_some(), "managed LWCR"),
        (job.pinned.is_some(), "has LWCR"),
        (job.needs_new_pin, "needs LWCR update"),
    ] {
        if is_so {
            properties.push(word);
        }
    }
    properties
}

/// A whole domain: short of the three thousand lines of a real one, but with every part that is looked for.
pub(crate) fn domain(launchd: &Launchd, tree: &Tree, domain: Domain) -> String {
    let mut text = format!("{domain} = {{\n");
    match (domain, launchd.session) {
        (Domain::Gui(uid), Some(session)) => {
            let _ = write!(
                text,
                "\ttype = login\n\thandle = {}\n\tactive count = 418\n\tservice count = 412\n\tactive service count = 162\n\
                 \tcreator = loginwindow[415]\n\tcreator euid = 0\n\tsession = Aqua\n\tauxiliary bootstrapper = com.apple.xpc.otherbsd \
                 (complete)\n\tsecurity context = {{\n\t\tuid = {uid}\n\t\tasid = {}\n\t}}\n",
                session.number, session.number
            );
        }
        (Domain::User(uid), _) => {
            let _ = write!(text, "\ttype = user\n\thandle = {uid}\n\tsession = Background\n");
        }
        _ => text.push_str("\ttype = system\n\thandle = 0\n\tsession = System\n"),
    }
    text.push_str("\n\tservices = {\n");
    for ((_, label), job) in launchd.jobs.iter().filter(|((there, _), _)| *there == domain) {
        let status = match job.last_exit {
            LastExit::Never => "-".to_owned(),
            LastExit::Code(code) => code.to_string(),
            LastExit::Signal(signal) => format!("-{signal}"),
            LastExit::CodeSigning => "(pe)".to_owned(),
        };
        let _ = writeln!(text, "\t\t{:>8} {status:>6} \t{label}", job.pid().unwrap_or(0));
    }
    text.push_str("\t}\n\n");
    text.push_str(&indented(&disabled(tree, domain)));
    text.push_str("}\n");
    text
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| format!("{all}\t{line}\n"))
}

/// `print-disabled`.
pub(crate) fn disabled(tree: &Tree, domain: Domain) -> String {
    let mut text = "disabled services = {\n".to_owned();
    for (label, disabled) in overrides(tree, domain) {
        let word = if disabled { "disabled" } else { "enabled" };
        let _ = writeln!(text, "\t\"{label}\" => {word}");
    }
    text.push_str("}\n");
    text
}

/// `list`: the caller's domain.
pub(crate) fn list(launchd: &Launchd, domain: Domain) -> String {
    let mut text = "PID\tStatus\tLabel\n".to_owned();
    for ((_, label), job) in launchd.jobs.iter().filter(|((there, _), _)| *there == domain) {
        let pid = job.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let status = match job.last_exit {
            LastExit::Never => 0,
            LastExit::Code(code) => code,
            LastExit::Signal(signal) => -signal,
            LastExit::CodeSigning => -9,
        };
        let _ = writeln!(text, "{pid}\t{status}\t{label}");
    }
    text
}

/// `list <label>`: the old style of property lists.
pub(crate) fn listed(job: &Job) -> String {
    let mut text = "{\n\t\"LimitLoadToSessionType\" = \"System\";\n".to_owned();
    let _ = writeln!(text, "\t\"Label\" = \"{}\";", job.spec.label);
    let _ = writeln!(text, "\t\"OnDemand\" = {};", job.spec.keep_alive == KeepAlive::Never);
    let raw = match job.last_exit {
        LastExit::Never => 0,
        LastExit::Code(code) => code << 8,
        LastExit::Signal(signal) => signal,
        LastExit::CodeSigning => 9,
    };
    let _ = writeln!(text, "\t\"LastExitStatus\" = {raw};");
    if let Some(pid) = job.pid() {
        let _ = writeln!(text, "\t\"PID\" = {pid};");
    }
    let _ = writeln!(text, "\t\"Program\" = \"{}\";", job.spec.program);
    text.push_str("\t\"ProgramArguments\" = (\n");
    for argument in &job.spec.arguments {
        let _ = writeln!(text, "\t\t\"{argument}\";");
    }
    text.push_str("\t);\n};\n");
    text
}
