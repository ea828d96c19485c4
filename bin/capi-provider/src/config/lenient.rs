//! Flags that nobody knows are ignored, and said.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::Command;

/// A flag that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored(pub String);

/// The arguments that the command knows, and those it does not. Flags with one dash are those of Go programs and mean the same.
///
/// There are no positional arguments, so a word after an unknown flag is its value and goes with it.
pub fn lenient(command: &Command, args: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<Ignored>) {
    let known = known(command);
    let mut args = args.into_iter().peekable();
    let mut kept: Vec<OsString> = args.next().into_iter().collect();
    let mut ignored = Vec::new();
    while let Some(arg) = args.next() {
        let Some((name, has_value)) = flag(&arg) else {
            kept.push(arg);
            continue;
        };
        if let Some(takes_value) = known.get(&name) {
            let spelt = arg.to_string_lossy();
            kept.push(format!("--{}", spelt.trim_start_matches('-')).into());
            // Its value may begin with a dash, and is not to be taken for a flag.
            if *takes_value
                && !has_value
                && let Some(value) = args.next()
            {
                kept.push(value);
            }
        } else {
            ignored.push(Ignored(name));
            while !has_value && args.peek().is_some_and(|next| flag(next).is_none()) {
                args.next();
            }
        }
    }
    (kept, ignored)
}

/// The long flags of a command, and whether each needs a word after it.
fn known(command: &Command) -> BTreeMap<String, bool> {
    let mut known = BTreeMap::from([("help".to_owned(), false), ("version".to_owned(), false)]);
    for arg in command.get_arguments() {
        let takes_value = arg.get_action().takes_values()
            && arg.get_num_args().is_none_or(|range| range.min_values() > 0)
            && !arg.is_require_equals_set();
        let names = arg
            .get_long()
            .into_iter()
            .chain(arg.get_all_aliases().unwrap_or_default());
        for name in names {
            known.insert(name.to_owned(), takes_value);
        }
    }
    known
}

/// The name of a long flag, and whether its value is part of the same word.
fn flag(arg: &OsStr) -> Option<(String, bool)> {
    let text = arg.to_string_lossy();
    let name = text
        .strip_prefix("--")
        .or_else(|| text.strip_prefix('-').filter(|rest| rest.len() > 1))?;
    if name.starts_with(|first: char| !first.is_ascii_alphabetic()) {
        return None;
    }
    Some(match name.split_once('=') {
        Some((name, _)) => (name.to_owned(), true),
        None => (name.to_owned(), false),
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::config::Cli;

    fn split(args: &[&str]) -> (Vec<String>, Vec<String>) {
        let words = std::iter::once(&"capi-provider").chain(args).map(OsString::from);
        let (kept, ignored) = lenient(&Cli::command(), words);
        let kept = kept.into_iter().map(|word| word.into_string().unwrap());
        (
            kept.skip(1).collect(),
            ignored.into_iter().map(|Ignored(name)| name).collect(),
        )
    }

    #[test]
    fn a_flag_of_another_release_is_ignored_with_its_value() {
        let (kept, ignored) = split(&[
            "--flag-of-next-year=1",
            "--secrets-namespace",
            "tuist",
            "--another",
            "value",
            "--zap-log-level",
            "debug",
            "--leader-elect=false",
        ]);
        assert_eq!(kept, ["--secrets-namespace", "tuist", "--leader-elect=false"]);
        assert_eq!(ignored, ["flag-of-next-year", "another", "zap-log-level"]);
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let (kept, ignored) = split(&["-leader-elect=false", "-secrets-namespace", "x", "-zap-devel"]);
        assert_eq!(kept, ["--leader-elect=false", "--secrets-namespace", "x"]);
        assert_eq!(ignored, ["zap-devel"]);
    }

    #[test]
    fn a_switch_does_not_swallow_the_flag_after_it() {
        let (kept, _) = split(&["--leader-elect", "--dry-run", "--namespace", "a", "--watch-namespace=b"]);
        assert_eq!(
            kept,
            ["--leader-elect", "--dry-run", "--namespace", "a", "--watch-namespace=b"]
        );
        let cli = Cli::try_parse_from(std::iter::once("x".to_owned()).chain(kept)).unwrap();
        assert!(cli.provider.dry_run && cli.common.leader_elect);
        assert_eq!(cli.common.namespaces, ["a", "b"]);
    }

    #[test]
    fn an_empty_namespace_as_clusterctl_passes_it_is_kept() {
        assert_eq!(split(&["--namespace", ""]).0, ["--namespace", ""]);
    }
}
