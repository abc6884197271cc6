//! Work that waits, taken in turns: a tenant that has had little goes before one that has had much.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, "Start-Time Fair Queueing: A Scheduling
//! Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996, section 2): a
//! piece's start tag is the queue's virtual time when it came, or the end of its tenant's piece
//! before if that is later; its end is its start plus its cost; the piece with the smallest start
//! is next, and the virtual time is that of the piece that was taken last. All tenants have the
//! same weight. So a tenant that brings a thousand pieces delays another's first one by the piece
//! that is being worked on, not by a thousand, nor by one of each other tenant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most that may wait in a queue: in all, and of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most pieces of all tenants.
    pub pieces_max: usize,
    /// Most bytes of all tenants.
    pub bytes_max: u64,
    /// Share of both that one tenant may have, as a divisor: 4 is a quarter. What a single tenant
    /// cannot fill stays free for tenants that come later.
    pub share: usize,
}

/// The size of a piece of work: the memory that it takes, and the work that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSize {
    /// Memory that it takes while it waits.
    pub bytes: u64,
    /// Work that it makes, in any unit that is the same for all.
    pub cost: u64,
}

/// Units of virtual time for a unit of cost: what is shared among tenants is a part of it. Of a
/// thousand tenants each still has one unit.
const SCALE: u64 = 1 << 10;

/// Tenants without work of which the queue forgets nothing. A few KiB, so that a queue of few
/// tenants does not search for them each time. Chosen, not measured.
const ENDED_MIN: usize = 64;

/// A queue of pieces of work in which tenants take turns, weighted by their pieces' costs.
#[derive(Debug)]
pub struct Fair<K, T> {
    bounds: Bounds,
    waiting: BTreeMap<K, TenantQueue<T>>,
    /// Tenants with work, each once, by the start tag of its next piece and by when it was given.
    turns: BTreeSet<(u64, u64, K)>,
    /// Ends of what tenants without work have had. Those before the virtual time have no effect and
    /// are forgotten now and then.
    ended: BTreeMap<K, u64>,
    ended_max: usize,
    virtual_time: u64,
    /// Turns that were given so far.
    given: u64,
    pieces: usize,
    bytes: u64,
}

#[derive(Debug)]
struct TenantQueue<T> {
    pieces: VecDeque<(TaskSize, T)>,
    bytes: u64,
    /// Its entry in the turns.
    turn: (u64, u64),
}

