//! Memory for long requests and long answers: a bound that all connections share, and which
//! connections keep how much of it from others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sanderling_core::shared_room::TENANT_SHARE;
use tokio_util::sync::CancellationToken;

/// Part of the memory that one tenant may have, as a divisor, while more than half of all is used:
/// that of all room which tenants share (`shared_room` of the core).
const SHARE: usize = TENANT_SHARE as usize;

/// Part of the memory up to which connections take what they can do without, as a divisor: that
/// alone never makes memory scarce. A named tenant has 1 / [`SHARE`] of this part. A quarter leaves
/// as much again before the half at which memory counts as scarce.
const SPARE: usize = 4;

/// Part of the spare memory that all named tenants together leave, as a divisor: servers and
/// operators have no tenant, and find some however many tenants there are.
const UNNAMED: usize = 4;

/// How long a body may take that keeps memory which another request needs: 16 MiB at 32 Mbit/s.
/// Chosen, not measured: slower than a network within a cluster, fast enough that others wait for
/// seconds.
const BODY_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a body is left alone that has just begun: its bytes may be on their way. As long as an
/// unadmitted connection keeps its place (`evictable::KEPT_MIN`).
const KEPT_MIN: Duration = Duration::from_millis(100);

/// How long it is not looked again for bodies that could make room when there were not enough: many
/// thousands may be under way, and requests for which there is no memory come at any rate. Chosen,
/// not measured: 50 searches a second at most, and less than the [`KEPT_MIN`] after which a body
/// can make room.
const SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// Memory for long bodies that are received, and for long answers that wait to be taken: a bound
/// that all connections share, as one of them sees it. Clones share it, and are the same
/// connection.
#[derive(Debug, Clone)]
pub struct Memory {
    account: Arc<Account>,
    holder: Arc<Holder>,
}

#[derive(Debug)]
struct Account {
    max: usize,
    /// Changes with `held`; read without its lock.
    used: AtomicUsize,
    held: Mutex<Held>,
}

/// One connection.
#[derive(Debug)]
struct Holder {
    tenant: Tenant,
    /// By long bodies and long answers.
    used: AtomicUsize,
    evicted: CancellationToken,
}

/// Whose share memory counts against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Tenant {
    /// Of as many connections as there are with a token of this owner.
    Named(Arc<str>),
    /// A connection of an unauthenticated peer.
    Connection(u64),
}

#[derive(Debug, Default)]
struct Held {
    by_tenant: BTreeMap<Tenant, usize>,
    /// Not counted in `by_tenant`.
    spare: Spare,
    /// Bodies that are not complete.
    arriving: BTreeMap<u64, Arriving>,
    next: u64,
    /// When there were not enough slow ones among them last.
    looked: Option<Instant>,
}

/// Memory that connections can do without.
#[derive(Debug, Default)]
struct Spare {
    used: usize,
    /// That of named tenants.
    named: usize,
    by_tenant: BTreeMap<Arc<str>, usize>,
}

/// A body that is being received.
#[derive(Debug)]
struct Arriving {
    holder: Arc<Holder>,
    bytes: usize,
    since: Instant,
    came: Arc<AtomicUsize>,
}

/// Memory of an account, in bytes, that is counted as used until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    bytes: usize,
    account: Arc<Account>,
    holder: Arc<Holder>,
    purpose: Purpose,
}

/// What memory is used for.
#[derive(Debug)]
enum Purpose {
    /// Bodies that are complete, and answers.
    Kept,
    /// Requests that are answered later, or may be.
    Waiting,
    /// What the connection can do without.
    Spare,
    /// A body that is not complete: its number among those, and how much of it has come.
    Arriving(u64, Arc<AtomicUsize>),
}

