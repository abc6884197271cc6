//! Messages between members.
//!
//! They are encoded with postcard behind a byte with the version of the format; nothing here is
//! parsed with protobuf, which the library brings. An envelope is checked by `guard` before
//! anything of it reaches the library.

use bytes::Bytes;
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::{ClusterId, Instant, MemberId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::entry::{LogEntry, LogPlace};
use super::group::Group;

/// Longest message: what a frame carries.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX as usize;

/// Longest round: it goes through the group in one message, with what is around it. A longer one is
/// refused before it is in any log, since it could never be agreed.
pub const ROUND_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (32 << 10);

/// Bytes of entries in one message, if one entry is not longer. At 100 Mbit/s it takes 80 ms, so
/// that heartbeats behind it come before the 400 ms after which a follower looks for another
/// leader.
pub(super) const APPEND_BYTES_MAX: u64 = 1 << 20;

/// The format of [`Envelope::encode`].
const VERSION: u8 = 1;

/// A message with the sender, the receiver, and what holds for all kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The cluster.
    pub cluster: ClusterId,
    /// How often the group was begun anew.
    pub generation: u64,
    /// The sender.
    pub from: MemberId,
    /// Which start of the sender.
    pub incarnation: u64,
    /// The receiver.
    pub to: MemberId,
    /// The sender's term; of a request for a vote, the term that it is for.
    pub term: u64,
    /// Counts what a leader sends in its term; an answer has the last number that was received.
    pub round: u64,
    /// How many transfers of the leadership the leader has begun and given up in its term.
    pub transfers_ended: u64,
    /// The group's time at the sender, unless it has only that of its log.
    pub time: Option<Instant>,
    /// What is sent.
    pub body: Body,
}

/// The content of a message from one member of a group to another, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The leader's entries behind `before`.
    Append {
        /// The entry before the first of these.
        before: LogPlace,
        /// The last entry that is agreed.
        committed: u64,
        /// In order, without gaps.
        entries: Vec<LogEntry>,
    },
    /// The log agrees with the leader's up to `last`.
    Appended {
        /// The last entry that agrees.
        last: u64,
        /// The last entry that the sender has as agreed.
        committed: u64,
    },
    /// The log does not have the entry before.
    AppendRejected {
        /// The number of the entry before.
        before: u64,
        /// Where the logs may agree.
        hint: LogPlace,
        /// The last entry that the sender has as agreed.
        committed: u64,
    },
    /// The leader is there.
    Heartbeat {
        /// The last entry that is agreed and that the receiver has.
        committed: u64,
    },
    /// The answer to a heartbeat.
    HeartbeatAnswer {
        /// The last entry that the sender has as agreed.
        committed: u64,
    },
    /// A request for a vote.
    VoteRequest {
        /// Whether it only finds out if the vote would be given.
        is_pre: bool,
        /// The last entry of the candidate's log.
        last: LogPlace,
        /// The last entry that the candidate has as agreed.
        committed: LogPlace,
        /// The leader's transfer that began the election.
        transfer: Option<u64>,
    },
    /// The answer to a request for a vote.
    VoteAnswer {
        /// Whether it is about a vote that would be given.
        is_pre: bool,
        /// Whether the vote is given.
        is_granted: bool,
        /// The last entry that the sender has as agreed.
        committed: LogPlace,
    },
    /// The receiver lags more than the leader's log reaches back. The snapshot's file goes before.
    Snapshot {
        /// The last entry in it.
        place: LogPlace,
        /// The members as of that entry.
        group: Group,
    },
    /// The receiver is to lead: the leader transfers the leadership.
    Lead {
        /// Counts the transfers that the leader has begun in its term.
        transfer: u64,
    },
    /// The receiver was removed from the group.
    Removed {
        /// The number of the next member: above the receiver's.
        next: MemberId,
    },
}

/// An error of bytes that are not a message. The sender is broken or of another version: drop the
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Another version of the format.
    #[error("a message between members has the format {found}, this member reads {VERSION}")]
    Version {
        /// The version.
        found: u8,
    },
    /// Nothing that this version writes.
    #[error("a message between members cannot be decoded: {0}")]
    Malformed(#[from] MessageFault),
    /// Longer than any message.
    #[error("a message between members has {bytes} bytes, at most {MESSAGE_BYTES_MAX} are read")]
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
}

/// A reason why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageFault {
    /// There are none.
    #[error("it is empty")]
    Empty,
    /// The message ends before its bytes do.
    #[error("{bytes} bytes too many")]
    Trailing {
        /// Bytes behind the message.
        bytes: usize,
    },
    /// They are those of another type.
    #[error("{0}")]
    Undecodable(#[source] postcard::Error),
}

impl Envelope {
    /// Returns the bytes of the message.
    ///
    /// # Panics
    /// Never: every envelope can be encoded.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let bytes = vec![VERSION];
        let bytes = postcard::to_extend(self, bytes).expect("an envelope can be encoded");
        bytes.into()
    }

    /// Returns the message of these bytes.
    ///
    /// # Errors
    /// [`MessageError`]: the sender is broken or of another version; drop the connection.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { bytes: bytes.len() });
        }
        match bytes.split_first() {
            None => Err(MessageFault::Empty.into()),
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((envelope, [])) => Ok(envelope),
                Ok((_, more)) => Err(MessageFault::Trailing { bytes: more.len() }.into()),
                Err(error) => Err(MessageFault::Undecodable(error).into()),
            },
            Some((found, _)) => Err(MessageError::Version { found: *found }),
        }
    }
}

impl Body {
    /// Returns the last entry that a leader's message shows as agreed; 0 if it shows none.
    pub(super) const fn agreed(&self) -> u64 {
        match self {
            Self::Append { committed, .. } | Self::Heartbeat { committed } => *committed,
            Self::Snapshot { place, .. } => place.index,
            _ => 0,
        }
    }

    /// Returns whether only the leader of a term sends it.
    pub(super) const fn is_of_leader(&self) -> bool {
        matches!(
            self,
            Self::Append { .. }
                | Self::Heartbeat { .. }
                | Self::Snapshot { .. }
                | Self::Lead { .. }
        )
    }
}
