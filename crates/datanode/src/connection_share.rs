//! The tenant of each connection, whose share of a datanode's room its requests count against.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sanderling_core::datanode::BodyRoom;

use crate::fair_room::RoomUser;
use crate::tenant::{TenantBodies, TenantNumber};

/// The tenants of the connections that are open.
#[derive(Debug, Default)]
pub(crate) struct ConnectionShares {
    tenants: Mutex<KnownTenants>,
    /// Bytes of bodies that are being received into the arena.
    bodies: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct KnownTenants {
    named: BTreeMap<String, Weak<TenantBodies>>,
    last: u64,
    /// As which all datanodes read from the disk for their stores: together they have the room of
    /// one tenant, because their answers wait behind those to clients.
    stores: Weak<TenantBodies>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ConnectionShare {
    tenant: Arc<TenantBodies>,
    bodies: Arc<AtomicU64>,
    /// As the room for reads from the disk sees it.
    pub(crate) disk: Arc<RoomUser>,
    /// As the operations of the object tier see it.
    pub(crate) objects: Arc<RoomUser>,
    /// As the look-ups of owners at the namenode see it.
    pub(crate) owners: Arc<RoomUser>,
    /// Whether the caller is a datanode: what it reads goes to the store of a durable directory.
    pub(crate) is_of_datanode: bool,
}

/// A body that is being received into the arena. It is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedBody {
    tenant: Arc<TenantBodies>,
    bodies: Arc<AtomicU64>,
    bytes: u64,
}

impl ConnectionShares {
    /// Returns a new connection: of a tenant, or with a share of its own.
    pub(crate) fn connection(&self, tenant: Option<&str>) -> Arc<ConnectionShare> {
        self.connection_of(tenant, false)
    }

    /// The same for a caller that may be a datanode.
    pub(crate) fn connection_of(
        &self,
        tenant: Option<&str>,
        is_of_datanode: bool,
    ) -> Arc<ConnectionShare> {
        let mut tenants = self.tenants.lock();
        let tenant = tenants.tenant(tenant);
        let reader = if is_of_datanode { tenants.stores() } else { Arc::clone(&tenant) };
        drop(tenants);
        let user = || RoomUser::new(&tenant);
        let (disk, objects, owners) = (RoomUser::new(&reader), user(), user());
        let bodies = Arc::clone(&self.bodies);
        Arc::new(ConnectionShare { tenant, bodies, disk, objects, owners, is_of_datanode })
    }
}

impl KnownTenants {
    /// Returns the tenant as which datanodes read from the disk.
    fn stores(&mut self) -> Arc<TenantBodies> {
        if let Some(known) = self.stores.upgrade() {
            return known;
        }
        self.last += 1;
        let tenant = TenantBodies::new(TenantNumber(self.last));
        self.stores = Arc::downgrade(&tenant);
        tenant
    }

    fn tenant(&mut self, name: Option<&str>) -> Arc<TenantBodies> {
        if let Some(known) = name.and_then(|name| self.named.get(name)?.upgrade()) {
            return known;
        }
        self.last += 1;
        let tenant = TenantBodies::new(TenantNumber(self.last));
        if let Some(name) = name {
            self.named.retain(|_, known| known.strong_count() > 0);
            self.named.insert(name.to_owned(), Arc::downgrade(&tenant));
        }
        tenant
    }
}

impl ConnectionShare {
    /// Counts a body that is to be received into the arena. Takes no lock.
    pub(crate) fn count_body(&self, bytes: u32) -> CountedBody {
        let (tenant, bodies) = (Arc::clone(&self.tenant), Arc::clone(&self.bodies));
        let bytes = u64::from(bytes);
        tenant.bytes.fetch_add(bytes, Ordering::Relaxed);
        bodies.fetch_add(bytes, Ordering::Relaxed);
        CountedBody { tenant, bodies, bytes }
    }
}

impl CountedBody {
    /// Returns whether it may have room in an arena of which so many bytes are free: it has none
    /// yet.
    pub(crate) fn has_room(&self, free: u64) -> bool {
        let others = |count: &AtomicU64| count.load(Ordering::Relaxed).saturating_sub(self.bytes);
        let (bodies, own) = (others(&self.bodies), others(&self.tenant.bytes));
        BodyRoom { free, bodies, own }.takes(self.bytes)
    }

