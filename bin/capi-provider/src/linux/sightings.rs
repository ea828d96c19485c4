//! What was last seen of each server, so that an event about its machine costs no call.
//!
//! Core writes forty times about a machine that comes up, and each write wakes us. Between two looks that are seconds apart nothing
//! can have changed at Scaleway but by our own calls, so a look is kept until one of these is made, and for some seconds at most.
//! What a server is attached to changes only by such a call, and is kept for longer.
//!
//! Nothing that costs money or destroys is done on a kept look: right before such a call the server is looked at again
//! ([`super::call::Call::is_safe_to_repeat`]). Two providers that both believe they lead do not see each other's calls here.

use std::collections::HashMap;
use std::time::Duration;

use russet_api::values::ServerId;
use tokio::time::Instant;

use super::server::{Attachment, AttachmentState, Server};

/// A look that shows something on its way is kept this long at most.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// What a server is attached to is kept this long.
const ATTACHED_FOR: Duration = Duration::from_mins(10);
/// For this long after a call took a server off a network the API may still show it there.
const LEAVES_WITHIN: Duration = Duration::from_mins(1);

/// What was seen of one server.
#[derive(Clone, Debug, Default)]
struct Sighting {
    server: Option<(Instant, Option<Server>)>,
    attachments: Option<(Instant, Vec<Attachment>)>,
    /// When IPAM did not know its private address.
    unaddressed: Option<Instant>,
    /// Attachments that we ended.
    leaving: HashMap<String, Instant>,
    /// Our last call. What was looked for before may not show it.
    called: Option<Instant>,
}

/// What was seen for one machine.
#[derive(Clone, Debug, Default)]
struct Owned {
    servers: Option<(Instant, Vec<Server>)>,
    called: Option<Instant>,
}

/// All that was seen.
#[derive(Debug)]
pub struct Sightings {
    kept_for: Duration,
    servers: HashMap<ServerId, Sighting>,
    machines: HashMap<String, Owned>,
}

fn is_after(begun: Instant, called: Option<Instant>) -> bool {
    called.is_none_or(|called| begun >= called)
}

impl Sightings {
    /// Nothing was seen. Nothing is kept for longer than `patience`.
    pub fn new(patience: Duration) -> Self {
        Self {
            kept_for: KEPT_FOR.min(patience),
            servers: HashMap::new(),
            machines: HashMap::new(),
        }
    }

    /// A server as last seen; none inside: it does not exist.
    pub fn server(&self, id: &ServerId, now: Instant) -> Option<Option<Server>> {
        let (at, server) = self.servers.get(id)?.server.as_ref()?;
        (now.duration_since(*at) < self.kept_for).then(|| server.clone())
    }

    /// Whether a list that began then shows our last call about a server, and is not too old to be taken for a look.
    pub fn believes_list(&self, id: &ServerId, begun: Instant, now: Instant) -> bool {
        let called = self.servers.get(id).and_then(|sighting| sighting.called);
        is_after(begun, called) && now.duration_since(begun) < self.kept_for
    }

    /// A look that began then showed this.
    pub fn saw(&mut self, id: &ServerId, begun: Instant, server: Option<&Server>) {
        let sighting = self.servers.entry(id.clone()).or_default();
        if is_after(begun, sighting.called) {
            sighting.server = Some((begun, server.cloned()));
        }
    }

    /// What a server is attached to.
    pub fn attachments(&self, id: &ServerId, now: Instant) -> Option<Vec<Attachment>> {
        let (at, attachments) = self.servers.get(id)?.attachments.as_ref()?;
        let settled = |it: &Attachment| it.state == AttachmentState::Attached;
        let long = if attachments.iter().all(settled) {
            ATTACHED_FOR
        } else {
            self.kept_for
        };
        (now.duration_since(*at) < long).then(|| attachments.clone())
    }

    /// A look that began then showed these; what they are, now that it is known what we ended.
    pub fn saw_attachments(&mut self, id: &ServerId, begun: Instant, mut seen: Vec<Attachment>) -> Vec<Attachment> {
        let sighting = self.servers.entry(id.clone()).or_default();
        sighting
            .leaving
            .retain(|_, since| begun.duration_since(*since) < LEAVES_WITHIN);
        for attachment in &mut seen {
            if sighting.leaving.contains_key(&attachment.id) {
                attachment.state = AttachmentState::Leaving;
            }
        }
        if is_after(begun, sighting.called) {
            sighting.attachments = Some((begun, seen.clone()));
        }
        seen
    }

