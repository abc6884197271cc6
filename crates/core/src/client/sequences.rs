//! The sequences of a client's changes.

use std::collections::BTreeSet;

use sanderling_protocol::message::{Change, ClientId, Once};

/// The changes of one client, each under a sequence of its own.
///
/// A change keeps its sequence however often it is sent. Each request names the lowest sequence
/// that has not ended (`settled_below`); the namenode keeps the answers from there on, because only
/// those may be requested again. Sequences count from 1 and are never used twice.
#[derive(Debug)]
pub struct Sequences {
    client: ClientId,
    last: u64,
    /// Sequences of changes that have not ended.
    open: BTreeSet<u64>,
}

impl Sequences {
    /// Returns the sequences of a client that has made no change. The namenode gave its number in
    /// the answer to `OpenClient`.
    #[must_use]
    pub const fn new(client: ClientId) -> Self {
        Self { client, last: 0, open: BTreeSet::new() }
    }

    /// Returns the client's number and key.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Begins a change and returns its sequence. The caller must call [`Self::end`] whatever comes
    /// of the change: until then the namenode keeps the answers of all later changes too, at most
    /// 32,768 of them (`CatalogLimits::answers_per_client_max`).
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.open.insert(self.last);
        self.last
    }

    /// Returns the request of one attempt at a change that was begun.
    #[must_use]
    pub fn once(&self, sequence: u64, change: Change) -> Once {
        let settled_below = self.open.first().copied().unwrap_or(sequence);
        Once { client: self.client, sequence, settled_below, change }
    }

    /// Ends a change: it is never sent again. The next request of this client lets the namenode
    /// forget the answer.
    pub fn end(&mut self, sequence: u64) {
        self.open.remove(&sequence);
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{Nonce, Request};

    use super::*;

    #[test]
    fn oldest_change_that_has_not_ended_holds_back_what_is_settled() {
        let mut sequences = Sequences::new(ClientId { number: 1, key: Nonce(2) });
        let sent = |sequences: &Sequences, sequence| {
            let once = sequences.once(sequence, Change::new(Request::Jobs));
            (once.sequence, once.settled_below)
        };
        let (first, second) = (sequences.begin(), sequences.begin());
        assert_eq!((sent(&sequences, first), sent(&sequences, second)), ((1, 1), (2, 1)));
        sequences.end(first);
        let third = sequences.begin();
        assert_eq!(sent(&sequences, third), (3, 2));
        sequences.end(second);
        sequences.end(third);
        let fourth = sequences.begin();
        assert_eq!(sent(&sequences, fourth), (4, 4));
    }
}
