use super::*;
use crate::ledger::{Ending, Entry, Stage};
use russet_vm::log;
use std::io::Write as _;
use std::path::Path;

fn vm() -> PodVm {
    PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap()
}

fn source(dir: &Path) -> Source {
    Source {
        origin: Origin::Kept(dir.join("log")),
        marks: dir.join("log.times"),
        ledger: Ledger::open(dir.join("vms")).unwrap(),
        vm: vm(),
        follow: false,
        pieces: false,
    }
}

/// A log that a guest left.
fn left(dir: &Path) -> Source {
    Source {
        origin: Origin::Left(dir.join("runner.log")),
        ..source(dir)
    }
}

fn text(entry: io::Result<LogEntry>) -> String {
    let entry = entry.unwrap();
    let more = if entry.partial { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(&entry.text))
}

async fn all(source: Source, lines: Option<u64>) -> Vec<String> {
    source.reading(lines).entries().map(text).collect().await
}

async fn shown(text: &str, lines: Option<u64>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log"), text).unwrap();
    let source = Source {
        follow: true,
        ..source(dir.path())
    };
    all(source, lines).await
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test]
async fn a_log_is_shown_line_by_line_to_its_end() {
    assert_eq!(shown("one\n\ntwo\nthree", None).await, ["one", "", "two", "three"]);
    assert_eq!(shown("", None).await, Vec::<String>::new());
}

#[tokio::test]
async fn only_the_last_lines_are_shown_if_that_is_wanted() {
    assert_eq!(shown("one\ntwo\nthree\n", Some(2)).await, ["two", "three"]);
    assert_eq!(shown("one\ntwo\nthree", Some(1)).await, ["three"]);
    assert_eq!(shown("one\ntwo\n", Some(9)).await, ["one", "two"]);
    assert_eq!(shown("one\ntwo\n", Some(0)).await, Vec::<String>::new());
    let many = (0..40_000)
        .map(|number| format!("line {number}"))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(shown(&many, Some(1)).await, ["line 39999"]);
    assert_eq!(shown(&many, Some(30_000)).await.len(), 30_000);
}

const SMALL: log::Rotation = log::Rotation { bytes: 100, files: 4 };

#[tokio::test]
async fn a_log_of_several_files_is_shown_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = log::Writer::open(&dir.path().join("log"), SMALL).unwrap();
    for number in 0..100 {
        writeln!(writer, "line {number}").unwrap();
    }
    let show = async |lines| all(source(dir.path()), lines).await;
    let all = show(None).await;
    assert!(all.len() > 30 && all.len() < 100, "{}", all.len());
    assert_eq!(all.last().unwrap(), "line 99");
    let numbers: Vec<u32> = all.iter().map(|line| line[5..].parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    assert_eq!(show(Some(25)).await, all[all.len() - 25..]);
    assert_eq!(show(Some(1000)).await, all);
}

/// A reader in the middle of a file that is set aside, or one whose file is gone altogether, goes on with what is left.
#[tokio::test]
async fn a_reader_goes_on_when_files_are_set_aside_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = log::Writer::open(&dir.path().join("log"), SMALL).unwrap();
    writeln!(writer, "line 0").unwrap();
    let mut reading = source(dir.path()).reading(None);
    let mut seen = Vec::new();
    for number in 1..200 {
        while let Some(entry) = reading.next().await.unwrap() {
            seen.push(String::from_utf8_lossy(&entry.text)[5..].parse::<u32>().unwrap());
        }
        writeln!(writer, "line {number}").unwrap();
    }
    assert_eq!(seen, (0..199).collect::<Vec<_>>());
    for number in 200..400 {
        writeln!(writer, "line {number}").unwrap();
    }
    let next = reading.next().await.unwrap().unwrap();
    assert!(next.text.starts_with(b"line "), "{next:?}");
}

#[tokio::test]
async fn a_long_line_comes_in_pieces() {
    let long = "x".repeat(LONGEST + 5);
    let pieces = shown(&format!("{long}\nnext\n"), None).await;
    assert_eq!(pieces.len(), 3);
    assert!(pieces[0].ends_with('…'));
    assert_eq!(pieces[1..], ["xxxxx", "next"]);
}

