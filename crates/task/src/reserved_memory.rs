//! Memory that dumps and reads of this process are about to take. An agent runs several tasks at
//! once: what is reserved for one of them is not available to the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sanderling_core::checkpoint::held_pack_bytes;

/// Bytes of buffers that dumps of this process are about to make, and of packs that its reads may
/// hold. Those of buffers that were made are not available any more, so that they do not count
/// here. Those of packs count until the read ends, because packs come and go.
pub(crate) static RESERVED: Mutex<u64> = Mutex::new(0);

/// Memory for the packs that a read of a generation holds.
pub(crate) struct PackMemory {
    /// Bytes of all packs that may be held.
    pub(crate) bytes: u64,
    reserved: Option<&'static Mutex<u64>>,
}

impl PackMemory {
    /// Reserves a part of what is available and not reserved.
    pub(crate) fn reserve(
        reserved: &'static Mutex<u64>,
        available: impl FnOnce() -> Option<u64>,
    ) -> Self {
        let mut before = locked(reserved);
        let bytes = held_pack_bytes(available(), *before);
        *before += bytes;
        Self { bytes, reserved: Some(reserved) }
    }

    /// Returns so many bytes, which are reserved nowhere.
    #[cfg(test)]
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { bytes, reserved: None }
    }
}

impl Drop for PackMemory {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved {
            *locked(reserved) -= self.bytes;
        }
    }
}

/// Locks a number, which a thread that panicked has not changed by halves.
fn locked(reserved: &Mutex<u64>) -> MutexGuard<'_, u64> {
    reserved.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_share_the_memory_that_is_available_and_that_no_dump_has_reserved() {
        const OF_A_DUMP: u64 = 1 << 30;
        static SHARED: Mutex<u64> = Mutex::new(OF_A_DUMP);
        let reserve = || PackMemory::reserve(&SHARED, || Some(3 << 30));
        let first = reserve();
        assert_eq!(first.bytes, 512 << 20);
        let second = reserve();
        assert_eq!(second.bytes, 384 << 20);
        assert_eq!(*locked(&SHARED), OF_A_DUMP + first.bytes + second.bytes);
        drop(first);
        drop(second);
        assert_eq!(*locked(&SHARED), OF_A_DUMP);
    }
}
