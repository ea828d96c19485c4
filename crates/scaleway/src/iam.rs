//! IAM: the SSH keys that Scaleway puts on a host when it installs it.
//!
//! Keys belong to a project, and a policy that is limited to a project refuses calls that do not name it. These take the
//! client's project by construction.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::ids::{ProjectId, SshKeyId};
use crate::pages::{Page, Row};
use crate::wire::null_is_default;

const PERMISSION: &str = "SSHKeysFullAccess";
static LIST: Endpoint = Endpoint::read("iam.list_ssh_keys", PERMISSION);
static CREATE: Endpoint = Endpoint::once("iam.create_ssh_key", Method::POST, PERMISSION);
static DELETE: Endpoint = Endpoint::remove("iam.delete_ssh_key", PERMISSION);

/// A registered key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SshKey {
    /// Its id.
    pub id: SshKeyId,
    /// Its name; not unique.
    pub name: String,
    /// The public key in OpenSSH form.
    pub public_key: String,
    /// Its project.
    pub project_id: ProjectId,
    /// Not put on hosts.
    #[serde(default)]
    pub disabled: bool,
}

impl SshKey {
    /// Whether this is the same key, whatever its comment: type and base64 part decide.
    pub fn is_key(&self, public_key: &str) -> bool {
        let essence = |text: &str| {
            let mut words = text.split_whitespace().map(str::to_owned);
            (words.next(), words.next())
        };
        essence(&self.public_key) == essence(public_key)
    }
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default, deserialize_with = "null_is_default")]
    ssh_keys: Vec<SshKey>,
    total_count: u64,
}

impl From<Keys> for Page<SshKey> {
    fn from(keys: Keys) -> Self {
        Self {
            rows: keys.ssh_keys,
            total: keys.total_count,
        }
    }
}

impl Row for SshKey {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Client {
    /// The keys of the project.
    pub async fn list_ssh_keys(&self) -> Result<Vec<SshKey>, Error> {
        let call = Call::new(&LIST, "/iam/v1alpha1/ssh-keys".to_owned());
        self.list::<Keys, _>(call.query("project_id", self.project().as_str()))
            .await
    }

    /// Registers a key in the project.
    pub async fn create_ssh_key(&self, name: &str, public_key: &str) -> Result<SshKey, Error> {
        let body = json!({ "name": name, "public_key": public_key, "project_id": self.project() });
        self.fetch(Call::new(&CREATE, "/iam/v1alpha1/ssh-keys".to_owned()).body(body))
            .await
    }

    /// Removes a key. Hosts that already have it keep it.
    pub async fn delete_ssh_key(&self, id: &SshKeyId) -> Result<(), Error> {
        self.send(Call::new(&DELETE, format!("/iam/v1alpha1/ssh-keys/{id}")))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_body_not_by_its_comment() {
        let key: SshKey = serde_json::from_str(
            r#"{"id":"k1","name":"macs","public_key":"ssh-ed25519 AAAAC3 tuist-capi-macs\n","project_id":"p1"}"#,
        )
        .unwrap();
        assert!(key.is_key("ssh-ed25519 AAAAC3"));
        assert!(!key.is_key("ssh-ed25519 AAAAC4 tuist-capi-macs"));
        assert!(!key.is_key("ssh-rsa AAAAC3"));
    }
}
