//! Room that the callers of a datanode share, and waits for some. `core` decides which tenant's
//! turn it is, this waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::shared_room::{RoomAnswer, RoomBounds, RoomTicket, SharedRoom};
use sanderling_protocol::{Millis, Refusal};
use sanderling_transport::trace::carried;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::tenant::{TenantBodies, TenantNumber};

/// Longest wait for room. Others keep theirs for too long then. Half of the default deadline of a
/// client's call, so that the caller still has time for another attempt.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// When to come back after that. The caller has waited fifty times as long already, so the pause
/// only keeps many such callers from returning at once.
const COME_BACK: Millis = Millis(100);

/// One connection, as a room sees it.
#[derive(Debug)]
pub(crate) struct RoomUser {
    /// What a connection of the tenant finds again as long as a piece of another one is out.
    tenant: Arc<TenantBodies>,
    /// Units that it has.
    units: AtomicU64,
}

/// Room of which each connection may take some.
#[derive(Debug, Clone)]
pub(crate) struct FairRoom {
    state: Arc<Mutex<FairRoomState>>,
    /// What a caller lacks that is refused.
    lack: &'static str,
}

#[derive(Debug)]
struct FairRoomState {
    room: SharedRoom<TenantNumber>,
    waiting: BTreeMap<RoomTicket, RoomWait>,
}

/// A piece that waits for room.
#[derive(Debug)]
struct RoomWait {
    user: Arc<RoomUser>,
    units: u64,
    granted: oneshot::Sender<()>,
}

/// A piece of a room, or the place of one that waits. Given back when dropped.
#[derive(Debug)]
pub(crate) struct RoomPermit {
    room: FairRoom,
    ticket: RoomTicket,
    user: Arc<RoomUser>,
    units: u64,
}

/// A request for room.
#[derive(Debug)]
pub(crate) enum RoomRequest {
    Granted(RoomPermit),
    Waits(RoomPermit, oneshot::Receiver<()>),
}

impl RoomUser {
    pub(crate) fn new(tenant: &Arc<TenantBodies>) -> Arc<Self> {
        Arc::new(Self { tenant: Arc::clone(tenant), units: AtomicU64::new(0) })
    }
}

impl FairRoom {
    /// Returns room of which nothing is taken. `lack` completes the refusal of a caller: there is
    /// no ...
    pub(crate) fn new(bounds: RoomBounds, lack: &'static str) -> Self {
        let (room, waiting) = (SharedRoom::new(bounds), BTreeMap::new());
        Self { state: Arc::new(Mutex::new(FairRoomState { room, waiting })), lack }
    }

    /// Requests room for a connection.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: too many requests wait for room.
    pub(crate) fn request(&self, user: &Arc<RoomUser>, units: u64) -> Result<RoomRequest, Refusal> {
        let permit = |ticket| {
            let (room, user) = (self.clone(), Arc::clone(user));
            RoomPermit { room, ticket, user, units }
        };
        let mut state = self.state.lock();
        let (answer, others) = state.room.request(user.tenant.number(), units);
        let others = state.granted(&others);
        let requested = match answer {
            RoomAnswer::Granted(ticket) => {
                user.units.fetch_add(units, Ordering::Relaxed);
                Ok(RoomRequest::Granted(permit(ticket)))
            }
            RoomAnswer::Waits(ticket) => {
                let (granted, receiver) = oneshot::channel();
                let wait = RoomWait { user: Arc::clone(user), units, granted };
                state.waiting.insert(ticket, wait);
                Ok(RoomRequest::Waits(permit(ticket), receiver))
            }
            RoomAnswer::Full => Err(self.refusal()),
        };
        drop(state);
        wake(others);
        requested
    }

    /// Begins some work of a connection, which is given a piece of room; waits until there is one.
    /// The work begins then, whether or not the caller polls this. It is not begun any more for a
    /// caller that has dropped this. Long work takes the piece along to a task of its own.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: others keep theirs for too long, or too many requests wait.
    pub(crate) async fn begin<T, W>(
        &self,
        user: &Arc<RoomUser>,
        units: u64,
        work: W,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        W: FnOnce(RoomPermit) -> T + Send + 'static,
    {
        let waiting = match self.request(user, units)? {
            RoomRequest::Granted(permit) => return Ok(work(permit)),
            waiting @ RoomRequest::Waits(..) => waiting,
        };
        let (caller, gone) = oneshot::channel::<()>();
        let begun = tokio::spawn(carried(async move {
            tokio::select! {
                permit = waiting.granted() => permit.map(|permit| Some(work(permit))),
                _ = gone => Ok(None),
            }
        }));
        let begun = begun.await;
        drop(caller);
        begun.unwrap_or(Ok(None))?.ok_or_else(|| self.refusal())
    }

    /// Returns how many units a connection has while other tenants wait for some that they may
    /// have; 0 while none does.
    pub(crate) fn awaited_units(&self, user: &RoomUser) -> u64 {
        let units = user.units.load(Ordering::Relaxed);
        if units > 0 && self.state.lock().room.is_awaited_by_others(&user.tenant.number()) {
            return units;
        }
        0
    }

    fn refusal(&self) -> Refusal {
        Refusal::RetryAfter { after: COME_BACK, why: format!("there is no {}", self.lack) }
    }
}

impl RoomRequest {
    /// Waits until there is room.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: others keep theirs for too long.
    pub(crate) async fn granted(self) -> Result<RoomPermit, Refusal> {
        match self {
            Self::Granted(permit) => Ok(permit),
            Self::Waits(permit, granted) => match timeout(ROOM_TIMEOUT, granted).await {
                Ok(Ok(())) => Ok(permit),
                Ok(Err(_)) | Err(_) => Err(permit.room.refusal()),
            },
        }
    }
}

impl FairRoomState {
    /// Gives a piece up. Returns those that have room now.
    fn end(&mut self, permit: &RoomPermit) -> Vec<RoomWait> {
        if self.waiting.remove(&permit.ticket).is_none() {
            let had = permit.user.units.fetch_sub(permit.units, Ordering::Relaxed);
            debug_assert!(had >= permit.units, "a piece is given up once");
        }
        let granted = self.room.end(permit.ticket);
        self.granted(&granted)
    }

