//! The end of a run: everything must come to rest.

use sanderling_protocol::Policy;

use super::World;
use crate::event::Event;
use crate::wire::Host;

/// How often a run looks whether everything has settled. As often as the product's datanodes send
/// heartbeats.
pub(super) const SETTLE_MICROS: u64 = 500_000;

/// Longest time from the end of the faults until everything has settled, in microseconds: after the
/// last start, 30 s in which no lease ends whose end would have bytes dropped; the longest notice
/// (8 s), the longest lease (4 s) with its recovery, a job's lease (5 s), a client's deadline (9 s)
/// one after the other.
const SETTLE_MICROS_MAX: u64 = 60_000_000;

/// Time after which what is still the same goes on for ever: longer than a reservation lasts. That
/// is 20 s (`BACKGROUND_MOVE_MILLIS_MAX`).
const STUCK_MICROS: u64 = 30_000_000;

/// Time from the end of the faults in which the background has begun with all of its work, in
/// microseconds: everything else has settled, and reservations that were left behind have ended.
const BACKGROUND_MICROS_MAX: u64 = SETTLE_MICROS_MAX + STUCK_MICROS;

impl World {
    /// Ends the run when everything has come to rest, or when that takes too long.
    pub(super) fn settle(&mut self) {
        let Some((checker, what)) = self.unsettled() else {
            self.checking().end();
            self.is_over = true;
            return;
        };
        let now = self.runtime.now();
        if self.unsettled.as_ref().is_none_or(|(_, before)| *before != what) {
            self.unsettled = Some((now, what.clone()));
        }
        let since = self.unsettled.as_ref().map_or(now, |(since, _)| *since);
        let micros = now - self.runtime.plan().calm_at;
        let is_too_late = match checker {
            "exposure-bound" | "balance" => self.is_copied_by(micros),
            // While the background works, some of its blocks are always just being dropped, and the
            // last ones when it is done.
            "orphans" | "reservations" if since + STUCK_MICROS > now => {
                self.is_copied_by(micros - STUCK_MICROS.min(micros))
            }
            _ => micros > SETTLE_MICROS_MAX,
        };
        if is_too_late {
            // A checker of the end may see the cause.
            self.checking().end();
            let seconds = micros / 1_000_000;
            self.runtime.violate(checker, format!("{seconds} s after the last fault: {what}"));
        } else {
            self.runtime.after(SETTLE_MICROS, Event::Settle);
        }
    }

    /// Returns whether background work has had the time to finish, `micros` after the last fault:
    /// a fixed time first, and then as long as the bytes left to copy at that moment take over the
    /// slowest link's share. Called every [`SETTLE_MICROS`].
    fn is_copied_by(&mut self, micros: u64) -> bool {
        if micros <= BACKGROUND_MICROS_MAX {
            return false;
        }
        let backlog = self.checking().backlog();
        let left = self.bytes_to_copy.get_or_insert(backlog.bytes);
        // Links that were measured change.
        *left = left.saturating_sub(backlog.bytes_per_second / (1_000_000 / SETTLE_MICROS));
        *left == 0
    }

    /// Returns something that is still under way.
    fn unsettled(&mut self) -> Option<(&'static str, String)> {
        let busy = |text: String| Some(("convergence", text));
        let is_down = |place: Host| !self.runtime.is_up(place);
        if is_down(Host::Namenode) || self.runtime.is_stopped(Host::Namenode) {
            return busy("the namenode is down".to_owned());
        }
        if let Some(waiting) = self.clients.busy() {
            return busy(waiting);
        }
        let catalog = self.namenode.catalog();
        for node in catalog.node_ids(false) {
            let Some((policy, _)) = catalog.node_policy(node) else { continue };
            let (deadline, homes) = catalog.node_deadline(node);
            if policy.is_draining() {
                return busy(format!("node {node} drains and holds {homes} blocks"));
            }
            // A process that was just killed still has its name, until the namenode finds out.
            let mut places = self.datanodes.iter().zip(0_u8..);
            let is_there = places.any(|(datanode, slot)| {
                datanode.node() == Some(node) && self.runtime.is_up(Host::Datanode(slot))
            });
            if !is_there {
                return busy(format!("no process is node {node}"));
            }
            if policy == Policy::Drained && deadline.is_some() {
                return busy(format!("node {node} waits for its deadline"));
            }
        }
        let undeclared = self.checking().undeclared();
        if undeclared.is_some() {
            return undeclared;
        }
        if let Some(waiting) = self.not_reported() {
            return busy(waiting);
        }
        self.checking().unsettled()
    }

    /// Names a datanode whose blocks a namenode that has lost its end does not know yet: what the
    /// end had moved is found with the next block report.
    fn not_reported(&self) -> Option<String> {
        if self.runtime.statistics().lost_ends == 0 {
            return None;
        }
        let term = self.namenode.catalog().position().map(|place| place.term);
        let mut places = self.datanodes.iter().zip(0_u8..);
        let (datanode, slot) = places.find(|(datanode, slot)| {
            let is_node = datanode.node().is_some() && self.runtime.is_up(Host::Datanode(*slot));
            is_node && datanode.reported_in() != term
        })?;
        let place = Host::Datanode(slot);
        Some(format!("{place} has reported in {:?}, not in {term:?}", datanode.reported_in()))
    }
}
