//! The places of an HTTP server: which connection has one, and which is closed for another.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::evictable::{EvictableConnections, EvictableId, KEPT_MIN, Origin};

/// The connections of one server. `T` is what a connection is closed by.
///
/// A connection without a request under way gives its place to a new one, and so does one whose
/// request's body is still to come after `receive`. One whose answer has no end is a
/// follower, and followers have places of their own.
#[derive(Debug)]
pub(crate) struct ConnectionTable<T> {
    connections_max: usize,
    followers_max: usize,
    next: u64,
    connections: BTreeMap<u64, TrackedConnection<T>>,
    followers: usize,
    idle: EvictableConnections<Idle>,
}

/// A connection without a request under way.
#[derive(Debug, PartialEq, Eq)]
struct Idle {
    number: u64,
    since: Instant,
}

#[derive(Debug)]
struct TrackedConnection<T> {
    origin: Origin,
    state: ConnectionState,
    close: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// Its next request's head is not there.
    Idle(EvictableId),
    /// The head of a request is there, and its body is not.
    Receiving(EvictableId),
    /// A request is under way.
    Busy,
    /// A request is under way whose answer has no end.
    Following,
}

impl<T> ConnectionTable<T> {
    pub(crate) const fn new(connections_max: usize, followers_max: usize) -> Self {
        Self {
            connections_max,
            followers_max,
            next: 0,
            connections: BTreeMap::new(),
            followers: 0,
            idle: EvictableConnections::new(),
        }
    }

    /// Adds a connection. Returns its number and, if the places were taken, what closes the one
    /// that had to leave.
    ///
    /// # Errors
    /// There is no place: when to try again, `None` if all are taken by requests under way. A
    /// connection keeps its place for a moment, its request may be on its way.
    pub(crate) fn enter(
        &mut self,
        origin: Origin,
        close: T,
        now: Instant,
    ) -> Result<(u64, Option<T>), Option<Instant>> {
        let mut evicted = None;
        if self.connections.len() - self.followers >= self.connections_max {
            let kept_until = self.idle.first_to_go().ok_or(None)?.since + KEPT_MIN;
            if kept_until > now {
                return Err(Some(kept_until));
            }
            evicted = self.evict(now);
        }
        let number = self.next;
        self.next += 1;
        let state = ConnectionState::Idle(self.idle.add(origin, Idle { number, since: now }));
        self.connections.insert(number, TrackedConnection { origin, state, close });
        Ok((number, evicted))
    }

    /// Removes the connection that would make room for a new one now, and returns what closes it;
    /// `None` if a request is under way on all of them, or may be on its way.
    pub(crate) fn evict(&mut self, now: Instant) -> Option<T> {
        if self.idle.first_to_go()?.since + KEPT_MIN > now {
            return None;
        }
        let idle = self.idle.evict()?;
        self.connections.remove(&idle.number).map(|connection| connection.close)
    }

    /// Notes that the head of a request is there. Returns whether the connection still has a place.
    pub(crate) fn begin(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        if let ConnectionState::Idle(id) = connection.state {
            self.idle.remove(id);
            connection.state = ConnectionState::Busy;
        }
        true
    }

    /// Notes that the body of the request that is under way is still to come.
    pub(crate) fn receive(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.state == ConnectionState::Busy {
            let id = self.idle.add(connection.origin, Idle { number, since: now });
            connection.state = ConnectionState::Receiving(id);
        }
    }

    /// Notes that the body is there, or that no task waits for it.
    pub(crate) fn received(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let ConnectionState::Receiving(id) = connection.state {
            self.idle.remove(id);
            connection.state = ConnectionState::Busy;
        }
    }

    /// Makes the connection a follower. Returns whether there is a place for one.
    pub(crate) fn follow(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        match connection.state {
            ConnectionState::Following => true,
            ConnectionState::Busy if self.followers < self.followers_max => {
                connection.state = ConnectionState::Following;
                self.followers += 1;
                true
            }
            ConnectionState::Busy | ConnectionState::Idle(_) | ConnectionState::Receiving(_) => {
                false
            }
        }
    }

    /// Notes that the answer has been sent.
    pub(crate) fn rest(&mut self, number: u64, now: Instant) {
        self.received(number);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.state == ConnectionState::Following {
            self.followers -= 1;
        }
        if !matches!(connection.state, ConnectionState::Idle(_)) {
            connection.state = ConnectionState::Idle(
                self.idle.add(connection.origin, Idle { number, since: now }),
            );
        }
    }