impl<K: Ord + Clone, T> Fair<K, T> {
    /// Returns an empty queue that takes pieces of work within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            waiting: BTreeMap::new(),
            turns: BTreeSet::new(),
            ended: BTreeMap::new(),
            ended_max: ENDED_MIN,
            virtual_time: 0,
            given: 0,
            pieces: 0,
            bytes: 0,
        }
    }

    /// Appends a piece of work to the tenant's queue.
    ///
    /// # Errors
    /// Returns the piece if the queue, or the tenant's share of it, is full. Refuse the request;
    /// the tenant's client sends it again later.
    pub fn push(&mut self, tenant: K, size: TaskSize, piece: T) -> Result<(), T> {
        let Bounds { pieces_max, bytes_max, share } = self.bounds;
        let (pieces, held) =
            self.waiting.get(&tenant).map_or((0, 0), |it| (it.pieces.len(), it.bytes));
        // A tenant without work may always bring one piece, unless the queue itself is full.
        let is_beyond = pieces > 0
            && (pieces >= pieces_max / share || held + size.bytes > bytes_max / share as u64);
        let is_full = self.pieces >= pieces_max
            || (self.pieces > 0 && self.bytes.saturating_add(size.bytes) > bytes_max);
        if is_beyond || is_full {
            return Err(piece);
        }
        self.queue(tenant, size).pieces.push_back((size, piece));
        Ok(())
    }

    /// Puts a piece back that was taken and is not finished: it is the tenant's next one. What was
    /// done of it counts as what the tenant has had.
    pub fn put_back(&mut self, tenant: K, size: TaskSize, piece: T) {
        self.queue(tenant, size).pieces.push_front((size, piece));
    }

    /// Returns the cost of the piece that [`Self::pop`] would return; `None` if no piece waits.
    #[must_use]
    pub fn next_cost(&self) -> Option<u64> {
        let (_, _, key) = self.turns.first()?;
        self.waiting[key].pieces.front().map(|(size, _)| size.cost)
    }

    /// Removes the next piece of work and returns it with its tenant; `None` if no piece waits. A
    /// tenant that has had little, by the cost of its pieces, goes before one that has had much.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let (start, _, key) = self.turns.pop_first()?;
        let tenant = self.waiting.get_mut(&key).expect("a tenant with a turn has work");
        let (size, piece) = tenant.pieces.pop_front().expect("a tenant with a turn has work");
        tenant.bytes -= size.bytes;
        self.pieces -= 1;
        self.bytes -= size.bytes;
        let end = start.saturating_add(size.cost.max(1) * SCALE);
        if tenant.pieces.is_empty() {
            self.waiting.remove(&key);
            self.ended.insert(key.clone(), end);
        } else {
            self.given += 1;
            tenant.turn = (end, self.given);
            self.turns.insert((end, self.given, key.clone()));
        }
        // If no tenant waits, past use delays none. The virtual time advances with each piece, so
        // a tenant that comes for the first time again and again does not starve those that wait.
        let share = size.cost.max(1) * SCALE / (self.waiting.len() as u64 + 1);
        let passed = start.max(self.virtual_time.saturating_add(share));
        self.virtual_time = if self.turns.is_empty() { end.max(passed) } else { passed };
        if self.ended.len() >= self.ended_max {
            let now = self.virtual_time;
            self.ended.retain(|_, end| *end > now);
            self.ended_max = 2 * self.ended.len() + ENDED_MIN;
        }
        Some((key, piece))
    }

    /// Returns whether no tenant has a piece of work in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Returns the pieces of a tenant, to which one of this size is added.
    fn queue(&mut self, tenant: K, size: TaskSize) -> &mut TenantQueue<T> {
        self.pieces += 1;
        self.bytes += size.bytes;
        if !self.waiting.contains_key(&tenant) {
            let start = self.ended.remove(&tenant).map_or(0, |end| end).max(self.virtual_time);
            self.given += 1;
            let turn = (start, self.given);
            self.turns.insert((turn.0, turn.1, tenant.clone()));
            let pieces = VecDeque::new();
            self.waiting.insert(tenant.clone(), TenantQueue { pieces, bytes: 0, turn });
        }
        let queue = self.waiting.get_mut(&tenant).expect("there is one now");
        queue.bytes += size.bytes;
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Bounds = Bounds { pieces_max: 100, bytes_max: 800, share: 1 };

    const fn of(cost: u64) -> TaskSize {
        TaskSize { bytes: 1, cost }
    }

    const fn long(bytes: u64) -> TaskSize {
        TaskSize { bytes, cost: 1 }
    }

    fn few() -> Fair<&'static str, u32> {
        Fair::new(Bounds { pieces_max: 8, bytes_max: 800, share: 4 })
    }

    fn taken(queue: &mut Fair<&'static str, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|(_, piece)| piece).collect()
    }

    #[test]
    fn tenants_take_turns_and_each_keeps_its_order() {
        let mut queue = Fair::new(MANY);
        for piece in 0..4 {
            queue.push("greedy", of(1), piece).unwrap();
        }
        queue.push("modest", of(1), 10).unwrap();
        queue.push("other", of(1), 20).unwrap();
        assert_eq!(taken(&mut queue), [0, 10, 20, 1, 2, 3]);
        assert!(queue.is_empty() && queue.next_cost().is_none());
        assert_eq!((queue.pieces, queue.bytes, queue.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn tenant_that_has_had_little_waits_for_the_piece_under_way_and_no_other() {
        let mut queue = Fair::new(MANY);
        for piece in 0..3 {
            for tenant in ["a", "b", "c"] {
                queue.push(tenant, of(500), piece).unwrap();
            }
        }
        assert_eq!(queue.pop().map(|(tenant, _)| tenant), Some("a"));
        assert_eq!(queue.pop().map(|(tenant, _)| tenant), Some("b"));
        // "a" and "b" have had 500 each by now, "c" nothing.
        queue.push("modest", of(1), 10).unwrap();
        assert_eq!(queue.pop().map(|(tenant, _)| tenant), Some("c"));
        for round in 0..20 {
            let next = queue.pop().expect("it waits");
            assert_eq!(next, ("modest", 10 + round), "it goes before all that have had more");
            queue.push("modest", of(1), 11 + round).unwrap();
        }
        assert_eq!(queue.next_cost(), Some(1));
    }

    #[test]
    fn tenant_that_comes_back_has_not_become_a_new_one() {
        let mut queue = Fair::new(MANY);
        queue.push("greedy", of(500), 1).unwrap();
        queue.push("other", of(100), 20).unwrap();
        queue.push("other", of(100), 21).unwrap();
        assert_eq!(queue.pop(), Some(("greedy", 1)));
        queue.push("greedy", of(1), 2).unwrap();
        assert_eq!(taken(&mut queue), [20, 21, 2]);
        queue.push("modest", of(1), 3).unwrap();
        assert_eq!(taken(&mut queue), [3]);
    }

    #[test]
    fn shares_of_idle_tenants_are_forgotten_once_they_do_not_matter() {
        let mut queue = Fair::new(MANY);
        for tenant in 0..10_000 {
            queue.push(tenant, of(1), 1).unwrap();
            assert!(queue.pop().is_some());
            assert!(queue.ended.len() <= 3 * ENDED_MIN, "{} tenants", queue.ended.len());
        }
    }

    #[test]
    fn tenants_that_come_for_the_first_time_again_and_again_starve_no_other_one() {
        let mut queue = Fair::new(MANY);
        queue.push("early".to_owned(), of(512), 1).unwrap();
        queue.push("early".to_owned(), of(512), 2).unwrap();
        let taken = (0..).find(|number| {
            queue.push(format!("fresh {number}"), of(512), 0).unwrap();
            queue.pop().is_some_and(|(_, piece)| piece == 2)
        });
        assert!(taken.is_some_and(|number| number < 10), "{taken:?}");
    }

    #[test]
    fn piece_that_is_put_back_is_its_tenants_next_and_counts_as_work_that_was_done() {
        let mut queue = Fair::new(MANY);
        queue.push("greedy", of(1), 1).unwrap();
        queue.push("greedy", of(1), 2).unwrap();
        let (tenant, piece) = queue.pop().unwrap();
        queue.push("modest", of(1), 10).unwrap();
        queue.put_back(tenant, of(1), piece);
        assert_eq!(taken(&mut queue), [10, 1, 2]);
        queue.push("greedy", of(1), 3).unwrap();
        let (tenant, piece) = queue.pop().unwrap();
        queue.push("modest", of(1), 11).unwrap();
        queue.put_back(tenant, of(1), piece);
        assert_eq!(taken(&mut queue), [11, 3]);
    }

    #[test]
    fn one_tenant_fills_its_share_alone() {
        let mut queue = few();
        queue.push("greedy", of(1), 1).unwrap();
        queue.push("greedy", of(1), 2).unwrap();
        assert_eq!(queue.push("greedy", of(1), 3), Err(3));
        queue.push("modest", of(1), 10).unwrap();
        let mut queue = few();
        queue.push("greedy", long(150), 1).unwrap();
        assert_eq!(queue.push("greedy", long(51), 2), Err(2));
        queue.push("modest", long(300), 10).unwrap();
        assert_eq!(queue.push("modest", long(1), 11), Err(11), "one may be more than the share");
    }

    #[test]
    fn queue_has_bounds_whatever_comes() {
        let mut queue = few();
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let pushed = tenants.map(|tenant| queue.push(tenant, long(100), 1).is_ok());
        assert_eq!(pushed, [true, true, true, true, true, true, true, true, false]);
        let mut queue = few();
        queue.push("a", long(10_000), 1).unwrap();
        assert_eq!(queue.push("b", long(1), 2), Err(2));
        assert_eq!(taken(&mut queue), [1]);
    }
}
