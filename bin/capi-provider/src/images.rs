//! macOS families and the images that belong to them.
//!
//! A spec names a family, because Scaleway retires images without notice and a pool that waits for one that is gone stays
//! empty for ever.

use std::cmp::Ordering;

use russet_scaleway::OsId;

use crate::host::Image;

/// A macOS family in a form that compares: `macOS Tahoe`, `macos-tahoe-26.3` and `Tahoe` are the same.
fn canonical(text: &str) -> String {
    let text = text.trim().to_lowercase();
    let text = text
        .strip_prefix("macos")
        .map_or(text.as_str(), |rest| rest.trim_start_matches([' ', '-', '_']));
    let end = text
        .char_indices()
        .zip(text.chars().skip(1))
        .find(|((_, separator), next)| matches!(separator, '-' | ' ' | '_') && next.is_ascii_digit())
        .map_or(text.len(), |((index, _), _)| index);
    let text = text.get(..end).unwrap_or(text);
    text.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect()
}

/// Whether an image is of this family.
pub fn is_of_family(image: &Image, family: &str) -> bool {
    let wanted = canonical(family);
    !wanted.is_empty() && (canonical(&image.family) == wanted || canonical(&image.name) == wanted)
}

/// Whether a spec names an image instead of a family.
pub fn is_pin(os: &str) -> bool {
    os.chars().any(|c| c.is_ascii_digit())
}

/// What to install on a host that is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The newest released image of the family.
    Image(OsId),
    /// Nothing of the family is published any more: whatever Scaleway installs by default.
    Default,
}

/// The newest released image of this family, if any is published.
pub fn newest(images: &[Image], family: &str) -> Choice {
    images
        .iter()
        .filter(|image| !image.is_beta && is_of_family(image, family))
        .max_by(|a, b| compare_versions(&a.version, &b.version).then_with(|| a.id.cmp(&b.id)))
        .map_or(Choice::Default, |image| Choice::Image(image.id.clone()))
}

/// Numerically, part by part; `26.3-rc1` comes before `26.3`.
fn compare_versions(a: &str, b: &str) -> Ordering {
    let mut left = a.trim().split('.');
    let mut right = b.trim().split('.');
    loop {
        let (left, right) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (left, right) => (part(left.unwrap_or("0")), part(right.unwrap_or("0"))),
        };
        match left.cmp(&right) {
            Ordering::Equal => {}
            other => return other,
        }
    }
}

/// The number of a part, and whether nothing follows it.
fn part(text: &str) -> (u64, bool, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number.parse().unwrap_or(0), rest.is_empty(), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image(id: &str, name: &str, family: &str, version: &str, is_beta: bool) -> Image {
        Image {
            id: id.parse().unwrap(),
            name: name.into(),
            family: family.into(),
            version: version.into(),
            is_beta,
        }
    }

    #[test]
    fn a_family_is_recognised_in_all_its_spellings() {
        for (name, family) in [
            ("macos-tahoe-26.3", "26"),
            ("x", "Tahoe"),
            ("macos-tahoe", ""),
            ("y", "macOS Tahoe"),
        ] {
            assert!(
                is_of_family(&image("i", name, family, "", false), "Tahoe"),
                "{name} {family}"
            );
        }
        for (name, family) in [
            ("macos-sequoia-15.6", "Sequoia"),
            ("devos-tahoe-26", "devos"),
            ("fedora-asahi-42", "fedora"),
        ] {
            assert!(
                !is_of_family(&image("i", name, family, "", false), "Tahoe"),
                "{name} {family}"
            );
        }
        assert!(is_of_family(
            &image("i", "macos-big-sur-11.7", "", "", false),
            "Big Sur"
        ));
        assert!(!is_of_family(&image("i", "macos", "", "", false), ""));
    }

    #[test]
    fn the_newest_released_image_of_the_family_is_chosen() {
        let images = [
            image("a", "macos-tahoe-26.9", "Tahoe", "26.9", false),
            image("b", "macos-tahoe-26.10", "Tahoe", "26.10", false),
            image("c", "macos-tahoe-26.10-rc1", "Tahoe", "26.10-rc1", false),
            image("d", "macos-tahoe-27.0", "Tahoe", "27.0", true),
            image("e", "macos-sequoia-99", "Sequoia", "99", false),
        ];
        assert_eq!(newest(&images, "Tahoe"), Choice::Image("b".parse().unwrap()));
        assert_eq!(newest(&images, "Sonoma"), Choice::Default);
    }

    #[test]
    fn only_a_family_may_be_named() {
        assert!(is_pin("macos-tahoe-26.3"));
        assert!(!is_pin("Tahoe"));
    }

    proptest! {
        #[test]
        fn versions_compare_in_a_total_order(a in "[0-9]{1,2}(\\.[0-9]{1,2}){0,2}(-rc[0-9])?", b in "[0-9]{1,2}(\\.[0-9]{1,2}){0,2}") {
            prop_assert_eq!(compare_versions(&a, &b), compare_versions(&b, &a).reverse());
            prop_assert_eq!(compare_versions(&a, &a), Ordering::Equal);
        }
    }
}