impl Memory {
    /// Returns an account of which at most `max` bytes are used at a time, by all connections
    /// together.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let (used, held) = (AtomicUsize::new(0), Mutex::default());
        let account = Arc::new(Account { max, used, held });
        Self { account, holder: Holder::new(Tenant::Connection(0)) }
    }

    /// Returns an account that counts bytes and has no bound.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Returns the same account for another connection, of a tenant if that is known.
    #[must_use]
    pub(crate) fn of_connection(&self, tenant: Option<&str>) -> Self {
        let tenant = match tenant {
            Some(name) => Tenant::Named(name.into()),
            None => {
                let mut held = self.account.held.lock();
                held.next += 1;
                Tenant::Connection(held.next)
            }
        };
        Self { account: Arc::clone(&self.account), holder: Holder::new(tenant) }
    }

    /// Counts bytes as used; `None` if that were more than may be, or more than the tenant's share
    /// while others use theirs.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.take(bytes, |_| Purpose::Kept)
    }

    /// Counts the bytes of requests that are answered later as used, as [`Self::reserve`] does, but
    /// not in [`Self::own`].
    pub(crate) fn reserve_waiting(&self, bytes: usize) -> Option<Reserved> {
        self.take(bytes, |_| Purpose::Waiting)
    }

    /// Counts bytes that a connection can do without as used; `None` also if they were more than a
    /// quarter of the memory, or more than the tenant's share of this quarter. Gives up no body for
    /// them.
    pub(crate) fn reserve_spare(&self, bytes: usize) -> Option<Reserved> {
        if self.account.is_unbounded() {
            return self.reserve(bytes);
        }
        let (max, tenant) = (self.account.max, &self.holder.tenant);
        let mut held = self.account.held.lock();
        let is_free = self.used().saturating_add(bytes) <= max;
        if !is_free || !held.spare.has_room(tenant, bytes, max / SPARE) {
            return None;
        }
        self.account.count(&self.holder, bytes, &Purpose::Spare);
        held.spare.count(tenant, bytes);
        Some(self.reserved(bytes, Purpose::Spare))
    }

    /// Counts the bytes of a body that is to be received as used, as [`Self::reserve`] does. A body
    /// that is not complete, and comes too slowly, makes room for others.
    pub(crate) fn receive(&self, bytes: usize) -> Option<Reserved> {
        self.take(bytes, |held| held.arrives(&self.holder, bytes))
    }

    fn take(&self, bytes: usize, purpose: impl FnOnce(&mut Held) -> Purpose) -> Option<Reserved> {
        if self.account.is_unbounded() {
            self.account.used.fetch_add(bytes, Ordering::Relaxed);
            return Some(self.reserved(bytes, Purpose::Kept));
        }
        let mut held = self.account.held.lock();
        if !self.make_room(&mut held, bytes) {
            return None;
        }
        *held.by_tenant.entry(self.holder.tenant.clone()).or_default() += bytes;
        let purpose = purpose(&mut held);
        self.account.count(&self.holder, bytes, &purpose);
        Some(self.reserved(bytes, purpose))
    }

    fn reserved(&self, bytes: usize, purpose: Purpose) -> Reserved {
        let (account, holder) = (Arc::clone(&self.account), Arc::clone(&self.holder));
        Reserved { bytes, account, holder, purpose }
    }

    /// Returns whether so many bytes may be taken; bodies that come too slowly leave for them.
    fn make_room(&self, held: &mut Held, bytes: usize) -> bool {
        let Account { max, .. } = *self.account;
        let own = held.by_tenant.get(&self.holder.tenant).copied().unwrap_or_default();
        let wanted = self.used().saturating_add(bytes);
        let is_beyond_share = own > 0 && own.saturating_add(bytes) > max / SHARE;
        if wanted > max / 2 && is_beyond_share {
            return false;
        }
        let (now, may_look) = (Instant::now(), wanted > max && bytes <= max);
        let slow = if may_look { held.slow(now) } else { Vec::new() };
        let mut missing = wanted.saturating_sub(max);
        let mut leaving = Vec::new();
        for (number, slow_bytes) in slow {
            if missing == 0 {
                break;
            }
            leaving.push(number);
            missing = missing.saturating_sub(slow_bytes);
        }
        // No body is given up in vain.
        if missing > 0 {
            held.looked = may_look.then_some(now).or(held.looked);
            return false;
        }
        for number in leaving {
            let Some(body) = held.arriving.remove(&number) else { continue };
            // Its memory is free as soon as its connection's task has run.
            self.account.discount(&body.holder, body.bytes, &Purpose::Kept);
            subtract(&mut held.by_tenant, &body.holder.tenant, body.bytes);
            body.holder.evicted.cancel();
        }
        true
    }

    /// Returns what is cancelled when the connection is to be closed: its memory has been given to
    /// others.
    pub(crate) fn evicted(&self) -> &CancellationToken {
        &self.holder.evicted
    }

    /// Returns whether more than half of the memory is used: then peers that keep theirs without
    /// moving on are given up earlier.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.used() > self.account.max / 2
    }

    /// Returns how many bytes of the account are in use, of all connections together.
    #[must_use]
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Returns how many bytes the long bodies and long answers of this connection use.
    pub(crate) fn own(&self) -> usize {
        self.holder.used.load(Ordering::Relaxed)
    }
}

