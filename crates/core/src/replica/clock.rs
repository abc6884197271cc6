//! The time of the group.
//!
//! The leader's clock is the group's. A follower takes the time of what it receives from the leader
//! and goes on from there with its own clock's speed, so that a new leader carries the time on
//! whatever date its machine has.

use sanderling_protocol::Instant;

use crate::namenode::start_time;

/// What one member has of the group's time.
#[derive(Debug, Clone)]
pub struct GroupClock {
    /// The group's time at `at`.
    base: Instant,
    /// When that was, by this process's clock.
    at: Instant,
    /// Whether it comes from a leader, this one or another, and not only from the log.
    is_live: bool,
    /// What the machine's clock shows, as the difference to the process's.
    wall: Instant,
    started: Instant,
}

impl GroupClock {
    /// Returns the clock of a member at its start: `floor` is the time of its log's end, `wall`
    /// what the machine's clock shows at `now`.
    #[must_use]
    pub const fn new(now: Instant, floor: Instant, wall: Instant) -> Self {
        Self { base: floor, at: now, is_live: false, wall, started: now }
    }

    /// Returns the group's time. It never goes back.
    #[must_use]
    pub const fn time(&self, now: Instant) -> Instant {
        if !self.is_live {
            return self.base;
        }
        Instant(self.base.0.saturating_add(now.0.saturating_sub(self.at.0)))
    }

    /// Returns the group's time if it comes from a leader.
    #[must_use]
    pub fn live(&self, now: Instant) -> Option<Instant> {
        self.is_live.then(|| self.time(now))
    }

    /// Takes the time of a message that arrives now.
    pub fn receive(&mut self, now: Instant, time: Instant) {
        let had = self.time(now);
        self.base = time.max(had);
        self.at = now;
        self.is_live = true;
    }

    /// Takes the time of an entry of the log: the group's time is not before it.
    pub fn raise(&mut self, now: Instant, time: Instant) {
        if time > self.time(now) {
            (self.base, self.at) = (time, now);
        }
    }

    /// Becomes the group's clock. Without anything from an earlier leader since this process
    /// started, the machine's clock counts as it does at the start of a single namenode.
    pub fn lead(&mut self, now: Instant) {
        if !self.is_live {
            let wall = Instant(self.wall.0.saturating_add(now.0.saturating_sub(self.started.0)));
            (self.base, self.at) = (start_time(self.base, wall), now);
            self.is_live = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Millis;

    use super::*;

    const HOUR: Millis = Millis(3_600_000);
    const NOW: Instant = Instant(1_000_000);
    const TIME: Instant = Instant(1_700_000_000_000_000);

    #[test]
    fn new_leader_carries_on_the_time_that_it_received() {
        let mut clock = GroupClock::new(NOW, TIME, TIME + HOUR);
        clock.receive(NOW, TIME + Millis(50));
        clock.lead(NOW + Millis(400));
        assert_eq!(clock.time(NOW + Millis(400)), TIME + Millis(450));
    }

    #[test]
    fn first_leader_of_all_takes_the_machines_clock() {
        let mut clock = GroupClock::new(NOW, TIME, TIME + HOUR);
        assert_eq!(clock.live(NOW), None);
        clock.lead(NOW + Millis(400));
        assert_eq!(clock.time(NOW + Millis(400)), TIME + HOUR + Millis(400));
    }

    #[test]
    fn time_never_goes_back() {
        let mut clock = GroupClock::new(NOW, TIME, TIME - HOUR);
        clock.lead(NOW);
        assert_eq!(clock.time(NOW), TIME);
        clock.receive(NOW + Millis(10), TIME);
        assert_eq!(clock.time(NOW + Millis(10)), TIME + Millis(10));
        clock.raise(NOW + Millis(10), TIME + Millis(5));
        assert_eq!(clock.time(NOW + Millis(10)), TIME + Millis(10));
    }
}
