//! Room that tenants share, and which of those that wait for some is next.
//!
//! A tenant that is alone has half of the room. While more than half is taken, it has an eighth at
//! most ([`TENANT_SHARE`]), so that what it keeps leaves room to others. A piece that is longer
//! than an eighth is *large*: large pieces together take half at most, and leave the other half to
//! short ones. While more than half is taken, a tenant has one large piece at most, whatever short
//! ones it has. Tenants that wait take turns, a piece each, and each tenant's pieces keep their
//! order.

use std::collections::{BTreeMap, VecDeque};

/// Part of what tenants share that one of them may have, as a divisor, while more than half of all
/// is taken: then a half is left to others, however many connections it has. It is the same part
/// of this room, of the memory for requests, and of the memory for bodies of writes.
pub const TENANT_SHARE: u64 = 8;

/// Part of the room that large pieces have, and a tenant that is alone, as a divisor: the other
/// half stays for small pieces and for tenants that come.
const HALF: u64 = 2;

/// The bounds of a [`SharedRoom`], for all tenants together. A tenant's share follows from them
/// ([`TENANT_SHARE`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomBounds {
    /// Most units that are taken, in any unit.
    pub units_max: u64,
    /// Most pieces that wait. While more than half of these places are taken, a tenant has an
    /// eighth of them at most.
    pub waiting_max: usize,
}

/// The number of a piece that has room or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoomTicket(u64);

/// What becomes of a request for room. A ticket is to be given to [`SharedRoom::end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomAnswer {
    /// It has room.
    Granted(RoomTicket),
    /// It waits: [`SharedRoom::end`] or a later request returns its ticket when it has room.
    Waits(RoomTicket),
    /// Too many wait, of all or of the tenant: the caller comes again later.
    Full,
}

/// Room of which each tenant may take pieces.
#[derive(Debug)]
pub struct SharedRoom<K> {
    bounds: RoomBounds,
    next: u64,
    pieces: BTreeMap<RoomTicket, RoomPiece<K>>,
    /// Units that are taken, by all pieces and by large ones.
    taken: u64,
    large_taken: u64,
    /// Units of each tenant, of its large pieces or of its short ones: a grant among the ones
    /// changes nothing for those that wait among the others.
    by_tenant: BTreeMap<(K, bool), u64>,
    short: RoomQueue<K>,
    large: RoomQueue<K>,
}

#[derive(Debug)]
struct RoomPiece<K> {
    tenant: K,
    units: u64,
    is_large: bool,
    has_room: bool,
}

/// The pieces that wait, of one size.
#[derive(Debug)]
struct RoomQueue<K> {
    /// The tenants of which pieces wait, each once, the next one first.
    turns: VecDeque<K>,
    by_tenant: BTreeMap<K, VecDeque<RoomTicket>>,
    waiting: usize,
}

impl<K: Ord + Clone> SharedRoom<K> {
    /// Returns room of which nothing is taken.
    ///
    /// # Panics
    /// If an eighth of it is less than a unit.
    #[must_use]
    pub const fn new(bounds: RoomBounds) -> Self {
        assert!(bounds.units_max >= TENANT_SHARE, "each tenant has a share");
        Self {
            bounds,
            next: 0,
            pieces: BTreeMap::new(),
            taken: 0,
            large_taken: 0,
            by_tenant: BTreeMap::new(),
            short: RoomQueue::new(),
            large: RoomQueue::new(),
        }
    }

    /// Requests so many units for a tenant, one at least. A piece that is longer than half of the
    /// room is counted as half. Returns the tickets of others that have room now, too: there are
    /// none as long as each change leaves nothing to grant.
    pub fn request(&mut self, tenant: K, units: u64) -> (RoomAnswer, Vec<RoomTicket>) {
        let units = units.clamp(1, self.bounds.units_max / HALF);
        let is_large = units > self.bounds.units_max / TENANT_SHARE;
        self.next += 1;
        let ticket = RoomTicket(self.next);
        let piece = RoomPiece { tenant: tenant.clone(), units, is_large, has_room: false };
        self.pieces.insert(ticket, piece);
        self.queue(is_large).push(&tenant, ticket);
        let mut granted = self.grant();
        if let Some(own) = granted.iter().position(|other| *other == ticket) {
            granted.remove(own);
            return (RoomAnswer::Granted(ticket), granted);
        }
        if self.has_too_many_waiting(&tenant) {
            granted.extend(self.end(ticket));
            return (RoomAnswer::Full, granted);
        }
        (RoomAnswer::Waits(ticket), granted)
    }