impl Holder {
    fn new(tenant: Tenant) -> Arc<Self> {
        let (used, evicted) = (AtomicUsize::new(0), CancellationToken::new());
        Arc::new(Self { tenant, used, evicted })
    }
}

impl Account {
    /// Returns whether nothing but the sum is counted, without a lock.
    const fn is_unbounded(&self) -> bool {
        self.max == usize::MAX
    }

    fn count(&self, holder: &Holder, bytes: usize, purpose: &Purpose) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if purpose.is_own() {
            holder.used.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn discount(&self, holder: &Holder, bytes: usize, purpose: &Purpose) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if purpose.is_own() {
            holder.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Purpose {
    /// Returns whether it is a long body or a long answer.
    const fn is_own(&self) -> bool {
        matches!(self, Self::Kept | Self::Arriving(..))
    }
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K, bytes: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= bytes;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Spare {
    /// Returns whether the tenant may have so many bytes more, of at most `max` of all.
    fn has_room(&self, tenant: &Tenant, bytes: usize, max: usize) -> bool {
        let within = |used: usize, max: usize| used.saturating_add(bytes) <= max;
        let is_within_share = match tenant {
            Tenant::Connection(_) => true,
            Tenant::Named(name) => {
                let own = self.by_tenant.get(name).copied().unwrap_or_default();
                within(own, max / SHARE) && within(self.named, max - max / UNNAMED)
            }
        };
        is_within_share && within(self.used, max)
    }

    fn count(&mut self, tenant: &Tenant, bytes: usize) {
        self.used += bytes;
        if let Tenant::Named(name) = tenant {
            self.named += bytes;
            *self.by_tenant.entry(Arc::clone(name)).or_default() += bytes;
        }
    }

    fn discount(&mut self, tenant: &Tenant, bytes: usize) {
        self.used -= bytes;
        if let Tenant::Named(name) = tenant {
            self.named -= bytes;
            subtract(&mut self.by_tenant, name, bytes);
        }
    }
}

impl Held {
    fn arrives(&mut self, holder: &Arc<Holder>, bytes: usize) -> Purpose {
        self.next += 1;
        let came = Arc::new(AtomicUsize::new(0));
        let (holder, since) = (Arc::clone(holder), Instant::now());
        let body = Arriving { holder, bytes, since, came: Arc::clone(&came) };
        self.arriving.insert(self.next, body);
        Purpose::Arriving(self.next, came)
    }

    /// Returns the bodies that come too slowly, with their bytes: those of the tenant that has most
    /// first, of one tenant the slowest.
    fn slow(&self, now: Instant) -> Vec<(u64, usize)> {
        let looked = |at: Instant| now.saturating_duration_since(at) < SEARCH_INTERVAL;
        if self.looked.is_some_and(looked) {
            return Vec::new();
        }
        let rated = self.arriving.iter().filter_map(|(number, body)| {
            let age = now.saturating_duration_since(body.since);
            // In millionths of what it would be if the body came in time.
            let due = body.bytes as u128 * age.as_micros() / BODY_TIMEOUT.as_micros();
            let came = body.came.load(Ordering::Relaxed) as u128;
            let rate = came * 1_000_000 / due.max(1);
            let is_slow = age >= KEPT_MIN && came < due;
            let tenant = self.by_tenant.get(&body.holder.tenant).copied().unwrap_or_default();
            is_slow.then_some((Reverse(tenant), rate, *number, body.bytes))
        });
        let mut rated: Vec<_> = rated.collect();
        rated.sort_unstable();
        rated.into_iter().map(|(_, _, number, bytes)| (number, bytes)).collect()
    }
}

impl Reserved {
    /// Notes that more of the body has come.
    pub(crate) fn came(&self, bytes: usize) {
        if let Purpose::Arriving(_, came) = &self.purpose {
            came.store(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that the body is complete: it does not make room for others any more.
    pub(crate) fn arrived(&mut self) {
        let Purpose::Arriving(number, _) = self.purpose else { return };
        self.purpose = Purpose::Kept;
        if self.account.held.lock().arriving.remove(&number).is_none() {
            // Others have its memory by the account; it comes too late to be given up.
            self.bytes = 0;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.account.is_unbounded() {
            self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
            return;
        }
        let mut held = self.account.held.lock();
        let tenant = &self.holder.tenant;
        match self.purpose {
            Purpose::Spare => held.spare.discount(tenant, self.bytes),
            // It was discounted when it was given up.
            Purpose::Arriving(number, _) if held.arriving.remove(&number).is_none() => return,
            Purpose::Kept | Purpose::Waiting | Purpose::Arriving(..) => {
                subtract(&mut held.by_tenant, tenant, self.bytes);
            }
        }
        self.account.discount(&self.holder, self.bytes, &self.purpose);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn aged(memory: &Memory, age: Duration) {
        for body in memory.account.held.lock().arriving.values_mut() {
            body.since = body.since.checked_sub(age).unwrap();
        }
    }

    fn others(memory: &Memory, count: usize) -> Vec<Memory> {
        (0..count).map(|_| memory.of_connection(None)).collect()
    }

    #[test]
    fn tenant_has_no_more_than_its_share_while_half_is_used_whatever_connections_it_has() {
        let memory = Memory::new(64 * MIB);
        let greedy: Vec<Memory> = (0..64).map(|_| memory.of_connection(Some("greedy"))).collect();
        let kept: Vec<_> = greedy.iter().filter_map(|one| one.receive(4 * MIB)).collect();
        assert_eq!(kept.len(), 8, "half of it");
        let other = memory.of_connection(Some("other"));
        let first = other.reserve(4 * MIB);
        assert!(first.is_some() && other.reserve(4 * MIB).is_some(), "its share");
        let large = memory.of_connection(Some("large")).reserve(16 * MIB);
        assert!(large.is_some(), "one request may be as long as there is room for");
        drop(kept);
        assert!(greedy[0].reserve(4 * MIB).is_some());
    }

    /// Takes spare memory as long as there is some; returns it and how many bytes it is.
    fn grown(connections: &[Memory]) -> (Vec<Reserved>, usize) {
        let kept: Vec<_> =
            connections.iter().filter_map(|one| one.reserve_spare(MIB / 8)).collect();
        let bytes = kept.len() * MIB / 8;
        (kept, bytes)
    }

    #[test]
    fn tenants_leave_spare_memory_to_others_and_to_servers() {
        let memory = Memory::new(512 * MIB);
        let of = |name: &str| -> Vec<Memory> {
            (0..1024).map(|_| memory.of_connection(Some(name))).collect()
        };
        let (greedy, bytes) = grown(&of("greedy"));
        assert_eq!(bytes, 16 * MIB, "an eighth of a quarter");
        let all: Vec<_> = (0..7).map(|number| grown(&of(&format!("other {number}")))).collect();
        let bytes: Vec<_> = all.iter().map(|(_, bytes)| bytes / MIB).collect();
        assert_eq!(bytes, [16, 16, 16, 16, 16, 0, 0], "three quarters of the quarter");
        let servers = others(&memory, 1024);
        let (kept, bytes) = grown(&servers);
        assert_eq!((bytes, memory.used()), (32 * MIB, 128 * MIB), "the rest of the quarter");
        drop((greedy, all, kept));
        let (kept, bytes) = grown(&servers);
        assert_eq!(bytes, 128 * MIB, "connections without a tenant may have all of it");
        drop(kept);
        let held = memory.account.held.lock();
        assert!(memory.used() == 0 && held.spare.used == 0 && held.spare.named == 0);
        assert!(held.spare.by_tenant.is_empty() && held.by_tenant.is_empty());
    }

    #[test]
    fn own_memory_is_that_of_long_bodies_and_answers() {
        let memory = Memory::new(64 * MIB).of_connection(None);
        let others = (memory.reserve_spare(MIB), memory.reserve_waiting(MIB));
        assert_eq!((memory.used(), memory.own()), (2 * MIB, 0));
        let own = (memory.reserve(MIB), memory.receive(2 * MIB));
        assert_eq!((memory.used(), memory.own()), (5 * MIB, 3 * MIB));
        drop(own);
        assert_eq!((memory.used(), memory.own()), (2 * MIB, 0));
        drop(others);
        assert_eq!((memory.used(), memory.own()), (0, 0));
    }

    #[test]
    fn long_requests_and_spare_memory_do_not_count_against_each_others_share() {
        let memory = Memory::new(64 * MIB);
        let greedy = memory.of_connection(Some("greedy"));
        let bodies: Vec<_> = (0..8).filter_map(|_| greedy.reserve(4 * MIB)).collect();
        assert_eq!(memory.used(), 32 * MIB);
        let other = memory.of_connection(Some("other"));
        let spare = other.reserve_spare(MIB);
        assert!(spare.is_some(), "a tenant's long requests take no spare memory");
        assert!(other.reserve(16 * MIB).is_some(), "one request may be as long");
        let slow = memory.of_connection(None);
        let body = slow.receive(31 * MIB).unwrap();
        aged(&memory, BODY_TIMEOUT);
        assert!(others(&memory, 1)[0].reserve_spare(MIB).is_none());
        assert!(!slow.evicted().is_cancelled(), "no body is given up for spare memory");
        drop((bodies, spare, body));
    }

    #[test]
    fn bodies_that_come_too_slowly_make_room_and_others_stay() {
        let memory = Memory::new(64 * MIB);
        let connections = others(&memory, 5);
        let bodies: Vec<_> =
            connections[..4].iter().map(|one| one.receive(16 * MIB).unwrap()).collect();
        assert!(connections[4].receive(MIB).is_none(), "all have just begun");
        aged(&memory, BODY_TIMEOUT / 2);
        assert!(connections[4].receive(MIB).is_none(), "it was looked a moment ago");
        memory.account.held.lock().looked = None;
        for (body, came) in bodies.iter().zip([16 * MIB - 1, 2 * MIB, MIB, 9 * MIB]) {
            body.came(came);
        }
        let small = connections[4].receive(MIB);
        assert!(small.is_some());
        let evicted: Vec<_> =
            connections.iter().map(|one| one.holder.evicted.is_cancelled()).collect();
        assert_eq!(evicted, [false, false, true, false, false], "the slowest");
        assert_eq!(memory.used(), 49 * MIB);
        drop(bodies);
        drop(small);
        assert_eq!(memory.used(), 0);
        assert!(memory.account.held.lock().by_tenant.is_empty());
    }

    #[test]
    fn connection_is_evicted_only_if_that_makes_enough_room() {
        let memory = Memory::new(64 * MIB);
        let connections = others(&memory, 3);
        let slow = connections[0].receive(16 * MIB).unwrap();
        let answer = connections[1].reserve(32 * MIB).unwrap();
        aged(&memory, BODY_TIMEOUT);
        assert!(connections[2].receive(33 * MIB).is_none());
        assert!(!connections[0].holder.evicted.is_cancelled());
        memory.account.held.lock().looked = None;
        assert!(connections[2].receive(32 * MIB).is_some());
        assert!(connections[0].holder.evicted.is_cancelled());
        drop((slow, answer));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn body_that_is_complete_or_given_up_is_counted_once() {
        let memory = Memory::new(4 * MIB);
        let connections = others(&memory, 2);
        let mut body = connections[0].receive(4 * MIB).unwrap();
        body.arrived();
        aged(&memory, BODY_TIMEOUT);
        assert!(connections[1].receive(MIB).is_none(), "it is complete");
        drop(body);
        memory.account.held.lock().looked = None;
        let mut late = connections[0].receive(4 * MIB).unwrap();
        aged(&memory, BODY_TIMEOUT);
        let next = connections[1].receive(MIB).unwrap();
        late.arrived();
        drop(late);
        assert_eq!((memory.used(), connections[0].own(), connections[1].own()), (MIB, 0, MIB));
        drop(next);
        assert_eq!(memory.used(), 0);
    }
}
