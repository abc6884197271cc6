//! Room that tenants share, and which of those that wait for some is next.
//!
//! A tenant that is alone has half of the room. While more than half is taken, it has an eighth at
//! most ([`SHARE`]), so that what it keeps leaves room to others. A piece that is longer than an
//! eighth is *large*: large pieces together take half at most, and leave the other half to short
//! ones. Tenants that wait take turns, a piece each, and each tenant's pieces keep their order.

use std::collections::{BTreeMap, VecDeque};

/// Part of the room that one tenant may have, as a divisor, while more than half of all is taken.
/// The same part as of the memory for requests (`SHARE` of the transport's `memory`).
const SHARE: u64 = 8;

/// Part of the room that large pieces have, and a tenant that is alone, as a divisor.
const HALF: u64 = 2;

/// The bounds of a [`SharedRoom`].
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
    /// It waits: [`SharedRoom::end`] of another piece returns its ticket when it has room.
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
    by_tenant: BTreeMap<K, u64>,
    short: RoomLane<K>,
    large: RoomLane<K>,
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
struct RoomLane<K> {
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
        assert!(bounds.units_max >= SHARE, "each tenant has a share");
        Self {
            bounds,
            next: 0,
            pieces: BTreeMap::new(),
            taken: 0,
            large_taken: 0,
            by_tenant: BTreeMap::new(),
            short: RoomLane::new(),
            large: RoomLane::new(),
        }
    }

    /// Requests so many units for a tenant, one at least. A piece that is longer than half of the
    /// room is counted as half.
    pub fn request(&mut self, tenant: K, units: u64) -> RoomAnswer {
        let units = units.clamp(1, self.bounds.units_max / HALF);
        let is_large = units > self.bounds.units_max / SHARE;
        self.next += 1;
        let ticket = RoomTicket(self.next);
        let piece = RoomPiece { tenant: tenant.clone(), units, is_large, has_room: false };
        self.pieces.insert(ticket, piece);
        self.lane(is_large).push(&tenant, ticket);
        let granted = self.grant();
        if granted == [ticket] {
            return RoomAnswer::Granted(ticket);
        }
        assert!(granted.is_empty(), "a piece had room and did not get it");
        if self.has_too_many_waiting(&tenant) {
            let granted = self.end(ticket);
            assert!(granted.is_empty(), "a piece waited for one that came later");
            return RoomAnswer::Full;
        }
        RoomAnswer::Waits(ticket)
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
            let own = self.by_tenant.get_mut(&piece.tenant).expect("its piece was counted");
            *own -= piece.units;
            if *own == 0 {
                self.by_tenant.remove(&piece.tenant);
            }
        } else {
            self.lane(piece.is_large).remove(&piece.tenant, ticket);
        }
        self.grant()
    }

    /// Returns whether another tenant waits for room.
    #[must_use]
    pub fn is_awaited_by_others(&self, tenant: &K) -> bool {
        let mut waiting = self.short.turns.iter().chain(&self.large.turns);
        waiting.any(|other| other != tenant)
    }

    /// Gives room to pieces that wait, as far as there is some; returns their tickets.
    fn grant(&mut self) -> Vec<RoomTicket> {
        let mut granted = Vec::new();
        for is_large in [true, false] {
            let mut turn = 0;
            while let Some((tenant, ticket)) = self.lane(is_large).next(turn) {
                let units = self.pieces[&ticket].units;
                if !self.is_within_share(&tenant, units, is_large) {
                    turn += 1;
                    continue;
                }
                // No later one goes first: it would be too late for the larger ones.
                if !self.fits(units, is_large) {
                    break;
                }
                self.lane(is_large).grant(turn);
                self.take(ticket);
                granted.push(ticket);
            }
        }
        granted
    }

    fn lane(&mut self, is_large: bool) -> &mut RoomLane<K> {
        if is_large { &mut self.large } else { &mut self.short }
    }

    fn is_within_share(&self, tenant: &K, units: u64, is_large: bool) -> bool {
        let RoomBounds { units_max, .. } = self.bounds;
        let own = self.by_tenant.get(tenant).copied().unwrap_or_default();
        let is_alone = self.taken + units <= units_max / HALF;
        is_alone || if is_large { own == 0 } else { own + units <= units_max / SHARE }
    }

    fn fits(&self, units: u64, is_large: bool) -> bool {
        let RoomBounds { units_max, .. } = self.bounds;
        let half = units_max / HALF;
        let of_lane = match is_large {
            true => self.large_taken + units <= half,
            // While there are large ones, they have their half.
            false if self.large_taken > 0 || self.large.waiting > 0 => {
                self.taken - self.large_taken + units <= half
            }
            false => true,
        };
        of_lane && self.taken + units <= units_max
    }

    fn take(&mut self, ticket: RoomTicket) {
        let piece = self.pieces.get_mut(&ticket).expect("what waits is there");
        piece.has_room = true;
        self.taken += piece.units;
        if piece.is_large {
            self.large_taken += piece.units;
        }
        *self.by_tenant.entry(piece.tenant.clone()).or_default() += piece.units;
        assert!(self.taken <= self.bounds.units_max, "more room was taken than there is");
    }

    /// Returns whether more pieces wait than may, of all or of a tenant.
    fn has_too_many_waiting(&self, tenant: &K) -> bool {
        let RoomBounds { waiting_max, .. } = self.bounds;
        let all = self.short.waiting + self.large.waiting;
        let own = self.short.count_of(tenant) + self.large.count_of(tenant);
        let share = (waiting_max / SHARE as usize).max(1);
        all > waiting_max || (all > waiting_max / HALF as usize && own > share)
    }
}

