//! The commands of a round as data of the group's log.

use std::ops::Range;

use sanderling_core::catalog::Command;
use sanderling_core::replica::{
    LogEntry, Payload, ROUND_BYTES_MAX, RoundOrderError, applied_commands,
};
use sanderling_protocol::limits::REQUEST_BYTES_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::journal::{AppendError, JournalFailure};

/// Bytes of commands in one entry, if one command is not longer. Each entry has to fit into a frame
/// with its message: a command is at most as long as the longest request, with the places that it
/// was given.
const BYTES_MAX: usize = 4 << 20;

const _: () = assert!(REQUEST_BYTES_MAX + BYTES_MAX <= ROUND_BYTES_MAX);

/// Commands that were logged together.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Number of the first command: how many were applied when the round was made.
    pub(crate) first: u64,
    pub(crate) commands: Vec<Command>,
}

/// A reason why a round of the group's log cannot be applied. The member ends: an operator sets its
/// directory aside, and it joins the group again with an empty one.
#[derive(Debug, Clone, Error)]
pub enum RoundError {
    /// The bytes are those of no round: the log is damaged, or a later program wrote it.
    #[error("it is no round: {0}")]
    Undecodable(#[from] postcard::Error),
    /// More bytes follow than a round has.
    #[error("{bytes} bytes follow a round")]
    Trailing {
        /// Bytes behind the round.
        bytes: usize,
    },
    /// It does not follow what the catalog has.
    #[error("{0}")]
    Order(#[from] RoundOrderError),
    /// The journal does not take what is agreed.
    #[error("{0}")]
    Journal(#[from] AppendError),
}

impl From<JournalFailure> for RoundError {
    fn from(failure: JournalFailure) -> Self {
        Self::Journal(failure.into())
    }
}

impl Round {
    /// Returns the commands that a catalog of `index` commands does not have yet. `restored` of
    /// those are from before the start, or from a snapshot.
    ///
    /// # Errors
    /// [`RoundError::Order`] if the round does not follow what the catalog has.
    pub(crate) fn after(&self, index: u64, restored: u64) -> Result<&[Command], RoundError> {
        let applied = applied_commands(self.first, index, restored)?;
        let applied = usize::try_from(applied).unwrap_or(usize::MAX);
        Ok(self.commands.get(applied..).unwrap_or_default())
    }
}

/// Encodes a round, in as many pieces as it needs.
pub(crate) fn encode<'a>(
    mut first: u64,
    commands: impl Iterator<Item = &'a Command>,
) -> Vec<Vec<u8>> {
    let (mut pieces, mut body, mut count) = (Vec::new(), Vec::new(), 0u64);
    for command in commands {
        let before = body.len();
        body = sanderling_protocol::frame::encode_onto(command, body);
        if body.len() > BYTES_MAX && count > 0 {
            pieces.push(piece(first, count, &body[..before]));
            (first, count) = (first + count, 0);
            body.drain(..before);
        }
        count += 1;
    }
    if count > 0 || pieces.is_empty() {
        pieces.push(piece(first, count, &body));
    }
    pieces
}

/// A list in postcard is its length and its items.
fn piece(first: u64, count: u64, body: &[u8]) -> Vec<u8> {
    let head = sanderling_protocol::frame::encode_body(&(first, count));
    [head.as_slice(), body].concat()
}

/// Returns whether an entry is a piece of a round, and a catalog of `index` commands has all that
/// were before it.
pub(crate) fn is_known(entry: &LogEntry, index: u64) -> bool {
    let Payload::Round { commands, .. } = &entry.payload else { return false };
    postcard::take_from_bytes::<u64>(commands).is_ok_and(|(first, _)| first <= index)
}

/// Returns the number of the last entry whose commands are among those of the journal, `own`: it
/// takes only what is agreed. 0 if there is none.
pub(crate) fn last_applied(entries: &[LogEntry], own: &Range<u64>) -> u64 {
    let is_applied = |it: Range<u64>| it.start >= own.start && it.end <= own.end && !it.is_empty();
    let applied = entries.iter().filter(|entry| numbers(entry).is_some_and(is_applied));
    applied.map(|entry| entry.place.index).max().unwrap_or(0)
}

/// Returns whether the journal, with the commands `own`, has some that no entry has, although
/// entries have what was before: the end of the log is lost.
pub(crate) fn is_behind<'a>(
    entries: impl IntoIterator<Item = &'a LogEntry>,
    own: &Range<u64>,
) -> bool {
    let end = entries.into_iter().filter_map(numbers).map(|it| it.end).max();
    end.is_some_and(|end| own.contains(&end))
}

/// Returns whether an entry has commands.
pub(crate) const fn is_round(entry: &LogEntry) -> bool {
    matches!(entry.payload, Payload::Round { .. })
}

/// Returns the numbers of an entry's commands; `None` if it is no round.
fn numbers(entry: &LogEntry) -> Option<Range<u64>> {
    let Payload::Round { commands, .. } = &entry.payload else { return None };
    let ((first, count), _) = postcard::take_from_bytes::<(u64, u64)>(commands).ok()?;
    Some(first..first.checked_add(count)?)
}

/// Decodes a piece of a round.
///
/// # Errors
/// [`RoundError::Undecodable`] and [`RoundError::Trailing`]: the bytes are not what a member wrote.
pub(crate) fn decode(bytes: &[u8]) -> Result<Round, RoundError> {
    match postcard::take_from_bytes::<Round>(bytes)? {
        (round, []) => Ok(round),
        (_, rest) => Err(RoundError::Trailing { bytes: rest.len() }),
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::catalog::Action;
    use sanderling_core::replica::LogPlace;
    use sanderling_protocol::{Instant, Millis};

    use super::*;

    fn entry(index: u64, first: u64, count: usize) -> LogEntry {
        let command = Command { at: Instant(1), action: Action::Tick };
        let commands = vec![command; count];
        let bytes = encode(first, commands.iter()).remove(0);
        let payload = Payload::Round { at: Instant(1), commands: bytes.into() };
        LogEntry { place: LogPlace { term: 1, index }, payload }
    }

    #[test]
    fn journal_shows_what_of_the_log_was_agreed_and_that_its_end_is_lost() {
        let entries = [entry(5, 10, 2), entry(6, 12, 3)];
        assert_eq!(last_applied(&entries, &(0..9)), 0);
        assert_eq!(last_applied(&entries, &(0..12)), 5);
        assert_eq!(last_applied(&entries, &(0..15)), 6);
        // The commands of a snapshot may be those of another leader's entries.
        assert_eq!(last_applied(&entries, &(15..15)), 0);
        assert_eq!(last_applied(&entries, &(20..22)), 0);
        assert!(!is_behind(&entries, &(0..15)) && is_behind(&entries, &(0..16)));
        assert!(!is_behind(&entries, &(20..22)), "a snapshot came before the log followed it");
        assert!(!is_behind(&entries[..0], &(0..16)));
        // Of a log that ends at the place from which the member goes on, what is before it counts.
        let (kept, none) = (&entries[..1], &entries[..0]);
        assert!(is_behind(kept.iter().chain(none), &(0..15)));
        assert!(!is_behind(kept.iter().chain(none), &(0..12)));
        let place = LogPlace { term: 1, index: 7 };
        let change = LogEntry { place, payload: Payload::ChangeDone };
        assert!(is_round(&entries[0]) && !is_round(&change));
    }

    #[test]
    fn round_is_read_back_and_goes_on_where_its_last_piece_ended() {
        let at = |millis| Command { at: Instant(millis), action: Action::Tick };
        let commands = vec![at(1), at(2), at(300_000)];
        let pieces = encode(7, commands.iter());
        assert_eq!(pieces.len(), 1);
        assert_eq!(decode(&pieces[0]).unwrap(), Round { first: 7, commands });
        let long = |bytes| {
            let action =
                Action::NodeDead { node: sanderling_protocol::NodeId(1), why: "x".repeat(bytes) };
            Command { at: Instant(1) + Millis(1), action }
        };
        let commands: Vec<Command> = (0..5).map(|_| long(BYTES_MAX / 2 - 100)).collect();
        let pieces = encode(7, commands.iter());
        let rounds: Vec<Round> = pieces.iter().map(|it| decode(it).unwrap()).collect();
        let firsts: Vec<u64> = rounds.iter().map(|round| round.first).collect();
        assert_eq!(firsts, [7, 9, 11]);
        let all: Vec<Command> = rounds.into_iter().flat_map(|round| round.commands).collect();
        assert_eq!(all, commands);
        // One that is longer than a piece has a piece of its own.
        let commands = [at(1), long(REQUEST_BYTES_MAX), at(2), at(3)];
        let pieces = encode(7, commands.iter());
        let rounds: Vec<Round> = pieces.iter().map(|it| decode(it).unwrap()).collect();
        let firsts: Vec<u64> = rounds.iter().map(|round| round.first).collect();
        assert_eq!(firsts, [7, 8, 9]);
        assert!(pieces.iter().all(|piece| piece.len() < REQUEST_BYTES_MAX + 100));
        let empty = encode(7, [].iter());
        assert_eq!(decode(&empty[0]).unwrap(), Round { first: 7, commands: vec![] });
        let cut = decode(&empty[0][..1]);
        assert!(matches!(cut, Err(RoundError::Undecodable(_))), "{cut:?}");
        let longer = decode(&[&empty[0][..], &[0]].concat());
        assert!(matches!(longer, Err(RoundError::Trailing { bytes: 1 })), "{longer:?}");
    }

    #[test]
    fn catalog_gets_what_it_lacks_of_a_round_and_a_gap_is_an_error() {
        let at = |millis| Command { at: Instant(millis), action: Action::Tick };
        let round = Round { first: 7, commands: vec![at(1), at(2)] };
        for (index, wanted) in [(7, &round.commands[..]), (8, &round.commands[1..]), (9, &[])] {
            assert_eq!(round.after(index, index).unwrap(), wanted, "{index}");
        }
        assert!(round.after(u64::MAX, u64::MAX).unwrap().is_empty());
        assert_eq!(round.after(7, 3).unwrap(), round.commands);
        let repeated = round.after(8, 7);
        assert!(matches!(repeated, Err(RoundError::Order(RoundOrderError::Repeated { .. }))));
        let gap = round.after(6, 6);
        assert!(matches!(gap, Err(RoundError::Order(RoundOrderError::Gap { .. }))), "{gap:?}");
    }
}
