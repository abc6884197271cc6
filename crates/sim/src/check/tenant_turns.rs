//! Tenants take turns at the namenode: each tenant's frames in their order, and no tenant waits for
//! long while others get turns.
//!
//! How long is computed from the machine's rule (start-time fair queueing, `core::fair`) and does
//! not use its numbers. A tenant that waits has a start tag of at most the virtual time and the
//! cost of its last piece; another one is chosen before it as long as its own tag is smaller. While
//! the piece of that tenant waits, the virtual time passes its tag by at most the cost of one piece
//! for each tenant that leaves meanwhile, divided by how many still wait: the harmonic number of
//! the tenants, at most. So one tenant gets at most that many pieces of the largest cost, and
//! three: the tenant's own, the other's last one, and the one by which its tag may be behind. The
//! largest cost is that of the pieces that wait at the time and of the last one that each tenant
//! got: what was long ago delays none.

use std::collections::{BTreeMap, VecDeque};

use crate::runtime::CheckResult;
use crate::wire::FrameTenant;

/// Pieces of the largest cost that one tenant gets at most while another one waits: three, and the
/// harmonic number of 30 tenants, which is 3.99. The places of a run are 28.
const PIECES_MAX: u64 = 3 + 4;

/// What waits in one queue.
#[derive(Debug)]
pub(crate) struct TenantTurns {
    /// Stands for the queue in what is found.
    queue: &'static str,
    tenants: BTreeMap<FrameTenant, WaitingTenant>,
    /// How many pieces of each cost wait.
    waiting: BTreeMap<u64, usize>,
    /// The cost of the last piece that each tenant got.
    last: BTreeMap<FrameTenant, u64>,
}

/// One tenant with work.
#[derive(Debug, Default)]
struct WaitingTenant {
    pieces: VecDeque<WaitingPiece>,
    /// What each other tenant got since this one had a turn.
    others: BTreeMap<FrameTenant, u64>,
}

#[derive(Debug)]
struct WaitingPiece {
    frame: u64,
    cost: u64,
    /// Whether it is set aside until others are done, or was and has had no turn since.
    is_parked: bool,
}

impl TenantTurns {
    pub(crate) const fn new(queue: &'static str) -> Self {
        Self { queue, tenants: BTreeMap::new(), waiting: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// Forgets what waited for a process that has ended.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.queue);
    }

    /// Notes a piece behind the tenant's others.
    pub(crate) fn pushed(&mut self, tenant: FrameTenant, frame: u64, cost: u64) {
        *self.waiting.entry(cost).or_default() += 1;
        let waiting = self.tenants.entry(tenant).or_default();
        if !waiting.is_waiting() {
            waiting.others.clear();
        }
        waiting.pieces.push_back(WaitingPiece { frame, cost, is_parked: false });
    }

    /// Checks that a turn is that of the tenant's first piece, and that no waiting tenant has seen
    /// another one get more than the bound.
    pub(crate) fn took(&mut self, tenant: FrameTenant, frame: u64, cost: u64) -> CheckResult {
        let queue = self.queue;
        let waiting = self.tenants.entry(tenant).or_default();
        let place = waiting.pieces.iter().position(|it| it.frame == frame);
        // What was set aside goes before the tenant's others once it goes on.
        if let Some(place) = place.filter(|place| waiting.pieces[*place].is_parked)
            && let Some(piece) = waiting.pieces.remove(place)
        {
            waiting.pieces.push_front(WaitingPiece { is_parked: false, ..piece });
        }
        let first = waiting.pieces.iter().find(|it| !it.is_parked).map(|it| it.frame);
        if first != Some(frame) {
            let text = format!("{queue}: frame {frame} of {tenant:?} goes before frame {first:?}");
            return Err(("turns", text));
        }
        waiting.others.clear();
        self.last.insert(tenant, cost);
        let most = PIECES_MAX * self.cost_max();
        let others = self.tenants.iter_mut().filter(|(other, _)| **other != tenant);
        for (other, waiting) in others.filter(|(_, waiting)| waiting.is_waiting()) {
            let got = waiting.others.entry(tenant).or_default();
            *got += cost;
            if *got > most {
                let text =
                    format!("{queue}: {other:?} waits while {tenant:?} gets {got} of {most}");
                return Err(("turns", text));
            }
        }
        Ok(())
    }

    /// Returns the largest cost of the pieces that wait and of the last one of each tenant.
    fn cost_max(&self) -> u64 {
        let waiting = self.waiting.last_key_value().map_or(1, |(cost, _)| *cost);
        self.last.values().copied().fold(waiting, u64::max)
    }

    /// Notes that a piece is set aside.
    pub(crate) fn parked(&mut self, tenant: FrameTenant, frame: u64) {
        let Some(waiting) = self.tenants.get_mut(&tenant) else { return };
        let piece = waiting.pieces.iter_mut().find(|it| it.frame == frame);
        piece.into_iter().for_each(|it| it.is_parked = true);
    }

    /// Notes that a piece is done, or dropped: that counts as a turn of its tenant.
    pub(crate) fn ended(&mut self, tenant: FrameTenant, frame: u64) {
        let Some(waiting) = self.tenants.get_mut(&tenant) else { return };
        let counts = &mut self.waiting;
        waiting.pieces.retain(|it| {
            if it.frame == frame {
                leave(counts, it.cost);
            }
            it.frame != frame
        });
        waiting.others.clear();
        if waiting.pieces.is_empty() {
            self.tenants.remove(&tenant);
        }
    }
}

/// Counts one piece of a cost less.
fn leave(counts: &mut BTreeMap<u64, usize>, cost: u64) {
    let Some(count) = counts.get_mut(&cost) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&cost);
    }
}