/// A file that was put in the place of the one that was read had the same place in the log, so the old one was read on: there was
/// nothing in it, and no end to that.
#[tokio::test]
async fn a_file_in_the_place_of_the_one_that_is_read_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    append(&log, "one\n");
    let mut reading = source(dir.path()).reading(None);
    assert_eq!(text(Ok(reading.next().await.unwrap().unwrap())), "one");
    std::fs::rename(&log, dir.path().join("old")).unwrap();
    append(&log, "...\ntwo\n");
    assert_eq!(text(Ok(reading.next().await.unwrap().unwrap())), "two");
    assert_eq!(reading.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_log_at_the_end_of_all_numbers_is_no_trouble() {
    let dir = tempfile::tempdir().unwrap();
    append(&dir.path().join(format!("log.{}", u64::MAX)), "one\ntwo\n");
    append(&dir.path().join("log"), "three\n");
    for lines in [None, Some(0), Some(1), Some(9)] {
        all(source(dir.path()), lines).await;
    }
}

/// Each line that was newer than the last mark had all marks read again, and the agent did nothing else meanwhile.
#[tokio::test]
async fn marks_are_read_once_for_all_lines_of_one_read() {
    let dir = tempfile::tempdir().unwrap();
    let (log, marks) = (dir.path().join("log"), dir.path().join("log.times"));
    append(&log, "one\ntwo\n");
    let mut reading = source(dir.path()).reading(None);
    let mark = Timestamp::from_millisecond(2000).unwrap();
    assert_ne!(reading.next().await.unwrap().unwrap().at, mark, "nobody noted it");
    append(&marks, "0 2000\n");
    let found = reading.next().await.unwrap().unwrap().at;
    assert_ne!(found, mark, "and nobody looks again");
    append(&log, "three\n");
    append(&marks, "8 2000\n");
    assert_eq!(reading.next().await.unwrap().unwrap().at, mark);
}

/// The log of an image that does all by itself was read as if its supervisor wrote it: a guest that put files beside it could have
/// the agent look at them for ever, and add up to more than a number holds.
#[tokio::test]
async fn what_a_guest_puts_beside_its_log_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    append(&dir.path().join("runner.log"), "one\ntwo\n");
    for number in [0, 7, u64::MAX] {
        append(&dir.path().join(format!("runner.log.{number:020}")), "planted\n");
    }
    assert_eq!(all(left(dir.path()), None).await, ["one", "two"]);
    assert_eq!(all(left(dir.path()), Some(1)).await, ["two"]);
}

/// Another file in the place of a guest's log kept the agent busy for as long as it was there.
#[tokio::test]
async fn what_a_guest_puts_in_place_of_its_log_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runner.log");
    append(&path, "one\n");
    let mut reading = left(dir.path()).reading(None);
    assert_eq!(text(Ok(reading.next().await.unwrap().unwrap())), "one");
    append(&path, "two\n");
    assert_eq!(text(Ok(reading.next().await.unwrap().unwrap())), "two");
    std::fs::remove_file(&path).unwrap();
    append(&path, "one\ntwo\nand much more\n");
    assert_eq!(reading.next().await.unwrap(), None);

    let secret = dir.path().join("secret");
    append(&secret, "of the host\n");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&secret, &path).unwrap();
    assert_eq!(all(left(dir.path()), None).await, Vec::<String>::new());
    assert_eq!(all(left(dir.path()), Some(5)).await, Vec::<String>::new());
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert_eq!(all(left(dir.path()), None).await, Vec::<String>::new());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(all(left(dir.path()), Some(5)).await, Vec::<String>::new());
}

/// A file with a hole costs a guest nothing, whatever its length.
#[tokio::test]
async fn the_last_lines_of_a_guest_are_not_looked_for_in_all_that_it_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runner.log");
    let hole: u64 = 1 << 40;
    std::fs::File::create(&path).unwrap().set_len(hole).unwrap();
    append(&path, "\nlast\n");
    let source = left(dir.path());
    assert_eq!(source.tail(1).await.unwrap(), hole + 1);
    assert_eq!(source.tail(5).await.unwrap(), hole + 6 - FARTHEST);
}

/// `kubectl logs -f` of a runner that was still booting ended at once, with nothing.
#[tokio::test]
async fn a_log_that_a_guest_has_not_begun_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source {
        follow: true,
        ..left(dir.path())
    };
    let entry = Entry {
        pod: "job".to_owned(),
        planned: Timestamp::UNIX_EPOCH,
        image: String::new(),
        shares: Vec::new(),
        stage: Stage::Cloned,
        running: None,
        given_up: false,
    };
    let ledger = source.ledger.clone();
    ledger.write(&vm(), entry).unwrap();
    let mut entries = source.reading(None).entries();
    let path = dir.path().join("runner.log");
    let begins = async {
        tokio::time::sleep(LOOK * 2).await;
        append(&path, "up\n");
    };
    let (first, ()) = tokio::join!(entries.next(), begins);
    assert_eq!(text(first.unwrap()), "up");
    append(&path, "down\n");
    let ending = Ending::exited(0, Timestamp::UNIX_EPOCH);
    ledger
        .advance(&vm(), |entry| entry.stage = Stage::Deleted(ending))
        .unwrap();
    let rest: Vec<String> = entries.map(text).collect().await;
    assert_eq!(rest, ["down"]);
}

/// Each line of a log that a guest leaves was as old as the last, so `--since` showed all of it or nothing.
#[tokio::test]
async fn what_a_guest_left_is_as_old_as_the_look_that_found_it() {
    use crate::pods::journal::Witness;

    let dir = tempfile::tempdir().unwrap();
    let source = left(dir.path());
    let (path, at) = (dir.path().join("runner.log"), |second| {
        Timestamp::from_second(second).unwrap()
    });
    let mut witness = Witness::new(path.clone(), source.marks.clone());
    for (second, line) in [(1, "one\n"), (2, "two\n")] {
        append(&path, line);
        witness.look(at(second)).unwrap();
    }
    let entries = source.reading(None).entries();
    let times: Vec<_> = entries.map(|entry| entry.unwrap().at).collect().await;
    assert_eq!(times, [at(1), at(2)]);
}
