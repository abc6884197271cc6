//! Packets and memory between processes of one machine.

mod memory;
mod socket;

pub use memory::{SharedMemory, View};
pub use socket::PacketSocket;

/// Returns the kernel's id of this boot: equal for two processes of one machine, whatever
/// containers they are in. `None` where the kernel has none.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}
