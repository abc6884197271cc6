//! Changes that were refused without a record in the log.
//!
//! A client that received the refusal of its change must not find it made later, by a copy of the
//! request that is still on its way. Such a copy is on a connection to this process, so this
//! process remembers what it refused; the next one has other connections. A client that received
//! no answer sends the change again, and the next process decides on it anew. A copy may also be on
//! a connection to another member of a group: there the log has every refusal, and nothing is
//! remembered here.

use std::collections::BTreeMap;

use sanderling_protocol::Refusal;

use crate::catalog::{CLIENTS_MAX, Catalog, ChangeKey};

/// Most refusals that are remembered of one client. What is beyond goes into the log. As many
/// requests as the client's library lets wait for one connection.
const CLIENT_MAX: usize = 4096;

/// And of all: sixteen clients with the most. It bounds the memory of their texts
/// ([`TEXT_BYTES_MAX`]).
const ALL_MAX: usize = 65_536;

/// Longest refusal that is remembered, in bytes of its text: 64 MiB of all together.
const TEXT_BYTES_MAX: usize = 1024;

/// Refusals between two looks at a full table: it is then looked at once for as many as it has
/// clients.
const REFUSALS_PER_SEARCH: usize = CLIENTS_MAX;

/// What was refused, by client: of at most [`CLIENTS_MAX`], as many as the log has.
#[derive(Debug, Default)]
pub(super) struct RefusalCache {
    clients: BTreeMap<u64, Client>,
    count: usize,
    /// Refusals until a full table is looked at for what can be forgotten.
    until_look: usize,
}

#[derive(Debug, Default)]
struct Client {
    /// Changes below are not sent again. The log may not know, as nothing of it was logged.
    settled_below: u64,
    /// By sequence, with what distinguishes the request from others.
    refusals: BTreeMap<u64, (u64, Refusal)>,
}

impl RefusalCache {
    /// Returns what a change was answered before. Notes what its client has settled.
    pub(super) fn find(&mut self, sent: &ChangeKey) -> Option<Refusal> {
        let ChangeKey { client, sequence, settled_below, fingerprint } = *sent;
        let known = self.clients.get_mut(&client.number)?;
        known.settled_below = known.settled_below.max(settled_below);
        let kept = known.refusals.split_off(&known.settled_below);
        self.count -= known.refusals.len();
        known.refusals = kept;
        match known.refusals.get(&sequence) {
            Some((found, refusal)) if *found == fingerprint => Some(refusal.clone()),
            Some(_) => {
                let why = format!("change {sequence} was another one before");
                Some(Refusal::BadRequest { why })
            }
            None if sequence < known.settled_below => {
                Some(Refusal::OutcomeUnknown { client: client.number, sequence })
            }
            None => None,
        }
    }

    /// Remembers a refusal; returns whether there was room for it.
    pub(super) fn keep(&mut self, catalog: &Catalog, sent: &ChangeKey, refusal: &Refusal) -> bool {
        if self.count >= ALL_MAX || self.clients.len() >= CLIENTS_MAX {
            // To look at all of them each time would cost more than a record in the log.
            self.until_look = self.until_look.saturating_sub(1);
            if self.until_look == 0 {
                self.forget(catalog);
                self.until_look = REFUSALS_PER_SEARCH;
            }
        }
        let number = sent.client.number;
        let is_full = self.count >= ALL_MAX
            || (self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&number))
            || refusal.to_string().len() > TEXT_BYTES_MAX;
        if is_full {
            return false;
        }
        let client = self.clients.entry(number).or_default();
        if client.refusals.len() >= CLIENT_MAX {
            return false;
        }
        client.settled_below = client.settled_below.max(sent.settled_below);
        let refusal = (sent.fingerprint, refusal.clone());
        self.count += usize::from(client.refusals.insert(sent.sequence, refusal).is_none());
        true
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Forgets clients that the log has forgotten: every copy of a change of theirs is refused.
    fn forget(&mut self, catalog: &Catalog) {
        self.clients.retain(|number, _| catalog.has_client(*number));
        self.count = self.clients.values().map(|client| client.refusals.len()).sum();
    }
}
