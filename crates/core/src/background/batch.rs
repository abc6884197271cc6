//! Moves that are made together in the background.

use sanderling_protocol::message::{MoveCandidate, MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, NodeId, Tier};

/// One move of a batch.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) candidate: MoveCandidate,
    /// The epoch of the copy, once reserved.
    pub(super) to_epoch: Epoch,
    /// The bytes that the target holds, once pushed.
    pub(super) length: u32,
}

/// What a batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Reserve,
    Push,
    Commit,
}

/// Moves from one source to one target.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) purpose: MovePurpose,
    pub(super) source: NodeId,
    pub(super) target: NodeId,
    pub(super) tier: Tier,
    pub(super) moves: Vec<Move>,
    pub(super) step: Step,
    /// Calls of this step that failed.
    pub(super) tries: u32,
}

impl From<MoveCandidate> for Move {
    fn from(candidate: MoveCandidate) -> Self {
        Self { candidate, to_epoch: Epoch(0), length: 0 }
    }
}

impl Batch {
    /// Returns the batch of these moves at another step.
    pub(super) const fn at(&self, step: Step, moves: Vec<Move>) -> Self {
        let Self { purpose, source, target, tier, .. } = *self;
        Self { purpose, source, target, tier, moves, step, tries: 0 }
    }

    /// Returns the published bytes of its blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.candidate.length)).sum()
    }

    /// Returns the bytes of room that it takes at the target.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.candidate.reserve_bytes)).sum()
    }

    pub(super) fn blocks(&self) -> Vec<BlockId> {
        self.moves.iter().map(|one| one.candidate.block).collect()
    }

    pub(super) fn proposals(&self) -> Vec<MoveProposal> {
        let proposal = |one: &Move| MoveProposal {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to: self.target,
            tier: self.tier,
            purpose: self.purpose,
        };
        self.moves.iter().map(proposal).collect()
    }

    pub(super) fn pushes(&self, address: &str) -> Vec<PushMove> {
        let push = |one: &Move| PushMove {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.target,
            address: address.to_owned(),
            tier: self.tier,
            bytes_max: one.candidate.counted_bytes(),
        };
        self.moves.iter().map(push).collect()
    }

    pub(super) fn commits(&self) -> Vec<MoveCommit> {
        let commit = |one: &Move| MoveCommit {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.target,
            length: one.length,
        };
        self.moves.iter().map(commit).collect()
    }
}
