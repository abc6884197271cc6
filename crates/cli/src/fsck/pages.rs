//! In which pages a node is to look at its blocks, also when it cannot look at some of them.

use std::collections::BTreeMap;

use sanderling_protocol::limits::VERIFIED_PER_ORDER_MAX;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Tier};

/// After so many refusals the object tier is left alone: a store that is away refuses each block.
/// One or two may be a busy store. Chosen, not measured.
const REFUSALS_MAX: u32 = 3;

/// The blocks of one node, of which pages are looked at one after the other.
#[derive(Debug)]
pub(super) struct Pages<'a> {
    held: &'a BTreeMap<BlockId, HeldBlock>,
    after: BlockId,
    refusals: u32,
    is_ended: bool,
    unseen_blocks: u64,
    unseen_bytes: u64,
    /// Why the first of them could not be looked at.
    why: Option<String>,
}

/// What one order is to look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Start after this block.
    pub(super) after: BlockId,
    /// At most so many blocks.
    pub(super) limit: u32,
}

impl<'a> Pages<'a> {
    pub(super) const fn new(held: &'a BTreeMap<BlockId, HeldBlock>) -> Self {
        Self {
            held,
            after: BlockId(0),
            refusals: 0,
            is_ended: false,
            unseen_blocks: 0,
            unseen_bytes: 0,
            why: None,
        }
    }

    /// Returns the next page; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Page> {
        if self.is_ended {
            return None;
        }
        let mut limit = VERIFIED_PER_ORDER_MAX;
        if self.refusals >= REFUSALS_MAX {
            while self.first().is_some_and(|held| held.tier == Tier::Object) {
                self.skip();
            }
            let rest = self.rest();
            limit = rest.take(limit).take_while(|held| held.tier != Tier::Object).count();
        }
        (limit > 0).then_some(Page { after: self.after, limit: limit as u32 })
    }

    /// Takes the last block of a page that was looked at; `None` of an empty one, the last.
    pub(super) fn looked_at(&mut self, last: Option<BlockId>) {
        match last {
            Some(last) if last > self.after => self.after = last,
            _ => self.is_ended = true,
        }
    }

    /// Goes on behind the next block: the node could not look at it.
    pub(super) fn refused(&mut self, why: String) {
        self.refusals += 1;
        let is_in_store = self.first().is_some_and(|held| held.tier == Tier::Object);
        if self.refusals > REFUSALS_MAX && !is_in_store {
            return self.ended(why);
        }
        self.why.get_or_insert(why);
        self.skip();
        self.is_ended |= self.first().is_none();
    }

    /// Ends it: the node gives no answer that can be used. Nothing is known of the rest.
    pub(super) fn ended(&mut self, why: String) {
        self.why.get_or_insert(why);
        while self.first().is_some() {
            self.skip();
        }
        self.is_ended = true;
    }

    /// Returns how many blocks and bytes the node could not look at, and why.
    pub(super) fn unseen(self) -> Option<(u64, u64, String)> {
        let (blocks, bytes) = (self.unseen_blocks, self.unseen_bytes);
        self.why.filter(|_| blocks > 0).map(|why| (blocks, bytes, why))
    }

    fn rest(&self) -> impl Iterator<Item = &'a HeldBlock> + use<'a> {
        let after = (std::ops::Bound::Excluded(self.after), std::ops::Bound::Unbounded);
        self.held.range(after).map(|(_, held)| held)
    }

    fn first(&self) -> Option<&'a HeldBlock> {
        self.rest().next()
    }

    fn skip(&mut self) {
        if let Some(skipped) = self.first() {
            self.after = skipped.block;
            self.unseen_blocks += 1;
            self.unseen_bytes += u64::from(skipped.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Epoch;

    use super::*;

    /// Blocks 1 and up, of 10 bytes each, in these tiers.
    fn held(tiers: &[Tier]) -> BTreeMap<BlockId, HeldBlock> {
        let block = |(number, tier): (u64, &Tier)| {
            let block = BlockId(number);
            (block, HeldBlock { block, epoch: Epoch(1), length: 10, tier: *tier })
        };
        (1..).zip(tiers).map(block).collect()
    }

    fn page(after: u64, limit: u32) -> Option<Page> {
        Some(Page { after: BlockId(after), limit })
    }

    #[test]
    fn refused_block_is_counted_and_those_behind_it_are_looked_at() {
        let held = held(&[Tier::Dram, Tier::Object, Tier::Dram]);
        let mut pages = Pages::new(&held);
        assert_eq!(pages.next(), page(0, 64));
        pages.looked_at(Some(BlockId(1)));
        assert_eq!(pages.next(), page(1, 64));
        pages.refused("away".to_owned());
        assert_eq!(pages.next(), page(2, 64));
        pages.looked_at(Some(BlockId(3)));
        assert_eq!(pages.next(), page(3, 64));
        pages.looked_at(None);
        assert_eq!(pages.next(), None);
        assert_eq!(pages.unseen(), Some((1, 10, "away".to_owned())));
    }

    #[test]
    fn store_that_refuses_again_and_again_is_left_alone() {
        let mut tiers = vec![Tier::Object; 1000];
        tiers.extend([Tier::Dram, Tier::Disk]);
        tiers.extend([Tier::Object; 500]);
        let held = held(&tiers);
        let mut pages = Pages::new(&held);
        for after in 0..3 {
            assert_eq!(pages.next(), page(after, 64));
            pages.refused("away".to_owned());
        }
        assert_eq!(pages.next(), page(1000, 2));
        pages.looked_at(Some(BlockId(1002)));
        assert_eq!(pages.next(), None);
        assert_eq!(pages.unseen(), Some((1500, 15_000, "away".to_owned())));
    }

    #[test]
    fn node_that_refuses_every_block_is_soon_left_alone() {
        let held = held(&[Tier::Dram; 1000]);
        let (mut pages, mut orders) = (Pages::new(&held), 0);
        while pages.next().is_some() {
            orders += 1;
            pages.refused("busy".to_owned());
        }
        assert_eq!(orders, REFUSALS_MAX + 1);
        assert_eq!(pages.unseen(), Some((1000, 10_000, "busy".to_owned())));
    }

    #[test]
    fn node_that_dies_half_way_leaves_the_rest_unseen() {
        let held = held(&[Tier::Dram; 5]);
        let mut pages = Pages::new(&held);
        pages.looked_at(Some(BlockId(2)));
        pages.ended("closed".to_owned());
        assert_eq!(pages.next(), None);
        assert_eq!(pages.unseen(), Some((3, 30, "closed".to_owned())));
    }
}
