//! Work that waits, taken in turns: each tenant's next piece before any tenant's second.
//!
//! Start-time fair queueing with pieces of one size (Goyal, Vin and Cheng, "Start-Time Fair
//! Queueing", SIGCOMM 1996, section 2): with equal pieces it is round robin. A tenant that brings
//! a thousand pieces delays another's first one by one piece, not by a thousand.

use std::collections::{BTreeMap, VecDeque};

/// Bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most pieces of all tenants.
    pub pieces_max: usize,
    /// Most weight of all tenants, in the caller's unit.
    pub weight_max: u64,
    /// Share of both that one tenant may have, as a divisor: 4 is a quarter. What a single tenant
    /// cannot fill is there for those who come later.
    pub share: usize,
}

/// Pieces of work by tenant.
#[derive(Debug)]
pub struct Fair<K, T> {
    bounds: Bounds,
    waiting: BTreeMap<K, Tenant<T>>,
    /// Tenants with work, each once, in the order of their turns.
    turns: VecDeque<K>,
    pieces: usize,
    weight: u64,
}

#[derive(Debug)]
struct Tenant<T> {
    pieces: VecDeque<(u64, T)>,
    weight: u64,
}

impl<K: Ord + Clone, T> Fair<K, T> {
    /// Returns an empty queue.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, waiting: BTreeMap::new(), turns: VecDeque::new(), pieces: 0, weight: 0 }
    }

    /// Adds a piece behind the tenant's others.
    ///
    /// # Errors
    /// The piece, if the queue or the tenant's share of it is full: the tenant brings it again
    /// later.
    pub fn push(&mut self, tenant: K, weight: u64, piece: T) -> Result<(), T> {
        let Bounds { pieces_max, weight_max, share } = self.bounds;
        let (pieces, held) =
            self.waiting.get(&tenant).map_or((0, 0), |it| (it.pieces.len(), it.weight));
        // A tenant without work may always bring one piece, unless the queue itself is full.
        let is_beyond = pieces > 0
            && (pieces >= pieces_max / share || held + weight > weight_max / share as u64);
        let is_full = self.pieces >= pieces_max
            || (self.pieces > 0 && self.weight.saturating_add(weight) > weight_max);
        if is_beyond || is_full {
            return Err(piece);
        }
        self.count(weight);
        let queue = self.queue(tenant);
        queue.weight += weight;
        queue.pieces.push_back((weight, piece));
        Ok(())
    }

    /// Puts a piece back that was taken and is not finished: it is the tenant's next one, and the
    /// tenant's next turn comes after those of all others.
    pub fn put_back(&mut self, tenant: K, weight: u64, piece: T) {
        self.count(weight);
        let queue = self.queue(tenant);
        queue.weight += weight;
        queue.pieces.push_front((weight, piece));
    }

    /// Takes the next piece, with its tenant and weight.
    pub fn pop(&mut self) -> Option<(K, u64, T)> {
        let key = self.turns.pop_front()?;
        let tenant = self.waiting.get_mut(&key).expect("a tenant with a turn has work");
        let (weight, piece) = tenant.pieces.pop_front().expect("a tenant with a turn has work");
        tenant.weight -= weight;
        self.pieces -= 1;
        self.weight -= weight;
        if tenant.pieces.is_empty() {
            self.waiting.remove(&key);
        } else {
            self.turns.push_back(key.clone());
        }
        Some((key, weight, piece))
    }

    /// Tells whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn count(&mut self, weight: u64) {
        self.pieces += 1;
        self.weight += weight;
    }

    fn queue(&mut self, tenant: K) -> &mut Tenant<T> {
        if !self.waiting.contains_key(&tenant) {
            self.turns.push_back(tenant.clone());
        }
        self.waiting.entry(tenant).or_insert_with(|| Tenant { pieces: VecDeque::new(), weight: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Fair<&'static str, u32> {
        Fair::new(Bounds { pieces_max: 8, weight_max: 800, share: 4 })
    }

    fn taken(queue: &mut Fair<&'static str, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|(_, _, piece)| piece).collect()
    }

    #[test]
    fn tenants_take_turns_and_each_keeps_its_order() {
        let mut queue = Fair::new(Bounds { pieces_max: 100, weight_max: 800, share: 1 });
        for piece in 0..4 {
            queue.push("greedy", 1, piece).unwrap();
        }
        queue.push("modest", 1, 10).unwrap();
        queue.push("other", 1, 20).unwrap();
        assert_eq!(taken(&mut queue), [0, 10, 20, 1, 2, 3]);
        assert!(queue.is_empty());
        assert_eq!((queue.pieces, queue.weight), (0, 0));
    }

    #[test]
    fn piece_that_is_put_back_is_its_tenants_next_and_waits_for_all_others() {
        let mut queue = Fair::new(Bounds { pieces_max: 100, weight_max: 800, share: 1 });
        queue.push("greedy", 1, 1).unwrap();
        queue.push("greedy", 1, 2).unwrap();
        let (tenant, weight, piece) = queue.pop().unwrap();
        queue.push("modest", 1, 10).unwrap();
        queue.put_back(tenant, weight, piece);
        assert_eq!(taken(&mut queue), [1, 10, 2]);
        let last = {
            queue.push("greedy", 1, 3).unwrap();
            queue.pop().unwrap()
        };
        queue.push("modest", 1, 11).unwrap();
        queue.put_back(last.0, last.1, last.2);
        assert_eq!(taken(&mut queue), [11, 3]);
    }

    #[test]
    fn one_tenant_fills_its_share_alone() {
        let mut queue = queue();
        queue.push("greedy", 1, 1).unwrap();
        queue.push("greedy", 1, 2).unwrap();
        assert_eq!(queue.push("greedy", 1, 3), Err(3));
        queue.push("modest", 1, 10).unwrap();
        let mut queue = self::queue();
        queue.push("greedy", 150, 1).unwrap();
        assert_eq!(queue.push("greedy", 51, 2), Err(2));
        queue.push("modest", 300, 10).unwrap();
        assert_eq!(queue.push("modest", 1, 11), Err(11), "one piece may be more than the share");
    }

    #[test]
    fn queue_has_bounds_whoever_comes() {
        let mut queue = queue();
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let pushed = tenants.map(|tenant| queue.push(tenant, 100, 1).is_ok());
        assert_eq!(pushed, [true, true, true, true, true, true, true, true, false]);
        let mut queue = self::queue();
        queue.push("a", 10_000, 1).unwrap();
        assert_eq!(queue.push("b", 1, 2), Err(2));
        assert_eq!(taken(&mut queue), [1]);
    }
}
