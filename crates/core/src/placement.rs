//! Placement: which node gets a new block.
//!
//! Of two nodes drawn at random the one with the larger free share gets the block (Mitzenmacher,
//! "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001): nearly as even as
//! taking the emptiest, without sending every block to the node that joined last.

use std::collections::BTreeMap;

use sanderling_protocol::{Millis, NodeId, Refusal, StorageClass, Tier, WhenFull};

use crate::catalog::{Placement, allocated_bytes};

/// How long a writer waits before it asks again when its class says to wait for room.
const WAIT_FOR_ROOM: Millis = Millis(50);

/// How long a writer waits before it asks again when no node takes blocks at all.
const WAIT_FOR_NODES: Millis = Millis(100);

/// A node that may get blocks.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its machine.
    pub host: String,
    /// Free bytes and size of each of its tiers.
    pub room: BTreeMap<Tier, (u64, u64)>,
}

/// What is asked of the nodes.
#[derive(Debug, Clone)]
pub struct Wish<'a> {
    /// Where the blocks may go.
    pub class: StorageClass,
    /// Nodes to be passed over if there are others.
    pub avoid: &'a [NodeId],
    /// A machine to be near to, if it has room.
    pub near_host: Option<&'a str>,
}

/// Draws the numbers that placement needs: SplitMix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", OOPSLA 2014), the same on every machine.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// Returns the generator that starts with that seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not zero.
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Chooses homes for blocks of these sizes.
///
/// # Errors
/// [`Refusal::Full`] when the class allows no tier with room; [`Refusal::RetryAfter`] when it says
/// to wait, or when there is no node at all.
pub fn place(
    draw: &mut Draw,
    mut candidates: Vec<Candidate>,
    wish: &Wish<'_>,
    sizes: &[u32],
) -> Result<Vec<Placement>, Refusal> {
    if candidates.is_empty() && !sizes.is_empty() {
        let why = "no datanode takes blocks".to_owned();
        return Err(Refusal::RetryAfter { after: WAIT_FOR_NODES, why });
    }
    let mut placed = Vec::with_capacity(sizes.len());
    for bytes_max in sizes {
        let bytes = u64::from(allocated_bytes(*bytes_max));
        let Some((index, tier)) = choose(draw, &candidates, wish, bytes) else {
            return Err(no_room(wish.class, bytes));
        };
        let candidate = &mut candidates[index];
        if let Some((free, _)) = candidate.room.get_mut(&tier) {
            *free -= bytes;
        }
        placed.push(Placement { node: candidate.node, tier, bytes_max: *bytes_max });
    }
    Ok(placed)
}

fn no_room(class: StorageClass, bytes: u64) -> Refusal {
    match class.when_full {
        WhenFull::Wait => {
            let why = format!("no room for {bytes} bytes in class {class}");
            Refusal::RetryAfter { after: WAIT_FOR_ROOM, why }
        }
        WhenFull::FallThrough | WhenFull::Refuse => {
            Refusal::Full { bytes, class: class.to_string() }
        }
    }
}

fn choose(
    draw: &mut Draw,
    candidates: &[Candidate],
    wish: &Wish<'_>,
    bytes: u64,
) -> Option<(usize, Tier)> {
    let mut tier = Some(wish.class.tier);
    while let Some(asked) = tier {
        let fits = |candidate: &Candidate| {
            candidate.room.get(&asked).is_some_and(|(free, _)| *free >= bytes)
        };
        let wanted = |candidate: &Candidate| !wish.avoid.contains(&candidate.node);
        let near = |candidate: &Candidate| wish.near_host == Some(candidate.host.as_str());
        let found = draw_two(draw, candidates, asked, |it| fits(it) && wanted(it) && near(it))
            .or_else(|| draw_two(draw, candidates, asked, |it| fits(it) && wanted(it)))
            .or_else(|| draw_two(draw, candidates, asked, fits));
        if let Some(index) = found {
            return Some((index, asked));
        }
        tier = if wish.class.when_full == WhenFull::FallThrough { asked.slower() } else { None };
    }
    None
}

