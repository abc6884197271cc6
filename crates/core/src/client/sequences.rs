//! The sequences of a client's changes.

use std::collections::VecDeque;

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
    /// Sequences of changes that have not ended, in their order: few, and they mostly end in it.
    open: VecDeque<u64>,
}

impl Sequences {
    /// Returns the sequences of a client that has made no change. The namenode gave its number in
    /// the answer to `OpenClient`.
    #[must_use]
    pub const fn new(client: ClientId) -> Self {
        Self { client, last: 0, open: VecDeque::new() }
    }

    /// Returns the number that the namenode gave the client, and the client's key.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Begins a change and returns it as it is sent, in every attempt. The caller must call
    /// [`Self::end`] whatever comes of the change: until then the namenode keeps the answers of all
    /// later changes too, at most 32,768 of them (`CatalogLimits::answers_per_client_max`).
    #[must_use]
    pub fn begin(&mut self, change: Change) -> Once {
        self.last += 1;
        let sequence = self.last;
        self.open.push_back(sequence);
        let settled_below = self.open.front().copied().unwrap_or(sequence);
        Once { client: self.client, sequence, settled_below, change }
    }

    /// Ends a change: it is never sent again. The next request of this client lets the namenode
    /// forget the answer.
    pub fn end(&mut self, sequence: u64) {
        if let Ok(place) = self.open.binary_search(&sequence) {
            self.open.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{Nonce, Request};

    use super::*;

    #[test]
    fn oldest_change_that_has_not_ended_holds_back_what_is_settled() {
        let mut sequences = Sequences::new(ClientId { number: 1, key: Nonce(2) });
        let begin = |sequences: &mut Sequences| {
            let once = sequences.begin(Change::new(Request::Jobs));
            (once.sequence, once.settled_below)
        };
        assert_eq!((begin(&mut sequences), begin(&mut sequences)), ((1, 1), (2, 1)));
        sequences.end(1);
        assert_eq!(begin(&mut sequences), (3, 2));
        sequences.end(2);
        sequences.end(3);
        assert_eq!(begin(&mut sequences), (4, 4));
    }
}
