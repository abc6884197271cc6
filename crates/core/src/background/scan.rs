//! The reading of one node's blocks, page by page, and what was found worth moving.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{BlockId, Instant, Millis, NodeId, Tier};

use super::config::BackgroundConfig;
use crate::exposure::plan::Coldness;
use crate::rebalance::MoveRank;

/// A block's copy that may be dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct DroppableCopy {
    pub(super) idle: Millis,
    pub(super) block: BlockId,
    pub(super) length: u32,
    pub(super) bytes: u32,
    pub(super) holder: NodeId,
    pub(super) tier: Tier,
}

/// What is known of one node's blocks.
#[derive(Debug, Clone)]
pub(super) struct Scan {
    after: BlockId,
    is_reading: bool,
    next_at: Instant,
    wait: Millis,
    /// Whether nothing of what is known fits anywhere.
    is_stuck: bool,
    /// In how long the first of the blocks may move that had changed too shortly ago.
    ripe_in: Option<Millis>,
    /// Blocks that may get a copy, the coldest first.
    copies: BTreeMap<Coldness, MoveCandidate>,
    /// Blocks that may move, tier by tier.
    moves: BTreeMap<Tier, BTreeMap<MoveRank, MoveCandidate>>,
    /// Blocks that have a copy.
    droppable: Vec<DroppableCopy>,
}

impl Scan {
    /// Blocks that are looked at for one that is short enough. A sixteenth of a page, so that one
    /// choice costs microseconds however many are known. Chosen, not measured.
    const LOOKED_AT_MAX: usize = 256;

    pub(super) const fn new(now: Instant) -> Self {
        Self {
            after: BlockId(0),
            is_reading: false,
            next_at: now,
            wait: Millis(0),
            is_stuck: false,
            ripe_in: None,
            copies: BTreeMap::new(),
            moves: BTreeMap::new(),
            droppable: Vec::new(),
        }
    }

    pub(super) const fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Returns when the next reading may begin.
    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Begins a reading. Returns after which block.
    pub(super) fn begin(&mut self) -> BlockId {
        self.after = BlockId::default();
        self.is_reading = true;
        self.ripe_in = None;
        self.copies.clear();
        self.moves.clear();
        self.droppable.clear();
        self.after
    }

    /// Takes a page, but for blocks that are `moving`. Returns after which block the next one
    /// begins; `None` at the end.
    pub(super) fn page(
        &mut self,
        page: Option<(Vec<MoveCandidate>, bool)>,
        moving: &BTreeSet<BlockId>,
        config: &BackgroundConfig,
    ) -> Option<BlockId> {
        let Some((candidates, is_more)) = page else {
            self.is_reading = false;
            return None;
        };
        self.after = candidates.last().map_or(self.after, |candidate| candidate.block);
        let has_any = !candidates.is_empty();
        for candidate in candidates.into_iter().filter(|one| !moving.contains(&one.block)) {
            self.insert(candidate, config);
        }
        if is_more && has_any {
            return Some(self.after);
        }
        self.is_reading = false;
        None
    }

    fn insert(&mut self, candidate: MoveCandidate, config: &BackgroundConfig) {
        let known_max = config.known_blocks_max;
        if let Some((holder, tier)) = candidate.copy
            && !candidate.is_stored()
            && self.droppable.len() < known_max
        {
            let MoveCandidate { idle, block, length, reserve_bytes: bytes, .. } = candidate;
            self.droppable.push(DroppableCopy { idle, block, length, bytes, holder, tier });
        }
        let moves_in = config.rebalance.moves_in(&candidate);
        self.ripe_in =
            self.ripe_in.into_iter().chain(moves_in.filter(|wait| *wait > Millis(0))).min();
        if moves_in == Some(Millis(0)) {
            let of_tier = self.moves.entry(candidate.tier).or_default();
            of_tier.insert(MoveRank::from(&candidate), candidate.clone());
            if of_tier.len() > known_max {
                of_tier.pop_last();
            }
        }
        if config.exposure.may_copy(&candidate) {
            self.copies.insert(Coldness::from(&candidate), candidate);
            if self.copies.len() > known_max {
                self.copies.pop_last();
            }
        }
    }

    /// Notes that a page could not be read: the namenode may be back soon.
    pub(super) fn try_again(&mut self, now: Instant, config: &BackgroundConfig) {
        self.next_at = now + config.retry_wait;
    }

    /// Notes when the next reading may begin: later and later while none brings what is wanted.
    pub(super) fn rest(&mut self, now: Instant, was_of_use: bool, config: &BackgroundConfig) {
        let was_of_use = was_of_use && !std::mem::take(&mut self.is_stuck);
        let wait = if was_of_use { Millis(0) } else { Millis(self.wait.0 * 2) };
        self.wait = wait.clamp(config.scan_wait_min, config.scan_wait_max);
        let ripe_in = self.ripe_in.unwrap_or(self.wait).max(config.scan_wait_min);
        self.next_at = now + self.wait.min(ripe_in);
    }

    /// Notes that no known block fits anywhere: others may have come since the reading.
    pub(super) const fn stuck(&mut self) {
        self.is_stuck = true;
    }

    /// Returns the coldest block without a copy.
    pub(super) fn coldest(&self) -> Option<&MoveCandidate> {
        self.copies.first_key_value().map(|(_, candidate)| candidate)
    }

    /// Returns the first blocks without a copy, the coldest first: their places, tiers and the
    /// bytes that a copy takes.
    pub(super) fn coldest_places(&self) -> Vec<(Coldness, Tier, u64)> {
        let first = self.copies.iter().take(Self::LOOKED_AT_MAX);
        first.map(|(place, it)| (*place, it.tier, u64::from(it.reserve_bytes))).collect()
    }

    /// Returns the coldest block without a copy from a place in the order on.
    pub(super) fn coldest_from(&self, place: Coldness) -> Option<&MoveCandidate> {
        self.copies.range(place..).next().map(|(_, candidate)| candidate)
    }

    /// Takes the coldest block without a copy from a place in the order on.
    pub(super) fn take_coldest_from(&mut self, place: Coldness) -> Option<MoveCandidate> {
        let place = *self.copies.range(place..).next()?.0;
        let candidate = self.copies.remove(&place)?;
        if let Some(of_tier) = self.moves.get_mut(&candidate.tier) {
            of_tier.remove(&MoveRank::from(&candidate));
        }
        Some(candidate)
    }

    /// Returns the next block of a tier to move that occupies less than so many bytes.
    pub(super) fn next_move(&self, tier: Tier, below: u64) -> Option<&MoveCandidate> {
        let first = self.moves.get(&tier)?.values().take(Self::LOOKED_AT_MAX);
        first.into_iter().find(|candidate| u64::from(candidate.reserve_bytes) < below)
    }

    /// Takes a block that was returned to be moved.
    pub(super) fn take_move(&mut self, tier: Tier, rank: MoveRank) -> Option<MoveCandidate> {
        let candidate = self.moves.get_mut(&tier)?.remove(&rank)?;
        self.copies.remove(&Coldness::from(&candidate));
        Some(candidate)
    }

    /// Takes the copies that were found, those of the blocks that changed last first.
    pub(super) fn take_droppable(&mut self) -> Vec<DroppableCopy> {
        let mut droppable = std::mem::take(&mut self.droppable);
        droppable.sort_by_key(|one| (one.idle, one.block));
        droppable
    }
}
