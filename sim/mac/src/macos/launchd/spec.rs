//! A property list as launchd reads it. [facts 1.4, launchd.plist(5)]

use plist::{Dictionary, Value};
use std::collections::BTreeMap;

/// Why launchd does not take a property list: its error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) i32);

/// What a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) label: String,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// `Program` was not given.
    pub(crate) inferred_program: bool,
    pub(crate) run_at_load: bool,
    pub(crate) keep_alive: KeepAlive,
    /// Seconds between two starts.
    pub(crate) throttle: u64,
    /// Seconds between SIGTERM and SIGKILL.
    pub(crate) exit_timeout: u64,
    pub(crate) start_interval: Option<u64>,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) folder: Option<String>,
    pub(crate) abandon_group: bool,
    pub(crate) session_types: Vec<String>,
    pub(crate) process_type: Option<String>,
    pub(crate) disabled: bool,
    /// launchd listens for it and starts it when somebody calls.
    pub(crate) on_demand: bool,
}

/// When a job that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    Never,
    Always,
    /// After a zero status, or after any other.
    AfterSuccess(bool),
    /// After a crash, or after any other end.
    AfterCrash(bool),
}

impl KeepAlive {
    /// Whether an end with this status, or by a signal, is followed by a start.
    pub(crate) fn restarts(self, code: Option<i32>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::AfterSuccess(wanted) => (code == Some(0)) == wanted,
            Self::AfterCrash(wanted) => code.is_none() == wanted,
        }
    }
}

const INVALID_PLIST: Refused = Refused(109);
const NO_LABEL: Refused = Refused(110);
const NO_PROGRAM: Refused = Refused(111);

/// Reads a property list.
pub(crate) fn parse(bytes: &[u8]) -> Result<Spec, Refused> {
    let value = Value::from_reader(std::io::Cursor::new(bytes)).map_err(|_| INVALID_PLIST)?;
    let dict = value.into_dictionary().ok_or(INVALID_PLIST)?;
    let label = text(&dict, "Label").filter(|label| !label.is_empty()).ok_or(NO_LABEL)?;
    let arguments: Vec<String> = match dict.get("ProgramArguments") {
        None => Vec::new(),
        Some(value) => strings(value).ok_or(NO_PROGRAM)?,
    };
    let named = text(&dict, "Program");
    let inferred_program = named.is_none();
    let program = named.or_else(|| arguments.first().cloned()).ok_or(NO_PROGRAM)?;
    let arguments = if arguments.is_empty() {
        vec![program.clone()]
    } else {
        arguments
    };
    // Zero is ignored. [facts 1.4]
    let throttle = number(&dict, "ThrottleInterval")
        .filter(|seconds| *seconds > 0)
        .unwrap_or(10);
    Ok(Spec {
        label,
        program,
        arguments,
        inferred_program,
        run_at_load: flag(&dict, "RunAtLoad"),
        keep_alive: keep_alive(dict.get("KeepAlive")),
        throttle,
        exit_timeout: number(&dict, "ExitTimeOut").filter(|seconds| *seconds > 0).unwrap_or(5),
        start_interval: number(&dict, "StartInterval").filter(|seconds| *seconds > 0),
        stdout: text(&dict, "StandardOutPath"),
        stderr: text(&dict, "StandardErrorPath"),
        user: text(&dict, "UserName"),
        group: text(&dict, "GroupName"),
        environment: dict
            .get("EnvironmentVariables")
            .and_then(Value::as_dictionary)
            .map(|dict| {
                dict.iter()
                    .filter_map(|(key, value)| Some((key.clone(), value.as_string()?.to_owned())))
                    .collect()
            })
            .unwrap_or_default(),
        folder: text(&dict, "WorkingDirectory"),
        abandon_group: flag(&dict, "AbandonProcessGroup"),
        session_types: match dict.get("LimitLoadToSessionType") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(value) => strings(value).unwrap_or_default(),
            None => Vec::new(),
        },
        process_type: text(&dict, "ProcessType"),
        disabled: flag(&dict, "Disabled"),
        on_demand: dict.contains_key("Sockets") || dict.contains_key("MachServices"),
    })
}

fn text(dict: &Dictionary, key: &str) -> Option<String> {
    dict.get(key)?.as_string().map(str::to_owned)
}

fn flag(dict: &Dictionary, key: &str) -> bool {
    dict.get(key).and_then(Value::as_boolean).unwrap_or(false)
}

fn number(dict: &Dictionary, key: &str) -> Option<u64> {
    dict.get(key)?.as_unsigned_integer()
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|value| value.as_string().map(str::to_owned))
        .collect()
}

fn keep_alive(value: Option<&Value>) -> KeepAlive {
    match value {
        Some(Value::Boolean(true)) => KeepAlive::Always,
        Some(Value::Dictionary(dict)) => {
            let get = |key: &str| dict.get(key).and_then(Value::as_boolean);
            match (get("SuccessfulExit"), get("Crashed")) {
                (Some(wanted), _) => KeepAlive::AfterSuccess(wanted),
                (None, Some(wanted)) => KeepAlive::AfterCrash(wanted),
                (None, None) => KeepAlive::Always,
            }
        }
        _ => KeepAlive::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plist(inner: &str) -> Vec<u8> {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><plist version=\"1.0\"><dict>{inner}</dict></plist>")
            .into_bytes()
    }

    #[test]
    fn a_list_without_label_or_program_has_the_numbers_of_launchd() {
        assert_eq!(parse(b"nonsense"), Err(Refused(109)));
        assert_eq!(
            parse(&plist("<key>Program</key><string>/bin/ls</string>")),
            Err(Refused(110))
        );
        assert_eq!(parse(&plist("<key>Label</key><string>x</string>")), Err(Refused(111)));
    }

    #[test]
    fn defaults_are_those_of_macos_26() {
        let spec = parse(&plist(
            "<key>Label</key><string>x</string><key>ProgramArguments</key><array><string>/bin/ls</string></array>\
             <key>ThrottleInterval</key><integer>0</integer>",
        ))
        .unwrap();
        assert_eq!((spec.throttle, spec.exit_timeout), (10, 5));
        assert!(spec.inferred_program && spec.keep_alive == KeepAlive::Never);
    }

    #[test]
    fn keep_alive_with_successful_exit_false_restarts_after_failures_only() {
        let keep = KeepAlive::AfterSuccess(false);
        assert!(keep.restarts(Some(1)) && keep.restarts(None) && !keep.restarts(Some(0)));
    }
}
