//! Room: what may still be stored, and what is kept so that nodes can leave.

use sanderling_protocol::message::Room;
use sanderling_protocol::node::Policy;
use sanderling_protocol::{EventKind, Tier};
use serde::{Deserialize, Serialize};

use super::members::Nodes;
use crate::reserve::Departures;

/// What is kept, and what the last event had of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reserve {
    departures: Departures,
    /// Bytes that are missing by the last event; 0 if nothing is.
    reported_missing: u64,
}

impl Reserve {
    pub(super) const fn departures(&self) -> Departures {
        self.departures
    }

    pub(super) const fn set_departures(&mut self, departures: Departures) {
        self.departures = departures;
    }

    /// Returns the event if the reserve has become short, or is there again. After nodes may have
    /// changed, more missing bytes are worth another event.
    pub(super) fn event(&mut self, nodes: &Nodes, is_changed: bool) -> Option<EventKind> {
        let (missing_bytes, reported) = (missing_bytes(nodes), self.reported_missing);
        let departures = nodes.totals().fleet.departures;
        if missing_bytes > 0 && (reported == 0 || (is_changed && missing_bytes > reported)) {
            self.reported_missing = missing_bytes;
            Some(EventKind::ReserveShort { departures, missing_bytes })
        } else if missing_bytes == 0 && reported > 0 {
            self.reported_missing = 0;
            let room_bytes = self.room(nodes).room_bytes;
            Some(EventKind::ReserveRestored { departures, room_bytes })
        } else {
            None
        }
    }

    /// Returns the bytes that writers may still store and those kept for departures. Cost: linear
    /// in the nodes.
    pub(super) fn room(&self, nodes: &Nodes) -> Room {
        let totals = nodes.totals();
        let (fleet, stored_bytes) = (totals.fleet, totals.homes.saturating_add(totals.stored));
        let limit = fleet.limit(totals.stored);
        let reserve = |limit: u64| {
            fleet.capacity.saturating_sub(limit.saturating_add(totals.stored).min(fleet.capacity))
        };
        // Writers do not append in the object tier, and copies make room for them.
        let takers = nodes.iter().filter(|(_, node)| node.policy == Policy::Active);
        let tiers = takers.flat_map(|(_, node)| node.tiers()).filter(|it| it.tier != Tier::Object);
        let free = tiers.map(|it| it.capacity.saturating_sub(it.used.saturating_sub(it.copied)));
        let free = free.fold(0, u64::saturating_add);
        Room {
            departures: fleet.departures,
            is_default: !matches!(self.departures, Departures::Fixed(_)),
            capacity_bytes: fleet.capacity,
            stored_bytes,
            reserve_bytes: limit.map_or(0, reserve),
            room_bytes: limit.map_or(free, |limit| limit.saturating_sub(totals.homes).min(free)),
            missing_bytes: missing_bytes(nodes),
        }
    }
}

/// Returns the bytes that would find no place if the nodes that may leave left now.
fn missing_bytes(nodes: &Nodes) -> u64 {
    let totals = nodes.totals();
    let limit = totals.fleet.limit(totals.stored);
    limit.map_or(0, |limit| totals.homes.saturating_sub(limit))
}

/// Returns whether so many bytes more would use what is kept; no bytes do not, however short the
/// room is already.
pub(super) fn uses_reserve(nodes: &Nodes, bytes: u64) -> bool {
    let totals = nodes.totals();
    let limit = totals.fleet.limit(totals.stored);
    bytes > 0 && limit.is_some_and(|limit| totals.homes.saturating_add(bytes) > limit)
}
