//! Whether a program is what its sources say.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Whether a program is younger than all it was made of, as cargo wrote it down beside it.
///
/// Only if it is not, cargo is asked: a program that is built by itself has other features of its dependencies than one that is built with
/// the workspace, and so the gate would build it twice, the second time while tests run.
pub fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let Ok(list) = std::fs::read_to_string(program.with_extension("d")) else {
        return false;
    };
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let sources: Vec<Option<SystemTime>> = parts(&list).iter().chain([&lock]).map(|path| changed(path)).collect();
    changed(program).is_some_and(|made| sources.iter().all(|source| source.is_some_and(|source| source <= made)))
}

/// The files after the colon of a rule for `make`, in which a blank has a backslash before it.
fn parts(rule: &str) -> Vec<PathBuf> {
    let Some((_, list)) = rule.split_once(": ") else {
        return Vec::new();
    };
    let whole = list.trim_end().replace("\\ ", "\0");
    whole
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| PathBuf::from(word.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::Duration;

    #[test]
    fn a_rule_names_its_files_whatever_blanks_are_in_them() {
        let files = parts("/t/debug/x: /a/one.rs /b\\ c/two.rs\n");
        assert_eq!(files, [PathBuf::from("/a/one.rs"), PathBuf::from("/b c/two.rs")]);
        assert!(parts("nothing").is_empty());
    }

    /// An agent of the day before was compared with a stock kubelet, and what had been changed since was not.
    #[test]
    fn a_program_is_stale_once_a_source_is_younger_or_gone_or_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let later = SystemTime::now() + Duration::from_hours(1);
        fs::write(at("source.rs"), "").unwrap();
        fs::write(at("program"), "").unwrap();
        assert!(!is_fresh(&at("program")), "nobody knows of what it was made");
        fs::write(
            at("program.d"),
            format!("{}: {}\n", at("program").display(), at("source.rs").display()),
        )
        .unwrap();
        let touch = |name: &str, time| {
            File::options()
                .write(true)
                .open(at(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        touch("program", later);
        assert!(is_fresh(&at("program")));
        touch("source.rs", later + Duration::from_secs(1));
        assert!(!is_fresh(&at("program")));
        fs::remove_file(at("source.rs")).unwrap();
        assert!(!is_fresh(&at("program")));
    }
}