    /// Returns whether bodies have so much of an arena, of which so many bytes are free, that those
    /// that come slowly are given up.
    pub(crate) fn is_room_scarce(&self, free: u64) -> bool {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (bodies, own) = (count(&self.bodies), count(&self.tenant.bytes));
        BodyRoom { free, bodies, own }.is_scarce()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.tenant.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bodies.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::shared_room::RoomBounds;

    use super::*;
    use crate::fair_room::{FairRoom, RoomRequest};

    const MIB: u32 = 1 << 20;

    fn number(share: &ConnectionShare) -> TenantNumber {
        share.tenant.number()
    }

    #[test]
    fn connections_of_a_tenant_have_one_share_and_others_one_each() {
        let shares = ConnectionShares::default();
        let [first, second] = [(); 2].map(|()| shares.connection(Some("a")));
        let others = [Some("b"), None, None].map(|tenant| shares.connection(tenant));
        assert_eq!(number(&first), number(&second));
        let mut numbers: Vec<_> = others.iter().map(|share| number(share)).collect();
        numbers.extend([number(&first)]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4);
        drop((first, second));
        drop(shares.connection(Some("c")));
        let tenants = shares.tenants.lock();
        let named: Vec<&str> = tenants.named.keys().map(String::as_str).collect();
        assert_eq!(named, ["b", "c"], "those without a connection are forgotten in time");
    }

    #[test]
    fn datanodes_read_from_the_disk_as_one_tenant_that_leaves_clients_room() {
        let shares = ConnectionShares::default();
        let bounds = RoomBounds { units_max: 64, waiting_max: 64 };
        let room = FairRoom::new(bounds, "room");
        let datanodes = [(); 8].map(|()| shares.connection_of(None, true));
        let held = datanodes.iter().map(|share| room.request(&share.disk, 16).unwrap());
        let held: Vec<_> = held.collect();
        let is_granted = |it: &&RoomRequest| matches!(it, RoomRequest::Granted(_));
        assert!(held.iter().filter(is_granted).count() <= 2, "they have half of the room");
        let client = shares.connection(None);
        assert!(is_granted(&&room.request(&client.disk, 8).unwrap()));
        assert_ne!(number(&datanodes[0]), number(&datanodes[1]), "bodies are counted apart");
    }

    #[test]
    fn tenant_that_comes_again_has_the_share_of_which_it_still_keeps_some() {
        let shares = ConnectionShares::default();
        let bounds = RoomBounds { units_max: 64, waiting_max: 64 };
        let room = FairRoom::new(bounds, "room");
        let first = shares.connection(Some("a"));
        let kept = room.request(&first.disk, 8).unwrap();
        let before = number(&first);
        drop(first);
        assert_eq!(number(&shares.connection(Some("a"))), before);
        drop(kept);
        assert_ne!(number(&shares.connection(Some("a"))), before);
    }

    #[test]
    fn bodies_are_counted_until_they_are_complete_or_given_up() {
        let shares = ConnectionShares::default();
        let [one, same] = [(); 2].map(|()| shares.connection(Some("a")));
        let other = shares.connection(None);
        // Bodies may have 8 MiB of it, and a tenant one while more than half is used.
        let free = |taken: u64| (64 << 20) - (taken << 20);
        let kept: Vec<_> = (0..4).map(|_| one.count_body(MIB)).collect();
        assert!(!kept[3].is_room_scarce(free(4)));
        assert!(!same.count_body(MIB).has_room(free(4)), "it has the share of its tenant");
        let first = other.count_body(MIB);
        assert!(first.has_room(free(4)) && first.is_room_scarce(free(5)));
        drop((kept, first));
        assert!(same.count_body(MIB).has_room(free(0)));
        assert_eq!(shares.bodies.load(Ordering::Relaxed), 0);
    }
}
