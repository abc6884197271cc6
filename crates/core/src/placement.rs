//! Placement: which node gets a new block.
//!
//! Of two nodes drawn at random the one with the larger free share gets the block (Mitzenmacher,
//! "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001): nearly as even as
//! taking the emptiest, without sending every block to the node that joined last. A node is drawn
//! by its weight ([`weights`]): new ones seldom, and those that are expected to go before their
//! blocks. The weight decides how often a node is drawn, not which of two is fuller, so that a
//! fleet of machines of all ages stays even. Nodes that their cloud recommends to leave come last.
//!
//! Below a durable directory blocks are placed in runs ([`BlockRun`]): a node is chosen for the
//! first block of the parts that one request uploads later, and their other blocks follow it there.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::split_mix::SplitMix64;
use sanderling_protocol::{Millis, NodeId, Refusal, StorageClass, Tier, WhenFull};

use crate::catalog::{Placement, allocated_bytes};
use crate::datanode::JOINED_BYTES_MAX;
use crate::durable::PART_BYTES_MIN;
use crate::preemption::Model;

/// Blocks of a run, if each is as long as it may be: those of as many whole parts of an upload as
/// one request sends, 32 MiB. A part whose blocks are on several nodes leaves most of them twice,
/// because one node uploads it. Parts that several nodes upload take a request each.
pub const RUN_BLOCKS: usize =
    (JOINED_BYTES_MAX / PART_BYTES_MIN * PART_BYTES_MIN) as usize / BLOCK_BYTES_MAX as usize;

/// How long a writer waits before it retries when its class requires waiting for room. Room appears
/// when objects are deleted or copies dropped, which takes a round trip to a datanode; each attempt
/// is one request to the namenode. Chosen, not measured.
pub(crate) const WAIT_FOR_ROOM: Millis = Millis(50);

/// How long a writer waits before it retries when no node takes blocks at all. A node that starts
/// registers within a second; the call's deadline is 10 s by default. Chosen, not measured.
const WAIT_FOR_NODES: Millis = Millis(100);

/// The weight of a node that has settled and is there to stay. Weights are thousandths of it, fine
/// enough for a node that nears its end.
pub const WEIGHT_MAX: u32 = 1000;

/// The weight of a node that has just come: a half. The emptier of two that are drawn wins, and a
/// new node is that, so that of n nodes it gets one block in n, its fair share, from the first on
/// (1 - (1 - 1/(2n))^2 is about 1/n).
const WEIGHT_NEW: u32 = 500;

/// The weight of a node that is expected to go at once: it gets blocks where no other node is.
const WEIGHT_MIN: u32 = 1;

/// How long blocks are reckoned to be needed: an hour of the model. What jobs throw away is gone
/// by then.
const NEEDED_HOURS_MILLIS: f64 = 3_600_000.0;

/// Draws of a node before all are looked at: where a quarter of them suits, one draw in a hundred
/// is not answered by so many.
const DRAWS_MAX: usize = 16;

/// A node that may get blocks, with what decides how often it is drawn.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its machine.
    pub host: String,
    /// How often it is drawn: see [`weights`].
    pub weight: u32,
    /// Whether its cloud recommended to leave it: it is passed over if there are others.
    pub is_at_risk: bool,
}

/// The nodes that may get blocks, ready to be drawn from: a draw costs the logarithm of their
/// number.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    all: Vec<Candidate>,
    /// For each one the sum of the weights up to it, its own included.
    sums: Vec<u64>,
    by_host: BTreeMap<String, Vec<usize>>,
}

