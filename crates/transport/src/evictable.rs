//! Which connection is closed to make room for another: one that has shown nothing yet, of the
//! address that has most of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// How long a connection keeps its place at least: newcomers wait so long. When a whole fleet
/// begins again at once, those that are about to greet or to send a request are not closed for
/// those that come after them, and thousands of silent connections leave within a second.
pub(crate) const KEPT_MIN: Duration = Duration::from_millis(100);

/// Connections that may be closed at any moment, in the order in which they came.
///
/// A flood comes from few addresses, and a caller that sends its greeting at once is not admitted
/// for a few round trips. So the one to close is the oldest of the address that has most.
#[derive(Debug)]
pub(crate) struct EvictableConnections<T> {
    next: u64,
    by_origin: BTreeMap<Origin, BTreeMap<u64, T>>,
    count: usize,
}

/// Names one such connection. A number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EvictableId {
    origin: Origin,
    number: u64,
}

/// The key by which a connection is counted: an address, or a network of IPv6 that one subscriber
/// has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            // A subscriber has at least 64 bits of addresses to choose from (RFC 6177).
            IpAddr::V6(address) => Self(Ipv6Addr::from(u128::from(address) >> 64 << 64).into()),
        }
    }
}

impl<T> Default for EvictableConnections<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> EvictableConnections<T> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, by_origin: BTreeMap::new(), count: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Adds the youngest.
    pub(crate) fn add(&mut self, origin: Origin, value: T) -> EvictableId {
        let number = self.next;
        self.next += 1;
        self.count += 1;
        self.by_origin.entry(origin).or_default().insert(number, value);
        EvictableId { origin, number }
    }

    /// Removes one. `None` if it was evicted or removed before.
    pub(crate) fn remove(&mut self, id: EvictableId) -> Option<T> {
        let same_origin = self.by_origin.get_mut(&id.origin)?;
        let value = same_origin.remove(&id.number)?;
        if same_origin.is_empty() {
            self.by_origin.remove(&id.origin);
        }
        self.count -= 1;
        Some(value)
    }

    /// Removes the oldest of the address that has most; of addresses that have as many, the oldest.
    pub(crate) fn evict(&mut self) -> Option<T> {
        self.remove(self.first()?)
    }

    /// Returns the one that would be evicted now.
    pub(crate) fn first_to_go(&self) -> Option<&T> {
        let EvictableId { origin, number } = self.first()?;
        self.by_origin.get(&origin)?.get(&number)
    }

    fn first(&self) -> Option<EvictableId> {
        let oldest = self.by_origin.iter().filter_map(|(origin, same_origin)| {
            let (number, _) = same_origin.first_key_value()?;
            Some((same_origin.len(), Reverse(*number), *origin))
        });
        let (_, Reverse(number), origin) = oldest.max()?;
        Some(EvictableId { origin, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn oldest_of_the_address_that_has_most_is_evicted() {
        let mut evictable = EvictableConnections::default();
        evictable.add(origin("10.0.0.1"), "first of all");
        for name in ["a", "b", "c"] {
            evictable.add(origin("10.0.0.2"), name);
        }
        evictable.add(origin("10.0.0.1"), "second");
        assert_eq!(evictable.first_to_go(), Some(&"a"));
        assert_eq!(evictable.evict(), Some("a"));
        // Both have two: the oldest goes.
        assert_eq!(evictable.evict(), Some("first of all"));
        assert_eq!(evictable.evict(), Some("b"));
        assert_eq!((evictable.evict(), evictable.evict()), (Some("c"), Some("second")));
        assert_eq!((evictable.evict(), evictable.len()), (None, 0));
    }

    #[test]
    fn flood_of_one_address_evicts_its_own() {
        let mut evictable = EvictableConnections::default();
        let ours = evictable.add(origin("10.0.0.1"), 0);
        for number in 1..10_000 {
            if evictable.len() >= 8 {
                assert_eq!(evictable.evict(), Some(number - 7));
            }
            evictable.add(origin("10.0.0.2"), number);
        }
        assert_eq!(evictable.remove(ours), Some(0));
    }

    #[test]
    fn one_that_was_evicted_or_removed_is_not_found_again() {
        let mut evictable = EvictableConnections::default();
        let first = evictable.add(origin("::1"), 1);
        let second = evictable.add(origin("::1"), 2);
        assert_eq!(evictable.evict(), Some(1));
        assert_eq!(evictable.remove(first), None);
        assert_eq!(evictable.remove(second), Some(2));
        assert_eq!((evictable.remove(second), evictable.len()), (None, 0));
        let third = evictable.add(origin("::1"), 3);
        assert_ne!(third, second);
        assert_eq!((evictable.remove(second), evictable.len()), (None, 1));
    }

    #[test]
    fn network_of_one_subscriber_counts_as_one_address() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:0:0:9"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.2"), origin("10.0.0.1"));
    }
}
