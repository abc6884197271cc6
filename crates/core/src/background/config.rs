//! The bounds of what is done in the background.

use sanderling_protocol::Millis;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;

use crate::exposure::plan::ExposureConfig;
use crate::rebalance::RebalanceConfig;

/// The rates of background copies: shares, in percent, of what a node's link can send.
#[derive(Debug, Clone)]
pub struct PaceConfig {
    /// Share of a source's link while its clients leave it alone.
    pub share_percent: u64,
    /// Share while they do not. Not zero, so that an imbalance ends under lasting load as well;
    /// what readers are promised is a slowdown of at most as much.
    pub trickle_percent: u64,
    /// Share that a node above its budget has whatever its clients do: a notice may come. While
    /// they leave it alone it has twice `share_percent`.
    pub over_percent: u64,
    /// Share that a node has that its cloud recommended to leave, whatever its clients do.
    pub risk_percent: u64,
    /// Share of a target's link, of all its sources together.
    pub target_percent: u64,
    /// Share of `target_percent` that is left while the target's clients keep it busy: half of it,
    /// because links carry as much in either direction and most clients read.
    pub busy_target_percent: u64,
    /// Clients' bytes, as a share of the link, at which a node counts as busy. Below it the
    /// background's share shrinks as theirs grows.
    pub busy_percent: u64,
    /// Requests under way at which it counts as busy, however few bytes they carry.
    pub busy_requests: u32,
    /// Whether what can wait keeps off the nodes that a drain uses.
    pub yields_to_drains: bool,
    /// Age at which moves to a new node may take the whole of `target_percent`.
    pub ramp: Millis,
    /// Share of `target_percent` with which they begin.
    pub ramp_percent: u64,
}

impl PaceConfig {
    /// Returns the paces that belong to a source's share while its clients leave it alone.
    #[must_use]
    pub const fn of_share(share_percent: u64) -> Self {
        let double = if share_percent > 50 { 100 } else { share_percent * 2 };
        Self {
            share_percent,
            trickle_percent: share_percent.div_ceil(4),
            over_percent: share_percent.div_ceil(2),
            risk_percent: double,
            // Above a source's share, so that two sources at once are not held up by one target.
            target_percent: double,
            busy_target_percent: 50,
            busy_percent: 50,
            busy_requests: 16,
            yields_to_drains: true,
            ramp: Millis::from_secs(60),
            ramp_percent: 25,
        }
    }
}

impl Default for PaceConfig {
    /// A fifth of the link: clients keep four times as much.
    fn default() -> Self {
        Self::of_share(20)
    }
}

/// The limits of background work: its rates, its batches, and which blocks it copies and moves.
#[derive(Debug, Clone)]
pub struct BackgroundConfig {
    /// How fast.
    pub pace: PaceConfig,
    /// Which blocks get copies.
    pub exposure: ExposureConfig,
    /// Which blocks move so that nodes are equally full.
    pub rebalance: RebalanceConfig,
    /// Batches under way from one source: the second hides the round trips of the first.
    pub source_batches_max: usize,
    /// Batches under way to one target, from all sources.
    pub target_batches_max: usize,
    /// Blocks in one batch.
    pub batch_blocks_max: usize,
    /// Bytes in one batch, and never more than a tenth of a second's share but for one block: they
    /// are sent at once, before clients' next bytes.
    pub batch_bytes_max: u64,
    /// Pages of candidates that are read at once, from all nodes: the namenode has other work.
    pub pages_max: usize,
    /// Blocks in one page.
    pub page_blocks_max: u32,
    /// Blocks of one node that are remembered for each purpose, about 200 bytes each.
    pub known_blocks_max: usize,
    /// Wait between two readings of one node's blocks that found some to move.
    pub scan_wait_min: Millis,
    /// Longest wait between two that found none.
    pub scan_wait_max: Millis,
    /// First wait before a call that failed is made again; doubled up to eight times as long.
    pub retry_wait: Millis,
    /// How long a target that refused is left alone.
    pub avoid: Millis,
    /// Time of one push call: a quarter of how long a reservation lasts.
    pub push_millis_max: Millis,
    /// Calls of one step of a batch before it is given up.
    pub tries_max: u32,
}

impl Default for BackgroundConfig {
    fn default() -> Self {
        Self {
            pace: PaceConfig::default(),
            exposure: ExposureConfig::default(),
            rebalance: RebalanceConfig::default(),
            source_batches_max: 2,
            target_batches_max: 4,
            batch_blocks_max: 64,
            batch_bytes_max: 4 << 20,
            pages_max: 4,
            page_blocks_max: BLOCKS_PER_PAGE_MAX as u32,
            known_blocks_max: 8192,
            scan_wait_min: Millis(200),
            scan_wait_max: Millis(10_000),
            retry_wait: Millis(200),
            avoid: Millis(2_000),
            push_millis_max: Millis(5_000),
            tries_max: 5,
        }
    }
}
