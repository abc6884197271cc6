//! Identifiers. All of them are given out by the namenode, count upwards and are never used again.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

id!(
    /// One cluster, drawn at random when a namenode first starts on an empty directory.
    ClusterId,
    u64
);
id!(
    /// One incarnation of a datanode. A datanode that restarts, on the same address or not, gets
    /// another id, so a location that names the old one can never reach other bytes.
    NodeId,
    u32
);
id!(
    /// One block: a run of bytes of one object.
    BlockId,
    u64
);
id!(
    /// One object of the namespace, whatever its name is at the moment.
    ObjectId,
    u64
);
id!(
    /// Counts the moves and fencings of one block. Only the namenode raises it.
    Epoch,
    u32
);
id!(
    /// The time-bounded right of one writer to one object.
    LeaseId,
    u64
);
id!(
    /// The owner of a subtree with a lifetime.
    JobId,
    u64
);
id!(
    /// A number drawn at random by a process when it starts, so that a repeated request of the same
    /// process can be distinguished from another process's.
    Nonce,
    u64
);

id!(
    /// One namenode of a group. A namenode that joins again on an empty directory gets another id.
    MemberId,
    u64
);

id!(
    /// One start of a namenode on its log, drawn at random. It names the part of the log that this
    /// start has written.
    Term,
    u64
);

/// A place in a namenode's log: behind the command of a number, which one start of a namenode has
/// written. Two logs that contain the same place are equal up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogPosition {
    /// The start of a namenode that wrote the last command before this place.
    pub term: Term,
    /// The number of commands before this place, counted from the begin of the cluster.
    pub index: u64,
}

impl Epoch {
    /// Returns the epoch after this one. Only the namenode raises a block's epoch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
