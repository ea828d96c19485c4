//! The Secret `<machine>-bootstrap`: how to log in to a host.
//!
//! It is rebuilt from Scaleway whenever it is missing, as long as Scaleway tells the password. It says which host it belongs to, so
//! that the host key of one host is never expected of another.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _};
use russet_api::labels;
use russet_api::values::ServerId;
use russet_telemetry::Secret;
use tracing::info;

use super::{Error, MANAGER};

const PASSWORD: &str = "sudo-password";
const USERNAME: &str = "ssh-username";
const FINGERPRINT: &str = "host-fingerprint";
const SERVER: &str = "scaleway.tuist.dev/server-id";
/// Who writes host keys, so that they can be dropped alone.
const KEY_MANAGER: &str = "capi-scaleway-applesilicon-host-key";
/// What hosts are logged in to as, if Scaleway does not say.
const DEFAULT_USER: &str = "m1";

/// How to log in to a host.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Option<Secret<String>>,
    pub(crate) fingerprint: Option<String>,
}

fn name(mac: &impl Resource) -> String {
    format!("{}-bootstrap", mac.name_any())
}

fn text(secret: &KubeSecret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    let text = String::from_utf8(bytes.clone()).ok()?;
    Some(text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty())
}

fn api_version_of<K: Owner>(_: &K) -> std::borrow::Cow<'static, str> {
    K::api_version(&()).into_owned().into()
}

fn kind_of<K: Owner>(_: &K) -> std::borrow::Cow<'static, str> {
    K::kind(&()).into_owned().into()
}

/// Whether a Secret may be about this host: one that does not say may.
fn is_about(secret: &KubeSecret, server: &ServerId) -> bool {
    secret
        .annotations()
        .get(SERVER)
        .is_none_or(|about| about == server.as_str())
}

/// The Secrets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Secrets(pub(crate) Client);

/// A machine of any kind.
pub(crate) trait Owner: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync {}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync> Owner for K {}

impl Secrets {
    fn api(&self, mac: &impl Owner) -> Api<KubeSecret> {
        Api::namespaced(self.0.clone(), &mac.namespace().unwrap_or_default())
    }

    /// The credentials of this host; none if there are none, or only of another.
    pub(crate) async fn read(&self, mac: &impl Owner, server: &ServerId) -> Result<Option<Credentials>, Error> {
        let secret = self.api(mac).get_opt(&name(mac)).await;
        let secret = secret.map_err(Error::kube("read the bootstrap Secret"))?;
        Ok(secret
            .filter(|secret| is_about(secret, server))
            .map(|secret| Credentials {
                user: text(&secret, USERNAME).unwrap_or_else(|| DEFAULT_USER.to_owned()),
                password: text(&secret, PASSWORD).map(Secret::new),
                fingerprint: text(&secret, FINGERPRINT),
            }))
    }

    /// Stores credentials that Scaleway told. Another password than before is another installation, whose host key is another, too:
    /// Scaleway vouches for it, so the pin is dropped instead of being held against the host.
    pub(crate) async fn store(
        &self,
        mac: &impl Owner,
        server: &ServerId,
        user: &str,
        password: &Secret<String>,
    ) -> Result<(), Error> {
        let user = if user.is_empty() { DEFAULT_USER } else { user };
        let before = self.read(mac, server).await?;
        let was_another = before
            .as_ref()
            .and_then(|before| before.password.as_ref())
            .is_some_and(|before| before.expose() != password.expose());
        if was_another && before.is_some_and(|before| before.fingerprint.is_some()) {
            info!(%server, "the password of the host is another: it was installed again, and its pinned host key is dropped");
            self.apply(mac, server, KEY_MANAGER, &BTreeMap::new()).await?;
        }
        let data = BTreeMap::from([(PASSWORD, password.expose().as_str()), (USERNAME, user)]);
        self.apply(mac, server, MANAGER, &data).await
    }

    /// Notes the key a host showed.
    pub(crate) async fn store_fingerprint(
        &self,
        mac: &impl Owner,
        server: &ServerId,
        fingerprint: &str,
    ) -> Result<(), Error> {
        let data = BTreeMap::from([(FINGERPRINT, fingerprint)]);
        self.apply(mac, server, KEY_MANAGER, &data).await
    }

    /// Whether a person has put a password into the Secret that Scaleway does not tell any more.
    pub(crate) async fn has_password(&self, mac: &impl Owner, server: &ServerId) -> Result<bool, Error> {
        let credentials = self.read(mac, server).await?;
        Ok(credentials.is_some_and(|credentials| credentials.password.is_some()))
    }

    pub(crate) async fn delete(&self, mac: &impl Owner) -> Result<(), Error> {
        match self.api(mac).delete(&name(mac), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::kube("delete the bootstrap Secret")(error)),
        }
    }

    async fn apply(
        &self,
        mac: &impl Owner,
        server: &ServerId,
        manager: &str,
        data: &BTreeMap<&str, &str>,
    ) -> Result<(), Error> {
        let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let secret = KubeSecret {
            metadata: ObjectMeta {
                name: Some(name(mac)),
                labels: Some(BTreeMap::from([
                    own(labels::MANAGED_BY, labels::MANAGED_BY_CAPI),
                    own(labels::MACHINE, &mac.name_any()),
                ])),
                annotations: Some(BTreeMap::from([own(SERVER, server.as_str())])),
                owner_references: Some(vec![OwnerReference {
                    api_version: api_version_of(mac).into_owned(),
                    kind: kind_of(mac).into_owned(),
                    name: mac.name_any(),
                    uid: mac.uid().unwrap_or_default(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            data: Some(
                data.iter()
                    .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
                    .collect(),
            ),
            ..KubeSecret::default()
        };
        let params = PatchParams::apply(manager).force();
        let written = self.api(mac).patch(&name(mac), &params, &Patch::Apply(&secret)).await;
        written.map(drop).map_err(Error::kube("write the bootstrap Secret"))
    }
}
