//! The places of callers that have been admitted. While there are free ones, each caller gets one;
//! when all are taken, the tenant that holds most gives one up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use sanderling_protocol::{Millis, Refusal};

/// Pause after which a caller tries again for which there is no place. As long as a connection has
/// to be idle before it makes room ([`IDLE_MIN`]): an earlier attempt mostly finds the same.
pub(crate) const RETRY_INTERVAL: Millis = Millis(1000);

/// Time without a request after which a connection makes room for another one of its tenant. A
/// client that sends requests one after the other keeps its own. Chosen, not measured: longer than
/// such a client pauses between two requests, short enough that a tenant which opens connections
/// and forgets them waits a second only.
const IDLE_MIN: Duration = Duration::from_secs(1);

/// [`Activity::idle_since`] of a connection that is not idle.
const BUSY: u64 = u64::MAX;

/// The places of one server.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    began: Instant,
    taken: Mutex<AdmittedConnections>,
}

#[derive(Debug, Default)]
struct AdmittedConnections {
    next: u64,
    count: usize,
    /// Of tenants that are known, in the order in which they came.
    by_tenant: BTreeMap<Arc<str>, BTreeMap<u64, Arc<Activity>>>,
    /// Connections that were closed or refused because all places were taken.
    in_want: u64,
}

/// The place of one connection. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    tenant: Option<Arc<str>>,
    number: u64,
    activity: Arc<Activity>,
}

/// What a connection does, and whether another one has its place.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Milliseconds since the server began, or [`BUSY`].
    idle_since: AtomicU64,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, began: Instant::now(), taken: Mutex::default() })
    }

    /// Gives a connection a place. If all are taken, it is that of another connection: of the
    /// tenant that holds most if that holds more than the caller's would then, or else one of the
    /// caller's own tenant that is idle. Connections without a tenant are servers', operators', or
    /// of a server without tokens: they give up no place, and get that of any tenant.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`], with what the caller can do.
    pub(crate) fn admit(self: &Arc<Self>, tenant: Option<&str>) -> Result<Place, Refusal> {
        self.admit_at(tenant, Instant::now())
    }

    fn admit_at(self: &Arc<Self>, tenant: Option<&str>, now: Instant) -> Result<Place, Refusal> {
        let mut taken = self.taken.lock();
        let (max, now) = (self.max, self.millis(now));
        if taken.count >= max {
            taken.note_want(max);
            let idle_min = u64::try_from(IDLE_MIN.as_millis()).unwrap_or(BUSY);
            let (evicted, number) = taken.making_room(tenant, now.saturating_sub(idle_min), max)?;
            taken.evict(&evicted, number);
        }
        let tenant: Option<Arc<str>> = tenant.map(Into::into);
        let activity = Arc::new(Activity { idle_since: AtomicU64::new(now), ..Default::default() });
        let number = taken.add(tenant.as_ref(), &activity);
        Ok(Place { places: Arc::clone(self), tenant, number, activity })
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began).as_millis();
        u64::try_from(since).unwrap_or(BUSY - 1)
    }
}

impl AdmittedConnections {
    fn add(&mut self, tenant: Option<&Arc<str>>, activity: &Arc<Activity>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.count += 1;
        if let Some(tenant) = tenant {
            let same = self.by_tenant.entry(Arc::clone(tenant)).or_default();
            same.insert(number, Arc::clone(activity));
        }
        number
    }

    /// Removes a connection of a tenant. `None` if it was evicted or removed before.
    fn remove(&mut self, tenant: &str, number: u64) -> Option<Arc<Activity>> {
        let same = self.by_tenant.get_mut(tenant)?;
        let removed = same.remove(&number)?;
        if same.is_empty() {
            self.by_tenant.remove(tenant);
        }
        self.count -= 1;
        Some(removed)
    }

    fn evict(&mut self, tenant: &str, number: u64) {
        if let Some(activity) = self.remove(tenant, number) {
            activity.is_evicted.store(true, Ordering::Release);
            activity.waker.wake();
        }
    }

    /// Returns the connection of a tenant that has been idle for longest, at least since `since`.
    fn longest_idle(&self, tenant: &str, since: u64) -> Option<u64> {
        let idle = self.by_tenant.get(tenant)?.iter();
        let idle = idle.map(|(number, it)| (it.idle_since.load(Ordering::Relaxed), *number));
        idle.min().filter(|(idle_since, _)| *idle_since <= since).map(|(_, number)| number)
    }

