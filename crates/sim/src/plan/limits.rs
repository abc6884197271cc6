//! Bounds that are out of reach in a small cluster, drawn small in some seeds: what lies beyond
//! them happens as well then.

use sanderling_core::catalog::CatalogLimits;
use sanderling_core::relocation::RelocatorConfig;

use crate::random::Random;

/// The limits with which the servers of one seed run. Most seeds have the limits of servers as they
/// are shipped; the others have small ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) catalog: CatalogLimits,
    pub(crate) relocator: RelocatorConfig,
    /// Whether any of them may be small.
    pub(crate) is_small: bool,
}

impl Limits {
    /// Draws each bound apart from the others: together they hide each other.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut limits = Self { is_small: random.permille(200), ..Self::default() };
        if !limits.is_small {
            return limits;
        }
        let mut small = |bound: &mut usize, values: &[usize]| {
            let value = random.pick(values);
            if random.permille(500) {
                *bound = value;
            }
        };
        let catalog = &mut limits.catalog;
        small(&mut catalog.due_per_tick_max, &[1, 2, 5]);
        small(&mut catalog.promoted_per_turn_max, &[1, 2, 5]);
        small(&mut catalog.answers_per_client_max, &[1, 2, 4]);
        let relocator = &mut limits.relocator;
        small(&mut relocator.source_batches_max, &[1, 2]);
        small(&mut relocator.target_batches_max, &[1, 2]);
        small(&mut relocator.batch_blocks_max, &[1, 2, 3]);
        small(&mut relocator.known_blocks_max, &[1, 2, 6]);
        let mut page_blocks_max = relocator.page_blocks_max as usize;
        small(&mut page_blocks_max, &[1, 2, 7]);
        relocator.page_blocks_max = page_blocks_max as u32;
        limits
    }

    /// Draws how much of what is deleted is freed at once: in half of the seeds so little that
    /// deletions of the small trees here take several slices.
    pub(crate) fn with_slices(mut self, random: &mut Random) -> Self {
        if random.permille(500) {
            self.catalog.freed_per_slice_max = random.pick(&[1, 2, 5]);
        }
        self
    }
}
