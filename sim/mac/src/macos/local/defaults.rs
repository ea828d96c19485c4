//! `defaults` and `plutil`, on real property lists. [facts 3 for what they are used for; defaults(1), plutil(1)]

use super::Said;
use crate::macos::inside::Desk;
use plist::{Dictionary, Value};
use std::fs;
use std::io::{self, Cursor};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const USAGE: &str = "Command line interface to a user's defaults.\nSyntax:\n\n'defaults' [-currentHost | -host <hostname>] followed by one of the following:\n\n  read                                 shows all defaults\n  read <domain>                        shows defaults for given domain\n  read <domain> <key>                  shows defaults for given domain, key\n";

pub(super) fn run(desk: &Desk) -> Said {
    let words = desk.words();
    match words.as_slice() {
        ["read", domain] => read(domain, None),
        ["read", domain, key] => read(domain, Some(key)),
        ["read-type", domain, key] => read_type(domain, key),
        ["write", domain, key, value @ ..] if !value.is_empty() => write(domain, key, value),
        ["delete", domain] => match fs::remove_file(file_of(domain)) {
            Ok(()) => Said::silent(),
            Err(error) => missing_domain(domain, &error),
        },
        ["delete", domain, key] => delete(domain, key),
        ["import", domain, "-"] => import(domain, &super::bsd::input()),
        ["import", domain, path] => match fs::read(path) {
            Ok(bytes) => import(domain, &bytes),
            Err(error) => Said::err(1, format!("Could not read {path}: {error}\n")),
        },
        ["export", domain, "-"] => match load(&file_of(domain)) {
            Ok(dict) => xml(&Value::Dictionary(dict)),
            Err(error) => missing_domain(domain, &error),
        },
        [] => Said::err(255, USAGE),
        _ => Said::unknown(255, USAGE),
    }
}

/// The file behind a domain: a path, the global one, or a name in the home of whoever calls, whatever HOME says.
fn file_of(domain: &str) -> PathBuf {
    let home = if rustix::process::getuid().is_root()
        && std::env::var_os(crate::macos::inside::UID_VARIABLE).is_none_or(|uid| uid == "0")
    {
        PathBuf::from("/var/root")
    } else {
        std::env::var_os("HOME").map_or_else(|| PathBuf::from("/var/root"), PathBuf::from)
    };
    let mut path = match domain {
        "NSGlobalDomain" | "-g" | "-globalDomain" | "Apple Global Domain" => {
            home.join("Library/Preferences/.GlobalPreferences")
        }
        path if path.starts_with('/') => PathBuf::from(path),
        name => home.join("Library/Preferences").join(name),
    };
    if path.extension().is_none_or(|extension| extension != "plist") {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".plist");
        path.set_file_name(name);
    }
    path
}

