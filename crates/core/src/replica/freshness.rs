//! How recent is what a member has applied, by what leaders have sent to it.
//!
//! A member that does not lead answers a few requests by itself, also for owners of tokens. Which
//! tokens are revoked is in the catalog. So a member that no leader reaches would accept a token
//! for ever that has been revoked since.

use sanderling_protocol::{Instant, Millis};

/// When a member had last applied all that was agreed, as far as leaders have shown it.
#[derive(Debug, Clone)]
pub(super) struct Freshness {
    /// The last entry that is applied; 0 of a member that has just joined.
    applied: u64,
    /// The last entry that a leader has shown as agreed.
    agreed: u64,
    /// When the first and the last message came of those without a long pause between two.
    contact: Option<(Instant, Instant)>,
    /// When the first message of all came.
    began: Option<Instant>,
    /// The last entry that was agreed when a message came, and when that was, until it is applied.
    awaited: Option<(u64, Instant)>,
    /// `None` since the process started.
    at: Option<Instant>,
}

impl Freshness {
    /// Returns that of a member that starts with all up to an entry.
    pub(super) const fn at_start(applied: u64) -> Self {
        Self { applied, agreed: 0, contact: None, began: None, awaited: None, at: None }
    }

    /// Takes the last entry that a leader's message shows as agreed. `pause` is the time after
    /// which a member without a message looks for another leader.
    pub(super) fn receive(&mut self, now: Instant, agreed: u64, pause: Millis) {
        self.agreed = self.agreed.max(agreed);
        let goes_on = self.contact.filter(|(_, last)| now <= *last + pause);
        let first = goes_on.map_or(now, |(first, _)| first);
        self.contact = Some((first, now));
        self.began.get_or_insert(now);
        // A heartbeat shows no more than what the member has. Its answer brings what the member
        // lacks, so the first messages after a pause do not count. One that has joined lacks all.
        if self.applied > 0 && now >= first + pause {
            self.awaited.get_or_insert((self.agreed, now));
            self.settle();
        }
    }

    /// Notes that the message that was just received is of entries, which show all that was agreed
    /// when the leader `sent` them. They count also where writes take longer than a pause, so that
    /// each message comes after one. How long a message was under way is known only since the first
    /// ones.
    pub(super) fn receive_entries(&mut self, now: Instant, sent: Instant, pause: Millis) {
        if self.applied > 0 && self.began.is_some_and(|began| now >= began + pause) {
            self.awaited.get_or_insert((self.agreed, sent));
            self.settle();
        }
    }

    /// Notes that all up to an entry is applied.
    pub(super) fn applied(&mut self, index: u64) {
        self.applied = self.applied.max(index);
        self.settle();
    }

    /// Notes that this member leads and may answer reads by itself now.
    pub(super) fn lead(&mut self, now: Instant) {
        self.at = self.at.max(Some(now));
    }

    /// Returns when the member had last applied all that was agreed; `None` since it started.
    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }

    fn settle(&mut self) {
        if let Some((_, at)) = self.awaited.take_if(|(index, _)| *index <= self.applied) {
            self.at = self.at.max(Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Millis = Millis(380);

    fn at(millis: u64) -> Instant {
        Instant(millis * 1000)
    }

    /// Receives heartbeats without a pause, which show no more than an entry.
    fn beat(fresh: &mut Freshness, millis: std::ops::RangeInclusive<u64>, agreed: u64) {
        millis.step_by(60).for_each(|now| fresh.receive(at(now), agreed, PAUSE));
    }

    #[test]
    fn message_counts_from_when_it_came_once_what_it_shows_is_applied() {
        let mut fresh = Freshness::at_start(3);
        beat(&mut fresh, 0..=1200, 3);
        assert_eq!(fresh.at(), Some(at(1200)));
        fresh.receive(at(1210), 7, PAUSE);
        // Entries that come without a pause do not put off what counts.
        fresh.receive(at(1220), 8, PAUSE);
        fresh.applied(6);
        assert_eq!(fresh.at(), Some(at(1200)));
        fresh.applied(7);
        assert_eq!(fresh.at(), Some(at(1210)));
        // A heartbeat to one that lags shows no more than what that has.
        fresh.receive(at(1230), 7, PAUSE);
        assert_eq!(fresh.at(), Some(at(1210)));
        fresh.applied(8);
        assert_eq!(fresh.at(), Some(at(1230)));
    }

    #[test]
    fn first_messages_after_a_pause_do_not_count() {
        let mut fresh = Freshness::at_start(3);
        beat(&mut fresh, 0..=360, 3);
        assert_eq!(fresh.at(), None);
        beat(&mut fresh, 420..=420, 3);
        assert_eq!(fresh.at(), Some(at(420)));
        // It was cut off, and others have agreed on more meanwhile.
        fresh.receive(at(9000), 3, PAUSE);
        fresh.receive(at(9010), 9, PAUSE);
        beat(&mut fresh, 9060..=12_000, 3);
        assert_eq!(fresh.at(), Some(at(420)));
        fresh.applied(9);
        assert!(fresh.at() >= Some(at(9380)), "{fresh:?}");
    }

    #[test]
    fn entries_count_from_when_they_were_sent_also_after_a_pause() {
        let mut fresh = Freshness::at_start(3);
        let mut append = |now, sent, agreed| {
            fresh.receive(at(now), agreed, PAUSE);
            fresh.receive_entries(at(now), at(sent), PAUSE);
            fresh.applied(agreed);
            fresh.at()
        };
        assert_eq!(append(500, 500, 3), None, "how long it was under way is not known");
        assert_eq!(append(1000, 1000, 4), Some(at(1000)));
        assert_eq!(append(1500, 1480, 5), Some(at(1480)));
        // It was cut off, and others have agreed on more meanwhile.
        assert_eq!(append(9000, 1500, 5), Some(at(1500)));
    }

    #[test]
    fn member_that_has_joined_is_as_recent_as_its_first_snapshot() {
        let mut fresh = Freshness::at_start(0);
        beat(&mut fresh, 0..=1200, 0);
        fresh.receive(at(1210), 7, PAUSE);
        fresh.applied(5);
        assert_eq!(fresh.at(), None);
        fresh.receive(at(1220), 5, PAUSE);
        assert_eq!(fresh.at(), None, "it lacks entries that were agreed before");
        fresh.applied(7);
        assert_eq!(fresh.at(), Some(at(1220)));
    }

    #[test]
    fn leader_is_as_recent_as_its_lease() {
        let mut fresh = Freshness::at_start(3);
        fresh.lead(at(10));
        fresh.lead(at(20));
        assert_eq!(fresh.at(), Some(at(20)));
    }
}
