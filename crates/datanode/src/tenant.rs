//! A tenant of a datanode: the connections that share what it has.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenantNumber(pub(crate) u64);

/// A tenant, with the bytes of its bodies that are being received into the arena.
#[derive(Debug)]
pub(crate) struct TenantBodies {
    number: TenantNumber,
    pub(crate) bytes: AtomicU64,
}

impl TenantBodies {
    pub(crate) fn new(number: TenantNumber) -> Arc<Self> {
        Arc::new(Self { number, bytes: AtomicU64::new(0) })
    }

    pub(crate) const fn number(&self) -> TenantNumber {
        self.number
    }
}
