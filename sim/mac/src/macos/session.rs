//! The session at the screen: who is logged in, and how loginwindow gets there without anybody typing. [facts 3]

use super::image::UID;
use super::launchd::domain::Domain;
use super::mac::Inner;
use std::sync::Arc;

const KEY: [u8; 11] = [0x7d, 0x89, 0x52, 0x23, 0xd2, 0xbc, 0xdd, 0xea, 0xa3, 0xb9, 0x1f];
const SEALED: &str = "<sealed>";

/// The password in a kcpassword: up to the first NUL.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    let plain: Vec<u8> = bytes
        .iter()
        .zip(KEY.iter().cycle())
        .map(|(byte, key)| byte ^ key)
        .collect();
    let end = plain.iter().position(|byte| *byte == 0).unwrap_or(plain.len());
    String::from_utf8(plain.get(..end)?.to_vec()).ok()
}

fn encode(password: &str, padded: usize) -> Vec<u8> {
    let mut plain = password.as_bytes().to_vec();
    plain.resize(plain.len().max(padded), 0);
    plain
        .iter()
        .zip(KEY.iter().cycle())
        .map(|(byte, key)| byte ^ key)
        .collect()
}

impl Inner {
    /// loginwindow was started: it logs in if auto-login is set up and the password is right; a wrong one it seals.
    pub(super) fn loginwindow_starts(self: &Arc<Self>) {
        let Some(user) = self.auto_login_user() else { return };
        let Ok(stored) = self.tree.read("/etc/kcpassword") else {
            return;
        };
        let right = {
            let state = self.state();
            let stored = decode(&stored);
            user == self.host.username && !state.faults.sealed_password && stored.as_deref() == Some(&state.password)
        };
        if !right {
            // Eight letters and three NULs. [facts 3]
            if let Err(error) = self.tree.write("/etc/kcpassword", &encode(SEALED, 11), 0o600) {
                tracing::debug!(%error, "the password of an emulated Mac could not be sealed");
            }
            return;
        }
        self.log_in();
    }

    /// The user of the session, as `/dev/console` belongs to.
    pub(super) fn console_user(&self) -> &str {
        match self.state().launchd.session {
            Some(_) => &self.host.username,
            None => "root",
        }
    }

    fn log_in(self: &Arc<Self>) {
        self.state().launchd.log_in(UID);
        if let Err(error) = self.tree.give("/dev/console", UID, 20) {
            tracing::debug!(%error, "the console of an emulated Mac could not be given away");
        }
        self.load_folders(Domain::Gui(UID));
        self.launchd_changed();
    }

    /// Ends the session and everything in it.
    pub(super) fn log_out(self: &Arc<Self>) {
        let keys: Vec<_> = {
            let mut state = self.state();
            state.launchd.session = None;
            let gui = |key: &&(Domain, String)| matches!(key.0, Domain::Gui(_));
            state.launchd.jobs.keys().filter(gui).cloned().collect()
        };
        for key in keys {
            self.with_job(&key, |job, _| ((), job.bootout()));
        }
        let _ = self.tree.give("/dev/console", 0, 0);
        self.launchd_changed();
    }

    fn auto_login_user(&self) -> Option<String> {
        let bytes = self
            .tree
            .read("/Library/Preferences/com.apple.loginwindow.plist")
            .ok()?;
        let value = plist::Value::from_reader(std::io::Cursor::new(bytes)).ok()?;
        value
            .as_dictionary()?
            .get("autoLoginUser")?
            .as_string()
            .map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_others_published_decode() {
        let bytes = |text: &str| -> Vec<u8> {
            (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect()
        };
        assert_eq!(decode(&bytes("09ec2157d2bcddeaa3b91f")).unwrap(), "test");
        assert_eq!(encode("test", 11), bytes("09ec2157d2bcddeaa3b91f"));
    }
}
