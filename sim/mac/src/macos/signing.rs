//! Code signatures, and what the kernel makes of them. [facts 2]
//!
//! Programs here are ELF files that stand for Mach-O. As on arm64, what the linker made is signed by the linker. `codesign` appends
//! a block to the file, so that signing changes its content, as it does on a Mac: whoever compares hashes has to compare what was
//! there before the signature, or remember the hash after it. The hash of the code covers content and identifier.

use aws_lc_rs::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const MAGIC: &[u8; 16] = b"\0sim-mac-sign-1\0";
/// Magic, kind, length of the identifier, identifier, hash of the content.
const BLOCK: usize = 16 + 1 + 1 + 190 + 32;
const LONGEST_IDENTIFIER: usize = 190;

/// How a file is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signature {
    /// No program: a script is run by its interpreter, whose signature is Apple's.
    NoCode,
    /// Not at all: killed on arm64.
    Unsigned,
    /// By the linker.
    Linker { cdhash: String },
    /// By `codesign --sign -`.
    AdHoc { cdhash: String, identifier: String },
    /// The content is not what was signed.
    Broken,
}

impl Signature {
    pub(super) fn cdhash(&self) -> Option<&str> {
        match self {
            Self::Linker { cdhash } | Self::AdHoc { cdhash, .. } => Some(cdhash),
            Self::NoCode | Self::Unsigned | Self::Broken => None,
        }
    }

    /// Whether the kernel runs it.
    pub(super) fn runs(&self) -> bool {
        !matches!(self, Self::Unsigned | Self::Broken)
    }
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inspected {
    pub(super) signature: Signature,
    /// Of the whole file, as it is.
    pub(super) digest: String,
    /// Without the block.
    pub(super) code_size: u64,
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Reads a file once and says how it is signed.
pub(super) fn inspect(file: &mut File) -> io::Result<Inspected> {
    let size = file.seek(SeekFrom::End(0))?;
    let block_size = u64::try_from(BLOCK).unwrap_or(0);
    let mut block = Vec::new();
    if size >= block_size {
        file.seek(SeekFrom::Start(size - block_size))?;
        file.read_to_end(&mut block)?;
    }
    let signed = block.starts_with(MAGIC);
    let code_size = if signed { size - block_size } else { size };
    file.seek(SeekFrom::Start(0))?;
    let (mut whole, mut head) = (Context::new(&SHA256), Vec::new());
    let mut buffer = vec![0; 256 << 10];
    let mut left = code_size;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = file.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let chunk = buffer.get(..count).unwrap_or_default();
        if head.is_empty() {
            head = chunk.iter().take(4).copied().collect();
        }
        whole.update(chunk);
        left -= u64::try_from(count).unwrap_or(left);
    }
    let code = whole.clone().finish();
    if signed {
        whole.update(&block);
    }
    let digest = hex(whole.finish().as_ref());
    let signature = if !is_program(&head) {
        Signature::NoCode
    } else if signed {
        read_block(&block, code.as_ref())
    } else {
        Signature::Linker {
            cdhash: short(code.as_ref(), "linker"),
        }
    };
    Ok(Inspected {
        signature,
        digest,
        code_size,
    })
}

fn is_program(head: &[u8]) -> bool {
    matches!(head, b"\x7fELF" | [0xcf, 0xfa, 0xed, 0xfe] | [0xca, 0xfe, 0xba, 0xbe])
}

fn short(code: &[u8], salt: &str) -> String {
    let mut context = Context::new(&SHA256);
    context.update(salt.as_bytes());
    context.update(code);
    let mut hash = hex(context.finish().as_ref());
    hash.truncate(40);
    hash
}

fn read_block(block: &[u8], code: &[u8]) -> Signature {
    let kind = block.get(16).copied().unwrap_or(0);
    if kind == b'U' {
        return Signature::Unsigned;
    }
    let length = usize::from(block.get(17).copied().unwrap_or(0));
    let identifier = block.get(18..18 + length).unwrap_or_default();
    if block.get(BLOCK - 32..) != Some(code) {
        return Signature::Broken;
    }
    let identifier = String::from_utf8_lossy(identifier).into_owned();
    Signature::AdHoc {
        cdhash: short(code, &format!("adhoc {identifier}")),
        identifier,
    }
}

/// What a tool wants to be signed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    AdHoc(&'a str),
    Removed,
}

/// Signs a file the way `codesign` does: a copy beside it, renamed over it, so that the inode is a new one.
pub(super) fn sign(path: &Path, mark: Mark<'_>) -> io::Result<()> {
    let mut file = File::open(path)?;
    let inspected = inspect(&mut file)?;
    if inspected.signature == Signature::NoCode {
        // The signature of a script is kept in attributes and changes nothing that can be run.
        return Ok(());
    }
    file.seek(SeekFrom::Start(0))?;
    let mut context = Context::new(&SHA256);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".cstemp");
    let temporary = path.with_file_name(name);
    let written = (|| {
        let mut target = File::create(&temporary)?;
        let mut code = (&mut file).take(inspected.code_size);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = code.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            let chunk = buffer.get(..count).unwrap_or_default();
            context.update(chunk);
            io::Write::write_all(&mut target, chunk)?;
        }
        io::Write::write_all(&mut target, &block(mark, context.finish().as_ref()))?;
        let meta = file.metadata()?;
        target.set_permissions(meta.permissions())?;
        give_back(&target, &meta)
    })();
    match written {
        Ok(()) => std::fs::rename(&temporary, path),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}

/// Keeps the owner. Only root can; anybody else owns what they made.
fn give_back(target: &File, meta: &std::fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    if rustix::process::geteuid().is_root() {
        fchown(target, Some(meta.uid()), Some(meta.gid()))?;
    }
    Ok(())
}

fn block(mark: Mark<'_>, code: &[u8]) -> Vec<u8> {
    let (kind, identifier) = match mark {
        Mark::AdHoc(identifier) => (b'A', identifier),
        Mark::Removed => (b'U', ""),
    };
    let identifier: Vec<u8> = identifier.bytes().take(LONGEST_IDENTIFIER).collect();
    let mut block = MAGIC.to_vec();
    block.push(kind);
    block.push(u8::try_from(identifier.len()).unwrap_or(0));
    block.extend(&identifier);
    block.resize(BLOCK - 32, 0);
    block.extend(code);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn program(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("program");
        std::fs::write(&path, b"\x7fELF and some code").unwrap();
        path
    }

    fn look(path: &Path) -> Inspected {
        inspect(&mut File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn signing_changes_the_content_the_inode_and_the_hash_of_the_code_but_not_the_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let (before, inode) = (look(&path), std::fs::metadata(&path).unwrap().ino());
        sign(&path, Mark::AdHoc("program")).unwrap();
        let after = look(&path);
        assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode);
        assert_ne!(after.digest, before.digest);
        assert_ne!(after.signature.cdhash(), before.signature.cdhash());
        assert_eq!(after.code_size, before.code_size);
        sign(&path, Mark::AdHoc("program")).unwrap();
        assert_eq!(look(&path), after, "signing twice is signing once");
    }

    #[test]
    fn a_signed_program_whose_code_changed_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        sign(&path, Mark::AdHoc("program")).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(look(&path).signature, Signature::Broken);
        sign(&path, Mark::AdHoc("program")).unwrap();
        assert!(look(&path).signature.runs());
    }

    #[test]
    fn a_program_without_a_signature_does_not_run_and_a_script_needs_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        sign(&path, Mark::Removed).unwrap();
        assert!(!look(&path).signature.runs());
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(look(&script).signature, Signature::NoCode);
    }
}
