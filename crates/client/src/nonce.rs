//! Numbers that no other writer draws.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_protocol::Nonce;

/// The numbers that one client draws. A process that forks makes another client, so what
/// distinguishes clients is read once and not for every number.
#[derive(Debug)]
pub(crate) struct Nonces {
    /// Has random keys, and has read what differs between a process and one that it forked.
    begun: DefaultHasher,
    drawn: AtomicU64,
}

impl Nonces {
    /// The standard library seeds every `RandomState` from the system's entropy and counts up from
    /// it; a forked process goes on with its parent's.
    pub(crate) fn new() -> Self {
        let mut begun = RandomState::new().build_hasher();
        begun.write_u32(std::process::id());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        begun.write_u128(now.as_nanos());
        Self { begun, drawn: AtomicU64::new(0) }
    }

    /// Draws the next number.
    pub(crate) fn draw(&self) -> Nonce {
        let mut hasher = self.begun.clone();
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        Nonce(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_drawn_twice() {
        let (one, other) = (Nonces::new(), Nonces::new());
        let drawn: HashSet<u64> = (0..1000).flat_map(|_| [one.draw().0, other.draw().0]).collect();
        assert_eq!(drawn.len(), 2000);
    }
}
