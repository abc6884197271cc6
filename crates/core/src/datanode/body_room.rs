//! How much of a node's memory bodies of writes may have before they are complete.
//!
//! A body that begins a block is received where the block will be. Its memory is taken when its
//! header has come, and it may never be complete, so all such bodies have a part of what is free. A
//! body for which there is no room in that part is received elsewhere and copied.

use crate::shared_room::TENANT_SHARE;

/// Part of the free memory that such bodies have, as a divisor. What is left is for blocks that
/// come whole. Chosen, not measured: of 1 GiB they have 128 MiB, which 128 writers of whole blocks
/// fill at once.
const PART: u64 = 8;

/// The memory for blocks while bodies are received into it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyRoom {
    /// What neither blocks nor bodies have.
    pub free: u64,
    /// What bodies have that are not complete.
    pub bodies: u64,
    /// What those of one tenant have.
    pub own: u64,
}

impl BodyRoom {
    /// Returns what bodies may have at most.
    const fn max(&self) -> u64 {
        (self.free + self.bodies) / PART
    }

    /// Returns whether one more body of the tenant may be received there.
    #[must_use]
    pub const fn takes(&self, bytes: u64) -> bool {
        let (max, bodies) = (self.max(), self.bodies + bytes);
        // A single body is within any share.
        let is_beyond_share = self.own > 0 && self.own + bytes > max / TENANT_SHARE;
        bodies <= max && !(bodies > max / 2 && is_beyond_share)
    }

    /// Returns whether more than half of what bodies may have is used, some of it by other tenants:
    /// then those that come slowly are given up earlier. A tenant that is alone takes nothing from
    /// others, however little memory is free.
    #[must_use]
    pub const fn is_scarce(&self) -> bool {
        self.bodies > self.own && self.bodies > self.max() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Begins bodies of 1 MiB, each of the tenant that `tenant` returns, until one has no room;
    /// returns how many have.
    fn begun(room: &mut BodyRoom, own: &mut [u64], tenant: impl Fn(usize) -> usize) -> usize {
        for number in 0.. {
            let tenant = tenant(number);
            if !(BodyRoom { own: own[tenant], ..*room }).takes(MIB) {
                return number;
            }
            room.free -= MIB;
            room.bodies += MIB;
            own[tenant] += MIB;
        }
        unreachable!("the room is bounded")
    }

    #[test]
    fn bodies_that_are_never_complete_leave_most_of_the_memory_and_a_tenant_most_of_theirs() {
        let mut room = BodyRoom { free: 1024 * MIB, bodies: 0, own: 0 };
        let mut own = [0; 65];
        assert_eq!(begun(&mut room, &mut own, |_| 0), 64, "half, of a tenant that is alone");
        assert!(!room.is_scarce());
        assert_eq!(begun(&mut room, &mut own, |_| 1), 16, "an eighth");
        assert!(room.is_scarce());
        assert_eq!(begun(&mut room, &mut own, |number| 2 + number), 48, "all that is left");
        assert_eq!((room.bodies, room.free), (128 * MIB, 896 * MIB));
    }

    #[test]
    fn full_memory_receives_no_body_in_place() {
        let room = |free, bodies| BodyRoom { free, bodies, own: 0 };
        assert!(room(8 * MIB, 0).takes(MIB) && !room(8 * MIB - 1, 0).takes(MIB));
        assert!(!room(0, 0).takes(1) && !room(0, 0).is_scarce());
    }

    #[test]
    fn room_of_nearly_full_memory_is_scarce_only_beside_bodies_of_other_tenants() {
        let room = BodyRoom { free: 7 * MIB, bodies: MIB, own: MIB };
        assert!(!room.is_scarce(), "it is alone");
        assert!(BodyRoom { bodies: MIB + 4096, ..room }.is_scarce());
        assert!(BodyRoom { own: 0, ..room }.is_scarce());
    }
}
