//! Whose data a call is about, and whether it may.

use super::egress::Egress;
use super::status::Status;
use crate::blob::Kind;
use crate::http::service::Service;
use crate::http::span::Labels;
use crate::metrics::Outcome;
use crate::tools::{Event, Tool};
use crate::usage::{Direction, Protocol};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::HeaderMap;
use russet_identity::{Access, Clock as _, Credential, Decision, Denial, Scope, SystemClock};
use std::sync::OnceLock;
use std::time::Duration;

/// The instance of those who name none.
const DEFAULT: &str = "default";
/// Longest name of a branch that is kept.
const MAX_BRANCH: usize = 1024;

/// One call, apart from its messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    pub(super) headers: &'a HeaderMap,
    pub(super) stall: Duration,
    /// Whose data it is about, for traces.
    whose: &'a OnceLock<Box<Labels>>,
}

/// Where a build ran, as its client says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Branch {
    /// Its branch.
    pub(super) name: Option<String>,
    /// The branch everybody shares.
    pub(super) trunk: Option<String>,
}

impl Branch {
    /// The build ran on the shared branch.
    pub(super) fn is_trunk(&self) -> bool {
        self.name.is_some() && self.name == self.trunk
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        service: &'a Service,
        headers: &'a HeaderMap,
        stall: Duration,
        whose: &'a OnceLock<Box<Labels>>,
    ) -> Self {
        Self {
            service,
            headers,
            stall,
            whose,
        }
    }

    /// The scope of an instance, if the caller may.
    pub(super) async fn scope<'s>(&'s self, instance: &'s str, access: Access) -> Result<Scope<'s>, Status> {
        let authorizer = &self.service.shared.authorizer;
        let credential = self.credential()?;
        let scope = match self.account().and_then(|account| Self::parse(account, instance)) {
            Ok(scope) => scope,
            Err(denial) => return Err(authorizer.refuse_unscoped(credential.as_ref(), denial).into()),
        };
        if self.service.shared.traces.is_on() {
            let _ = self.whose.set(Labels::of(&scope));
        }
        match authorizer.decide_now(credential.as_ref(), &scope, access, SystemClock.now()) {
            Decision::Allow => {}
            Decision::Deny(denial) => return Err(denial.into()),
            Decision::NeedsBackend => authorizer.decide(credential.as_ref(), &scope, access).await?,
        }
        Ok(scope)
    }

    fn credential(&self) -> Result<Option<Credential<'a>>, Denial> {
        let values = self.headers.get_all(http::header::AUTHORIZATION);
        Credential::from_headers(values.iter().map(http::HeaderValue::as_bytes))
    }

    /// The account the call names, or the one the node serves.
    fn account(&self) -> Result<&'a str, Denial> {
        let mut named = ["x-kura-tenant-id", "x-tuist-account-handle"]
            .into_iter()
            .flat_map(|name| self.headers.get_all(name).iter());
        let Some(first) = named.next() else {
            return Ok(self.service.shared.node.tenant.as_str());
        };
        // Two names for one account are as good as none: nobody has to know which of them wins.
        if named.any(|other| other != first) {
            return Err(Denial::missing_tenant());
        }
        first.to_str().map_err(|_| Denial::missing_tenant())
    }

    fn parse<'s>(account: &'s str, instance: &'s str) -> Result<Scope<'s>, Denial> {
        let instance = if instance.is_empty() { DEFAULT } else { instance };
        // `account/project`, as the account's own tools write it.
        let project = instance
            .split_once('/')
            .filter(|(first, _)| first.eq_ignore_ascii_case(account))
            .map_or(instance, |(_, project)| project);
        Scope::parse_instance(account, project)
    }

    /// Something was there; so many bytes of it are to be sent, which [`Call::egress`] counts.
    pub(super) fn hit(&self, kind: Kind, namespace: &str, bytes: u64) {
        self.service.shard.read(kind, Outcome::Ok, bytes);
        self.record(namespace, Event::Hit, 0);
    }

    /// What counts the bytes of hits that leave.
    pub(super) fn egress(&self, kind: Kind, namespace: &str) -> Egress {
        let receipt = self.service.receipt(kind, Some(Tool::Reapi), namespace, &[]);
        Egress::new(self.service, receipt)
    }

    /// The same for a message that has so many bytes of content, and leaves as a whole or not at all.
    pub(super) fn egress_of(&self, kind: Kind, namespace: &str, bytes: u64) -> Option<Egress> {
        let mut egress = (bytes > 0).then(|| self.egress(kind, namespace));
        if let Some(egress) = &mut egress {
            egress.sent(bytes);
        }
        egress
    }

    /// Something was not there.
    pub(super) fn miss(&self, kind: Kind, namespace: &str) {
        self.service.shard.read(kind, Outcome::Known, 0);
        self.record(namespace, Event::Miss, 0);
    }

    /// Something is stored now. What was there before is not billed.
    pub(super) fn stored(&self, kind: Kind, namespace: &str, bytes: u64) {
        self.service.shard.write(kind, Outcome::Ok, bytes);
        self.record(namespace, Event::Stored, bytes);
        let usage = &self.service.shared.usage;
        usage.add(Direction::Upload, Protocol::Grpc, kind, namespace, bytes);
    }

    /// Something was stored already.
    pub(super) fn known(&self, kind: Kind, namespace: &str) {
        self.service.shard.write(kind, Outcome::Known, 0);
        self.record(namespace, Event::Known, 0);
    }

    fn record(&self, namespace: &str, event: Event, bytes: u64) {
        self.service.shared.tools.record(Tool::Reapi, namespace, event, bytes);
    }

    /// Memory is so short that bodies of this size are not taken.
    pub(super) fn check_pressure(&self) -> Result<(), Status> {
        if self.service.shared.pressure.refuses_streams() {
            self.service.shared.tools.shed(Tool::Reapi);
            return Err(Status::exhausted("Server is overloaded"));
        }
        Ok(())
    }

    /// Whether the client is one of the account's own tools, whose limits are known to be generous.
    pub(super) fn is_first_party(&self) -> bool {
        self.headers.contains_key("x-tuist-account-handle") || self.branch().name.is_some()
    }

    /// The branch headers; the binary form wins.
    pub(super) fn branch(&self) -> Branch {
        let read = |plain: &str, binary: &str| {
            let decoded = self.headers.get(binary).and_then(|value| {
                let value = value.as_bytes();
                let bytes = STANDARD.decode(value).or_else(|_| STANDARD_NO_PAD.decode(value)).ok()?;
                String::from_utf8(bytes).ok()
            });
            decoded
                .or_else(|| Some(self.headers.get(plain)?.to_str().ok()?.to_owned()))
                .filter(|name| !name.is_empty() && name.len() <= MAX_BRANCH)
        };
        Branch {
            name: read("x-tuist-branch", "x-tuist-branch-bin"),
            trunk: read("x-tuist-trunk-branch", "x-tuist-trunk-branch-bin"),
        }
    }
}