impl WaitingTenant {
    fn is_waiting(&self) -> bool {
        self.pieces.iter().any(|it| !it.is_parked)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::fair::{Bounds, Fair, TaskSize};

    use super::*;
    use crate::random::Random;
    use crate::wire::{FrameOrigin, Host};

    const MANY: Bounds = Bounds { pieces_max: usize::MAX, bytes_max: u64::MAX, share: 1 };

    const fn tenant(number: u64) -> FrameTenant {
        FrameTenant::Connection(FrameOrigin { host: Host::Admin, life: number as u32 })
    }

    const fn size(cost: u64) -> TaskSize {
        TaskSize { bytes: 0, cost }
    }

    /// Tenants come, leave and put pieces back at random: the bound holds.
    #[test]
    fn fair_queue_keeps_to_the_bound() {
        for seed in 0..300 {
            let mut random = Random::new(seed, 0);
            let (mut queue, mut turns) = (Fair::new(MANY), TenantTurns::new("test"));
            let tenants = random.between(2, 28);
            let cost_max = random.pick(&[1, 1, 10, 500]);
            let [comes, stays] = [random.between(100, 900), random.between(0, 900)];
            let mut last = 0;
            for _ in 0..2000 {
                while random.permille(comes as u32) {
                    last += 1;
                    let (by, cost) = (tenant(random.below(tenants)), random.between(1, cost_max));
                    queue.push(by, size(cost), (last, cost)).expect("there is room");
                    turns.pushed(by, last, cost);
                }
                let Some((by, (frame, cost))) = queue.pop() else { continue };
                assert_eq!(turns.took(by, frame, cost), Ok(()), "seed {seed}");
                if random.permille(stays as u32) {
                    queue.put_back(by, size(cost), (frame, cost));
                } else {
                    turns.ended(by, frame);
                }
            }
        }
    }

    #[test]
    fn tenant_that_goes_on_and_one_that_overtakes_itself_are_found() {
        let mut turns = TenantTurns::new("test");
        let (greedy, modest) = (tenant(1), tenant(2));
        turns.pushed(greedy, 1, 1);
        turns.pushed(greedy, 2, 1);
        turns.pushed(modest, 3, 1);
        assert!(turns.took(greedy, 2, 1).is_err());
        for _ in 0..PIECES_MAX {
            assert_eq!(turns.took(greedy, 1, 1), Ok(()));
        }
        assert!(turns.took(greedy, 1, 1).is_err());
        assert_eq!(turns.took(modest, 3, 1), Ok(()));
        assert_eq!(turns.took(greedy, 1, 1), Ok(()));
    }

    #[test]
    fn large_piece_of_the_past_lets_no_tenant_wait_for_many_small_ones() {
        let mut turns = TenantTurns::new("test");
        let (greedy, modest) = (tenant(1), tenant(2));
        let gets = |turns: &mut TenantTurns, frame, cost| {
            turns.pushed(greedy, frame, cost);
            let found = turns.took(greedy, frame, cost);
            turns.ended(greedy, frame);
            found
        };
        assert_eq!(gets(&mut turns, 1, 100), Ok(()));
        turns.pushed(modest, 2, 1);
        for frame in 3..3 + PIECES_MAX {
            assert_eq!(gets(&mut turns, frame, 1), Ok(()));
        }
        assert!(gets(&mut turns, 100, 1).is_err());
        assert_eq!(turns.waiting.into_iter().collect::<Vec<_>>(), [(1, 1)]);
    }

    #[test]
    fn parked_frame_waits_and_lets_others_of_its_tenant_go_first() {
        let mut turns = TenantTurns::new("test");
        let (large, other) = (tenant(1), tenant(2));
        turns.pushed(large, 1, 1);
        turns.pushed(other, 2, 1);
        turns.parked(large, 1);
        for _ in 0..3 * PIECES_MAX {
            assert_eq!(turns.took(other, 2, 1), Ok(()));
        }
        turns.pushed(large, 3, 1);
        assert_eq!(turns.took(large, 3, 1), Ok(()));
        assert_eq!(turns.took(large, 1, 1), Ok(()));
        assert!(turns.took(large, 3, 1).is_err());
    }
}
