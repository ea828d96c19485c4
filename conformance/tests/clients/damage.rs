//! Damage on disk: a bit of every stored body flipped, as a dying disk does it. The bodies are found by their content, so nothing here
//! knows the format of a segment.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use memchr::memmem;

/// Flips a bit in the middle of every occurrence of every needle in every file below `dir`; how many.
pub(crate) fn flip(dir: &Path, needles: &[Vec<u8>]) -> Result<usize> {
    let mut flipped = 0;
    for path in files(dir)? {
        let mut bytes = fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        // All places first: a needle may lie inside another.
        let mut places = Vec::new();
        for needle in needles {
            places.extend(memmem::find_iter(&bytes, needle).map(|at| at + needle.len() / 2));
        }
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            continue;
        }
        for place in &places {
            bytes[*place] ^= 0x04;
        }
        flipped += places.len();
        fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(flipped)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[test]
fn a_bit_of_every_body_is_flipped_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("segment"), b"xxABCDxxABCDxx").unwrap();
    assert_eq!(flip(dir.path(), &[b"ABCD".to_vec()]).unwrap(), 2);
    assert_eq!(fs::read(dir.path().join("segment")).unwrap(), b"xxABGDxxABGDxx");
}