fn load(path: &Path) -> io::Result<Dictionary> {
    let value = Value::from_reader(Cursor::new(fs::read(path)?)).map_err(io::Error::other)?;
    value.into_dictionary().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whole or not at all, as cfprefsd does; binary, as it does.
fn save(path: &Path, dict: Dictionary) -> io::Result<()> {
    if let Some(folder) = path.parent()
        && !folder.exists()
    {
        fs::create_dir_all(folder)?;
    }
    let mut bytes = Vec::new();
    Value::Dictionary(dict)
        .to_writer_binary(&mut bytes)
        .map_err(io::Error::other)?;
    let mode = if path.starts_with("/Library") { 0o644 } else { 0o600 };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, bytes)
        .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn prefix() -> String {
    format!("2026-01-01 00:00:00.000 defaults[{}:1000] ", std::process::id())
}

fn missing_domain(domain: &str, _: &io::Error) -> Said {
    Said::err(1, format!("{}\nDomain {domain} does not exist\n", prefix()))
}

fn missing_key(domain: &str, key: &str) -> Said {
    Said::err(
        1,
        format!(
            "{}\nThe domain/default pair of ({domain}, {key}) does not exist\n",
            prefix()
        ),
    )
}

fn read(domain: &str, key: Option<&str>) -> Said {
    match (load(&file_of(domain)), key) {
        (Err(error), None) => missing_domain(domain, &error),
        (Ok(dict), None) => Said::out(format!("{}\n", show(&Value::Dictionary(dict), 0))),
        (Err(_), Some(key)) => missing_key(domain, key),
        (Ok(dict), Some(key)) => match dict.get(key) {
            Some(Value::String(text)) => Said::out(format!("{text}\n")),
            Some(value) => Said::out(format!("{}\n", show(value, 0))),
            None => missing_key(domain, key),
        },
    }
}

fn read_type(domain: &str, key: &str) -> Said {
    let found = load(&file_of(domain)).ok().and_then(|dict| dict.get(key).cloned());
    let kind = match found {
        None => return missing_key(domain, key),
        Some(Value::String(_)) => "string",
        Some(Value::Integer(_)) => "integer",
        Some(Value::Boolean(_)) => "boolean",
        Some(Value::Real(_)) => "float",
        Some(Value::Array(_)) => "array",
        Some(Value::Dictionary(_)) => "dictionary",
        Some(Value::Data(_)) => "data",
        Some(_) => "date",
    };
    Said::out(format!("Type is {kind}\n"))
}

fn write(domain: &str, key: &str, words: &[&str]) -> Said {
    let path = file_of(domain);
    let mut dict = load(&path).unwrap_or_default();
    let before = dict.get(key).cloned();
    let Some(value) = value(words, before.as_ref()) else {
        return Said::unknown(
            255,
            format!(
                "{}Unexpected argument {}; leaving defaults unchanged.\n",
                prefix(),
                words.join(" ")
            ),
        );
    };
    dict.insert(key.to_owned(), value);
    saved(domain, &save(&path, dict))
}

fn saved(domain: &str, result: &io::Result<()>) -> Said {
    match result {
        Ok(()) => Said::silent(),
        Err(_) => Said::err(1, format!("{}Could not write domain {domain}; exiting\n", prefix())),
    }
}

fn value(words: &[&str], before: Option<&Value>) -> Option<Value> {
    let text = |text: &&str| Value::String((*text).to_owned());
    Some(match words {
        ["-string", word] => text(word),
        ["-int" | "-integer", word] => Value::Integer(word.parse::<i64>().ok()?.into()),
        ["-float", word] => Value::Real(word.parse().ok()?),
        ["-bool" | "-boolean", word] => Value::Boolean(match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => true,
            "false" | "no" | "0" => false,
            _ => return None,
        }),
        ["-array", rest @ ..] => Value::Array(rest.iter().map(text).collect()),
        ["-array-add", rest @ ..] => {
            let mut array = before.and_then(Value::as_array).cloned().unwrap_or_default();
            array.extend(rest.iter().map(text));
            Value::Array(array)
        }
        ["-dict", rest @ ..] => Value::Dictionary(pairs(rest, Dictionary::new())?),
        ["-dict-add", rest @ ..] => Value::Dictionary(pairs(
            rest,
            before.and_then(Value::as_dictionary).cloned().unwrap_or_default(),
        )?),
        [word] if !word.starts_with('-') => text(word),
        _ => return None,
    })
}

fn pairs(words: &[&str], mut dict: Dictionary) -> Option<Dictionary> {
    let mut rest = words.iter();
    while let Some(key) = rest.next() {
        let first = *rest.next()?;
        let value = match first {
            "-string" | "-int" | "-integer" | "-bool" | "-boolean" | "-float" => value(&[first, rest.next()?], None)?,
            word => Value::String(word.to_owned()),
        };
        dict.insert((*key).to_owned(), value);
    }
    Some(dict)
}

fn delete(domain: &str, key: &str) -> Said {
    let path = file_of(domain);
    let mut dict = load(&path).unwrap_or_default();
    if dict.remove(key).is_none() {
        return missing_key(domain, key);
    }
    saved(domain, &save(&path, dict))
}

fn import(domain: &str, bytes: &[u8]) -> Said {
    match Value::from_reader(Cursor::new(bytes))
        .ok()
        .and_then(Value::into_dictionary)
    {
        Some(dict) => saved(domain, &save(&file_of(domain), dict)),
        None => Said::err(1, format!("{}Could not parse property list\n", prefix())),
    }
}

