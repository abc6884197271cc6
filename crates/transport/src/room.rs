//! The places of a server: those of strangers, and those of callers that have been admitted.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::{Millis, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::strangers::{Stranger, Strangers};

/// When a caller tries again for whom there is no place.
const AGAIN_AFTER: Millis = Millis(1000);

/// The places of one server.
#[derive(Debug)]
pub(crate) struct Room {
    connections_max: usize,
    strangers_max: usize,
    strangers: Mutex<Counted>,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Counted {
    strangers: Strangers<CancellationToken>,
    evicted: u64,
}

/// The place of a connection whose caller has not been admitted. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    room: Arc<Room>,
    stranger: Stranger,
    evicted: CancellationToken,
}

impl Room {
    pub(crate) fn new(connections_max: usize, strangers_max: usize) -> Arc<Self> {
        let (strangers, places) = (Mutex::default(), Arc::new(Semaphore::new(connections_max)));
        Arc::new(Self { connections_max, strangers_max, strangers, places })
    }

    /// Gives a stranger a place, if need be that of another one.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Waiting {
        let evicted = CancellationToken::new();
        let mut counted = self.strangers.lock();
        if counted.strangers.len() >= self.strangers_max {
            self.evict(&mut counted);
        }
        let stranger = counted.strangers.add(address.into(), evicted.clone());
        Waiting { room: Arc::clone(self), stranger, evicted }
    }

    fn evict(&self, counted: &mut Counted) {
        let Some(evicted) = counted.strangers.evict() else { return };
        evicted.cancel();
        counted.evicted += 1;
        // A flood is not to fill the log.
        if counted.evicted.is_power_of_two() {
            let (limit, closed) = (self.strangers_max, counted.evicted);
            tracing::warn!(limit, closed, "connections without a greeting make room for others");
        }
    }
}

impl Waiting {
    /// Waits until another stranger has the place: the connection is to be closed.
    pub(crate) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }

    /// Gives the caller the place of one that is admitted.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`] when all are taken. The caller stays a stranger.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let limit = self.room.connections_max;
        let refusal = || {
            let why = format!("{limit} connections are served, the most that may be");
            Refusal::RetryAfter { after: AGAIN_AFTER, why }
        };
        let Ok(place) = Arc::clone(&self.room.places).try_acquire_owned() else {
            tracing::warn!(limit, "connection refused: too many");
            return Err(refusal());
        };
        let stranger = self.room.strangers.lock().strangers.remove(self.stranger);
        stranger.map(|_| place).ok_or_else(refusal)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.room.strangers.lock().strangers.remove(self.stranger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn stranger_without_a_place_is_told_to_leave_and_not_admitted() {
        let room = Room::new(4, 2);
        let (first, second) = (room.enter(HERE), room.enter(HERE));
        assert!(!first.evicted.is_cancelled());
        let third = room.enter(HERE);
        assert!(first.evicted.is_cancelled() && first.admit().is_err());
        assert!(!second.evicted.is_cancelled() && !third.evicted.is_cancelled());
        let _place = second.admit().unwrap();
        let fourth = room.enter(HERE);
        assert!(!third.evicted.is_cancelled(), "who is admitted is no stranger");
        drop((third, fourth));
        assert_eq!(room.strangers.lock().strangers.len(), 0);
    }

    #[test]
    fn places_of_admitted_callers_come_back() {
        let room = Room::new(1, 8);
        let (first, second) = (room.enter(HERE), room.enter(HERE));
        let place = first.admit().unwrap();
        assert!(matches!(second.admit(), Err(Refusal::RetryAfter { .. })));
        drop(place);
        assert!(second.admit().is_ok());
    }
}
