//! Moves that are made together: one reservation, one push, one commit.

use sanderling_protocol::message::{MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, Instant, NodeId, Refusal};

use super::pace::Mark;
use super::queue::{self, Queued};
use super::targets::Choice;

/// One move of a batch.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) queued: Queued,
    /// The epoch of the copy, once reserved.
    pub(super) to_epoch: Epoch,
    /// The bytes that the target holds, once pushed.
    pub(super) length: u32,
    /// Where the block goes when its reservation has been given back.
    pub(super) fate: Fate,
}

/// What becomes of a block whose move was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for another try.
    Requeue,
    /// Its target is none any more: another one is chosen at once.
    Replan,
    /// It is no longer what the manager knows: the next scan brings it again if it is still there.
    Forget,
}

/// What a batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Reserve,
    Push,
    Commit,
    Abandon,
}

/// Moves from one source to one target that are made together.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) source: NodeId,
    pub(super) choice: Choice,
    pub(super) moves: Vec<Move>,
    pub(super) step: Step,
    /// Calls of this step that failed.
    pub(super) tries: u32,
    /// When the step's last call began.
    pub(super) called_at: Instant,
    /// What the source had delivered then.
    pub(super) mark: Mark,
}

impl Move {
    pub(super) const fn new(queued: Queued) -> Self {
        Self { queued, to_epoch: Epoch(0), length: 0, fate: Fate::Requeue }
    }

    pub(super) const fn block(&self) -> BlockId {
        self.queued.candidate.block
    }
}

impl Batch {
    /// Returns the batch of moves whose future homes are to be reserved.
    pub(super) fn new(now: Instant, source: NodeId, choice: Choice, moves: Vec<Move>) -> Self {
        let (step, mark) = (Step::Reserve, Mark::default());
        Self { source, choice, moves, step, tries: 0, called_at: now, mark }
    }

    /// Returns the batch of these moves at another step.
    pub(super) const fn at(&self, step: Step, moves: Vec<Move>) -> Self {
        let Self { source, choice, called_at, mark, .. } = *self;
        Self { source, choice, moves, step, tries: 0, called_at, mark }
    }

    /// Returns the bytes of room that its moves take at the target.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.queued.candidate.reserve_bytes)).sum()
    }

    /// Returns the published bytes of its blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(one.queued.candidate.length)).sum()
    }

    /// Returns the bytes that its push may have to send.
    pub(super) fn push_bytes(&self) -> u64 {
        self.moves.iter().map(|one| u64::from(queue::bytes(&one.queued.candidate))).sum()
    }

    pub(super) fn blocks(&self) -> Vec<BlockId> {
        self.moves.iter().map(Move::block).collect()
    }

    pub(super) fn proposals(&self) -> Vec<MoveProposal> {
        let proposal = |one: &Move| MoveProposal {
            block: one.block(),
            from_epoch: one.queued.candidate.epoch,
            to: self.choice.node,
            tier: self.choice.tier,
            purpose: MovePurpose::Relocate,
        };
        self.moves.iter().map(proposal).collect()
    }

    pub(super) fn pushes(&self, address: &str) -> Vec<PushMove> {
        let push = |one: &Move| PushMove {
            block: one.block(),
            from_epoch: one.queued.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.choice.node,
            address: address.to_owned(),
            tier: self.choice.tier,
            bytes_max: one.queued.candidate.counted_bytes(),
        };
        self.moves.iter().map(push).collect()
    }

    pub(super) fn commits(&self) -> Vec<MoveCommit> {
        let commit = |one: &Move| MoveCommit {
            block: one.block(),
            from_epoch: one.queued.candidate.epoch,
            to_epoch: one.to_epoch,
            to: self.choice.node,
            length: one.length,
        };
        self.moves.iter().map(commit).collect()
    }
}

/// Tells whether a refusal says that the block is not what the manager thinks it is.
pub(super) const fn is_about_the_block(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::MoveVoid { .. }
            | Refusal::UnknownBlock { .. }
            | Refusal::StaleEpoch { .. }
            | Refusal::ObjectGone { .. }
            | Refusal::Moved { .. }
            | Refusal::BlockDamaged { .. }
    )
}

/// Tells whether a refusal says that the target cannot take blocks for now.
pub(super) const fn is_about_the_target(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NodeFull { .. }
            | Refusal::WrongNode { .. }
            | Refusal::NodeGone { .. }
            | Refusal::UnknownNode { .. }
            | Refusal::WrongState { .. }
            | Refusal::TierFailed { .. }
            | Refusal::RetryAfter { .. }
    )
}
