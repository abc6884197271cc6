//! What a datanode sends the namenode about a notice, and what comes of it.

use sanderling_protocol::{Instant, Policy};

/// A notice or recommendation to send to the namenode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeReport {
    /// Of a notice; `None` for a recommendation.
    pub deadline: Option<Instant>,
    /// Why.
    pub reason: String,
    /// When the namenode had it last; `None` if it never did.
    pub known_at: Option<Instant>,
    /// Of the process's statements about its sources: the namenode takes none after a later one. 0
    /// for what the namenode had, and for a recommendation.
    pub number: u64,
}

/// The namenode's answer to a [`NoticeReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeReply {
    /// How the node stands now, with the deadline of its notice.
    Stands {
        /// What is wanted of it.
        policy: Policy,
        /// The deadline.
        deadline: Option<Instant>,
        /// Whether it counts as recommended to leave.
        is_at_risk: bool,
    },
    /// It will never be taken.
    Refused,
    /// The namenode did not answer.
    Unanswered,
}