impl Candidates {
    /// Returns the candidates of these nodes. Cost: linear in their number.
    #[must_use]
    pub fn new(all: Vec<Candidate>) -> Self {
        let mut total = 0;
        let weigh = |candidate: &Candidate| {
            total += u64::from(candidate.weight);
            total
        };
        let sums = all.iter().map(weigh).collect();
        let mut by_host: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, candidate) in all.iter().enumerate() {
            by_host.entry(candidate.host.clone()).or_default().push(index);
        }
        Self { all, sums, by_host }
    }

    /// Returns whether no node may get blocks.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the index of a node; `None` if it may get no blocks.
    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.all.iter().position(|candidate| candidate.node == node)
    }

    fn on_host(&self, host: &str) -> &[usize] {
        self.by_host.get(host).map(Vec::as_slice).unwrap_or_default()
    }

    /// Draws one by the weights.
    fn draw(&self, draw: &mut Draw) -> Option<usize> {
        let total = self.sums.last().copied().filter(|total| *total > 0)?;
        let drawn = draw.next() % total;
        let index = self.sums.partition_point(|sum| *sum <= drawn);
        debug_assert!(index < self.all.len(), "what is drawn is below the last sum");
        debug_assert!(self.all[index].weight > 0, "what weighs nothing is never drawn");
        Some(index)
    }
}

/// Returns how often nodes of these ages are drawn, each from 1 to [`WEIGHT_MAX`].
///
/// A new node's weight grows from a half to the whole within `ramp_up`. With a model it is at most
/// the square of the share of the model's next hour that a machine of this age is expected to see,
/// as a part of the best one's share. The lesser of the two counts, not their product: both have
/// young machines in mind, and together would count that twice.
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
    let weights: Vec<u32> = ages.iter().zip(&seen).map(weight).collect();
    let is_right = |weight: &u32| (WEIGHT_MIN..=WEIGHT_MAX).contains(weight);
    debug_assert!(weights.iter().all(is_right), "every node is drawn sometimes");
    weights
}

fn ramped(age: Millis, ramp_up: Millis) -> u32 {
    if age >= ramp_up {
        return WEIGHT_MAX;
    }
    let grown = u64::from(WEIGHT_MAX - WEIGHT_NEW) * age.0 / ramp_up.0;
    WEIGHT_NEW + u32::try_from(grown).expect("below the whole weight")
}

/// The conditions that the nodes of new blocks must meet, and which nodes are preferred.
#[derive(Debug, Clone)]
pub struct PlacementRequest<'a> {
    /// Where the blocks may go.
    pub class: StorageClass,
    /// Nodes to be passed over if there are others.
    pub avoid: &'a [NodeId],
    /// A machine to be near to, if it has room.
    pub near_host: Option<&'a str>,
    /// Where the blocks begin in their object, if they are placed in runs.
    pub run: Option<BlockRun>,
}

/// Where the blocks of a request begin among the runs of their object.
///
/// Each run has [`RUN_BLOCKS`] blocks. The first one gets its node as any block does. The others go
/// to the node of the one before, as long as that takes blocks, is neither avoided nor at risk, and
/// has room. Else another node is chosen, and the rest of the run goes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRun {
    /// How many blocks the object has before.
    pub blocks_before: usize,
    /// The home of the last one of them.
    pub last_home: Option<NodeId>,
}

/// The run of the block that is placed next.
struct OpenRun {
    blocks_before: usize,
    /// The candidate with the block before.
    last: Option<usize>,
}

impl OpenRun {
    fn of(run: BlockRun, candidates: &Candidates) -> Self {
        let last = run.last_home.and_then(|home| candidates.index_of(home));
        Self { blocks_before: run.blocks_before, last }
    }

    /// Returns the candidate that has the run's blocks; `None` if the next block is its first one.
    fn node(&self) -> Option<usize> {
        self.last.filter(|_| !self.blocks_before.is_multiple_of(RUN_BLOCKS))
    }

    const fn placed(&mut self, on: usize) {
        self.blocks_before += 1;
        self.last = Some(on);
    }
}

/// Draws the numbers that placement needs, the same on every machine.
#[derive(Debug, Clone)]
pub struct Draw(SplitMix64);

