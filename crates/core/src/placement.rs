//! Placement: which node gets a new block.
//!
//! Of two nodes drawn at random the one with the larger free share gets the block (Mitzenmacher,
//! "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001): nearly as even as
//! taking the emptiest, without sending every block to the node that joined last. A node is drawn
//! by its weight ([`weights`]): new ones seldom, and those that are expected to go before their
//! blocks. The weight decides how often a node is asked, not which of two is fuller, so that a
//! fleet of machines of all ages stays even. Nodes that their cloud recommends to leave come last.

use std::collections::BTreeMap;

use sanderling_protocol::{Millis, NodeId, Refusal, StorageClass, Tier, WhenFull};

use crate::catalog::{Placement, allocated_bytes};
use crate::preemption::Model;

#[cfg(test)]
mod tests;

/// How long a writer waits before it asks again when its class says to wait for room.
const WAIT_FOR_ROOM: Millis = Millis(50);

/// How long a writer waits before it asks again when no node takes blocks at all.
const WAIT_FOR_NODES: Millis = Millis(100);

/// The weight of a node that has settled and is there to stay.
pub const WEIGHT_MAX: u32 = 1000;

/// The weight of a node that has just come: a half. The emptier of two that are drawn wins, and a
/// new node is that, so that of n nodes it gets one block in n, its fair share, from the first on
/// (1 - (1 - 1/(2n))^2 is about 1/n). With a tenth its link stood idle: writers of a fleet whose
/// links were all busy took 1.2 % longer for each machine that was replaced.
const WEIGHT_NEW: u32 = 500;

/// The weight of a node that is expected to go at once: it gets blocks where nobody else is.
const WEIGHT_MIN: u32 = 1;

/// How long blocks are reckoned to be needed: an hour of the model. What jobs throw away is gone
/// by then.
const NEEDED_HOURS_MILLIS: f64 = 3_600_000.0;

/// A node that may get blocks.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its machine.
    pub host: String,
    /// Free bytes and size of each of its tiers.
    pub room: BTreeMap<Tier, (u64, u64)>,
    /// How often it is drawn: see [`weights`].
    pub weight: u32,
    /// Whether its cloud recommended to leave it: it is passed over if there are others.
    pub is_at_risk: bool,
}

/// Returns how often nodes of these ages are drawn, each from 1 to [`WEIGHT_MAX`].
///
/// A new node's weight grows from a half to the whole within `ramp_up`. With a model it is at most
/// the square of the share of the model's next hour that a machine of this age is expected to see,
/// as a part of the best one's share. The lesser of the two counts, not their product: both have
/// young machines in mind, and together would leave their links idle.
#[must_use]
pub fn weights(ages: &[Millis], ramp_up: Millis, model: Option<&Model>) -> Vec<u32> {
    let seen = |age: &Millis| {
        model.map_or(1.0, |model| {
            let needed = Millis((NEEDED_HOURS_MILLIS / model.speed()).ceil() as u64);
            model.expected_share(*age, needed)
        })
    };
    let seen: Vec<f64> = ages.iter().map(seen).collect();
    let best = seen.iter().copied().fold(0.0, f64::max);
    let weight = |(age, seen): (&Millis, &f64)| {
        let part = if best > 0.0 { seen / best } else { 1.0 };
        // Squared, because the emptier of two drawn nodes wins, and the one seldom drawn is that.
        let lives = (f64::from(WEIGHT_MAX) * part * part).round() as u32;
        lives.min(ramped(*age, ramp_up)).max(WEIGHT_MIN)
    };
    ages.iter().zip(&seen).map(weight).collect()
}

fn ramped(age: Millis, ramp_up: Millis) -> u32 {
    if age >= ramp_up {
        return WEIGHT_MAX;
    }
    let grown = u64::from(WEIGHT_MAX - WEIGHT_NEW) * age.0 / ramp_up.0;
    WEIGHT_NEW + u32::try_from(grown).expect("below the whole weight")
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
    place_among(draw, &mut candidates, wish, sizes)
}

/// The same among candidates that are used again: they are left as they were.
pub(crate) fn place_among(
    draw: &mut Draw,
    candidates: &mut [Candidate],
    wish: &Wish<'_>,
    sizes: &[u32],
) -> Result<Vec<Placement>, Refusal> {
    let mut taken = Vec::with_capacity(sizes.len());
    let placed = take(draw, candidates, wish, sizes, &mut taken);
    for (index, tier, bytes) in taken {
        if let Some((free, _)) = candidates[index].room.get_mut(&tier) {
            *free += bytes;
        }
    }
    placed
}

/// Chooses homes and takes their room; notes what it took.
fn take(
    draw: &mut Draw,
    candidates: &mut [Candidate],
    wish: &Wish<'_>,
    sizes: &[u32],
    taken: &mut Vec<(usize, Tier, u64)>,
) -> Result<Vec<Placement>, Refusal> {
    if candidates.is_empty() && !sizes.is_empty() {
        let why = "no datanode takes blocks".to_owned();
        return Err(Refusal::RetryAfter { after: WAIT_FOR_NODES, why });
    }
    let mut placed = Vec::with_capacity(sizes.len());
    for bytes_max in sizes {
        let bytes = u64::from(allocated_bytes(*bytes_max));
        let Some((index, tier)) = choose(draw, candidates, wish, bytes) else {
            return Err(no_room(wish.class, bytes));
        };
        let candidate = &mut candidates[index];
        if let Some((free, _)) = candidate.room.get_mut(&tier) {
            *free -= bytes;
            taken.push((index, tier, bytes));
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
        let safe = |candidate: &Candidate| wanted(candidate) && !candidate.is_at_risk;
        let near = |candidate: &Candidate| wish.near_host == Some(candidate.host.as_str());
        let found = draw_two(draw, candidates, asked, |it| fits(it) && safe(it) && near(it))
            .or_else(|| draw_two(draw, candidates, asked, |it| fits(it) && safe(it)))
            .or_else(|| draw_two(draw, candidates, asked, |it| fits(it) && wanted(it)))
            .or_else(|| draw_two(draw, candidates, asked, fits));
        if let Some(index) = found {
            return Some((index, asked));
        }
        tier = if wish.class.when_full == WhenFull::FallThrough { asked.slower() } else { None };
    }
    None
}

/// Draws two of the fitting candidates by their weights and returns the one with the larger free
/// share.
fn draw_two(
    draw: &mut Draw,
    candidates: &[Candidate],
    tier: Tier,
    fits: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let fitting: Vec<usize> =
        (0..candidates.len()).filter(|index| fits(&candidates[*index])).collect();
    let total: u64 = fitting.iter().map(|index| u64::from(candidates[*index].weight)).sum();
    if total == 0 {
        return None;
    }
    let mut one = || {
        let mut left = draw.next() % total;
        let drawn = fitting.iter().find(|index| {
            let weight = u64::from(candidates[**index].weight);
            let is_drawn = left < weight;
            left = left.saturating_sub(weight);
            is_drawn
        });
        *drawn.expect("what is left is below the sum of the weights")
    };
    let (first, second) = (one(), one());
    let share = |index: usize| {
        let (free, size) = candidates[index].room[&tier];
        u128::from(free) * 1_000_000 / u128::from(size.max(1))
    };
    Some(if share(second) > share(first) { second } else { first })
}
