//! Official releases: streamed to a file beside the cache, compared with the published checksum, and only then used.
//!
//! Falling through to a build must be quick where there is no network: a host that cannot be reached costs one short timeout per
//! run, not one per tool.

use std::{
    collections::HashSet,
    error::Error as _,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Client, Response, Url};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::{
    Activity, Error, Options, Origin, Part, Progress, SourceError, archive,
    attempt::Failure,
    cache::Cache,
    manifest::{self, Archive, Release},
    platform::Platform,
    receipt,
};

/// Checksum files are small; one that is not is not one.
const CHECKSUM_FILE_LIMIT: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Releases {
    /// Or why there is none: setting up TLS can fail, and then releases are out of reach but builds are not.
    client: Result<Client, String>,
    mirror: Option<String>,
    stall: Duration,
    /// Hosts that did not answer during this run.
    given_up: Mutex<HashSet<String>>,
}

impl Releases {
    pub(crate) fn new(options: &Options) -> Self {
        let client = Client::builder()
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.stall_timeout)
            .user_agent(concat!("russet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| root_cause(&error));
        Self {
            client,
            mirror: options.mirror.clone(),
            stall: options.stall_timeout,
            given_up: Mutex::default(),
        }
    }

    /// Obtains the tools one by one; an archive that holds several is fetched once.
    pub(crate) async fn fetch(
        &self,
        cache: &Cache,
        part: &Part,
        release: &Release,
        tools: &[&str],
        platform: &Platform,
        progress: &dyn Progress,
    ) -> Result<(), Failure> {
        if !manifest::covers(&release.os, platform) {
            return Err(SourceError::NotPublished(platform.clone()).into());
        }
        let staging = cache.stage(part)?;
        let mut fetched: Option<(String, PathBuf)> = None;
        for tool in tools {
            let url = self.mirrored(&part.expand(&release.url, tool, platform));
            let file = match &fetched {
                Some((have, file)) if *have == url => file.clone(),
                _ => {
                    let file = staging.path().join(format!("{tool}.download"));
                    let checksum_url = self.mirrored(&part.expand(&release.checksum, tool, platform));
                    self.fetch_verified(part, &url, &checksum_url, &file, progress).await?;
                    fetched = Some((url.clone(), file.clone()));
                    file
                }
            };
            let staged = match (release.archive, &release.path) {
                (Some(Archive::TarGz), Some(path)) => {
                    let staged = staging.path().join(tool);
                    unpack(&url, file, part.expand(path, tool, platform), staged.clone()).await?;
                    staged
                }
                _ => file,
            };
            let (cache, part, tool) = (cache.clone(), part.clone(), (*tool).to_owned());
            blocking(move || cache.install(&part, &tool, &staged, &part.version, Origin::Release, &url)).await?;
        }
        Ok(())
    }

    fn mirrored(&self, url: &str) -> String {
        match (&self.mirror, url.split_once("://")) {
            (Some(mirror), Some((_, rest))) => format!("{mirror}/{rest}"),
            _ => url.to_owned(),
        }
    }

    async fn fetch_verified(
        &self,
        part: &Part,
        url: &str,
        checksum_url: &str,
        file: &Path,
        progress: &dyn Progress,
    ) -> Result<(), Failure> {
        let name = url.rsplit('/').next().unwrap_or(url);
        let sums = self.fetch_text(checksum_url).await?;
        let expected = published_checksum(&sums, name).ok_or_else(|| SourceError::ChecksumMissing {
            url: checksum_url.to_owned(),
            file: name.to_owned(),
        })?;
        // One more try for a broken connection: the alternative may be minutes of building.
        let actual = match self.stream(part, url, file, progress).await {
            Err(Failure::Next(SourceError::Interrupted { detail, .. })) => {
                progress.note(
                    &part.name,
                    &format!("the download broke off ({detail}); trying once more"),
                );
                self.stream(part, url, file, progress).await?
            }
            other => other?,
        };
        if actual != expected {
            // The staging folder would be removed anyway; nobody shall find this file until then.
            fs::remove_file(file).map_err(Error::io("remove", file))?;
            return Err(SourceError::ChecksumMismatch {
                url: url.to_owned(),
                expected,
                actual,
            }
            .into());
        }
        Ok(())
    }

    async fn fetch_text(&self, url: &str) -> Result<String, SourceError> {
        let mut response = self.get(url).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broke_off(url, &error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > CHECKSUM_FILE_LIMIT {
                return Err(SourceError::Interrupted {
                    url: url.to_owned(),
                    detail: "it is too large for a checksum file".to_owned(),
                });
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Streams a URL to a file; returns the sha256 of what was written.
    async fn stream(&self, part: &Part, url: &str, path: &Path, progress: &dyn Progress) -> Result<String, Failure> {
        let mut response = self.get(url).await?;
        progress.start(
            &part.name,
            &Activity::Downloading {
                url: url.to_owned(),
                total: response.content_length(),
            },
        );
        let mut file = tokio::fs::File::create(path).await.map_err(Error::io("create", path))?;
        let mut hasher = Sha256::new();
        let mut done = 0;
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broke_off(url, &error))? {
            file.write_all(&chunk).await.map_err(Error::io("write", path))?;
            hasher.update(&chunk);
            done += chunk.len() as u64;
            progress.advance(&part.name, done, "");
        }
        file.sync_all().await.map_err(Error::io("write", path))?;
        Ok(receipt::hex(&hasher.finalize()))
    }

    async fn get(&self, url: &str) -> Result<Response, SourceError> {
        let host = Url::parse(url)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned))
            .unwrap_or_else(|| url.to_owned());
        if self
            .given_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&host)
        {
            return Err(SourceError::HostGivenUp { host });
        }
        let client = match &self.client {
            Ok(client) => client,
            Err(detail) => {
                return Err(SourceError::Unreachable {
                    host,
                    detail: detail.clone(),
                });
            }
        };
        match client.get(url).send().await {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => Err(SourceError::Status {
                url: url.to_owned(),
                status: response.status().as_u16(),
            }),
            // It answered the call but hung up: worth another try.
            Err(error) if !error.is_connect() && !error.is_timeout() => Err(self.broke_off(url, &error)),
            Err(error) => {
                self.given_up
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(host.clone());
                Err(SourceError::Unreachable {
                    host,
                    detail: root_cause(&error),
                })
            }
        }
    }