    /// A call ended this attachment, and the API may show it for a while.
    pub fn ended(&mut self, id: &ServerId, attachment: &str, now: Instant) {
        let sighting = self.servers.entry(id.clone()).or_default();
        sighting.leaving.insert(attachment.to_owned(), now);
    }

    /// Whether IPAM did not know the private address of a server just now.
    pub fn is_unaddressed(&self, id: &ServerId, now: Instant) -> bool {
        let asked = self.servers.get(id).and_then(|sighting| sighting.unaddressed);
        asked.is_some_and(|at| now.duration_since(at) < self.kept_for)
    }

    /// IPAM does not know it.
    pub fn saw_no_address(&mut self, id: &ServerId, now: Instant) {
        self.servers.entry(id.clone()).or_default().unaddressed = Some(now);
    }

    /// The servers that bear the tag of a machine.
    pub fn mine(&self, uid: &str, now: Instant) -> Option<Vec<Server>> {
        let (at, servers) = self.machines.get(uid)?.servers.as_ref()?;
        (now.duration_since(*at) < self.kept_for).then(|| servers.clone())
    }

    /// A list that began then showed these.
    pub fn saw_mine(&mut self, uid: &str, begun: Instant, servers: &[Server]) {
        let owned = self.machines.entry(uid.to_owned()).or_default();
        if is_after(begun, owned.called) {
            owned.servers = Some((begun, servers.to_vec()));
        }
    }

    /// A call is about to be made for a machine, or was answered: what was seen before does not hold.
    pub fn called(&mut self, uid: &str, server: Option<&ServerId>, now: Instant) {
        let owned = self.machines.entry(uid.to_owned()).or_default();
        *owned = Owned {
            servers: None,
            called: Some(now),
        };
        if let Some(id) = server {
            let sighting = self.servers.entry(id.clone()).or_default();
            sighting.server = None;
            sighting.called = Some(now);
        }
    }

    /// The call is about what the server is attached to, or nobody knows what it was about.
    pub fn forget_attachments(&mut self, id: &ServerId) {
        if let Some(sighting) = self.servers.get_mut(id) {
            sighting.attachments = None;
        }
    }

