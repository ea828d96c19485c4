//! Images, credentials, and everything that is on the host.

use super::call::{DELETE, Extra, PULL, QUICK, Refusal, SET};
use super::json::Row;
use super::{Tart, words};
use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::name::VmName;
use crate::runtime::{Credentials, DiskUsage, Image, Listed, Listing, Owner, Pull};
use crate::supervise::{self, Seen};

impl Tart {
    pub(super) async fn tell_version(&self) -> Result<String, Error> {
        let version = self.ask(&["--version"], QUICK).await?;
        Ok(format!("tart://{}", version.trim()))
    }

    pub(super) async fn pull_image(&self, image: &ImageRef, how: Pull<'_>) -> Result<Digest, Error> {
        let text = image.to_string();
        let told = |line: &str| {
            if let (Some(progress), Some(percent)) = (how.progress, percentage(line)) {
                progress.send_if_modified(|shown| std::mem::replace(shown, percent) != percent);
            }
        };
        let mut extra = Extra {
            lines: Some(&told),
            ..Extra::default()
        };
        if let Some(credentials) = how.credentials {
            // The environment of this one child: a login would hold for every later Pod, and arguments are public.
            extra.environment = vec![
                ("TART_REGISTRY_HOSTNAME", &credentials.host),
                ("TART_REGISTRY_USERNAME", &credentials.username),
                ("TART_REGISTRY_PASSWORD", credentials.password.expose()),
            ];
        }
        match self.call_with(&["pull", &text], PULL, extra).await? {
            Ok(_) => {}
            Err(refusal) if words::is_unauthorized(&refusal.stderr) => return Err(Error::Unauthorized(text)),
            Err(refusal) if words::is_unknown_image(&refusal.stderr) => return Err(Error::NoSuchImage(text)),
            Err(refusal) if words::is_no_space(&refusal.stderr) => return Err(refusal.into_error()),
            Err(refusal) => {
                return Err(Error::Registry {
                    image: text,
                    why: words::first_useful(&refusal.stderr),
                });
            }
        }
        self.resolve_image(image).await?.ok_or(Error::Answer {
            command: "tart fqn".to_owned(),
            why: format!("{image} is not there although it was just pulled"),
        })
    }

    pub(super) async fn resolve_image(&self, image: &ImageRef) -> Result<Option<Digest>, Error> {
        if let Some(pinned) = image.pinned() {
            // `fqn` repeats a digest whether the image is there or not.
            let rows = self.rows(&["list", "--source", "oci", "--format", "json"]).await?;
            let here =
                |row: &Row| ImageRef::parse(&row.name).is_ok_and(|listed| listed.pinned().as_ref() == Some(&pinned));
            return Ok(rows.iter().any(here).then(|| pinned.digest().clone()));
        }
        let answer = match self.call(&["fqn", &image.to_string()], QUICK).await? {
            Ok(answer) => answer,
            Err(refusal) if words::is_uncached(refusal.code, &refusal.stderr) => return Ok(None),
            Err(refusal) => return Err(refusal.into_error()),
        };
        let found = ImageRef::parse(answer.trim()).ok().and_then(|found| found.pinned());
        let found = found.ok_or_else(|| Error::Answer {
            command: "tart fqn".to_owned(),
            why: format!("{:?} has no digest", answer.trim()),
        })?;
        Ok(Some(found.digest().clone()))
    }

    pub(super) async fn remember_login(&self, credentials: &Credentials) -> Result<(), Error> {
        let words = [
            "login",
            &credentials.host,
            "--username",
            &credentials.username,
            "--password-stdin",
        ];
        let extra = Extra {
            stdin: Some(credentials.password.expose().as_bytes()),
            ..Extra::default()
        };
        match self.call_with(&words, SET, extra).await? {
            Ok(_) => Ok(()),
            Err(refusal) if words::is_unauthorized(&refusal.stderr) => {
                Err(Error::Unauthorized(credentials.host.clone()))
            }
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    pub(super) async fn drop_image(&self, image: &Pinned) -> Result<(), Error> {
        gone(self.call(&["delete", &image.to_string()], DELETE).await?)
    }

    pub(super) async fn list_all(&self) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        for row in self.rows(&["list", "--format", "json"]).await? {
            let (bytes, accessed) = (row.bytes(), row.accessed);
            if row.source == "local" {
                let owner = match VmName::parse(&row.name) {
                    Some(name) => Owner::Ours(name),
                    None => Owner::Foreign(row.name.clone()),
                };
                let remembered = match &owner {
                    Owner::Ours(name) => matches!(supervise::look(&self.folder(name))?, Seen::Running(_)),
                    Owner::Foreign(_) => false,
                };
                listing.vms.push(Listed {
                    owner,
                    running: remembered || row.claims_to_run(),
                    bytes,
                    accessed,
                });
            } else if let Some(image) = ImageRef::parse(&row.name).ok().and_then(|image| image.pinned()) {
                // The other row of an image is its tag.
                listing.images.push(Image { image, bytes, accessed });
            }
        }
        Ok(listing)
    }

    pub(super) fn room(&self) -> Result<DiskUsage, Error> {
        let home = &self.options.home;
        let stat = rustix::fs::statvfs(home).map_err(|error| Error::file(home)(error.into()))?;
        Ok(DiskUsage {
            total: stat.f_blocks * stat.f_frsize,
            free: stat.f_bavail * stat.f_frsize,
        })
    }
}

/// Not being there is as good as being deleted.
pub(super) fn gone(answer: Result<String, Refusal>) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(refusal) if words::is_missing(refusal.code, &refusal.stderr) => Ok(()),
        Err(refusal) => Err(refusal.into_error()),
    }
}

/// `42%`, perhaps behind the codes that move a cursor.
fn percentage(line: &str) -> Option<u8> {
    let digits = line.trim().strip_suffix('%')?;
    let start = digits.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    digits.get(start..)?.parse().ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_with_and_without_cursor_codes() {
        assert_eq!(percentage("42%"), Some(42));
        assert_eq!(percentage("\u{1b}[1A\u{1b}[J7%"), Some(7));
        assert_eq!(percentage("pulling disk (18.5 GB compressed)..."), None);
        assert_eq!(percentage("400%"), None);
    }
}
