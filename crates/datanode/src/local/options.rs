//! Bounds of the local endpoint.

use std::path::PathBuf;
use std::time::Duration;

/// The options of the endpoint for clients on the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The path of its socket; `None` for a new one in `/run/user/UID/sanderling`, or in
    /// `sanderling-UID` among the temporary files where the former cannot be had.
    pub socket: Option<PathBuf>,
    /// Users beside the datanode's own that are admitted. They can read the whole arena.
    pub uids: Vec<u32>,
    /// Most connections; further clients go by TCP.
    pub connections_max: usize,
    /// Most bytes of memory in which clients put what they write.
    pub staging_bytes_max: u64,
    /// How long after its bytes were compared with their checksum a block is leased without
    /// comparing them again; zero to compare them for each lease.
    pub verified_for: Duration,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            socket: None,
            uids: Vec::new(),
            // Each has a thread, of some 16 KiB: two for each core of a large machine.
            connections_max: 256,
            // One block for each of so many connections that write; it counts as the node's memory.
            staging_bytes_max: 16 << 20,
            // A lease takes a tenth of what comparing a block does.
            verified_for: Duration::from_secs(10),
        }
    }
}
