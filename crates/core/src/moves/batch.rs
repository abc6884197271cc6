//! Moves that are made together: one reservation, one push, one commit.

use sanderling_protocol::message::{MoveCandidate, MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, Instant, NodeId, Tier};

use super::refusal_cause::Blame;

/// One move of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) candidate: MoveCandidate,
    /// Moves of the block that failed before this one, if its owner counts them.
    pub(crate) attempts: u32,
    /// The epoch of the copy, once reserved.
    pub(crate) to_epoch: Epoch,
    /// The bytes that the target holds, once pushed.
    pub(crate) length: u32,
    /// Whose fault it is that it was not made, once it was refused.
    pub(crate) blame: Blame,
}

/// What a batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Reserve,
    Push,
    Commit,
    Abandon,
}

/// A chosen target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Choice {
    pub(crate) node: NodeId,
    pub(crate) tier: Tier,
}

/// What a source had delivered when a push began, as the sample of its link's rate needs it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark(pub(crate) u64);

/// Moves from one source to one target that are made together.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) purpose: MovePurpose,
    pub(crate) source: NodeId,
    pub(crate) choice: Choice,
    pub(crate) moves: Vec<Move>,
    pub(crate) step: Step,
    /// Calls of this step that failed.
    pub(super) tries: u32,
    /// When the step's last call began.
    pub(crate) called_at: Instant,
    /// That of the push.
    pub(crate) mark: Mark,
}

impl From<MoveCandidate> for Move {
    fn from(candidate: MoveCandidate) -> Self {
        let (to_epoch, blame) = (Epoch(0), Blame::Unknown);
        Self { candidate, attempts: 0, to_epoch, length: 0, blame }
    }
}

impl Batch {
    /// Returns the batch of moves whose future homes are to be reserved.
    pub(crate) fn new(
        purpose: MovePurpose,
        source: NodeId,
        choice: Choice,
        moves: Vec<Move>,
    ) -> Self {
        let (step, called_at, mark) = (Step::Reserve, Instant(0), Mark::default());
        Self { purpose, source, choice, moves, step, tries: 0, called_at, mark }
    }

    /// Returns the batch of these moves at another step.
    pub(super) const fn at(&self, step: Step, moves: Vec<Move>) -> Self {
        let Self { purpose, source, choice, called_at, mark, .. } = *self;
        Self { purpose, source, choice, moves, step, tries: 0, called_at, mark }
    }

    /// Returns the bytes of room that its moves take at the target.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.candidate.reserve_bytes)).sum()
    }

    /// Returns the published bytes of its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.candidate.length)).sum()
    }

    /// Returns the bytes that the target holds of what was pushed.
    pub(crate) fn pushed_bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.length)).sum()
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.moves.iter().map(|one| one.candidate.block)
    }

    pub(super) fn proposals(&self) -> Vec<MoveProposal> {
        let proposal = |one: &Move| MoveProposal {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to: self.choice.node,
            tier: self.choice.tier,
            purpose: self.purpose,
        };
        self.moves.iter().map(proposal).collect()
    }

    pub(super) fn pushes(&self, address: &str) -> Vec<PushMove> {
        let push = |one: &Move| PushMove {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.choice.node,
            address: address.to_owned(),
            tier: self.choice.tier,
            bytes_max: one.candidate.counted_bytes(),
        };
        self.moves.iter().map(push).collect()
    }

    pub(super) fn commits(&self) -> Vec<MoveCommit> {
        let commit = |one: &Move| MoveCommit {
            block: one.candidate.block,
            from_epoch: one.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.choice.node,
            length: one.length,
        };
        self.moves.iter().map(commit).collect()
    }
}
