//! The datanode's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sanderling_core::Mechanism;
use sanderling_core::datanode::PUSH_TIMEOUT;
use sanderling_notices::NoticeOptions;
use sanderling_protocol::ports::{CONSOLE_URL, NAMENODE_ADDRESS};
use sanderling_transport::Security;

use crate::budget;
use crate::durable::DurableOptions;
use crate::encryption_key::EncryptionKey;
use crate::join_failure::JoinFailure;
use crate::local::LocalOptions;
use crate::object::ObjectOptions;

/// The options of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// An existing directory that is empty or was a datanode's before. It is emptied at the start.
    pub directory: PathBuf,
    /// Most bytes of block files in it.
    pub bytes: u64,
}

/// The options with which a datanode starts.
#[derive(Debug, Clone)]
pub struct DatanodeOptions {
    /// Where the namenode is: `host:port`.
    pub namenode: String,
    /// Where it serves blocks. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where it serves HTTP; `None` for nowhere.
    pub http_listen: Option<SocketAddr>,
    /// Whether it serves HTTP at a free port of that host if another process has the port.
    pub http_may_move: bool,
    /// The web console's address, to which its first page of HTTP links.
    pub console: String,
    /// The host name or address that others reach it by. Empty for the address it listens on;
    /// needed when that is all addresses of the machine.
    pub advertise: String,
    /// Its name for operators; empty for its address.
    pub name: String,
    /// Its machine, for affinity; empty for the system's host name.
    pub host: String,
    /// Size of the memory tier in bytes, taken from the machine for as long as the node runs.
    pub dram_bytes: u64,
    /// Most bytes of memory that the process takes, those of the memory tier among them; `None` to
    /// keep an index of any size.
    pub memory_max: Option<u64>,
    /// The disk tier, if there is to be one.
    pub disk: Option<DiskOptions>,
    /// What the disk tier and the object tier are encrypted with; `None` for not at all.
    pub encryption: Option<EncryptionKey>,
    /// The sources of notices that the machine is about to be taken.
    pub notices: Vec<NoticeOptions>,
    /// Time that is left after a notice by HTTP that names none.
    pub posted_notice: Duration,
    /// The shortest notice that the cloud gives, for the exposure bound; `None` if
    /// it is unknown.
    pub notice_min: Option<Duration>,
    /// Bytes per second that the network card may send, for the exposure bound; `None` to go by
    /// what is measured.
    pub egress_bytes_per_second: Option<u64>,
    /// The object tier, if there is to be one.
    pub object: Option<ObjectOptions>,
    /// The endpoint for clients on the same machine, if there is to be one. A node whose sending is
    /// limited has none: it stands for a machine of its own.
    pub local: Option<LocalOptions>,
    /// Which callers it admits, and what it shows to the namenode and other datanodes.
    pub security: Security,
    /// How long the node admits tokens after it last received the list of those that are revoked.
    pub revocations_age_max: Duration,
    /// How notices are met.
    pub mechanism: Mechanism,
    /// Longest time to wait for the namenode at the start.
    pub start_time_max: Duration,
    /// Where the datanode keeps the error of its last attempt to join.
    pub join_failure: JoinFailure,
    /// Longest time for one call to the namenode.
    pub call_time_max: Duration,
    /// Longest time for one block to reach its target.
    pub push_time_max: Duration,
    /// Bytes per second that the node sends at most, reads and pushes together; `None` for what
    /// the network takes.
    pub egress_limit: Option<u64>,
    /// Blocks being pushed at once, whatever the number of orders.
    pub pushes_in_flight_max: usize,
    /// Time between two full block reports.
    pub report_every: Duration,
    /// Bytes per second of its blocks that the node compares with their checksums unasked; `None`
    /// for none.
    pub scrub_bytes_per_second: Option<u64>,
    /// The stores of durable directories that this node reaches.
    pub durable: Vec<DurableOptions>,
    /// Time between two heartbeats of a draining node, which learns from them that it may go.
    pub draining_heartbeat: Duration,
    /// Time that a node waits after the deadline of its notice before it joins again.
    pub rejoin_after_notice: Duration,
}

impl Default for DatanodeOptions {
    fn default() -> Self {
        Self {
            namenode: NAMENODE_ADDRESS.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            http_listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            http_may_move: false,
            advertise: String::new(),
            // Of a namenode with its default ports.
            console: CONSOLE_URL.to_owned(),
            name: String::new(),
            host: String::new(),
            // Enough to try it out, small enough for several on a laptop.
            dram_bytes: 256 << 20,
            // A program that embeds it sets it for the whole process.
            memory_max: None,
            disk: None,
            encryption: None,
            notices: Vec::new(),
            // What Google and Azure give.
            posted_notice: Duration::from_secs(30),
            notice_min: None,
            egress_bytes_per_second: None,
            object: None,
            local: Some(LocalOptions::default()),
            security: Security::default(),
            // Longer than a namenode takes to be started on another machine, so that readers that
            // have locations go on meanwhile; and a clear bound for a token that was revoked.
            revocations_age_max: Duration::from_secs(600),
            mechanism: Mechanism::default(),
            // A namenode that reads a long journal takes seconds.
            start_time_max: Duration::from_secs(30),
            join_failure: JoinFailure::default(),
            call_time_max: Duration::from_secs(3),
            push_time_max: PUSH_TIMEOUT.into(),
            // Links have their own limit; several nodes on one machine do not.
            egress_limit: None,
            // 16 MiB on the way fill 10 Gbit/s over 13 ms.
            pushes_in_flight_max: 16,
            // Garbage waits for it, and so does finding files that were removed. The first report
            // follows the registration at once.
            report_every: Duration::from_secs(180),
            // A node of 64 GiB in half an hour, for a thousandth of a core and a quarter of what
            // the slowest cloud disks read.
            scrub_bytes_per_second: Some(32 << 20),
            durable: Vec::new(),
            draining_heartbeat: Duration::from_millis(200),
            // The cloud takes the machine some seconds after the deadline. A node that joined again
            // before that would get new blocks and lose them.
            rejoin_after_notice: Duration::from_secs(60),
        }
    }
}

impl DatanodeOptions {
    /// Returns the least [`Self::memory_max`] that a datanode starts with.
    #[must_use]
    pub fn memory_min(&self) -> u64 {
        budget::memory_min(self)
    }
}