impl<K: Ord + Clone> RoomLane<K> {
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

    const BOUNDS: RoomBounds = RoomBounds { units_max: 64, waiting_max: 64 };

    type Room = SharedRoom<&'static str>;

    fn granted(room: &mut Room, tenant: &'static str, units: u64) -> RoomTicket {
        match room.request(tenant, units) {
            Granted(ticket) => ticket,
            other => panic!("{tenant}, {units}: {other:?}"),
        }
    }

    fn waits(room: &mut Room, tenant: &'static str, units: u64) -> RoomTicket {
        match room.request(tenant, units) {
            Waits(ticket) => ticket,
            other => panic!("{tenant}, {units}: {other:?}"),
        }
    }

    fn assert_empty(room: &Room) {
        assert_eq!((room.taken, room.large_taken), (0, 0));
        assert!(room.pieces.is_empty() && room.by_tenant.is_empty());
        for lane in [&room.short, &room.large] {
            assert!(lane.turns.is_empty() && lane.by_tenant.is_empty() && lane.waiting == 0);
        }
    }

    #[test]
    fn tenant_that_keeps_its_room_leaves_half_and_each_other_one_has_an_eighth() {
        let mut room = Room::new(BOUNDS);
        let mut kept: Vec<_> = (0..4).map(|_| granted(&mut room, "greedy", 8)).collect();
        let late = waits(&mut room, "greedy", 1);
        assert!(!room.is_awaited_by_others(&"greedy"), "it waits for itself");
        assert!(room.is_awaited_by_others(&"modest"));
        kept.push(granted(&mut room, "modest", 4));
        kept.push(granted(&mut room, "modest", 4));
        let second = waits(&mut room, "modest", 1);
        assert!(room.is_awaited_by_others(&"greedy"));
        kept.extend(["a", "b", "c"].map(|tenant| granted(&mut room, tenant, 8)));
        assert_eq!(room.taken, 64);
        let last = waits(&mut room, "d", 8);
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
        assert_eq!(room.request("greedy", 1), Full, "half of the places");
        let others = ["a", "b", "c", "d"].map(|tenant| {
            granted(&mut room, tenant, 8);
            [waits(&mut room, tenant, 1), waits(&mut room, tenant, 1)]
        });
        assert_eq!(room.request("a", 1), Full, "an eighth of the places");
        assert_eq!(room.request("e", 1), Full, "all places");
        assert_eq!(room.short.waiting, 16);
        let _ = room.end(others[0][0]);
        assert!(matches!(room.request("e", 1), Waits(_)));
    }
}
