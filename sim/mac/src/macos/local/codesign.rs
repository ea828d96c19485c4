//! `codesign`. [facts 2]

use super::Said;
use crate::macos::inside::Desk;
use crate::macos::signing::{self, Inspected, Mark, Signature};
use std::fs::File;
use std::io;
use std::path::Path;

const USAGE: &str = "Usage: codesign -s identity [-fv*] [-o flags] [-r reqs] [-i ident] path ... # sign\n       codesign -v [-v*] [-R=<req string>|-R <req file path>] path|[+]pid ... # verify\n       codesign -d [options] path ... # display contents\n";

#[derive(Debug, Default)]
struct Request {
    sign: bool,
    remove: bool,
    verify: bool,
    display: bool,
    force: bool,
    verbose: usize,
    identifier: Option<String>,
    paths: Vec<String>,
}

pub(super) fn run(desk: &Desk) -> Said {
    let request = match parse(&desk.words()) {
        Ok(request) => request,
        Err(said) => return said,
    };
    let mut all = Said::silent();
    for path in &request.paths {
        let said = one(&request, path);
        all.err.push_str(&said.err);
        all.code = all.code.max(said.code);
    }
    all
}

fn parse(words: &[&str]) -> Result<Request, Said> {
    let mut request = Request::default();
    let mut rest = words.iter();
    let unknown = |word: &str| Said::unknown(2, format!("codesign: unrecognized option `{word}'\n{USAGE}"));
    while let Some(word) = rest.next() {
        match *word {
            "--force" | "-f" => request.force = true,
            "--sign" | "-s" => match rest.next() {
                Some(&"-") => request.sign = true,
                _ => {
                    return Err(Said::unknown(
                        1,
                        "error: The specified item could not be found in the keychain.\n",
                    ));
                }
            },
            "--remove-signature" => request.remove = true,
            "--verify" => request.verify = true,
            "--display" => request.display = true,
            "--deep" | "--strict" => {}
            "--identifier" | "-i" => request.identifier = rest.next().map(|&word| word.to_owned()),
            "--options" | "-o" | "--entitlements" => {
                rest.next();
            }
            "--verbose" => request.verbose += 1,
            flags if flags.starts_with('-') && !flags.starts_with("--") && flags.len() > 1 => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'd' => request.display = true,
                        'f' => request.force = true,
                        'v' if request.sign || request.display || request.verify => request.verbose += 1,
                        'v' => request.verify = true,
                        _ => return Err(unknown(flags)),
                    }
                }
            }
            flag if flag.starts_with("--") => return Err(unknown(flag)),
            path => request.paths.push(path.to_owned()),
        }
    }
    // `-dv` displays and says more; it does not verify.
    if request.display && request.verify {
        request.verify = false;
        request.verbose += 1;
    }
    if request.paths.is_empty() || !(request.sign || request.remove || request.verify || request.display) {
        return Err(Said::err(2, USAGE));
    }
    Ok(request)
}

fn one(request: &Request, path: &str) -> Said {
    let inspected = match File::open(path).and_then(|mut file| signing::inspect(&mut file)) {
        Ok(inspected) => inspected,
        Err(error) => return Said::err(1, format!("{path}: {}\n", brief(&error))),
    };
    let unsigned = matches!(inspected.signature, Signature::Unsigned);
    if request.sign || request.remove {
        return sign(request, path, unsigned);
    }
    if unsigned {
        return Said::err(1, format!("{path}: code object is not signed at all\n"));
    }
    if request.verify {
        return match inspected.signature {
            Signature::Broken => Said::err(
                1,
                format!("{path}: invalid signature (code or signature have been modified)\nIn architecture: arm64\n"),
            ),
            _ if request.verbose > 0 => Said::err(
                0,
                format!("{path}: valid on disk\n{path}: satisfies its Designated Requirement\n"),
            ),
            _ => Said::silent(),
        };
    }
    Said::err(0, display(request, path, &inspected))
}

fn sign(request: &Request, path: &str, unsigned: bool) -> Said {
    if request.sign && !unsigned && !request.force {
        return Said::err(1, format!("{path}: is already signed\n"));
    }
    let name = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let identifier = request.identifier.clone().unwrap_or(name);
    let mark = if request.sign {
        Mark::AdHoc(&identifier)
    } else {
        Mark::Removed
    };
    match signing::sign(Path::new(path), mark) {
        Ok(()) if request.sign && !unsigned => Said::err(0, format!("{path}: replacing existing signature\n")),
        Ok(()) => Said::silent(),
        Err(error) => Said::err(1, format!("{path}: {}\n", brief(&error))),
    }
}

fn brief(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory",
        io::ErrorKind::PermissionDenied => "Permission denied",
        io::ErrorKind::StorageFull => "No space left on device",
        io::ErrorKind::ReadOnlyFilesystem => "Read-only file system",
        _ => "internal error in Code Signing subsystem",
    }
}

fn display(request: &Request, path: &str, inspected: &Inspected) -> String {
    let name = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let (identifier, flags, requirements) = match &inspected.signature {
        Signature::AdHoc { identifier, .. } => (identifier.clone(), "0x2(adhoc)", "count=0 size=12"),
        _ => (
            format!("{name}-5555494400000000"),
            "0x20002(adhoc,linker-signed)",
            "=none",
        ),
    };
    let pages = inspected.code_size.div_ceil(4096);
    let mut text = format!("Executable={path}\nIdentifier={identifier}\n");
    if request.verbose > 0 {
        text.push_str(&format!(
            "Format=Mach-O thin (arm64)\nCodeDirectory v=20400 size={} flags={flags} hashes={pages}+0 location=embedded\n",
            pages * 32 + 200
        ));
    }
    if request.verbose > 2 {
        let cdhash = inspected.signature.cdhash().unwrap_or_default();
        text.push_str(&format!(
            "Hash type=sha256 size=32\nCandidateCDHash sha256={cdhash}\nHash choices=sha256\nPage size=4096\nCDHash={cdhash}\n"
        ));
    }
    if request.verbose > 0 {
        let space = if requirements.starts_with('=') { "" } else { " " };
        text.push_str(&format!(
            "Signature=adhoc\nInfo.plist=not bound\nTeamIdentifier=not set\nSealed Resources=none\nInternal requirements{space}{requirements}\n"
        ));
    }
    text
}
