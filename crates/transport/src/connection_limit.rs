//! The places of a server: those of callers that are not yet admitted, and those of callers that
//! are.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::Refusal;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::connection_slots::{Place, Places, RETRY_INTERVAL};
use crate::evictable::{EvictableConnections, EvictableId, KEPT_MIN};

/// The places of one server.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    unadmitted_max: usize,
    unadmitted: Mutex<UnadmittedCount>,
    /// An unadmitted connection has left or been admitted.
    left: Notify,
    places: Arc<Places>,
}

#[derive(Debug, Default)]
struct UnadmittedCount {
    connections: EvictableConnections<UnadmittedEntry>,
    evicted: u64,
}

/// A connection whose caller has not been admitted.
#[derive(Debug)]
struct UnadmittedEntry {
    since: Instant,
    evicted: CancellationToken,
}

/// The place of a connection whose caller has not been admitted. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct PendingAdmission {
    room: Arc<ConnectionLimit>,
    id: EvictableId,
    evicted: CancellationToken,
}

impl ConnectionLimit {
    pub(crate) fn new(connections_max: usize, unadmitted_max: usize) -> Arc<Self> {
        let (unadmitted, places) = (Mutex::default(), Places::new(connections_max));
        Arc::new(Self { unadmitted_max, unadmitted, left: Notify::new(), places })
    }

    /// Gives a new connection a place, if need be that of another one.
    pub(crate) async fn enter(self: &Arc<Self>, address: IpAddr) -> PendingAdmission {
        loop {
            match self.try_enter(address, Instant::now()) {
                Ok(waiting) => return waiting,
                Err(until) => drop(timeout_at(until, self.left.notified()).await),
            }
        }
    }

    /// Gives a new connection a place now, or returns when there will be one.
    fn try_enter(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<PendingAdmission, Instant> {
        let mut counted = self.unadmitted.lock();
        if counted.connections.len() >= self.unadmitted_max {
            let kept_until = counted.connections.first_to_go().map(|known| known.since + KEPT_MIN);
            if let Some(until) = kept_until.filter(|until| *until > now) {
                return Err(until);
            }
            self.evict(&mut counted);
        }
        let evicted = CancellationToken::new();
        let known = UnadmittedEntry { since: now, evicted: evicted.clone() };
        let id = counted.connections.add(address.into(), known);
        Ok(PendingAdmission { room: Arc::clone(self), id, evicted })
    }

    /// Closes the unadmitted connection that would make room for the next one, for its descriptor,
    /// unless it may be about to greet. Returns whether there was one.
    pub(crate) fn close_oldest(&self, now: Instant) -> bool {
        let mut counted = self.unadmitted.lock();
        let is_due = |known: &UnadmittedEntry| known.since + KEPT_MIN <= now;
        if !counted.connections.first_to_go().is_some_and(is_due) {
            return false;
        }
        let closed = counted.connections.evict();
        if let Some(closed) = &closed {
            closed.evicted.cancel();
        }
        closed.is_some()
    }

    fn evict(&self, counted: &mut UnadmittedCount) {
        let Some(evicted) = counted.connections.evict() else { return };
        evicted.evicted.cancel();
        counted.evicted += 1;
        // A flood is not to fill the log.
        if counted.evicted.is_power_of_two() {
            let (limit, closed) = (self.unadmitted_max, counted.evicted);
            tracing::warn!(limit, closed, "connections without a greeting make room for others");
        }
    }
}

impl PendingAdmission {
    /// Waits until another connection has the place: this one is to be closed.
    pub(crate) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }

    /// Gives the caller the place of one that is admitted, of a tenant if that is known.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`] when there is none. The caller stays unadmitted.
    pub(crate) fn admit(&self, tenant: Option<&str>) -> Result<Place, Refusal> {
        let place = self.room.places.admit(tenant)?;
        let refusal = || {
            let why = "another connection has taken this one's place".to_owned();
            Refusal::RetryAfter { after: RETRY_INTERVAL, why }
        };
        self.leave().then_some(place).ok_or_else(refusal)
    }

    /// Gives the connection's place back. Returns whether it still had it.
    fn leave(&self) -> bool {
        let left = self.room.unadmitted.lock().connections.remove(self.id);
        self.room.left.notify_one();
        left.is_some()
    }
}

impl Drop for PendingAdmission {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn connection_that_lost_its_place_is_closed_and_not_admitted() {
        let room = ConnectionLimit::new(4, 2);
        let start = Instant::now();
        let enter = |after| room.try_enter(HERE, start + after);
        let (first, second) = (enter(Duration::ZERO).unwrap(), enter(Duration::ZERO).unwrap());
        assert_eq!(
            enter(KEPT_MIN / 2).unwrap_err(),
            start + KEPT_MIN,
            "they may be about to greet"
        );
        assert!(!first.evicted.is_cancelled());
        let third = enter(KEPT_MIN).unwrap();
        assert!(first.evicted.is_cancelled() && first.admit(None).is_err());
        assert!(!second.evicted.is_cancelled() && !third.evicted.is_cancelled());
        let _place = second.admit(None).unwrap();
        let fourth = enter(KEPT_MIN).unwrap();
        assert!(!third.evicted.is_cancelled(), "an admitted caller has no such place");
        drop((third, fourth));
        assert_eq!(room.unadmitted.lock().connections.len(), 0);
    }

    #[test]
    fn unadmitted_connection_is_closed_for_its_descriptor_while_there_are_places() {
        let room = ConnectionLimit::new(4, 4);
        let start = Instant::now();
        let enter = || room.try_enter(HERE, start).unwrap();
        let (first, second) = (enter(), enter());
        assert!(!room.close_oldest(start + KEPT_MIN / 2), "they may be about to greet");
        assert!(room.close_oldest(start + KEPT_MIN));
        assert!(first.evicted.is_cancelled() && first.admit(None).is_err());
        let _place = second.admit(None).unwrap();
        assert!(!room.close_oldest(start + KEPT_MIN), "an admitted caller is not closed");
        assert!(!second.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn newcomer_enters_as_soon_as_an_unadmitted_one_leaves() {
        let room = ConnectionLimit::new(1, 1);
        let late = Instant::now() + Duration::from_secs(3600);
        let first = room.try_enter(HERE, late).unwrap();
        let leave = async move {
            tokio::task::yield_now().await;
            drop(first);
        };
        let begun = Instant::now();
        let (second, ()) = tokio::join!(room.enter(HERE), leave);
        let third = room.enter(HERE).await;
        assert!(second.evicted.is_cancelled() && !third.evicted.is_cancelled());
        assert!(begun.elapsed() >= KEPT_MIN, "it kept its place so long");
    }

    #[tokio::test]
    async fn places_of_admitted_callers_come_back() {
        let room = ConnectionLimit::new(1, 8);
        let (first, second) = (room.enter(HERE).await, room.enter(HERE).await);
        let place = first.admit(None).unwrap();
        assert!(matches!(second.admit(None), Err(Refusal::RetryAfter { .. })));
        drop(place);
        assert!(second.admit(None).is_ok());
    }
}
