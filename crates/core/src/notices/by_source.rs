//! The notices that the sources of one machine show, of which the earliest counts. Namenodes and
//! runners of tasks keep theirs here. What a datanode remembers of its own ([`super::Notices`])
//! also contains what the namenode has of each, which may lose it.

use std::collections::BTreeMap;

use sanderling_protocol::Instant;

use super::Notice;

/// The notices that the sources of one machine show: at most one of each.
#[derive(Debug, Clone, Default)]
pub struct NoticesBySource {
    /// How many were taken, withdrawn or not: the number of the last one.
    taken: u64,
    /// Those that are shown, by their numbers.
    shown: BTreeMap<u64, Notice>,
}

impl NoticesBySource {
    /// Takes a notice that is posted or ordered. Its caller does not show it again, so a second one
    /// of the source can only bring the deadline nearer, until [`Self::withdraw`] takes it back.
    /// Returns whether the source showed none before.
    pub fn give(&mut self, notice: Notice) -> bool {
        let before = self.shown.values().find(|shown| shown.source == notice.source);
        if before.is_some_and(|before| before.deadline <= notice.deadline) {
            return false;
        }
        self.show(notice)
    }

    /// Takes the notice that a polled source shows: all that it shows at the moment, so it takes
    /// the place of the one before. Returns whether the source showed none before.
    pub fn show(&mut self, notice: Notice) -> bool {
        let is_first = !self.withdraw(&notice.source);
        self.taken += 1;
        self.shown.insert(self.taken, notice);
        is_first
    }

    /// Takes that a source shows no notice any more. Returns whether it showed one.
    pub fn withdraw(&mut self, source: &str) -> bool {
        let before = self.shown.len();
        self.shown.retain(|_, shown| shown.source != source);
        self.shown.len() < before
    }

    /// Returns the deadline that counts: the earliest of all sources.
    #[must_use]
    pub fn earliest(&self) -> Option<Instant> {
        self.shown.values().map(|shown| shown.deadline).min()
    }

    /// Returns the first of the notices that are shown which was taken after the one of a number,
    /// with its own; 0 is before the first.
    #[must_use]
    pub fn after(&self, number: u64) -> Option<(u64, &Notice)> {
        let (number, notice) = self.shown.range(number.saturating_add(1)..).next()?;
        Some((*number, notice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(source: &str, seconds: u64) -> Notice {
        let (source, reason) = (source.to_owned(), format!("in {seconds} s"));
        Notice { source, deadline: at(seconds), reason }
    }

    const fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000)
    }

    #[test]
    fn second_notice_that_is_posted_can_only_bring_the_deadline_nearer() {
        let mut notices = NoticesBySource::default();
        assert!(notices.give(notice("webhook", 60)));
        for (seconds, earliest) in [(90, 60), (60, 60), (30, 30), (60, 30)] {
            assert!(!notices.give(notice("webhook", seconds)), "it is not the first");
            assert_eq!(notices.earliest(), Some(at(earliest)), "{seconds}");
        }
        assert!(notices.withdraw("webhook"));
        assert!(notices.give(notice("webhook", 90)), "the one before was taken back");
        assert_eq!(notices.earliest(), Some(at(90)));
    }

    #[test]
    fn notice_that_a_source_shows_takes_the_place_of_the_one_before() {
        let mut notices = NoticesBySource::default();
        assert!(notices.show(notice("file", 60)));
        assert!(!notices.show(notice("file", 90)));
        assert_eq!(notices.earliest(), Some(at(90)));
        assert!(!notices.show(notice("file", 30)));
        assert_eq!(notices.earliest(), Some(at(30)));
    }

    #[test]
    fn earliest_of_all_sources_counts_until_it_is_taken_back() {
        let mut notices = NoticesBySource::default();
        assert_eq!(notices.earliest(), None);
        notices.show(notice("aws", 90));
        notices.give(notice("operator", 60));
        assert_eq!(notices.earliest(), Some(at(60)));
        assert!(notices.withdraw("operator"));
        assert!(!notices.withdraw("operator"), "it shows none");
        assert_eq!(notices.earliest(), Some(at(90)));
    }

    #[test]
    fn notices_are_taken_in_their_order_without_those_that_are_not_shown() {
        let mut notices = NoticesBySource::default();
        assert_eq!(notices.after(0), None);
        notices.show(notice("a", 90));
        notices.show(notice("b", 60));
        assert_eq!(notices.after(0), Some((1, &notice("a", 90))));
        assert_eq!(notices.after(1), Some((2, &notice("b", 60))));
        assert_eq!(notices.after(2), None);
        notices.withdraw("a");
        notices.show(notice("b", 30));
        assert_eq!(notices.after(0), Some((3, &notice("b", 30))));
        notices.give(notice("b", 30));
        assert_eq!(notices.after(3), None, "the same one is not taken again");
    }
}
