//! Why a datanode does not start, or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use sanderling_protocol::{Refusal, amount};
use sanderling_transport::{CallError, ListenError};
use thiserror::Error;

pub use crate::disk::DiskError;
use crate::durable::DurableStoreError;
use crate::object::ObjectTierError;

/// A reason why a datanode does not start.
#[derive(Debug, Error)]
pub enum DatanodeStartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It listens on every address of the machine, and none to advertise is configured.
    #[error("{address} stands for every address: name the host or address to advertise")]
    NoAdvertisedHost {
        /// The address.
        address: SocketAddr,
    },
    /// A node needs memory, also when its blocks are to go to disk.
    #[error(
        "the memory tier has {}: give it at least {}",
        amount::bytes(*bytes), amount::bytes(*min)
    )]
    TooLittleMemory {
        /// Bytes configured.
        bytes: u64,
        /// The least that makes sense.
        min: u64,
    },
    /// The machine, or the container, does not have that much memory.
    #[error(
        "the memory tier would take {} and {} are available",
        amount::bytes(*bytes), amount::bytes(*available)
    )]
    TooMuchMemory {
        /// Bytes configured.
        bytes: u64,
        /// Bytes available now.
        available: u64,
    },
    /// It may take less memory than it needs.
    #[error(
        "it may take {} of memory: its memory tier takes {}, and with what is kept beside that it \
         needs {}",
        amount::bytes(*max), amount::bytes(*dram), amount::bytes(*min)
    )]
    MemoryMax {
        /// Bytes that it may take.
        max: u64,
        /// The least that it needs.
        min: u64,
        /// Bytes of the memory tier.
        dram: u64,
    },
    /// The memory cannot be mapped.
    #[error("cannot map {} of memory: {cause}", amount::bytes(*bytes))]
    Memory {
        /// Bytes configured.
        bytes: u64,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The system gives the process no thread.
    #[error("cannot start a thread: {cause}; raise the limit of tasks (ulimit -u, pids.max)")]
    Thread {
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The socket for clients on the same machine cannot be made where it was wanted.
    #[error("cannot listen at {}: {cause}", socket.display())]
    Local {
        /// Its path.
        socket: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The disk tier cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The object tier cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectTierError),
    /// A store of durable directories cannot be used.
    #[error(transparent)]
    Durable(#[from] DurableStoreError),
    /// The namenode could not be reached in time.
    #[error("the namenode at {namenode} cannot be reached for {seconds} s: {cause}")]
    Unreachable {
        /// Its address.
        namenode: String,
        /// How long it was tried.
        seconds: u64,
        /// The last error.
        #[source]
        cause: CallError,
    },
    /// The addresses of namenodes are of two clusters.
    #[error("{namenode} are addresses of different clusters: {cause}")]
    OtherCluster {
        /// The addresses.
        namenode: String,
        /// Which is of which.
        #[source]
        cause: CallError,
    },
    /// The namenode refused to let the node join.
    #[error("the namenode at {namenode} refuses this node: {refusal}")]
    Refused {
        /// Its address.
        namenode: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
}

/// A reason why a running datanode cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DatanodeFailure {
    /// The namenode at the known address belongs to another cluster, or speaks another version.
    #[error("the namenode refuses this node for good: {0}")]
    Refused(#[source] Refusal),
    /// A part of it ended by itself.
    #[error("the {part} ended by itself")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

/// The end of a drain: whether all blocks had left the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainEnd {
    /// No block has its home here any more: nothing is lost when the node stops.
    Drained,
    /// The deadline passed.
    DeadlinePassed {
        /// Blocks whose home was still here at the namenode's last reply; `None` when it never
        /// answered the notice.
        home_blocks: Option<u64>,
    },
    /// The namenode refused the notice for good, before the deadline.
    NoticeRefused {
        /// Why.
        refusal: Refusal,
    },
    /// The namenode gave the node up before the deadline.
    GivenUp {
        /// Blocks whose home was still here at its last reply before.
        home_blocks: Option<u64>,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn refusal_that_ends_a_datanode_is_the_source_of_its_error() {
        let refusal = Refusal::BadRequest { why: "no".to_owned() };
        let failure = DatanodeFailure::Refused(refusal.clone());
        assert_eq!(failure.source().and_then(|it| it.downcast_ref()), Some(&refusal));
        let text = format!("the namenode refuses this node for good: {refusal}");
        assert_eq!(failure.to_string(), text);
        let namenode = "h:1".to_owned();
        let start = DatanodeStartError::Refused { namenode, refusal: refusal.clone() };
        assert_eq!(start.source().and_then(|it| it.downcast_ref()), Some(&refusal));
    }
}
