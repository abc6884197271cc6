//! The time of the group.
//!
//! The leader's clock is the group's. A follower takes the time of what it receives from the leader
//! and goes on from there with its own clock's speed, so that a new leader carries the time on
//! whatever date its machine has.

use sanderling_protocol::{Instant, Millis};

use crate::namenode::start_time;

/// One member's view of the group's time.
#[derive(Debug, Clone)]
pub struct GroupClock {
    /// The group's time at `at`.
    base: Instant,
    /// When that was, by this process's clock.
    at: Instant,
    /// Whether it comes from a leader, this one or another, and not only from the log.
    is_live: bool,
    is_leading: bool,
    /// By how many thousandths the leader's clock may be slower.
    drift_permille: u64,
    /// What the machine's clock showed when the process started.
    wall: Instant,
    started: Instant,
    /// The last moment of the group's time at which a leader served, as far as is known here.
    served_to: Instant,
}

impl GroupClock {
    /// Returns the clock of a member at its start: `floor` is the time of its log's end, `wall`
    /// what the machine's clock shows at `now`.
    #[must_use]
    pub const fn new(now: Instant, (floor, wall): (Instant, Instant), drift_permille: u64) -> Self {
        let (is_live, is_leading) = (false, false);
        Self {
            base: floor,
            at: now,
            is_live,
            is_leading,
            drift_permille,
            wall,
            started: now,
            served_to: Instant(0),
        }
    }

    /// Returns the group's time. A leader's never goes back. A follower's is never ahead of the
    /// leader's, so it passes a little more slowly between two messages.
    #[must_use]
    pub const fn time(&self, now: Instant) -> Instant {
        if !self.is_live {
            return self.base;
        }
        let mut passed = now.0.saturating_sub(self.at.0);
        if !self.is_leading {
            passed -= passed / 1000 * self.drift_permille;
        }
        Instant(self.base.0.saturating_add(passed))
    }

    /// Returns the group's time at `now` if it comes from a leader, else `None`.
    #[must_use]
    pub fn live(&self, now: Instant) -> Option<Instant> {
        self.is_live.then(|| self.time(now))
    }

    /// Takes the time of a message that arrives now. A late one does not put the time back.
    pub fn receive(&mut self, now: Instant, time: Instant) {
        self.base = time.max(self.time(now));
        self.at = now;
        self.is_live = true;
    }

    /// Notes that a leader served at a moment of the group's time.
    pub fn served(&mut self, time: Instant) {
        self.served_to = self.served_to.max(time);
    }

    /// Returns for how long no leader served, when this member begins to serve: what of the
    /// group's time has passed since the `last` command without a leader that served. So all by
    /// which the time has jumped counts: it may come from the clock of a machine whose date is
    /// another.
    #[must_use]
    pub fn absence(&self, now: Instant, last: Instant) -> Millis {
        self.time(now).since(self.served_to.max(last))
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
        let wall = Instant(self.wall.0.saturating_add(now.0.saturating_sub(self.started.0)));
        self.base = match self.is_live {
            true => self.time(now),
            false => start_time(self.base, wall),
        };
        (self.at, self.is_live, self.is_leading) = (now, true, true);
    }

    /// Ends this member's time as the group's clock; its own clock goes on from the same time.
    pub fn follow(&mut self, now: Instant) {
        (self.base, self.at) = (self.time(now), now);
        self.is_leading = false;
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
        let mut clock = GroupClock::new(NOW, (TIME, TIME + HOUR), 50);
        clock.receive(NOW, TIME + Millis(50));
        clock.lead(NOW + Millis(400));
        assert_eq!(clock.time(NOW + Millis(400)), TIME + Millis(50 + 380));
        assert_eq!(clock.time(NOW + Millis(800)), TIME + Millis(50 + 780));
    }

    #[test]
    fn first_leader_of_all_takes_the_machines_clock() {
        let mut clock = GroupClock::new(NOW, (TIME, TIME + HOUR), 50);
        assert_eq!(clock.live(NOW), None);
        clock.lead(NOW + Millis(400));
        assert_eq!(clock.time(NOW + Millis(400)), TIME + HOUR + Millis(400));
    }

    #[test]
    fn absence_is_the_silence_and_every_jump_of_the_time() {
        let mut clock = GroupClock::new(NOW, (TIME, TIME + HOUR), 0);
        let last = TIME + Millis(40);
        for step in [40, 50, 60, 70] {
            clock.receive(NOW + Millis(step), TIME + Millis(step));
            clock.served(TIME + Millis(step));
        }
        // The leader served until 70, and this member is the next one at 300.
        let mut next = clock.clone();
        next.lead(NOW + Millis(300));
        assert_eq!(next.absence(NOW + Millis(300), last), Millis(230));
        // A leader whose time has jumped was there at 90, and never served.
        clock.receive(NOW + Millis(90), TIME + HOUR);
        clock.lead(NOW + Millis(300));
        let passed = clock.time(NOW + Millis(300)).since(TIME + Millis(70));
        assert!(passed > HOUR);
        assert_eq!(clock.absence(NOW + Millis(300), last), passed);
        // It has served since the next command.
        let command = clock.time(NOW + Millis(310));
        assert_eq!(clock.absence(NOW + Millis(400), command), Millis(90));
    }

    #[test]
    fn absence_of_all_members_is_all_of_it() {
        let mut clock = GroupClock::new(NOW, (TIME, TIME + HOUR), 50);
        clock.lead(NOW + Millis(400));
        assert_eq!(clock.absence(NOW + Millis(500), TIME), Millis(HOUR.0 + 500));
    }

    #[test]
    fn follower_with_a_fast_clock_does_not_get_ahead_of_its_leader() {
        let mut clock = GroupClock::new(NOW, (TIME, TIME), 50);
        // Its clock shows 104 ms for 100 ms of the leader's.
        for message in 0..100 {
            let real = TIME + Millis(100 * message);
            clock.receive(NOW + Millis(104 * message), real);
            assert_eq!(clock.time(NOW + Millis(104 * message)), real);
        }
    }

    #[test]
    fn time_never_goes_back() {
        let mut clock = GroupClock::new(NOW, (TIME, TIME - HOUR), 50);
        clock.lead(NOW);
        assert_eq!(clock.time(NOW), TIME);
        clock.receive(NOW + Millis(10), TIME);
        assert_eq!(clock.time(NOW + Millis(10)), TIME + Millis(10));
        clock.raise(NOW + Millis(10), TIME + Millis(5));
        assert_eq!(clock.time(NOW + Millis(10)), TIME + Millis(10));
    }
}
