//! The budget of list entries that the answers of one frame share.

use sanderling_protocol::message::Entry;
use sanderling_protocol::{Refusal, Reply};

use crate::catalog::attributes_memory;

/// Most entries of all lists in the answers of one frame, so that they fit into one: at a hundred
/// bytes an entry, and few have more, that is 13 MB of the 16 MiB that a frame's body may have
/// (`FRAME_BODY_BYTES_MAX`). A frame of 512 full listings would have two million entries.
const ENTRIES_MAX: usize = 1 << 17;

/// Bytes of attributes that count as one more entry. The bytes of an entry without any, as
/// [`ENTRIES_MAX`] counts them.
const ENTRY_BYTES: usize = 100;

/// Counts the list entries in the answers of one frame. Answers without a list count as one.
#[derive(Debug, Default)]
pub struct ReplyBudget(usize);

impl ReplyBudget {
    /// Returns how many entries were counted.
    pub(super) const fn entries(&self) -> usize {
        self.0
    }

    /// Counts an answer and returns it, or a refusal if the answers of the frame, with this one,
    /// have more than 131,072 entries. The first answer and answers of one entry always pass.
    ///
    /// # Errors
    /// The answer's own refusal, or [`Refusal::TooLarge`]: send the request again in a frame of its
    /// own, or request fewer entries at once.
    pub fn admit(&mut self, answer: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
        let entries = entries(&answer);
        let is_first = self.0 == 0;
        self.0 = self.0.saturating_add(entries);
        if self.0 <= ENTRIES_MAX || is_first || entries <= 1 {
            return answer;
        }
        Err(Refusal::TooLarge {
            what: "the frame's answers together, in entries: request less at once".to_owned(),
            value: self.0 as u64,
            limit: ENTRIES_MAX as u64,
        })
    }
}

/// Returns how many entries the lists of an answer have; 1 for one without a list.
pub(super) fn entries(answer: &Result<Reply, Refusal>) -> usize {
    match answer {
        Ok(Reply::Entries { entries, .. }) => {
            let memory = |entry: &Entry| attributes_memory(&entry.attributes) as usize;
            let bytes: usize = entries.iter().map(memory).sum();
            entries.len() + bytes / ENTRY_BYTES
        }
        Ok(Reply::Found(lookups)) => lookups.found.len() + lookups.blocks.len(),
        Ok(Reply::Layout(layout)) => layout.blocks.len() + layout.places.len(),
        Ok(Reply::Candidates { candidates, .. }) => candidates.len(),
        Ok(Reply::Nodes(nodes) | Reply::Drains { nodes, .. }) => nodes.len(),
        Ok(Reply::Jobs(jobs)) => jobs.len(),
        Ok(Reply::Events(events)) => events.len(),
        Ok(Reply::Drop { blocks }) => blocks.len(),
        Ok(Reply::Report(report)) => report.losses.len(),
        Ok(Reply::Fsck(report)) => report.lost_objects.len() + report.problems.len(),
        Err(Refusal::DataUnavailable { ranges, .. }) => ranges.len(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::BlockId;
    use sanderling_protocol::message::{Found, Lookups};

    use super::*;

    #[test]
    fn blocks_and_places_of_a_look_up_weigh_both() {
        let layout = crate::read::tests::layout(&[(10, Some(1)), (10, Some(2)), (10, None)]);
        assert_eq!(entries(&Ok(Reply::Layout(layout))), 3);
        let lookups = Lookups { found: vec![Found::nothing(); 2], ..Lookups::default() };
        assert_eq!(entries(&Ok(Reply::Found(lookups))), 2);
    }

    #[test]
    fn list_weighs_its_entries_and_any_other_answer_one() {
        let (nodes, drains) = (Vec::new(), Vec::new());
        for empty in [
            Reply::Entries { entries: Vec::new(), is_more: false },
            Reply::Candidates { candidates: Vec::new(), is_more: false },
            Reply::Nodes(Vec::new()),
            Reply::Drains { nodes, drains },
            Reply::Jobs(Vec::new()),
            Reply::Events(Vec::new()),
            Reply::Drop { blocks: Vec::new() },
        ] {
            assert_eq!(entries(&Ok(empty.clone())), 0, "{empty:?}");
        }
        assert_eq!(entries(&Ok(Reply::Drop { blocks: vec![BlockId(1); 3] })), 3);
        assert_eq!(entries(&Ok(Reply::Done)), 1);
    }

    #[test]
    fn long_answers_are_refused_after_long_answers_and_short_ones_pass() {
        let long = || Ok(Reply::Drop { blocks: vec![BlockId(1); ENTRIES_MAX] });
        let mut budget = ReplyBudget::default();
        assert!(budget.admit(long()).is_ok());
        assert!(matches!(budget.admit(long()), Err(Refusal::TooLarge { .. })));
        assert_eq!(budget.admit(Ok(Reply::Done)), Ok(Reply::Done));
    }
}
