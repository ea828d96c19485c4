//! What a machine remembers while it runs.

use std::io;

use jiff::Timestamp;

use crate::error::Error;
use crate::identity::{Identity, Memory, Store};

/// What a machine remembers, and whether all of it is written down.
///
/// An agent that ends because its disk is full deletes no image and evicts no Pod. So whatever cannot be written down stays here and
/// is tried again; only the very first key has to be on the disk before anybody hears of it.
pub(crate) struct Notes<'a, S> {
    node: &'a str,
    store: &'a S,
    pub(crate) memory: Memory,
    /// Not all of it is written down.
    owed: bool,
}

impl<'a, S: Store> Notes<'a, S> {
    /// What was written down by an earlier agent of this node.
    pub(crate) fn open(node: &'a str, store: &'a S) -> Self {
        Self {
            node,
            store,
            memory: store.load(),
            owed: false,
        }
    }

    /// Whether the node has a certificate, good or not.
    pub(crate) fn is_certified(&self) -> bool {
        let identity = self.memory.identity.as_ref();
        identity.is_some_and(|identity| identity.certificate_pem.is_some())
    }

    /// Whether its certificate has ended, by our clock.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let identity = self.memory.identity.as_ref();
        identity.is_some_and(|identity| identity.is_over(now))
    }

    /// Forgets who it was under another name or in another cluster.
    pub(crate) fn forget_others(&mut self, server: &str) {
        let node = self.node;
        let ours = |identity: &Identity| identity.is_for(node, server);
        self.memory.identity = self.memory.identity.take().filter(ours);
        self.memory.next = self.memory.next.take().filter(ours);
    }

    /// The key for the next certificate, which is written down before anybody hears of it: a machine that is cut finds its request
    /// again. None as long as that cannot be.
    pub(crate) fn next_key(&mut self, server: &str) -> Result<Option<Identity>, Error> {
        let next = match self.memory.next.take() {
            Some(next) => next,
            None => Identity::generate(self.node, server)?,
        };
        self.memory.next = Some(next.clone());
        Ok(self.keep().then_some(next))
    }

    /// The certificate for that key is there, and takes the place of the one before. Should it not be written down before a restart,
    /// the one before and the key are, and what was granted is found again.
    pub(crate) fn succeed(&mut self, certificate: String) {
        if let Some(mut next) = self.memory.next.take() {
            next.certificate_pem = Some(certificate);
            self.memory.identity = Some(next);
            self.keep();
        }
    }

    /// Writes it down, or tells why that cannot be.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        let saved = self.store.save(&self.memory);
        self.owed = saved.is_err();
        saved
    }

    /// Writes it down, now or later. Whether it is.
    pub(crate) fn keep(&mut self) -> bool {
        let told = self.owed;
        match self.save() {
            Ok(()) => true,
            Err(error) => {
                if !told {
                    tracing::warn!(
                        node = self.node,
                        %error,
                        "what the node remembers could not be written down; it is tried again"
                    );
                }
                false
            }
        }
    }

    /// Writes down what could not be before.
    pub(crate) fn settle(&mut self) {
        if self.owed && self.keep() {
            tracing::info!(node = self.node, "what the node remembers is written down again");
        }
    }
}