    /// Returns the connection whose place a caller gets, with its tenant: of a tenant's, the one
    /// that has been idle for longest, else the oldest.
    fn making_room(
        &self,
        tenant: Option<&str>,
        idle_since: u64,
        max: usize,
    ) -> Result<(Arc<str>, u64), Refusal> {
        let largest = self.by_tenant.iter().max_by_key(|(_, own)| own.len());
        let Some((largest, most)) = largest else { return Err(full()) };
        let held = tenant.and_then(|tenant| self.by_tenant.get(tenant)).map_or(0, BTreeMap::len);
        if tenant.is_none() || most.len() > held + 1 {
            let number = self.longest_idle(largest, BUSY).ok_or_else(full)?;
            return Ok((Arc::clone(largest), number));
        }
        let own = tenant.filter(|_| held > 0).ok_or_else(full)?;
        match self.longest_idle(own, idle_since) {
            Some(number) => Ok((own.into(), number)),
            None => Err(share_taken(held, max)),
        }
    }

    /// Reports that all places are taken; seldom, or a flood would fill the log.
    fn note_want(&mut self, limit: usize) {
        self.in_want += 1;
        if self.in_want.is_power_of_two() {
            let count = self.in_want;
            tracing::warn!(limit, count, "more connections have come than there are places for");
        }
    }
}

fn full() -> Refusal {
    let why = "more callers have come than there are places for".to_owned();
    Refusal::RetryAfter { after: RETRY_INTERVAL, why }
}

fn share_taken(held: usize, max: usize) -> Refusal {
    let why = format!(
        "the owner of this token has {held} of this server's {max} connections, all of them in \
         use: close some, run fewer clients, or get another token from an operator"
    );
    Refusal::RetryAfter { after: RETRY_INTERVAL, why }
}

impl Place {
    /// Notes that the connection waits for a request, and has since `since` at the latest.
    pub(crate) fn note_idle(&self, since: Instant) {
        self.activity.idle_since.store(self.places.millis(since), Ordering::Relaxed);
    }

    /// Notes that a request came.
    pub(crate) fn note_busy(&self) {
        self.activity.idle_since.store(BUSY, Ordering::Relaxed);
    }

    pub(crate) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match &self.tenant {
            Some(tenant) => drop(taken.remove(tenant, self.number)),
            None => taken.count -= 1,
        }
    }
}

impl Activity {
    /// Returns whether another connection has the place; the task is woken when that happens.
    pub(crate) fn is_evicted(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.is_evicted.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1024;
    const MANY: Duration = Duration::from_secs(100);

    fn many(places: &Arc<Places>, tenant: Option<&str>, count: usize) -> Vec<Place> {
        let all: Vec<_> = (0..count).map(|_| places.admit(tenant).unwrap()).collect();
        all.iter().for_each(Place::note_busy);
        all
    }

    fn evicted(all: &[Place]) -> Vec<usize> {
        let is_evicted = |at: &usize| all[*at].activity.is_evicted.load(Ordering::Relaxed);
        (0..all.len()).filter(is_evicted).collect()
    }

    #[test]
    fn tenant_alone_may_have_all_places_and_then_gives_up_its_idle_ones() {
        let places = Places::new(MAX);
        let own = many(&places, Some("a"), MAX);
        let refusal = places.admit(Some("a")).unwrap_err();
        assert!(matches!(&refusal, Refusal::RetryAfter { why, .. } if why.contains("1024 of")));
        let later = Instant::now() + MANY;
        own[7].note_idle(later - IDLE_MIN);
        own[5].note_idle(later - IDLE_MIN / 2);
        let more = places.admit_at(Some("a"), later).unwrap();
        assert_eq!(evicted(&own), [7]);
        assert!(places.admit_at(Some("a"), later).is_err(), "idle for too short a time");
        drop((own, more));
        let taken = places.taken.lock();
        assert_eq!((taken.count, taken.by_tenant.len()), (0, 0));
    }

    #[test]
    fn tenant_that_holds_most_gives_up_places_until_others_hold_as_many() {
        let places = Places::new(MAX);
        let greedy = many(&places, Some("a"), MAX / 2);
        let second = many(&places, Some("b"), MAX / 2);
        let mut others = many(&places, Some("c"), MAX / 3);
        assert!(places.admit(Some("c")).is_err(), "all have a third");
        let gone = [evicted(&greedy).len(), evicted(&second).len()];
        assert!(gone == [170, 171] || gone == [171, 170], "{gone:?}");
        let is_oldest = |own: &[Place]| evicted(own).iter().all(|at| *at < 171);
        assert!(is_oldest(&greedy) && is_oldest(&second) && evicted(&others).is_empty());
        let one = many(&places, Some("d"), 1);
        others.extend(many(&places, None, MAX / 2));
        assert_eq!(places.taken.lock().count, MAX);
        assert!(evicted(&one).is_empty(), "servers and operators get the places of the largest");
    }

    #[test]
    fn connections_without_a_tenant_have_one_bound() {
        let places = Places::new(300);
        let all = many(&places, None, 300);
        assert!(matches!(places.admit(None), Err(Refusal::RetryAfter { .. })));
        assert!(places.admit(Some("a")).is_err() && evicted(&all).is_empty());
        drop(all);
        assert!(places.admit(None).is_ok());
    }
}