/// Draws two of the fitting candidates and returns the one with the larger free share.
fn draw_two(
    draw: &mut Draw,
    candidates: &[Candidate],
    tier: Tier,
    fits: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let fitting: Vec<usize> =
        (0..candidates.len()).filter(|index| fits(&candidates[*index])).collect();
    if fitting.is_empty() {
        return None;
    }
    let first = fitting[draw.below(fitting.len())];
    let second = fitting[draw.below(fitting.len())];
    let share = |index: usize| {
        let (free, size) = candidates[index].room[&tier];
        u128::from(free) * 1_000_000 / u128::from(size.max(1))
    };
    Some(if share(second) > share(first) { second } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u32, dram: u64, disk: u64) -> Candidate {
        let room = BTreeMap::from([(Tier::Dram, (dram, 1 << 20)), (Tier::Disk, (disk, 1 << 20))]);
        Candidate { node: NodeId(id), host: format!("host-{id}"), room }
    }

    fn wish(class: &str) -> Wish<'static> {
        Wish { class: class.parse().unwrap(), avoid: &[], near_host: None }
    }

    #[test]
    fn full_memory_falls_through_waits_or_refuses() {
        let nodes = vec![candidate(1, 0, 1 << 20)];
        let mut draw = Draw::new(1);
        let placed = place(&mut draw, nodes.clone(), &wish("dram"), &[4096]).unwrap();
        assert_eq!(placed[0].tier, Tier::Disk);
        let waited = place(&mut draw, nodes.clone(), &wish("dram:wait"), &[4096]);
        assert!(matches!(waited, Err(Refusal::RetryAfter { .. })));
        let refused = place(&mut draw, nodes, &wish("dram:refuse"), &[4096]);
        assert!(matches!(refused, Err(Refusal::Full { .. })));
    }

    #[test]
    fn one_request_never_promises_more_than_there_is() {
        let nodes = vec![candidate(1, 8192, 0), candidate(2, 4096, 0)];
        let mut draw = Draw::new(1);
        assert!(place(&mut draw, nodes.clone(), &wish("dram"), &[4096; 3]).is_ok());
        assert!(place(&mut draw, nodes, &wish("dram"), &[4096; 4]).is_err());
    }

    #[test]
    fn wishes_are_followed_where_there_is_room() {
        let nodes: Vec<Candidate> = (1..=5).map(|id| candidate(id, 1 << 20, 0)).collect();
        let mut draw = Draw::new(1);
        let near = Wish { near_host: Some("host-3"), ..wish("dram") };
        let placed = place(&mut draw, nodes.clone(), &near, &[4096; 4]).unwrap();
        assert!(placed.iter().all(|placement| placement.node == NodeId(3)));
        let avoid: Vec<NodeId> = (1..=4).map(NodeId).collect();
        let wish = Wish { avoid: &avoid, ..wish("dram") };
        let placed = place(&mut draw, nodes, &wish, &[4096; 4]).unwrap();
        assert!(placed.iter().all(|placement| placement.node == NodeId(5)));
    }

    #[test]
    fn new_empty_node_does_not_get_every_block() {
        let mut nodes: Vec<Candidate> = (1..=4).map(|id| candidate(id, 1 << 19, 0)).collect();
        nodes.push(candidate(5, 1 << 20, 0));
        let mut draw = Draw::new(7);
        let mut on_new = 0;
        for _ in 0..1000 {
            let placed = place(&mut draw, nodes.clone(), &wish("dram"), &[4096]).unwrap();
            on_new += u32::from(placed[0].node == NodeId(5));
        }
        // Two draws of five hit the new node with probability 9/25.
        assert!((300..420).contains(&on_new), "{on_new}");
    }
}
