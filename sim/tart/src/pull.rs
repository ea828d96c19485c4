//! `tart pull`, and the pull that a clone begins with.

use crate::config::Config;
use crate::credentials;
use crate::failure::Failure;
use crate::image::{Image, RemoteName};
use crate::locks;
use crate::print::say;
use crate::space;
use crate::store::Home;
use crate::switches::{PullFault, Switches};
use std::time::Duration;

const ATTEMPTS: u32 = 5;

/// Asks the registry, downloads what is not in the cache, points the tag at it.
pub(crate) fn pull(home: &Home, config: &Config, name: &RemoteName) -> Result<(), Failure> {
    say(&format!("pulling {}...", name.full()));
    say("pulling manifest...");
    let (digest, image) = manifest(home, config, name)?;
    let by_digest = RemoteName {
        reference: digest.clone(),
        ..name.clone()
    };
    if home.cached(&by_digest).is_some() && home.is_linked(name, &digest) {
        say(&format!("{} image is already cached and linked!", by_digest.full()));
        return Ok(());
    }
    // Downloads from one host are serial.
    let lock = home
        .sim()
        .join(format!("pull-{}.lock", name.host.replace([':', '/'], "_")));
    let _guard = if let Some(guard) = locks::try_exclusive(&lock)? {
        guard
    } else {
        say("waiting for lock...");
        locks::exclusive(&lock)?
    };
    if home.cached(&by_digest).is_some() {
        say(&format!(
            "{} image is already cached! creating a symlink...",
            by_digest.full()
        ));
    } else {
        download(home, config, &image)?;
    }
    home.link(name, &digest, &image)
}

fn manifest(home: &Home, config: &Config, name: &RemoteName) -> Result<(String, Image), Failure> {
    if let Some(PullFault::Status(code)) = Switches::load(home)?.pull
        && Switches::take_pull_fault(home)?.is_some()
    {
        return Err(status(code));
    }
    credentials::check(home, config, name)?;
    home.registry()?.find(name)?.ok_or_else(|| status(404))
}

fn status(code: u16) -> Failure {
    let details = match code {
        404 => "{\\\"errors\\\":[{\\\"code\\\":\\\"MANIFEST_UNKNOWN\\\"}]}",
        _ => "",
    };
    Failure::Thrown(format!(
        "UnexpectedHTTPStatusCode(when: \"pulling manifest\", code: {code}, details: \"{details}\")"
    ))
}

fn download(home: &Home, config: &Config, image: &Image) -> Result<(), Failure> {
    say(&format!("pulling disk ({:.1} GB compressed)...", image.compressed_gb));
    let full = || {
        Failure::Aborted(
            "*** Terminating app due to uncaught exception 'NSFileHandleOperationException', reason: \
             '*** -[NSConcreteFileHandle writeData:]: No space left on device'"
                .to_owned(),
        )
    };
    if !space::make_room(home, config, space::bytes(image.size_gb))? {
        say("0%");
        return Err(full());
    }
    for attempt in 1..=ATTEMPTS {
        // The last line is written over, whether somebody looks or not, unless `CI` is set.
        let over = |percent: u64| {
            if config.ci || percent == 0 {
                ""
            } else {
                "\u{1b}[1A\u{1b}[J"
            }
        };
        for percent in [0_u64, 20, 40, 60, 80] {
            say(&format!("{}{percent}%", over(percent)));
            if percent == 40 {
                match Switches::take_pull_fault(home)? {
                    None | Some(PullFault::Status(_)) => {}
                    Some(PullFault::Stall) => {
                        // Nobody ends it but whoever takes its world down.
                        while home.sim().exists() {
                            pause(1000);
                        }
                        return Err(Failure::Thrown("The network connection was lost.".to_owned()));
                    }
                    Some(PullFault::DiskFull) => return Err(full()),
                    Some(PullFault::Network) => {
                        let why = "The network connection was lost.";
                        if attempt == ATTEMPTS {
                            return Err(Failure::Thrown(why.to_owned()));
                        }
                        say(&format!("Error pulling image: \"{why}\", attempting to re-try..."));
                        break;
                    }
                }
            }
            if percent == 80 {
                say(&format!("{}100%", over(100)));
                say("pulling NVRAM...");
                return Ok(());
            }
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a download takes its time")]
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