/// The old style, which is what `defaults read` prints.
fn show(value: &Value, depth: usize) -> String {
    let (pad, end) = ("    ".repeat(depth + 1), "    ".repeat(depth));
    match value {
        Value::Boolean(value) => u8::from(*value).to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| format!("{pad}{}", show(item, depth + 1)))
                .collect();
            format!("(\n{}\n{end})", items.join(",\n"))
        }
        Value::Dictionary(dict) => {
            let items: String = dict
                .iter()
                .map(|(key, value)| format!("{pad}{} = {};\n", quoted(key), show(value, depth + 1)))
                .collect();
            format!("{{\n{items}{end}}}")
        }
        Value::Data(bytes) => format!(
            "{{length = {}, bytes = 0x{}}}",
            bytes.len(),
            crate::macos::signing::hex(bytes)
        ),
        _ => "(null)".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_$/:.".contains(c));
    if plain && !text.contains(['/', ':', '.']) {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

fn xml(value: &Value) -> Said {
    let mut bytes = Vec::new();
    match value.to_writer_xml(&mut bytes) {
        Ok(()) => {
            bytes.push(b'\n');
            Said::out(bytes)
        }
        Err(error) => Said::err(1, format!("{error}\n")),
    }
}

/// `-lint`, `-convert xml1|binary1`, `-extract`, `-replace`; enough for scripts.
pub(super) fn plutil(desk: &Desk) -> Said {
    let words = desk.words();
    let parsed = |path: &str| {
        let bytes = if path == "-" {
            Ok(super::bsd::input())
        } else {
            fs::read(path)
        };
        bytes.ok().and_then(|bytes| Value::from_reader(Cursor::new(bytes)).ok())
    };
    match words.as_slice() {
        ["-lint" | "-s", paths @ ..] | paths
            if !paths.is_empty() && paths.iter().all(|path| !path.starts_with('-') || *path == "-") =>
        {
            let mut said = Said::silent();
            for path in paths {
                if parsed(path).is_some() {
                    said.out.extend(format!("{path}: OK\n").into_bytes());
                } else {
                    said.out.extend(
                        format!("{path}: (Unexpected character at line 1 / JSON error: invalid)\n").into_bytes(),
                    );
                    said.code = 1;
                }
            }
            said
        }
        ["-convert", "xml1", "-o", "-", path] => match parsed(path) {
            Some(value) => xml(&value),
            None => Said::err(1, format!("{path}: Property List error\n")),
        },
        ["-convert", form @ ("xml1" | "binary1"), path] => {
            let Some(value) = parsed(path) else {
                return Said::err(1, format!("{path}: Property List error\n"));
            };
            let written = if *form == "xml1" {
                value.to_file_xml(path)
            } else {
                value.to_file_binary(path)
            };
            match written {
                Ok(()) => Said::silent(),
                Err(error) => Said::err(1, format!("{path}: {error}\n")),
            }
        }
        ["-extract", key, "raw", path] | ["-extract", key, "raw", "-o", "-", path] => {
            let found = parsed(path).and_then(|value| key.split('.').try_fold(value, |value, part| dig(&value, part)));
            match found {
                Some(Value::String(text)) => Said::out(format!("{text}\n")),
                Some(Value::Boolean(value)) => Said::out(format!("{value}\n")),
                Some(Value::Array(items)) => Said::out(format!("{}\n", items.len())),
                Some(value) => Said::out(format!("{}\n", show(&value, 0))),
                None => Said::err(
                    1,
                    format!(
                        "{path}: Could not extract value, error: No value at that key path or invalid key path: {key}\n"
                    ),
                ),
            }
        }
        _ => Said::unknown(1, "plutil: unrecognized option\n"),
    }
}

fn dig(value: &Value, part: &str) -> Option<Value> {
    match value {
        Value::Dictionary(dict) => dict.get(part).cloned(),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?).cloned(),
        _ => None,
    }
}
