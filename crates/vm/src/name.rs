//! Names of VMs, from which after any accident it can be read whose they are.
//!
//! ```text
//! rvm_<namespace>_<pod>_<container>_<uid>_<attempt>     a VM of a Pod
//! tuist-golden-<16 hex>                                 a base that such VMs are cloned from
//! ```
//!
//! An underscore cannot occur in any of the parts, so the way back is unambiguous. A file name has at most 255 bytes and a
//! Pod's name may have 253, so a long one is cut and carries a hash; the uid is what identifies.
//! Anything that does not read back to exactly itself is somebody else's, and there is no way to name it to a
//! [`crate::Runtime`].

use crate::image::Pinned;
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};

const POD: &str = "rvm";
const GOLDEN: &str = "tuist-golden-";
/// The longest name of a Pod that is kept whole: with everything else at its longest, `<name>.log` still is a file name.
const LONGEST_POD: usize = 60;
/// What is left of a longer one, in front of its hash.
const CUT: usize = 50;

/// The name of a VM that is ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VmName {
    /// Runs a container of a Pod.
    Pod(PodVm),
    /// Is cloned, never run.
    Golden(GoldenKey),
}

impl VmName {
    /// Reads a name back. `None` means that the VM is not ours.
    pub fn parse(text: &str) -> Option<Self> {
        let name = match text.strip_prefix(GOLDEN) {
            Some(hex) => Self::Golden(GoldenKey::parse(hex)?),
            None => Self::Pod(PodVm::parse(text)?),
        };
        // Whatever is written in another way, such as an attempt of `01`, was not written by us.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => pod.fmt(f),
            Self::Golden(key) => write!(f, "{GOLDEN}{key}"),
        }
    }
}

impl From<PodVm> for VmName {
    fn from(pod: PodVm) -> Self {
        Self::Pod(pod)
    }
}

impl From<GoldenKey> for VmName {
    fn from(key: GoldenKey) -> Self {
        Self::Golden(key)
    }
}

/// Which container of which Pod, and for which time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodVm {
    namespace: String,
    pod: String,
    container: String,
    uid: String,
    attempt: u32,
}

/// Why a Pod cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {part} {text:?} cannot be part of a VM's name; {rule}")]
pub struct BadName {
    part: &'static str,
    text: String,
    rule: &'static str,
}

impl PodVm {
    /// A name for the `attempt`th start of a container, counted from 0.
    pub fn new(namespace: &str, pod: &str, container: &str, uid: &str, attempt: u32) -> Result<Self, BadName> {
        let label = "it must be a DNS label: at most 63 of a-z, 0-9 and -";
        let check = |part, text: &str, good: bool, rule| {
            if good {
                Ok(())
            } else {
                Err(BadName {
                    part,
                    text: text.to_owned(),
                    rule,
                })
            }
        };
        check("namespace", namespace, is_label(namespace), label)?;
        check(
            "Pod name",
            pod,
            is_subdomain(pod),
            "it must be a DNS subdomain: at most 253 of a-z, 0-9, - and .",
        )?;
        check("container name", container, is_label(container), label)?;
        check("Pod uid", uid, is_uid(uid), "it must be at most 36 of 0-9, a-f and -")?;
        Ok(Self {
            namespace: namespace.to_owned(),
            pod: shortened(pod),
            container: container.to_owned(),
            uid: uid.to_owned(),
            attempt,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('_');
        let mut part = || parts.next();
        let (prefix, namespace, pod, container, uid, attempt) = (part()?, part()?, part()?, part()?, part()?, part()?);
        if prefix != POD || part().is_some() || !is_shown_pod(pod) {
            return None;
        }
        let mut name = Self::new(namespace, "p", container, uid, attempt.parse().ok()?).ok()?;
        pod.clone_into(&mut name.pod);
        Some(name)
    }

    /// The Pod's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Pod's name, or what is left of a long one. To find the Pod, use [`PodVm::is_of`] or the uid.
    pub fn shown_pod(&self) -> &str {
        &self.pod
    }

    /// The container's name.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The Pod's uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// How often the container had been started before.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether this is a VM of that Pod.
    pub fn is_of(&self, namespace: &str, pod: &str, uid: &str) -> bool {
        self.namespace == namespace && self.uid == uid && self.pod == shortened(pod)
    }
}

impl fmt::Display for PodVm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            pod,
            container,
            uid,
            attempt,
        } = self;
        write!(f, "{POD}_{namespace}_{pod}_{container}_{uid}_{attempt}")
    }
}

/// Long names keep their beginning; `~` cannot occur in one, so it marks the hash.
fn shortened(pod: &str) -> String {
    if pod.len() <= LONGEST_POD {
        return pod.to_owned();
    }
    let head: String = pod.chars().take(CUT).collect();
    format!("{head}~{}", hex(&Sha256::digest(pod), 4))
}

