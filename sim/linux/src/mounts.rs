//! The file system of a server: commands that are run in its new namespaces, before anything else.

use std::fmt::Write as _;
use std::path::Path;

use russet_cluster::node::holder::quote;

use crate::disk::{Disk, OWN};
use crate::error::Error;
use crate::image::Image;
use crate::inside::protocol::{FOLDER, PROGRAM};

/// The commands.
pub(crate) fn script(disk: &Disk, image: &Image, program: &Path, hostname: &str) -> Result<String, Error> {
    let root = disk.folder.join("root");
    let mut script = format!("root={}\ncd \"$root\"\n", shell(&root));
    script.push_str("mount -n -t tmpfs -o mode=755 box \"$root\"\ncd \"$root\"\n");
    script.push_str("mkdir -p boot dev etc media old proc run sys usr\n");
    for link in ["bin", "sbin", "lib", "lib64", "lib32", "libx32"] {
        let _ = writeln!(
            script,
            "if [ -L /{link} ]; then ln -s \"$(readlink /{link})\" {link}; fi"
        );
    }
    for (part, over) in [("etc", &image.etc), ("usr", &image.usr)] {
        let options = format!(
            "lowerdir={}:/{part},upperdir={},workdir={}",
            option(over)?,
            option(&disk.upper(part))?,
            option(&disk.upper(&format!("{part}.work")))?
        );
        let _ = writeln!(script, "mount -n -t overlay box -o {} {part}", quote(&options));
    }
    for part in OWN {
        let _ = writeln!(
            script,
            "mkdir -p {part}\nmount -n --bind {} {part}",
            shell(&disk.upper(part))
        );
    }
    script.push_str(
        "mount -n -t tmpfs -o mode=755 run run\nmkdir -p run/lock run/netns run/russet-box\n\
         mount -n -t proc proc proc\n\
         mount -n -t sysfs sysfs sys\nmount -n --rbind /sys/fs/cgroup sys/fs/cgroup\n\
         mount -n --bind /dev dev\nmount -n -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts\n\
         mount -n --bind dev/pts/ptmx dev/ptmx\nmount -n -t tmpfs shm dev/shm\n",
    );
    let _ = writeln!(script, "mount -n --bind {} run/russet-box", shell(&disk.run()));
    bind_file(&mut script, program, PROGRAM);
    for (name, path) in &image.tools {
        let place = format!("{FOLDER}/{name}");
        if path.is_dir() {
            let _ = writeln!(script, "mount -n --bind {} {}", shell(path), below(&place));
        } else {
            bind_file(&mut script, path, &place);
        }
    }
    for (name, path) in &image.real {
        bind_file(&mut script, path, &format!("{FOLDER}/real/{name}"));
    }
    let _ = writeln!(
        script,
        "mount -n --bind {} {}",
        shell(&image.archives),
        below(&format!("{FOLDER}/images"))
    );
    script.push_str(
        "pivot_root . old\ncd /\numount -n -l old\nrmdir old\n/usr/lib/russet-box/real/mount -n --make-rshared /\n",
    );
    let _ = writeln!(script, "echo {} >/proc/sys/kernel/hostname", quote(hostname));
    Ok(script)
}

/// A path inside, seen from the new root before it is one.
fn below(place: &str) -> String {
    quote(place.trim_start_matches('/'))
}

fn bind_file(script: &mut String, from: &Path, place: &str) {
    let place = below(place);
    let _ = writeln!(
        script,
        "[ -e {place} ] || : >{place}\nmount -n --bind {} {place}",
        shell(from)
    );
}

fn shell(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

fn option(path: &Path) -> Result<String, Error> {
    let text = path.to_string_lossy();
    if text.contains([',', ':', '\\']) {
        return Err(Error::Path { path: path.to_owned() });
    }
    Ok(text.into_owned())
}
