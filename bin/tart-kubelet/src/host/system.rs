//! What a host is.

use std::path::Path;
use std::time::Duration;

use russet_node::System;

use super::ask::ask;

const PATIENCE: Duration = Duration::from_secs(10);

/// Finds out. What cannot be found out is empty: nothing depends on it but what people read.
pub(super) async fn find(tart: &Path) -> System {
    let said = async |program: &str, args: &[&str]| ask(Path::new(program), args, PATIENCE).await.unwrap_or_default();
    let uname = rustix::system::uname();
    let kernel = format!(
        "{} {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    );
    let version = said("/usr/bin/sw_vers", &["-productVersion"]).await;
    let uuid = platform_uuid(&said("/usr/sbin/ioreg", &["-rd1", "-c", "IOPlatformExpertDevice"]).await);
    let boot_id = said("/usr/sbin/sysctl", &["-n", "kern.bootsessionuuid"]).await;
    let tart_version = ask(tart, &["--version"], PATIENCE)
        .await
        .ok()
        .filter(|text| is_version(text));
    System {
        machine_id: uuid.clone(),
        system_uuid: uuid,
        boot_id,
        kernel_version: kernel,
        os_image: if version.is_empty() {
            "macOS".to_owned()
        } else {
            format!("macOS {version}")
        },
        runtime: format!("tart://{}", tart_version.as_deref().unwrap_or("unknown")),
    }
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 32 && !text.contains(char::is_whitespace)
}

/// `"IOPlatformUUID" = "…"` of what ioreg prints.
fn platform_uuid(text: &str) -> String {
    let line = text.lines().find(|line| line.contains("\"IOPlatformUUID\""));
    let value = line.and_then(|line| line.split('"').nth(3));
    value.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_the_hardware_is_read() {
        let text = "+-o J474sAP  <class IOPlatformExpertDevice>\n    {\n      \"IOPlatformSerialNumber\" = \"X1\"\n      \
                    \"IOPlatformUUID\" = \"0DE1B5AE-0000-4000-8000-000000000001\"\n    }\n";
        assert_eq!(platform_uuid(text), "0DE1B5AE-0000-4000-8000-000000000001");
        assert_eq!(platform_uuid("nothing"), "");
    }

    #[test]
    fn a_version_of_tart_is_a_version() {
        assert!(is_version("2.32.1"));
        assert!(!is_version("tart: command not found"));
        assert!(!is_version(""));
    }
}