    /// Gives up a piece that has room or waits for it. Returns the tickets that have room now.
    ///
    /// # Panics
    /// If it was given up before.
    #[must_use]
    pub fn end(&mut self, ticket: RoomTicket) -> Vec<RoomTicket> {
        let piece = self.pieces.remove(&ticket).expect("a piece ends once");
        if piece.has_room {
            self.taken -= piece.units;
            if piece.is_large {
                self.large_taken -= piece.units;
            }
            let key = (piece.tenant, piece.is_large);
            let own = self.by_tenant.get_mut(&key).expect("its piece was counted");
            *own -= piece.units;
            if *own == 0 {
                self.by_tenant.remove(&key);
            }
        } else {
            self.queue(piece.is_large).remove(&piece.tenant, ticket);
        }
        self.grant()
    }

    /// Returns whether another tenant waits for room that it may have: one that waits beyond its
    /// own share waits for itself.
    #[must_use]
    pub fn is_awaited_by_others(&self, tenant: &K) -> bool {
        [(&self.short, false), (&self.large, true)].into_iter().any(|(queue, is_large)| {
            let mut waiting = queue.first_of_each();
            waiting.any(|(other, ticket)| {
                let units = self.pieces[&ticket].units;
                other != tenant && self.is_within_share(other, units, is_large)
            })
        })
    }

    /// Gives room to pieces that wait, as far as there is some; returns their tickets. A second
    /// time it gives none: what takes room brings no other piece within its share, and a piece that
    /// is within its share only because little is taken fits.
    fn grant(&mut self) -> Vec<RoomTicket> {
        let mut granted = Vec::new();
        for is_large in [true, false] {
            let mut turn = 0;
            while let Some((tenant, ticket)) = self.queue(is_large).next(turn) {
                let units = self.pieces[&ticket].units;
                if !self.is_within_share(&tenant, units, is_large) {
                    turn += 1;
                    continue;
                }
                // No later one goes first: it would be too late for the larger ones.
                if !self.fits(units, is_large) {
                    break;
                }
                self.queue(is_large).grant(turn);
                self.take(ticket);
                granted.push(ticket);
            }
        }
        granted
    }

    fn queue(&mut self, is_large: bool) -> &mut RoomQueue<K> {
        if is_large { &mut self.large } else { &mut self.short }
    }

    fn is_within_share(&self, tenant: &K, units: u64, is_large: bool) -> bool {
        let RoomBounds { units_max, .. } = self.bounds;
        let own = self.by_tenant.get(&(tenant.clone(), is_large)).copied().unwrap_or_default();
        let is_alone = self.taken + units <= units_max / HALF;
        is_alone || if is_large { own == 0 } else { own + units <= units_max / TENANT_SHARE }
    }

    fn fits(&self, units: u64, is_large: bool) -> bool {
        let RoomBounds { units_max, .. } = self.bounds;
        let half = units_max / HALF;
        let of_size = match is_large {
            true => self.large_taken + units <= half,
            // While there are large ones, they have their half.
            false if self.large_taken > 0 || self.large.waiting > 0 => {
                self.taken - self.large_taken + units <= half
            }
            false => true,
        };
        of_size && self.taken + units <= units_max
    }

    fn take(&mut self, ticket: RoomTicket) {
        let piece = self.pieces.get_mut(&ticket).expect("what waits is there");
        piece.has_room = true;
        self.taken += piece.units;
        if piece.is_large {
            self.large_taken += piece.units;
        }
        let key = (piece.tenant.clone(), piece.is_large);
        *self.by_tenant.entry(key).or_default() += piece.units;
        assert!(self.taken <= self.bounds.units_max, "more room was taken than there is");
    }