    /// A machine is gone. Its server stays known for a while, so that a list from before does not bring it back.
    pub fn forget(&mut self, uid: &str, now: Instant) {
        self.machines.remove(uid);
        let recent = |at: Option<Instant>| at.is_some_and(|at| now.duration_since(at) < ATTACHED_FOR);
        self.servers.retain(|_, sighting| {
            let attached = sighting.attachments.as_ref().map(|(at, _)| *at);
            let seen = sighting.server.as_ref().map(|(at, _)| *at);
            recent(sighting.called) || recent(seen) || recent(attached)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::server::{Networking, State};

    const SECOND: Duration = Duration::from_secs(1);

    fn id() -> ServerId {
        "srv-1".parse().unwrap()
    }

    fn server(state: State) -> Server {
        Server {
            id: id(),
            name: "m1".into(),
            project: "p1".parse().unwrap(),
            tags: Vec::new(),
            type_: "PRO2-S".into(),
            os: None,
            user: "root".into(),
            state,
            address: None,
            networking: Networking::On,
            volumes: Vec::new(),
            ips: Vec::new(),
        }
    }

    fn attachment(state: AttachmentState) -> Attachment {
        Attachment {
            id: "nic-1".into(),
            network: "pn-1".parse().unwrap(),
            state,
            mac: None,
            vlan: None,
        }
    }

    /// A list that was on its way when we switched a server on showed it off, and it was switched on again.
    #[tokio::test]
    async fn a_look_is_never_older_than_our_own_last_call() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.saw(&id(), start, Some(&server(State::Stopped)));
        assert_eq!(seen.server(&id(), start + SECOND), Some(Some(server(State::Stopped))));

        seen.called("u", Some(&id()), start + SECOND);
        assert_eq!(seen.server(&id(), start + SECOND), None, "forgotten at once");
        seen.saw(&id(), start, Some(&server(State::Stopped)));
        assert_eq!(seen.server(&id(), start + SECOND), None, "a look that began before");
        assert!(!seen.believes_list(&id(), start, start + SECOND));
        assert!(seen.believes_list(&id(), start + SECOND * 2, start + SECOND * 2));

        seen.saw(&id(), start + SECOND * 2, Some(&server(State::Starting)));
        let known = seen.server(&id(), start + SECOND * 3);
        assert_eq!(known, Some(Some(server(State::Starting))));
        assert_eq!(seen.server(&id(), start + SECOND * 13), None, "it is kept for seconds");
    }

    #[tokio::test]
    async fn the_servers_of_a_machine_are_listed_again_after_each_of_its_calls() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.saw_mine("u", start, &[]);
        assert_eq!(seen.mine("u", start + SECOND), Some(Vec::new()));
        assert_eq!(seen.mine("other", start), None);
        seen.called("u", None, start + SECOND);
        seen.saw_mine("u", start, &[]);
        assert_eq!(seen.mine("u", start + SECOND), None);
        seen.saw_mine("u", start + SECOND, &[server(State::Stopped)]);
        assert_eq!(seen.mine("u", start + SECOND), Some(vec![server(State::Stopped)]));
    }

    #[tokio::test]
    async fn what_is_attached_is_kept_until_a_call_changes_it_and_what_is_on_its_way_for_seconds() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.saw_attachments(&id(), start, vec![attachment(AttachmentState::Pending)]);
        assert!(seen.attachments(&id(), start + SECOND).is_some());
        assert_eq!(seen.attachments(&id(), start + SECOND * 11), None);
        seen.saw_attachments(&id(), start, vec![attachment(AttachmentState::Attached)]);
        assert!(seen.attachments(&id(), start + SECOND * 500).is_some());
        seen.called("u", Some(&id()), start + SECOND);
        assert!(
            seen.attachments(&id(), start + SECOND * 2).is_some(),
            "not every call changes it"
        );
        seen.forget_attachments(&id());
        assert_eq!(seen.attachments(&id(), start + SECOND * 2), None);
    }

    /// The API shows a network card for seconds after it took the call that removes it, just as it was. We asked again and again,
    /// and were refused.
    #[tokio::test]
    async fn an_attachment_that_we_ended_is_leaving_whatever_the_api_still_shows() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.called("u", Some(&id()), start);
        seen.ended(&id(), "nic-1", start);
        let shown = seen.saw_attachments(&id(), start + SECOND, vec![attachment(AttachmentState::Attached)]);
        assert_eq!(shown, [attachment(AttachmentState::Leaving)]);
        let later = start + LEAVES_WITHIN;
        let shown = seen.saw_attachments(&id(), later, vec![attachment(AttachmentState::Attached)]);
        assert_eq!(
            shown,
            [attachment(AttachmentState::Attached)],
            "then it is asked for again"
        );
    }

    #[tokio::test]
    async fn ipam_is_not_asked_again_at_once_for_an_address_it_does_not_know() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        assert!(!seen.is_unaddressed(&id(), start));
        seen.saw_no_address(&id(), start);
        assert!(seen.is_unaddressed(&id(), start + SECOND));
        assert!(!seen.is_unaddressed(&id(), start + KEPT_FOR));
    }

    /// An API that lags may say so of a server that it just made.
    #[tokio::test]
    async fn that_a_server_does_not_exist_is_looked_at_again_too() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.saw(&id(), start, None);
        assert_eq!(seen.server(&id(), start + SECOND), Some(None));
        assert_eq!(seen.server(&id(), start + KEPT_FOR), None);
    }

    /// It was forgotten with its machine's record, a list that was a second old still had it, and it was deleted a second time.
    #[tokio::test]
    async fn a_list_from_before_a_server_was_deleted_does_not_bring_it_back() {
        let mut seen = Sightings::new(KEPT_FOR);
        let start = Instant::now();
        seen.called("u", Some(&id()), start + SECOND);
        seen.forget("u", start + SECOND);
        assert!(!seen.believes_list(&id(), start, start + SECOND));
        seen.forget("u", start + SECOND + ATTACHED_FOR);
        assert!(seen.servers.is_empty(), "nothing is kept for ever");
    }
}
