//! References to images and their digests.

use std::fmt;
use std::str::FromStr;

/// `sha256:` and 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

/// A text that is no reference to an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no image of a registry: {why}; write it as host/repository:tag or host/repository@sha256:<64 hex digits>"
)]
pub struct BadImage {
    text: String,
    why: &'static str,
}

impl FromStr for Digest {
    type Err = BadImage;

    fn from_str(text: &str) -> Result<Self, BadImage> {
        let good = text
            .strip_prefix("sha256:")
            .is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)));
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadImage {
                text: text.to_owned(),
                why: "not a digest",
            })
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image of a registry, by tag or by digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageRef {
    /// Reads `host/repository[:tag][@digest]`. Without either it is the tag `latest`. With both the digest decides, as everywhere
    /// in Kubernetes. There is no default registry: Tart has none.
    pub fn parse(text: &str) -> Result<Self, BadImage> {
        let bad = |why| BadImage {
            text: text.to_owned(),
            why,
        };
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (
                named,
                Some(digest.parse().map_err(|_| bad("what follows @ is not a digest"))?),
            ),
            None => (text, None),
        };
        let (host, rest) = named.split_once('/').ok_or_else(|| bad("it names no registry"))?;
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        if !is_host(host) {
            return Err(bad("the registry is not a host name with an optional port"));
        }
        let segment = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
        };
        if !repository.split('/').all(segment) {
            return Err(bad("the repository has to be lower case letters, digits, . _ - and /"));
        }
        let word = |tag: &String| {
            tag.len() <= 128
                && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if !tag.iter().all(word) {
            return Err(bad("the tag has to be letters, digits, . _ and -"));
        }
        let tag = if digest.is_none() {
            Some(tag.unwrap_or_else(|| "latest".to_owned()))
        } else {
            tag
        };
        Ok(Self {
            host: host.to_owned(),
            repository: repository.to_owned(),
            tag,
            digest,
        })
    }

    /// The registry, with its port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository in it.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Whether it means the same bytes for ever.
    pub fn pinned(&self) -> Option<Pinned> {
        Some(self.at(self.digest.clone()?))
    }

    /// The image with this digest in the same repository.
    pub fn at(&self, digest: Digest) -> Pinned {
        Pinned {
            host: self.host.clone(),
            repository: self.repository.clone(),
            digest,
        }
    }

    /// Whether both are in the same repository.
    pub fn same_repository(&self, other: &Self) -> bool {
        self.host == other.host && self.repository == other.repository
    }
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    !name.is_empty()
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-')
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

impl fmt::Display for ImageRef {
    /// As Tart takes it, which knows tag or digest but not both.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(f, "@{digest}"),
            (None, Some(tag)) => write!(f, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

/// An image by its digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pinned {
    host: String,
    repository: String,
    digest: Digest,
}

impl Pinned {
    /// What it means for ever.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The same as a reference.
    pub fn to_ref(&self) -> ImageRef {
        ImageRef {
            host: self.host.clone(),
            repository: self.repository.clone(),
            tag: None,
            digest: Some(self.digest.clone()),
        }
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.host, self.repository, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reference_has_a_tag_or_a_digest_and_the_digest_wins() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, shown) in [
            ("ghcr.io/org/mac", "ghcr.io/org/mac:latest".to_owned()),
            ("localhost:5000/mac:v1", "localhost:5000/mac:v1".to_owned()),
            (
                &format!("ghcr.io/org/mac:v1@{digest}"),
                format!("ghcr.io/org/mac@{digest}"),
            ),
        ] {
            assert_eq!(ImageRef::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        for (text, why) in [
            ("mac", "names no registry"),
            ("ghcr.io/Org/mac", "lower case"),
            ("ghcr.io/org/../mac", "lower case"),
            ("ghcr.io/org/mac:", "the tag"),
            ("ghcr.io/org/mac:--insecure", "the tag"),
            ("-x/org", "host name"),
            ("host:0/org", "host name"),
            ("ghcr.io/mac@sha256:12", "not a digest"),
            ("ghcr.io//mac", "lower case"),
        ] {
            let error = ImageRef::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(text in "[a-z0-9.:/@_-]{0,40}|\\PC{0,40}") {
            if let Ok(image) = ImageRef::parse(&text) {
                let shown = image.to_string();
                prop_assert!(!shown.starts_with('-'));
                prop_assert_eq!(ImageRef::parse(&shown).unwrap().to_string(), shown);
            }
        }
    }
}