    /// Returns whether more pieces wait than may, of all or of a tenant.
    fn has_too_many_waiting(&self, tenant: &K) -> bool {
        let RoomBounds { waiting_max, .. } = self.bounds;
        let all = self.short.waiting + self.large.waiting;
        let own = self.short.count_of(tenant) + self.large.count_of(tenant);
        let share = (waiting_max / TENANT_SHARE as usize).max(1);
        all > waiting_max || (all > waiting_max / HALF as usize && own > share)
    }
}

impl<K: Ord + Clone> RoomQueue<K> {
    const fn new() -> Self {
        Self { turns: VecDeque::new(), by_tenant: BTreeMap::new(), waiting: 0 }
    }

    fn push(&mut self, tenant: &K, ticket: RoomTicket) {
        let own = self.by_tenant.entry(tenant.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        own.push_back(ticket);
        self.waiting += 1;
    }

    /// Returns the tenant of a turn, counted from the next one, with its first ticket.
    fn next(&self, turn: usize) -> Option<(K, RoomTicket)> {
        let tenant = self.turns.get(turn)?;
        let first = self.by_tenant[tenant].front().expect("a tenant with a turn waits");
        Some((tenant.clone(), *first))
    }

    /// Returns the tenants of which pieces wait, each with its first ticket.
    fn first_of_each(&self) -> impl Iterator<Item = (&K, RoomTicket)> {
        self.by_tenant.iter().filter_map(|(tenant, own)| Some((tenant, *own.front()?)))
    }

    /// Removes the first ticket of a turn; the tenant's next one has the last turn.
    fn grant(&mut self, turn: usize) {
        let tenant = self.turns.remove(turn).expect("there is such a turn");
        let own = self.by_tenant.get_mut(&tenant).expect("a tenant with a turn waits");
        own.pop_front();
        self.waiting -= 1;
        if own.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
    }

    fn remove(&mut self, tenant: &K, ticket: RoomTicket) {
        let own = self.by_tenant.get_mut(tenant).expect("it waits");
        own.retain(|other| *other != ticket);
        self.waiting -= 1;
        if own.is_empty() {
            self.by_tenant.remove(tenant);
            self.turns.retain(|other| other != tenant);
        }
    }

    fn count_of(&self, tenant: &K) -> usize {
        self.by_tenant.get(tenant).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests {
    use super::RoomAnswer::{Full, Granted, Waits};
    use super::*;
    use crate::placement::Draw;

    const BOUNDS: RoomBounds = RoomBounds { units_max: 64, waiting_max: 64 };

    type Room = SharedRoom<&'static str>;

    fn requested(room: &mut Room, tenant: &'static str, units: u64) -> RoomAnswer {
        let (answer, others) = room.request(tenant, units);
        assert_eq!(others, [], "{tenant}, {units}: others had room and did not get it");
        answer
    }

    fn granted(room: &mut Room, tenant: &'static str, units: u64) -> RoomTicket {
        match requested(room, tenant, units) {
            Granted(ticket) => ticket,
            other => panic!("{tenant}, {units}: {other:?}"),
        }
    }

    fn waits(room: &mut Room, tenant: &'static str, units: u64) -> RoomTicket {
        match requested(room, tenant, units) {
            Waits(ticket) => ticket,
            other => panic!("{tenant}, {units}: {other:?}"),
        }
    }

    fn assert_empty(room: &Room) {
        assert_eq!((room.taken, room.large_taken), (0, 0));
        assert!(room.pieces.is_empty() && room.by_tenant.is_empty());
        for queue in [&room.short, &room.large] {
            assert!(queue.turns.is_empty() && queue.by_tenant.is_empty() && queue.waiting == 0);
        }
    }

    #[test]
    fn tenant_that_keeps_its_room_leaves_half_and_each_other_one_has_an_eighth() {
        let mut room = Room::new(BOUNDS);
        let mut kept: Vec<_> = (0..4).map(|_| granted(&mut room, "greedy", 8)).collect();
        let late = waits(&mut room, "greedy", 1);
        for tenant in ["greedy", "modest"] {
            assert!(!room.is_awaited_by_others(&tenant), "the greedy one waits for itself");
        }
        kept.push(granted(&mut room, "modest", 4));
        kept.push(granted(&mut room, "modest", 4));
        let second = waits(&mut room, "modest", 1);
        assert!(!room.is_awaited_by_others(&"greedy"), "it has its share, too");
        kept.extend(["a", "b", "c"].map(|tenant| granted(&mut room, tenant, 8)));
        assert_eq!(room.taken, 64);
        let last = waits(&mut room, "d", 8);
        assert!(room.is_awaited_by_others(&"greedy") && !room.is_awaited_by_others(&"d"));
        assert_eq!(room.end(kept[6]), [last], "the others have their shares");
        assert_eq!(room.end(late), []);
        assert_eq!(room.end(kept[4]), [second]);
        let ended = [kept[4], kept[6]];
        let left = kept.into_iter().filter(|ticket| !ended.contains(ticket));
        for ticket in left.chain([last, second]) {
            assert_eq!(room.end(ticket), []);
        }
        assert_empty(&room);
    }

    #[test]
    fn large_pieces_that_are_kept_delay_no_short_one() {
        let mut room = Room::new(BOUNDS);
        let first = granted(&mut room, "first", 1000);
        assert_eq!(room.taken, 32, "half of all at most");
        let second = waits(&mut room, "second", 9);
        let short = ["a", "b", "c", "d"].map(|tenant| granted(&mut room, tenant, 8));
        let more = waits(&mut room, "e", 1);
        assert_eq!(room.end(first), [second], "short ones take nothing of their half");
        assert_eq!(room.end(short[0]), [more]);
        for ticket in short[1..].iter().chain([&second, &more]) {
            assert_eq!(room.end(*ticket), []);
        }
        assert_empty(&room);
    }

    #[test]
    fn short_pieces_that_never_end_delay_no_large_one_for_ever() {
        let mut room = Room::new(BOUNDS);
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut short: VecDeque<_> =
            tenants.map(|tenant| (tenant, granted(&mut room, tenant, 8))).into();
        let large = waits(&mut room, "large", 32);
        let mut waiting: Vec<_> =
            tenants.map(|tenant| (tenant, waits(&mut room, tenant, 8))).into();
        for ended in 1.. {
            let (_, oldest) = short.pop_front().expect("there are some");
            let now = room.end(oldest);
            if now.contains(&large) {
                assert_eq!((ended, room.taken), (4, 64));
                break;
            }
            assert_eq!(now, [], "what comes after the large one leaves its half");
        }
        waiting.extend(short);
        for (_, ticket) in waiting {
            let _ = room.end(ticket);
        }
        let _ = room.end(large);
        assert_empty(&room);
    }

    #[test]
    fn tenants_that_wait_take_turns_and_no_short_piece_overtakes_a_longer_one() {
        let mut room = Room::new(BOUNDS);
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let full = tenants.map(|tenant| granted(&mut room, tenant, 8));
        let many: Vec<_> = (0..3).map(|_| waits(&mut room, "many", 4)).collect();
        let long = waits(&mut room, "long", 8);
        let one = waits(&mut room, "one", 1);
        assert_eq!(room.end(full[0]), [many[0]], "4 units are left, and the next needs 8");
        assert_eq!(room.end(full[1]), [long, one], "one each, before the others of `many`");
        assert_eq!(room.end(full[2]), [many[1]], "its share");
        assert_eq!(room.end(many[0]), [many[2]]);
    }

    #[test]
    fn places_to_wait_are_bounded_and_one_tenant_leaves_most_of_them() {
        let mut room = Room::new(RoomBounds { waiting_max: 16, ..BOUNDS });
        for _ in 0..4 {
            granted(&mut room, "greedy", 8);
        }
        for _ in 0..8 {
            waits(&mut room, "greedy", 1);
        }
        assert_eq!(requested(&mut room, "greedy", 1), Full, "half of the places");
        let others = ["a", "b", "c", "d"].map(|tenant| {
            granted(&mut room, tenant, 8);
            [waits(&mut room, tenant, 1), waits(&mut room, tenant, 1)]
        });
        assert_eq!(requested(&mut room, "a", 1), Full, "an eighth of the places");
        assert_eq!(requested(&mut room, "e", 1), Full, "all places");
        assert_eq!(room.short.waiting, 16);
        let _ = room.end(others[0][0]);
        assert!(matches!(requested(&mut room, "e", 1), Waits(_)));
    }

    /// Ends those of the pieces that have room, and those that get some then, until all have ended.
    fn end_all(room: &mut Room, mut have_room: VecDeque<RoomTicket>, pieces: usize) {
        let mut ended = 0;
        while let Some(ticket) = have_room.pop_front() {
            ended += 1;
            have_room.extend(room.end(ticket));
        }
        assert_eq!(ended, pieces, "each has room in the end");
        assert_empty(room);
    }

    #[test]
    fn short_piece_of_a_tenant_that_waits_for_a_large_one_lets_no_other_overtake_it() {
        let mut room = Room::new(BOUNDS);
        let first = granted(&mut room, "c", 20);
        let large = waits(&mut room, "a", 32);
        let behind = waits(&mut room, "b", 9);
        let short = ["a", "d"].map(|tenant| granted(&mut room, tenant, 1));
        assert_eq!(room.end(first), [large], "its short piece takes no turn of it");
        assert_eq!(room.end(large), [behind]);
        end_all(&mut room, [behind, short[0], short[1]].into(), 3);
    }

    #[test]
    fn large_piece_of_a_tenant_that_waits_for_a_short_one_lets_no_other_overtake_it() {
        let mut room = Room::new(BOUNDS);
        let first = granted(&mut room, "c", 12);
        let units = [("p", 8), ("q", 8), ("r", 8), ("u", 4)];
        let short = units.map(|(tenant, units)| granted(&mut room, tenant, units));
        let waiting = waits(&mut room, "s", 8);
        let behind = waits(&mut room, "t", 1);
        let large = granted(&mut room, "s", 9);
        assert_eq!(room.end(short[0]), [waiting, behind], "in the order in which they came");
        let left = [first, short[1], short[2], short[3], waiting, behind, large];
        end_all(&mut room, left.into(), 7);
    }

    #[test]
    fn tenant_that_always_has_a_short_piece_gets_a_large_one_in_its_turn() {
        let mut room = Room::new(BOUNDS);
        let first = granted(&mut room, "first", 32);
        let short = granted(&mut room, "busy", 1);
        let large = waits(&mut room, "busy", 32);
        let next = granted(&mut room, "busy", 1);
        assert_eq!(room.end(short), []);
        assert_eq!(room.end(first), [large]);
        end_all(&mut room, [next, large].into(), 2);
    }

    #[test]
    fn whatever_is_requested_and_ended_no_room_is_lost_and_a_request_grants_no_other() {
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        for seed in 0..50 {
            let mut draw = Draw::new(seed);
            let mut room = Room::new(RoomBounds { waiting_max: 24, ..BOUNDS });
            let (mut have_room, mut waiting) = (VecDeque::new(), Vec::new());
            for _ in 0..1000 {
                if draw.below(2) == 0 {
                    let tenant = tenants[draw.below(tenants.len())];
                    let most = [8, 8, 32, 64][draw.below(4)];
                    match requested(&mut room, tenant, draw.below(most) as u64) {
                        Granted(ticket) => have_room.push_back(ticket),
                        Waits(ticket) => waiting.push(ticket),
                        Full => {}
                    }
                    continue;
                }
                let all = have_room.len() + waiting.len();
                if all == 0 {
                    continue;
                }
                let ended = match draw.below(all) {
                    at if at < have_room.len() => have_room.remove(at).expect("it is there"),
                    at => waiting.remove(at - have_room.len()),
                };
                for ticket in room.end(ended) {
                    let at = waiting.iter().position(|other| *other == ticket);
                    waiting.remove(at.expect("what has room now has waited"));
                    have_room.push_back(ticket);
                }
                assert_eq!(room.grant(), [], "seed {seed}: nothing is left to grant");
            }
            let pieces = have_room.len() + waiting.len();
            end_all(&mut room, have_room, pieces);
        }
    }
}
