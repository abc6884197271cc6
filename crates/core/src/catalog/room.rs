//! Room: what may still be stored, and what is kept so that nodes can leave.

use sanderling_protocol::message::Room;
use sanderling_protocol::node::Policy;
use sanderling_protocol::{EventKind, Tier};
use serde::{Deserialize, Serialize};

use super::Catalog;
use crate::reserve::Departures;

/// What is kept, and what was last told of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reserve {
    pub(super) departures: Departures,
    /// Bytes that an event said to be missing; 0 when the last one said that nothing is.
    told_missing: u64,
}

impl Catalog {
    /// Returns how many nodes must be able to leave at once.
    #[must_use]
    pub const fn departures(&self) -> Departures {
        self.reserve.departures
    }

    pub(super) const fn set_departures(&mut self, departures: Departures) {
        self.reserve.departures = departures;
    }

    /// Looks at the nodes again, after some may have changed.
    pub(super) fn look_at_fleet(&mut self) {
        self.nodes.look_at_fleet(self.reserve.departures);
        // What is missing may have become more, which is worth another event.
        self.tell_reserve(true);
    }

    /// Tells when the reserve is short, and when it is there again.
    pub(super) fn tell_reserve(&mut self, is_changed: bool) {
        let (missing_bytes, told) = (self.missing_bytes(), self.reserve.told_missing);
        let departures = self.nodes.totals.fleet.departures;
        if missing_bytes > 0 && (told == 0 || (is_changed && missing_bytes > told)) {
            self.reserve.told_missing = missing_bytes;
            self.emit(EventKind::ReserveShort { departures, missing_bytes });
        } else if missing_bytes == 0 && told > 0 {
            self.reserve.told_missing = 0;
            let room_bytes = self.room().room_bytes;
            self.emit(EventKind::ReserveRestored { departures, room_bytes });
        }
    }

    /// Returns the bytes that would find no place if the nodes that may leave left now.
    fn missing_bytes(&self) -> u64 {
        let totals = &self.nodes.totals;
        let limit = totals.fleet.limit(totals.stored);
        limit.map_or(0, |limit| totals.homes.saturating_sub(limit))
    }

    /// Tells whether so many bytes more would use what is kept; none at all do not, however short
    /// the room is already. Cost: none to speak of.
    #[must_use]
    pub fn uses_reserve(&self, bytes: u64) -> bool {
        let totals = &self.nodes.totals;
        let limit = totals.fleet.limit(totals.stored);
        bytes > 0 && limit.is_some_and(|limit| totals.homes.saturating_add(bytes) > limit)
    }

    /// Returns what may still be stored and what is kept. Cost: linear in the nodes.
    #[must_use]
    pub fn room(&self) -> Room {
        let totals = &self.nodes.totals;
        let (fleet, stored_bytes) = (totals.fleet, totals.homes.saturating_add(totals.stored));
        let limit = fleet.limit(totals.stored);
        let reserve = |limit: u64| {
            fleet.capacity.saturating_sub(limit.saturating_add(totals.stored).min(fleet.capacity))
        };
        // Writers do not append in the object tier, and copies make room for them.
        let takers = self.nodes.by_id.values().filter(|node| node.policy == Policy::Active);
        let tiers = takers.flat_map(|node| &node.tiers).filter(|it| it.tier != Tier::Object);
        let free = tiers.map(|it| it.capacity.saturating_sub(it.used.saturating_sub(it.copied)));
        let free = free.fold(0, u64::saturating_add);
        Room {
            departures: fleet.departures,
            is_default: !matches!(self.reserve.departures, Departures::Fixed(_)),
            capacity_bytes: fleet.capacity,
            stored_bytes,
            reserve_bytes: limit.map_or(0, reserve),
            room_bytes: limit.map_or(free, |limit| limit.saturating_sub(totals.homes).min(free)),
            missing_bytes: self.missing_bytes(),
        }
    }
}
