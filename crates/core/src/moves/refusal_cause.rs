//! Whose fault a refused move is.

use sanderling_protocol::Refusal;

use super::batch::Step;

/// The cause of a move that was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The block: it is not what its owner thinks it is.
    Block,
    /// The target's tier: writers took its room since the view.
    Tier,
    /// The target's tier refuses what the namenode has reserved there: its disk is full of other
    /// files, or fails. The node's other tiers may take blocks.
    TierError,
    /// The target: it cannot take blocks for now, or nothing reaches it as it was sent.
    Target,
    /// No known cause: the target may be tried again at once.
    Unknown,
}

impl Blame {
    /// Judges the refusal of one move at a step.
    pub(super) const fn of(step: Step, refusal: &Refusal) -> Self {
        match refusal {
            Refusal::MoveVoid { .. }
            | Refusal::UnknownBlock { .. }
            | Refusal::StaleEpoch { .. }
            | Refusal::ObjectGone { .. }
            | Refusal::Moved { .. }
            | Refusal::BlockDamaged { .. } => Self::Block,
            Refusal::NodeFull { .. } if matches!(step, Step::Reserve) => Self::Tier,
            Refusal::NodeFull { .. } | Refusal::TierFailed { .. } if matches!(step, Step::Push) => {
                Self::TierError
            }
            Refusal::NodeFull { .. }
            | Refusal::WrongNode { .. }
            | Refusal::NodeGone { .. }
            | Refusal::UnknownNode { .. }
            | Refusal::WrongState { .. }
            | Refusal::TierFailed { .. }
            | Refusal::RetryAfter { .. }
            | Refusal::ChecksumMismatch { .. }
            | Refusal::UnknownVersion { .. }
            | Refusal::WrongCluster { .. }
            | Refusal::Unauthenticated { .. }
            | Refusal::Forbidden { .. } => Self::Target,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, NodeId};

    use super::*;

    #[test]
    fn only_refusals_about_the_target_blame_it() {
        let full = Refusal::NodeFull { tier: "dram".to_owned(), bytes: 1 };
        assert_eq!(Blame::of(Step::Reserve, &full), Blame::Tier);
        assert_eq!(Blame::of(Step::Push, &full), Blame::TierError);
        let gone = Refusal::NodeGone { node: NodeId(1) };
        assert_eq!(Blame::of(Step::Push, &gone), Blame::Target);
        let unknown = Refusal::UnknownBlock { block: BlockId(1) };
        assert_eq!(Blame::of(Step::Push, &unknown), Blame::Block);
        let open = Refusal::StillOpen { block: BlockId(1) };
        assert_eq!(Blame::of(Step::Push, &open), Blame::Unknown);
    }
}
