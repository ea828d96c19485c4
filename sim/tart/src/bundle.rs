//! `tart.app`, as an emulated Mac is given it: the command, and a registry so that nobody has to download anything.

use crate::control::ControlError;
use crate::host;
use crate::image::{Image, Registry, RemoteName};
use crate::switches::Switches;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What such a bundle is called, and its folder in an archive.
pub const BUNDLE: &str = "tart.app";
/// The program that an emulated Mac runs as `tart`; it has a copy of its own.
const INTERPRETER: &str = "#!/.sim/bin/tart\n";
const REGISTRY: &str = "registry";

/// Writes `tart.app` into a folder: for emulated Macs whose emulator poses as `tart`, with these images in its registry.
pub fn write_bundle(folder: &Path, images: &[(&str, Image)]) -> Result<(), ControlError> {
    let contents = folder.join(BUNDLE).join("Contents");
    let (programs, resources) = (contents.join("MacOS"), contents.join("Resources"));
    for folder in [&programs, &resources] {
        std::fs::create_dir_all(folder)?;
    }
    let program = programs.join("tart");
    std::fs::write(&program, INTERPRETER)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let registry = Registry(resources.join(REGISTRY));
    for (name, image) in images {
        registry.push(&RemoteName::parse(name)?, image)?;
    }
    let switches = Switches {
        registry: Some(Path::new(host::RESOURCES).join(REGISTRY)),
        ..Switches::default()
    };
    let text = serde_json::to_vec_pretty(&switches).map_err(crate::failure::Failure::from)?;
    Ok(std::fs::write(resources.join(host::SWITCHES), text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_a_program_and_the_images_that_were_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        write_bundle(dir.path(), &[("ghcr.io/acme/mac:v1", Image::default())]).unwrap();
        let contents = dir.path().join("tart.app/Contents");
        let program = std::fs::metadata(contents.join("MacOS/tart")).unwrap();
        assert_eq!(program.permissions().mode() & 0o777, 0o755);
        let registry = Registry(contents.join("Resources/registry"));
        let name = RemoteName::parse("ghcr.io/acme/mac:v1").unwrap();
        assert!(registry.find(&name).unwrap().is_some());
        let switches: Switches =
            serde_json::from_slice(&std::fs::read(contents.join("Resources/switches.json")).unwrap()).unwrap();
        let place = switches.registry.unwrap();
        assert_eq!(place, Path::new("/usr/local/lib/tart.app/Contents/Resources/registry"));
    }
}