    /// Notes that these have room, and returns them.
    fn granted(&mut self, tickets: &[RoomTicket]) -> Vec<RoomWait> {
        let waiting = &mut self.waiting;
        let granted: Vec<_> = tickets.iter().filter_map(|it| waiting.remove(it)).collect();
        for wait in &granted {
            wait.user.units.fetch_add(wait.units, Ordering::Relaxed);
        }
        granted
    }
}

impl Drop for RoomPermit {
    fn drop(&mut self) {
        let granted = self.room.state.lock().end(self);
        wake(granted);
    }
}

fn wake(granted: Vec<RoomWait>) {
    for RoomWait { granted, .. } in granted {
        // One that does not wait any more gives its room back by itself.
        let _ = granted.send(());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BOUNDS: RoomBounds = RoomBounds { units_max: 64, waiting_max: 64 };

    fn users(count: u64) -> Vec<Arc<RoomUser>> {
        let tenant = |number| TenantBodies::new(TenantNumber(number));
        (0..count).map(|number| RoomUser::new(&tenant(number))).collect()
    }

    async fn take(
        room: &FairRoom,
        user: &Arc<RoomUser>,
        units: u64,
    ) -> Result<RoomPermit, Refusal> {
        room.request(user, units)?.granted().await
    }

    fn units(user: &RoomUser) -> u64 {
        user.units.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn room_that_is_given_back_is_anothers_and_each_connection_is_counted() {
        let (room, users) = (FairRoom::new(BOUNDS, "room"), users(9));
        let kept = take(&room, &users[0], 32).await.unwrap();
        assert_eq!((units(&users[0]), room.awaited_units(&users[0])), (32, 0));
        let mut waiting = Box::pin(take(&room, &users[1], 32));
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!((units(&users[1]), room.awaited_units(&users[0])), (0, 32));
        drop(kept);
        let taken = waiting.await.unwrap();
        assert_eq!((units(&users[0]), units(&users[1])), (0, 32));
        assert_eq!(room.awaited_units(&users[1]), 0);
        drop(taken);
        assert_eq!(units(&users[1]), 0);
        assert!(room.state.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn wait_that_is_given_up_keeps_no_room_whenever_it_is() {
        let (room, users) = (FairRoom::new(BOUNDS, "room"), users(3));
        let kept = take(&room, &users[0], 32).await.unwrap();
        let mut waiting = Box::pin(take(&room, &users[1], 32));
        let granted = room.request(&users[2], 32).unwrap();
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(kept);
        assert_eq!(units(&users[2]), 32, "it has room before it is polled again");
        drop(granted);
        assert_eq!(units(&users[2]), 0);
        let all = take(&room, &users[0], 32).now_or_never();
        assert!(all.is_some_and(|all| all.is_ok()));
    }

    #[tokio::test]
    async fn work_begins_when_there_is_room_also_if_its_caller_does_not_poll() {
        let (room, users) = (FairRoom::new(BOUNDS, "room"), users(2));
        let kept = take(&room, &users[0], 32).await.unwrap();
        let (sender, begun) = oneshot::channel();
        let mut waiting = Box::pin(room.begin(&users[1], 32, |permit| sender.send(permit)));
        assert!((&mut waiting).now_or_never().is_none());
        drop(kept);
        let permit = begun.await.unwrap();
        assert_eq!(units(&users[1]), 32);
        drop(permit);
        assert_eq!(units(&users[1]), 0, "it has ended");
        assert!(waiting.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn work_whose_caller_has_gone_while_it_waited_is_not_begun() {
        let (room, users) = (FairRoom::new(BOUNDS, "room"), users(2));
        let kept = take(&room, &users[0], 32).await.unwrap();
        let (sender, begun) = oneshot::channel();
        let mut waiting = Box::pin(room.begin(&users[1], 32, |permit| sender.send(permit)));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        let is_empty = || room.state.lock().waiting.is_empty();
        timeout(ROOM_TIMEOUT / 2, async {
            while !is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it gives its place up");
        drop(kept);
        assert!(begun.await.is_err(), "it was begun");
        let all = take(&room, &users[0], 32).now_or_never();
        assert!(all.is_some_and(|all| all.is_ok()));
    }
}
