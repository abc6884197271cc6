//! Entries of the log.

use std::fmt;

use bytes::Bytes;
use sanderling_protocol::{Instant, MemberId};
use serde::{Deserialize, Serialize};

use super::group::GroupChange;

/// A place in the group's log: the entry with that number, written in that term. 0 and 0 is before
/// the first entry.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LogPlace {
    /// The term of the leader that proposed it; the leaders of a group have ascending terms.
    pub term: u64,
    /// Its number, from 1 on without gaps.
    pub index: u64,
}

/// The state that a member must remember to be counted once: the last term it has seen, its vote in
/// it, and how far the log is agreed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The last term it has seen.
    pub term: u64,
    /// The candidate that has its vote in that term.
    pub candidate: Option<MemberId>,
    /// The last entry that it has received as agreed. May be older than the truth.
    pub committed: u64,
}

/// The content of an entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// Nothing: a new leader's first entry.
    Empty,
    /// A round of the writer, or a piece of one that is too long for an entry.
    Round {
        /// The group's time when the leader made it. Never goes back from entry to entry.
        at: Instant,
        /// The encoded commands.
        commands: Bytes,
    },
    /// A change of the members, which begins when it is applied.
    Change(GroupChange),
    /// The end of a change of several voters: from here on the new voters alone decide.
    ChangeDone,
}

/// An entry of the group's log: what a leader proposed, at which place. One that is agreed never
/// changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Where it is.
    pub place: LogPlace,
    /// What it contains.
    pub payload: Payload,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of term {}", self.index, self.term)
    }
}