    fn broke_off(&self, url: &str, error: &reqwest::Error) -> SourceError {
        if error.is_timeout() {
            SourceError::Stalled {
                url: url.to_owned(),
                after: self.stall,
            }
        } else {
            SourceError::Interrupted {
                url: url.to_owned(),
                detail: root_cause(error),
            }
        }
    }
}

async fn unpack(url: &str, file: PathBuf, entry: String, target: PathBuf) -> Result<(), Failure> {
    let url = url.to_owned();
    let done = tokio::task::spawn_blocking(move || {
        archive::extract_tar_gz(&file, &entry, &target).map_err(|error| match error {
            archive::Error::Write(source) => Failure::Stop(Error::io("write", &target)(source)),
            other => SourceError::Archive {
                url,
                detail: other.to_string(),
            }
            .into(),
        })
    });
    join(done.await)
}

/// Runs file work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    join(tokio::task::spawn_blocking(work).await)
}

/// A panic in the work is our own bug: it goes on up. Cancellation does not happen, since these tasks are never aborted.
fn join<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
    }
}

/// The innermost cause: "connection refused" rather than "error sending request".
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.is_timeout() && error.source().is_none() {
        "no answer in time".to_owned()
    } else {
        cause.to_string()
    }
}

/// Finds the sha256 of `file` in a checksum file: either the bare digest, or lines of `<digest>  <file>` as sha256sum writes them.
fn published_checksum(text: &str, file: &str) -> Option<String> {
    let digest = |word: &str| {
        (word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit())).then(|| word.to_ascii_lowercase())
    };
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let sum = digest(words.next()?)?;
        match words.next() {
            None => (text.lines().filter(|line| !line.trim().is_empty()).count() == 1).then_some(sum),
            Some(name) => (name.trim_start_matches('*').trim_start_matches("./") == file).then_some(sum),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn a_bare_digest_is_a_checksum() {
        assert_eq!(published_checksum(&A.to_uppercase(), "kubectl"), Some(A.to_owned()));
        assert_eq!(published_checksum(&format!("{A}\n"), "kubectl"), Some(A.to_owned()));
    }

    #[test]
    fn the_line_of_the_file_is_taken() {
        let text = format!("{A}  etcd-linux-arm64.tar.gz\n{B} *etcd-linux-amd64.tar.gz\n");
        assert_eq!(published_checksum(&text, "etcd-linux-amd64.tar.gz"), Some(B.to_owned()));
        assert_eq!(published_checksum(&text, "etcd-darwin-amd64.zip"), None);
    }

    #[test]
    fn a_page_that_is_no_checksum_file_yields_nothing() {
        assert_eq!(published_checksum("<html>sign in</html>", "kubectl"), None);
        assert_eq!(published_checksum("", "kubectl"), None);
        assert_eq!(published_checksum(&format!("{A}\n{B}\n"), "kubectl"), None);
    }
}