impl Draw {
    /// Returns the generator that starts with this seed: the same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns the next number of the generator, uniform over 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Draws a number from 0 to below `bound`, which is not 0: it would panic.
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// By what the room of a node's tier is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomView {
    /// By what the catalog counts there.
    Account,
    /// Also by the node's last heartbeat, which counts what has no account, and may be older than a
    /// deletion.
    Heartbeat,
}

/// Free bytes and size of a node's tier.
type TierSpace = (u64, u64);

/// What one request has been given so far, on top of what its nodes hold.
struct PlacementDraft<'a, R> {
    candidates: &'a Candidates,
    room: R,
    taken: Vec<(usize, Tier, u64)>,
}

impl<R: Fn(NodeId, Tier, RoomView) -> TierSpace> PlacementDraft<'_, R> {
    fn room(&self, index: usize, tier: Tier, view: RoomView) -> TierSpace {
        let (free, size) = (self.room)(self.candidates.all[index].node, tier, view);
        let taken = self.taken.iter().filter(|(of, in_tier, _)| (*of, *in_tier) == (index, tier));
        (free.saturating_sub(taken.map(|(_, _, bytes)| bytes).sum()), size)
    }

    /// Returns the index of the one of two candidates whose tier has the larger free share.
    fn emptier(&self, (first, second): (usize, usize), tier: Tier, view: RoomView) -> usize {
        let share = |index: usize| {
            let (free, size) = self.room(index, tier, view);
            u128::from(free) * 1_000_000 / u128::from(size.max(1))
        };
        if share(second) > share(first) { second } else { first }
    }
}

/// Chooses homes for blocks of these sizes, for `least` of them at least: it stops in front of the
/// first that finds no room. `room` returns the free bytes and the size of a node's tier. Of the
/// nodes that nothing speaks against, those come first whose heartbeats show room, too, in the tier
/// of the class, as far as draws find them; then the account alone decides. Cost of one block: a
/// few draws, unless most nodes have no room for it or are not wanted; then all are looked at.
///
/// # Errors
/// If fewer than `least` find room: [`Refusal::Full`] when the class allows no tier with room;
/// [`Refusal::RetryAfter`] when it requires waiting, or when there is no node at all. Send it to
/// the caller as the reply.
pub fn place(
    draw: &mut Draw,
    candidates: &Candidates,
    room: impl Fn(NodeId, Tier, RoomView) -> (u64, u64),
    request: &PlacementRequest<'_>,
    sizes: &[u32],
    least: usize,
) -> Result<Vec<Placement>, Refusal> {
    if candidates.is_empty() && !sizes.is_empty() {
        let why = Refusal::NO_DATANODES.to_owned();
        return Err(Refusal::RetryAfter { after: WAIT_FOR_NODES, why });
    }
    let mut places = PlacementDraft { candidates, room, taken: Vec::new() };
    let mut placed = Vec::with_capacity(sizes.len());
    let mut run = request.run.map(|run| OpenRun::of(run, candidates));
    for bytes_max in sizes {
        let bytes = u64::from(allocated_bytes(*bytes_max));
        let before = run.as_ref().and_then(OpenRun::node);
        let Some((index, tier)) = choose(draw, &places, request, before, bytes) else {
            if placed.len() >= least {
                break;
            }
            return Err(no_room(request.class, bytes));
        };
        debug_assert!(
            places.room(index, tier, RoomView::Account).0 >= bytes,
            "a block is placed where it fits"
        );
        places.taken.push((index, tier, bytes));
        if let Some(run) = &mut run {
            run.placed(index);
        }
        let node = candidates.all[index].node;
        placed.push(Placement { node, tier, bytes_max: *bytes_max });
    }
    debug_assert!(placed.len() >= least.min(sizes.len()), "so many blocks have a place, or none");
    Ok(placed)
}