    /// Removes a connection that has ended, unless that was done before.
    pub(crate) fn leave(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        match connection.state {
            ConnectionState::Idle(id) | ConnectionState::Receiving(id) => {
                self.idle.remove(id);
            }
            ConnectionState::Following => self.followers -= 1,
            ConnectionState::Busy => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn origin(last: u8) -> Origin {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// A time that is later than all before: no place is kept for a moment only.
    fn now() -> Instant {
        thread_local!(static LAST: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let last = LAST.replace(LAST.get() + 1);
        thread_local!(static START: Instant = Instant::now());
        START.with(|start| *start + KEPT_MIN * last)
    }

    #[test]
    fn connection_whose_request_may_be_on_its_way_keeps_its_place_for_a_moment() {
        let mut places = ConnectionTable::new(1, 1);
        let start = Instant::now();
        let (first, _) = places.enter(origin(1), "first", start).unwrap();
        let early = places.enter(origin(2), "second", start + KEPT_MIN / 2);
        assert_eq!(early, Err(Some(start + KEPT_MIN)));
        assert!(places.begin(first));
        let rested = start + KEPT_MIN;
        places.rest(first, rested);
        let early = places.enter(origin(2), "second", rested);
        assert_eq!(early, Err(Some(rested + KEPT_MIN)), "so does one that was just answered");
        let (_, evicted) = places.enter(origin(2), "second", rested + KEPT_MIN).unwrap();
        assert_eq!(evicted, Some("first"));
    }

    #[test]
    fn idle_connection_gives_its_place_to_a_new_one() {
        let mut places = ConnectionTable::new(3, 1);
        let (first, _) = places.enter(origin(1), "first", now()).unwrap();
        let (second, _) = places.enter(origin(1), "second", now()).unwrap();
        let (third, evicted) = places.enter(origin(2), "third", now()).unwrap();
        assert_eq!(evicted, None);
        assert!(places.begin(first));
        let (fourth, evicted) = places.enter(origin(3), "fourth", now()).unwrap();
        assert_eq!(evicted, Some("second"), "the oldest without a request under way");
        assert!(!places.begin(second), "it is being closed");
        places.leave(second);
        assert!(places.begin(third) && places.begin(fourth));
        assert!(places.enter(origin(4), "fifth", now()) == Err(None), "all are busy");
        places.rest(first, now());
        assert_eq!(places.enter(origin(4), "fifth", now()).unwrap().1, Some("first"));
    }

    #[test]
    fn connection_whose_body_does_not_come_gives_its_place_to_a_new_one() {
        let mut places = ConnectionTable::new(2, 1);
        let (slow, _) = places.enter(origin(1), "slow", now()).unwrap();
        let (prompt, _) = places.enter(origin(2), "prompt", now()).unwrap();
        for number in [slow, prompt] {
            assert!(places.begin(number));
            places.receive(number, now());
        }
        places.received(prompt);
        let (third, evicted) = places.enter(origin(3), "third", now()).unwrap();
        assert_eq!(evicted, Some("slow"));
        places.leave(slow);
        assert!(places.begin(third) && places.enter(origin(4), "fourth", now()) == Err(None));
        // Answered before its body was there, it is idle once, not twice.
        places.receive(third, now());
        places.rest(third, now());
        places.received(third);
        assert_eq!(places.enter(origin(4), "fourth", now()).unwrap().1, Some("third"));
        assert_eq!(places.enter(origin(4), "fifth", now()).unwrap().1, Some("fourth"));
    }

    #[test]
    fn idle_connection_is_closed_for_its_descriptor_while_there_are_places() {
        let mut places = ConnectionTable::new(9, 1);
        let start = Instant::now();
        let (busy, _) = places.enter(origin(1), "busy", start).unwrap();
        let (idle, _) = places.enter(origin(1), "idle", start).unwrap();
        assert!(places.begin(busy));
        assert_eq!(places.evict(start + KEPT_MIN / 2), None, "its request may be on its way");
        assert_eq!(places.evict(start + KEPT_MIN), Some("idle"));
        assert_eq!(places.evict(start + KEPT_MIN), None, "a request is under way");
        assert!(!places.begin(idle), "it is being closed");
    }

    #[test]
    fn followers_leave_their_places_to_others_and_are_bounded() {
        let mut places = ConnectionTable::new(2, 2);
        for name in ["a", "b"] {
            let (number, evicted) = places.enter(origin(1), name, now()).unwrap();
            assert!(places.begin(number) && places.follow(number) && places.follow(number));
            assert_eq!(evicted, None);
        }
        let (number, evicted) = places.enter(origin(1), "c", now()).unwrap();
        assert!(places.begin(number) && !places.follow(number));
        assert_eq!(evicted, None);
        // One that ends leaves its place to the next.
        places.leave(0);
        assert!(places.follow(number));
    }

    #[test]
    fn follower_whose_answer_ends_counts_among_the_others_again() {
        let mut places = ConnectionTable::new(1, 1);
        let (first, _) = places.enter(origin(1), "first", now()).unwrap();
        assert!(!places.follow(first), "nothing is under way");
        assert!(places.begin(first) && places.follow(first));
        let (second, evicted) = places.enter(origin(1), "second", now()).unwrap();
        assert_eq!(evicted, None);
        assert!(places.begin(second));
        places.rest(first, now());
        // More than there are places, until the next one comes.
        assert_eq!(places.enter(origin(1), "third", now()).unwrap().1, Some("first"));
        places.leave(first);
        assert!(places.follow(second), "the follower's place is free");
    }
}
