//! Configuration of a client.

use std::time::Duration;

use sanderling_core::retry::RetryPolicy;
use sanderling_transport::{ConnectionOptions, Credentials};

/// The options of a client.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Longest time that a call may take, whatever is tried meanwhile.
    pub call_deadline: Duration,
    /// Longest time for one attempt at a datanode or the namenode, within the call's.
    pub attempt_deadline: Duration,
    /// The pauses between the attempts at one call.
    pub retry: RetryPolicy,
    /// Writes that one writer may have in flight, to as many blocks, at most 4,096. It keeps up to
    /// eight times as many pieces of at most a block's bytes in memory if one is not answered.
    pub write_window_blocks: usize,
    /// Frames that one read may have under way to all datanodes together.
    pub read_window_frames: usize,
    /// Largest number of bytes that one frame of a read requests.
    pub read_frame_bytes_max: u32,
    /// Whether what datanodes answer is held against its checksum. Without, bytes that a network
    /// card or a bad memory changed reach the caller unnoticed: for measuring what it costs.
    pub verify_checksums: bool,
    /// Connections to the namenode at most. The second opens when many requests wait for the first.
    pub namenode_connections_max: usize,
    /// Frames with requests to the namenode that are under way on each of them. Requests gather
    /// meanwhile and travel together.
    pub namenode_frames_max: usize,
    /// Whether datanodes of the same machine are looked for, to read their memory where it lies.
    /// Bytes that are read so were held against their checksum there by the datanode, once.
    pub same_host: bool,
    /// What is shown to the cluster: a token, and how its certificates are checked.
    pub credentials: Credentials,
    /// Bounds of each connection. Its credentials are those above.
    pub connection: ConnectionOptions,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            // Longer than the namenode needs to declare a silent node dead: a call then reports
            // what is lost, not a timeout.
            call_deadline: Duration::from_secs(10),
            // A datanode that hangs must not use the whole call up.
            attempt_deadline: Duration::from_secs(3),
            retry: RetryPolicy::default(),
            // Hides one round trip at a gigabyte per second, in 4 MiB.
            write_window_blocks: 4,
            read_window_frames: 8,
            read_frame_bytes_max: 4 << 20,
            // A namenode answers each connection on one core; more than four callers' worth of them
            // it has better use for.
            namenode_connections_max: 4,
            // Measured with 16 callers on two cores: a sixth more get done than with two, because
            // more of them travel together.
            namenode_frames_max: 1,
            verify_checksums: true,
            same_host: true,
            credentials: Credentials::default(),
            connection: ConnectionOptions::default(),
        }
    }
}
