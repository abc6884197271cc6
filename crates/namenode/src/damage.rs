//! What can be wrong with the files that have the catalog.

use sanderling_protocol::ClusterId;
use thiserror::Error;

/// A kind of damage of a snapshot's file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotDamage {
    /// Its header is cut off.
    #[error("it is shorter than its header")]
    HeaderCut,
    /// Its first bytes are those of another file.
    #[error("it does not start like a snapshot")]
    Foreign,
    /// The catalog in it is cut off, or bytes follow it.
    #[error("{bytes} bytes where it claims {claimed}")]
    Size {
        /// Bytes behind the header.
        bytes: u64,
        /// Bytes by the header.
        claimed: u64,
    },
    /// It was cut while it was read.
    #[error("it became shorter")]
    Shrunk,
    /// Its bytes are not those that were written.
    #[error("its checksum is another")]
    Checksum,
    /// The address space does not hold it.
    #[error("it is too long for this machine")]
    TooLong,
    /// The catalog ends before its bytes do.
    #[error("bytes follow the catalog")]
    Trailing,
    /// Its bytes are what was written, and no catalog.
    #[error("it holds no catalog: {0}")]
    Undecodable(#[source] postcard::Error),
    /// It is the snapshot of another moment.
    #[error("it holds {commands} commands, its name has {named}")]
    OtherIndex {
        /// Commands before it, by its catalog.
        commands: u64,
        /// Commands before it, by its name.
        named: u64,
    },
}

/// A kind of damage of a segment of the journal, or of the place where one should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalDamage {
    /// Its header is cut off.
    #[error("its header has {bytes} bytes")]
    HeaderCut {
        /// Bytes of the file.
        bytes: usize,
    },
    /// Its first bytes are those of another file.
    #[error("it does not start like a journal")]
    Foreign,
    /// Its header is not what was written.
    #[error("its header has another checksum")]
    HeaderChecksum,
    /// Its name is that of another segment.
    #[error("by its header it starts at {first}")]
    OtherStart {
        /// The number of its first command, by its header.
        first: u64,
    },
    /// The other files of the directory are not of its cluster.
    #[error("it belongs to cluster {:016x}", .0.0)]
    OtherCluster(ClusterId),
    /// A segment before it is not there.
    #[error("the commands from {from} to {to} are missing")]
    Gap {
        /// The first command that is missing.
        from: u64,
        /// The first that is there.
        to: u64,
    },
    /// Commands after its end were in a snapshot that cannot be read.
    #[error("it ends after {reached} commands, and the snapshot of {newest} is damaged, too")]
    EndsEarly {
        /// Commands in the journal.
        reached: u64,
        /// Commands in the snapshot.
        newest: u64,
    },
    /// No file of the directory has a command.
    #[error("it has no command")]
    Empty,
    /// A record is not what was written.
    #[error("{0}")]
    Record(#[from] RecordDamage),
}

/// A kind of damage of a record of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordDamage {
    /// The file ends within its header.
    #[error("a record's header is cut off")]
    HeaderCut,
    /// The file ends before it does.
    #[error("a record is cut off")]
    Cut,
    /// No record has this length.
    #[error("a record claims {bytes} bytes")]
    Length {
        /// The length in its header.
        bytes: usize,
    },
    /// Its header is not one that was written here.
    #[error("a record has another header")]
    Header,
    /// It is the record of another command.
    #[error("a record has the number {found}, not {wanted}")]
    Number {
        /// The low half of the number in its header.
        found: u32,
        /// The low half of the number that follows the record before.
        wanted: u32,
    },
    /// Its last byte is not one that was written.
    #[error("a record has another end")]
    End,
    /// Its bytes are not those that were written.
    #[error("a record has another checksum")]
    Checksum,
    /// The command ends before the record does.
    #[error("{bytes} bytes follow a command in its record")]
    Trailing {
        /// Bytes behind the command.
        bytes: usize,
    },
    /// Its bytes are what was written, and no command.
    #[error("a record is no command: {0}")]
    Undecodable(#[source] postcard::Error),
    /// Its command was logged before that of the record before it.
    #[error("a record is older than the one before it")]
    Older,
}
