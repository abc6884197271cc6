//! The numbers of objects, blocks, leases and jobs: none is given out twice.
//!
//! Each start of a namenode skips more of them than a lost end of the log can have given out.

use sanderling_protocol::{BlockId, JobId, LeaseId, Millis, ObjectId, Term};
use serde::{Deserialize, Serialize};

use super::index::ID_BITS;
use super::object::ROOT;

/// Numbers skipped at every start: what a namenode gives out in a minute at a million a second,
/// several times what it was ever measured to give out. It covers a clock that was set back.
pub const SKIP_MIN: u64 = 1 << 26;

/// Numbers skipped for each second between the last command of the log and the start. A million, as
/// in [`SKIP_MIN`]: more than a namenode was ever measured to give out.
const SKIP_PER_SECOND: u64 = 1 << 20;

/// The longest time for which numbers are skipped: seven weeks. A clock that is wrong by years must
/// not use up the numbers.
const SKIPPED_SECONDS_MAX: u64 = 1 << 22;

/// How many starts begin apart that would take more than their share. Two such starts draw the same
/// place once in 1,024 times. More would make the strides shorter than what a long life gives out.
/// Chosen, not measured.
const STRIDES: u64 = 1024;

/// Nodes join less often than objects are made, and their ids have 32 bits: 4096 ids for every
/// start and 64 for each second, but never more than a million.
const NODE_SKIP_SHIFT: u32 = 14;

/// Most ids of nodes that a start skips, of the four thousand million that there are.
const NODE_SKIP_MAX: u64 = 1 << 20;

/// Beyond that, a start draws a part below 65,536 with its term: far fewer nodes join in a life of
/// a namenode, so two starts that skip equally many hardly give the same id to two nodes.
const NODE_DRAWN_BITS: u32 = 16;

/// A start takes no more than this share of the numbers that are left, so that no number of starts
/// with a wrong clock uses them up. 64 such starts leave a third of them. Chosen, not measured.
const SHARE: u64 = 64;

/// The numbers that are given out next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The next object.
    pub object: u64,
    /// The next block.
    pub block: u64,
    /// The next lease.
    pub lease: u64,
    /// The next job.
    pub job: u64,
    /// The next node.
    pub node: u32,
}

/// What gives the numbers out, but for those of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ids {
    object: u64,
    block: u64,
    lease: u64,
    job: u64,
}

/// Returns how many numbers a start skips that comes that long after the last command of the log.
///
/// Two starts may read the same log within one second: an older copy of the directory is put back
/// twice, or a crash took the first start. So each adds a part of a second's numbers that it draws
/// with its term; a later second still begins above.
#[must_use]
pub const fn skip_after(absence: Millis, term: Term) -> u64 {
    let seconds = absence.0 / 1000;
    let seconds = if seconds < SKIPPED_SECONDS_MAX { seconds } else { SKIPPED_SECONDS_MAX };
    SKIP_MIN + seconds * SKIP_PER_SECOND + term.0 % SKIP_PER_SECOND
}

impl Numbers {
    /// Returns the numbers after those that a start skips.
    pub(super) fn skip(self, skip: u64, term: Term) -> Self {
        if skip == 0 {
            return self;
        }
        let drawn = term.0 >> (u64::BITS - NODE_DRAWN_BITS);
        let nodes = (skip >> NODE_SKIP_SHIFT).min(NODE_SKIP_MAX) + drawn;
        let nodes = nodes.min(u64::from(u32::MAX - self.node) / SHARE) as u32;
        let left = (1_u64 << ID_BITS).saturating_sub(self.object.max(self.block));
        // Starts that would take more, by a wrong clock, must begin apart as well.
        let most = left / SHARE;
        let place = most / 2 + term.0 % STRIDES * (most / 2 / STRIDES);
        let skip = if skip > most { place } else { skip };
        Self {
            object: self.object.saturating_add(skip),
            block: self.block.saturating_add(skip),
            lease: self.lease.saturating_add(skip),
            job: self.job.saturating_add(skip),
            node: self.node.saturating_add(nodes),
        }
    }
}

impl Ids {
    /// Returns the next numbers of a new cluster, in which only the root's number is given out.
    pub(super) const fn new() -> Self {
        Self { object: ROOT.0 + 1, block: 1, lease: 1, job: 1 }
    }

    pub(super) const fn next_object(&mut self) -> ObjectId {
        self.object += 1;
        ObjectId(self.object - 1)
    }

    pub(super) const fn next_block(&mut self) -> BlockId {
        self.block += 1;
        BlockId(self.block - 1)
    }

    pub(super) const fn next_lease(&mut self) -> LeaseId {
        self.lease += 1;
        LeaseId(self.lease - 1)
    }

    pub(super) const fn next_job(&mut self) -> JobId {
        self.job += 1;
        JobId(self.job - 1)
    }

    /// Returns the numbers that are given out next, `node` among them.
    pub(super) const fn numbers(self, node: u32) -> Numbers {
        let Self { object, block, lease, job } = self;
        Numbers { object, block, lease, job, node }
    }

    /// Goes on with other numbers.
    pub(super) const fn continue_at(&mut self, numbers: &Numbers) {
        let Numbers { object, block, lease, job, .. } = *numbers;
        *self = Self { object, block, lease, job };
    }

    /// Returns whether a block's number was not given out yet.
    pub(super) const fn is_unused(self, block: BlockId) -> bool {
        block.0 >= self.block
    }

    /// Asserts what must hold after every command.
    pub(super) fn assert(self, objects: usize, blocks: usize) {
        assert!(self.object > objects as u64, "fewer numbers than objects");
        assert!(self.block > blocks as u64, "fewer numbers than blocks");
    }
}