fn no_room(class: StorageClass, bytes: u64) -> Refusal {
    match class.when_full {
        WhenFull::Wait => {
            let why = Refusal::Full { bytes, class: class.to_string() }.to_string();
            Refusal::RetryAfter { after: WAIT_FOR_ROOM, why }
        }
        WhenFull::FallThrough | WhenFull::Refuse => {
            Refusal::Full { bytes, class: class.to_string() }
        }
    }
}

/// Chooses the node of one block: the one with the blocks `before` it in its run, if that suits as
/// the nodes do that are preferred.
fn choose<R: Fn(NodeId, Tier, RoomView) -> TierSpace>(
    draw: &mut Draw,
    places: &PlacementDraft<'_, R>,
    request: &PlacementRequest<'_>,
    before: Option<usize>,
    bytes: u64,
) -> Option<(usize, Tier)> {
    let all = &places.candidates.all;
    let near = request.near_host.map(|host| places.candidates.on_host(host)).unwrap_or_default();
    let wanted = |index: usize| !request.avoid.contains(&all[index].node);
    let safe = |index: usize| wanted(index) && !all[index].is_at_risk;
    let own = request.class.tier;
    let shows_room = |index: usize| places.room(index, own, RoomView::Heartbeat).0 >= bytes;
    let is_sure = |index: usize| safe(index) && shows_room(index);
    if let Some(index) = before.filter(|it| is_sure(*it)) {
        return Some((index, own));
    }
    let shown = draw_among(draw, all, near.iter().copied().filter(|it| is_sure(*it)))
        .or_else(|| draw_any(draw, places.candidates, is_sure));
    if let Some(two) = shown {
        return Some((places.emptier(two, own, RoomView::Heartbeat), own));
    }
    let every = || 0..all.len();
    let mut tier = Some(own);
    while let Some(asked) = tier {
        let fits = |index: usize| places.room(index, asked, RoomView::Account).0 >= bytes;
        let best = |two: (usize, usize)| places.emptier(two, asked, RoomView::Account);
        if let Some(index) = before.filter(|it| fits(*it) && safe(*it)) {
            return Some((index, asked));
        }
        let found = draw_among(draw, all, near.iter().copied().filter(|it| fits(*it) && safe(*it)))
            .or_else(|| draw_any(draw, places.candidates, |it| safe(it) && fits(it)))
            .or_else(|| draw_among(draw, all, every().filter(|it| fits(*it) && safe(*it))))
            .or_else(|| draw_among(draw, all, every().filter(|it| fits(*it) && wanted(*it))))
            .or_else(|| draw_among(draw, all, every().filter(|it| fits(*it))));
        if let Some(two) = found {
            return Some((best(two), asked));
        }
        tier = if request.class.when_full == WhenFull::FallThrough { asked.slower() } else { None };
    }
    None
}

/// Draws two of all candidates by their weights until they suit: as likely each as if only those
/// that do had been drawn from. `None` when few of them seem to suit.
fn draw_any(
    draw: &mut Draw,
    candidates: &Candidates,
    suits: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    let mut one = || {
        let mut drawn = (0..DRAWS_MAX).map_while(|_| candidates.draw(draw));
        drawn.find(|index| suits(*index))
    };
    Some((one()?, one()?))
}

/// Draws two of the candidates that suit by their weights.
fn draw_among(
    draw: &mut Draw,
    all: &[Candidate],
    suiting: impl Iterator<Item = usize>,
) -> Option<(usize, usize)> {
    let suiting: Vec<usize> = suiting.collect();
    let weight = |index: &usize| u64::from(all[*index].weight);
    let total: u64 = suiting.iter().map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut one = || {
        let mut left = draw.next() % total;
        let drawn = suiting.iter().find(|index| {
            let is_drawn = left < weight(index);
            left = left.saturating_sub(weight(index));
            is_drawn
        });
        *drawn.expect("what is left is below the sum of the weights")
    };
    Some((one(), one()))
}

#[cfg(test)]
mod tests;
