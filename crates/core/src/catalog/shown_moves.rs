//! Moves of a lost end of the log that nodes have shown after a start.
//!
//! The home of such a block may lack its bytes, so the copy that a node has shown stays for a
//! while, also on a node that leaves.

use std::collections::BTreeSet;

use sanderling_protocol::{BlockId, Instant, Millis};
use serde::{Deserialize, Serialize};

use super::block_map::BlockMap;
use super::rules::Rules;

/// The blocks whose copies nodes have shown, and until when those stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShownMoves {
    blocks: BTreeSet<BlockId>,
    /// In service time; 0 before a log first lacked its end.
    until: Instant,
}

impl ShownMoves {
    /// Forgets what was shown after an earlier start.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Lets copies stay until a moment in service time.
    pub(super) const fn keep_until(&mut self, until: Instant) {
        self.until = until;
    }

    /// Returns whether a start of the namenode has ever found that the end of its log may be lost.
    pub(super) fn has_begun(&self) -> bool {
        self.until > Instant(0)
    }

    /// Returns for how long copies stay, from a moment in service time; `None` when that is over.
    fn left(&self, now: Instant) -> Option<Millis> {
        (now < self.until).then(|| now.until(self.until))
    }

    /// Returns for how long nodes that leave keep what a lost end of the log had moved to them: the
    /// homes may lack the bytes. `None` when that is over at this moment in service time, and by
    /// rules by which such nodes show nothing.
    pub(super) fn kept_for(&self, served: Instant, rules: Rules) -> Option<Millis> {
        self.left(served).filter(|_| rules.learns_moves_of_leaving())
    }

    /// Notes that a node has shown a copy of a block.
    pub(super) fn insert(&mut self, block: BlockId) {
        self.blocks.insert(block);
    }

    /// Returns whether a node has shown a copy of a block.
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.blocks.contains(&block)
    }

    /// Forgets a block: its copy is gone, or has become its home.
    pub(super) fn remove(&mut self, block: BlockId) {
        self.blocks.remove(&block);
    }

    /// Adds which blocks do not exist.
    pub(super) fn check(&self, blocks: &BlockMap, problems: &mut Vec<String>) {
        for block in self.blocks.iter().filter(|block| blocks.get(block).is_none()) {
            problems.push(format!("a node has shown block {block}, which does not exist"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_until_the_moment_that_was_set() {
        let (now, until) = (Instant(5_000_000), Instant(6_000_000));
        let mut shown = ShownMoves::default();
        assert_eq!((shown.has_begun(), shown.left(now)), (false, None));
        shown.keep_until(until);
        assert_eq!((shown.has_begun(), shown.left(now)), (true, Some(Millis(1000))));
        assert_eq!((shown.has_begun(), shown.left(until)), (true, None));
    }

    #[test]
    fn shown_block_that_does_not_exist_is_a_problem() {
        let mut shown = ShownMoves::default();
        shown.insert(BlockId(3));
        let mut problems = Vec::new();
        shown.check(&BlockMap::default(), &mut problems);
        assert_eq!(problems, ["a node has shown block 3, which does not exist"]);
        shown.remove(BlockId(3));
        assert!(!shown.contains(BlockId(3)));
    }
}
