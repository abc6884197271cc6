//! Numbers that no other writer draws.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use sanderling_protocol::Nonce;

/// Draws a number at random: the standard library seeds every `RandomState` from the system's
/// entropy and counts up from it, so no two draws hash alike.
pub(crate) fn draw() -> Nonce {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
    );
    Nonce(hasher.finish())
}