fn is_shown_pod(text: &str) -> bool {
    match text.split_once('~') {
        None => text.len() <= LONGEST_POD && is_subdomain(text),
        Some((head, hash)) => {
            head.len() == CUT
                && hash.len() == 8
                && is_hex(hash)
                && head.starts_with(is_plain)
                && head.chars().all(is_subdomain_char)
        }
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_subdomain_char(c: char) -> bool {
    is_plain(c) || c == '-' || c == '.'
}

fn is_label(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.starts_with(is_plain) && part.ends_with(is_plain))
        && text.chars().all(is_subdomain_char)
}

fn is_uid(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 36
        && text
            .chars()
            .all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
}

fn is_hex(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
}

/// The first bytes in hex.
pub(crate) fn hex(bytes: &[u8], count: usize) -> String {
    bytes.iter().take(count).fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Which image a golden base is made of: 16 hex digits, also used in the Node's labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoldenKey(String);

impl GoldenKey {
    /// The key of an image by its digest, so that a tag that moved has another base.
    pub fn of(image: &Pinned) -> Self {
        Self(hex(&Sha256::digest(image.to_string()), 8))
    }

    /// Reads 16 hex digits back.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 16 && is_hex(text)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for GoldenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageRef;
    use proptest::prelude::*;

    const UID: &str = "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70";

    /// The vector of facts/kubelet-runners.md 7.
    #[test]
    fn a_golden_base_has_the_name_it_has_elsewhere() {
        let text = format!("ghcr.io/tuist/tuist-runner@sha256:{}", "a".repeat(64));
        let pinned = ImageRef::parse(&text).unwrap().pinned().unwrap();
        let found = VmName::from(GoldenKey::of(&pinned)).to_string();
        assert_eq!(found, "tuist-golden-9c8af651fdf30b10");
    }

    #[test]
    fn the_longest_name_still_fits_a_file_name_with_an_ending() {
        let (label, pod) = ("a".repeat(63), "p".repeat(253));
        let name = PodVm::new(&label, &pod, &label, UID, u32::MAX).unwrap();
        assert!(format!("{name}.log").len() <= 255, "{name}");
        assert!(name.is_of(&label, &pod, UID));
        assert!(!name.is_of(&label, &format!("{}q", "p".repeat(252)), UID));
    }

    #[test]
    fn what_could_be_taken_for_another_name_is_refused() {
        for (namespace, pod, container, uid) in [
            ("a_b", "p", "c", UID),
            ("a", "p_q", "c", UID),
            ("a", "p", "c_", UID),
            ("a", "p", "c", "x_1"),
            ("", "p", "c", UID),
            ("a", "", "c", UID),
            ("a", "../p", "c", UID),
            ("a", "p", "c", ""),
        ] {
            assert!(
                PodVm::new(namespace, pod, container, uid, 0).is_err(),
                "{namespace} {pod} {container} {uid}"
            );
        }
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for text in [
            "",
            "macos",
            "tuist-golden-",
            "tuist-golden-9C8AF651FDF30B10",
            "tuist-golden-9c8af651fdf30b10-copy",
            "rvm_a_b_c",
            &format!("rvm_a_b_c_{UID}_01"),
            &format!("rvm_a_b_c_{UID}_0_1"),
            &format!("rvm_a_b_c_{UID}_+1"),
            &format!("RVM_a_b_c_{UID}_0"),
            &format!("rvm_a_b/../x_c_{UID}_0"),
        ] {
            assert_eq!(VmName::parse(text), None, "{text}");
        }
    }

    fn label() -> impl Strategy<Value = String> {
        "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    }

    proptest! {
        #[test]
        fn a_name_reads_back_as_what_it_was_made_of(
            namespace in label(),
            pod in "[a-z0-9]{1,20}([.-][a-z0-9]{1,20}){0,10}",
            container in label(),
            uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            attempt: u32,
        ) {
            let name = PodVm::new(&namespace, &pod, &container, &uid, attempt).unwrap();
            prop_assert!(name.is_of(&namespace, &pod, &uid));
            let text = name.to_string();
            prop_assert!(text.len() <= 251);
            prop_assert_eq!(VmName::parse(&text), Some(VmName::Pod(name)));
        }

        #[test]
        fn two_pods_never_share_a_name(a in label(), b in label(), one: u32, two: u32) {
            let first = PodVm::new("ns", &a, "c", UID, one).unwrap();
            let second = PodVm::new("ns", &b, "c", UID, two).unwrap();
            prop_assert_eq!(first.to_string() == second.to_string(), a == b && one == two);
        }

        #[test]
        fn no_text_makes_the_parser_stumble(text in "\\PC{0,80}|(rvm|tuist-golden)[_a-z0-9~.-]{0,80}") {
            if let Some(name) = VmName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
