//! Where an archive is, and why it cannot be used.

use std::io;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;
use sanderling_core::archive::ArchiveManifestError;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::ClusterId;
use thiserror::Error;

/// The place of a namenode's archive.
#[derive(Debug, Clone)]
pub struct ArchiveOptions {
    /// The store. Its operations end by themselves within some seconds.
    pub store: Arc<dyn ObjectStore>,
    /// The prefix of all names in it.
    pub prefix: Path,
    /// How it is called in messages.
    pub url: String,
}

/// A reason why an archive cannot be used.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The store does not do what it should. The same again later may succeed.
    #[error("the archive {url} cannot be used: {cause}")]
    Store {
        /// The archive.
        url: String,
        /// The error of the store.
        #[source]
        cause: object_store::Error,
    },
    /// What is to be stored cannot be read.
    #[error("the namenode's directory cannot be read: {0}")]
    Directory(#[from] io::Error),
    /// It is the archive of another cluster. Give each cluster a place of its own.
    #[error(
        "the archive {url} is of cluster {found:016x}, not of {wanted:016x}",
        found = .found.0, wanted = .wanted.0
    )]
    OtherCluster {
        /// The archive.
        url: String,
        /// The cluster that it is of.
        found: ClusterId,
        /// The cluster that was meant.
        wanted: ClusterId,
    },
    /// The archive has changes that the directory lacks: recover from it.
    #[error("the archive {url} has {archived} changes, and the directory has only {found}")]
    Ahead {
        /// The archive.
        url: String,
        /// Changes in the archive.
        archived: u64,
        /// Changes in the directory.
        found: u64,
    },
    /// The group was begun anew, and continues in this archive. The older members end.
    #[error(
        "the archive {url} is of generation {found} of the group, and this namenode of {own}: an \
         operator has begun the group anew"
    )]
    LaterGroup {
        /// The archive.
        url: String,
        /// Its generation.
        found: u64,
        /// This namenode's.
        own: u64,
    },
    /// Two recoveries have begun the same generation of the group, and the other one was here
    /// first.
    #[error(
        "two recoveries have begun a generation of the group: the archive {url} is of {found}, and \
         this namenode of {own}; end one of the two"
    )]
    OtherRecovery {
        /// The archive.
        url: String,
        /// Its generation.
        found: GroupGeneration,
        /// This namenode's.
        own: GroupGeneration,
    },
    /// Another namenode has begun a later generation meanwhile. End one of the two.
    #[error("another namenode has begun generation {generation} of the archive {url} meanwhile")]
    Overtaken {
        /// The archive.
        url: String,
        /// The newest generation.
        generation: u64,
    },
    /// The store replaces an object that it is to create only if there is none, so that two
    /// namenodes could write the same archive. Use another store.
    #[error(
        "the archive {url} cannot be used: its store does not refuse to create an object that \
         exists, and two namenodes could write the archive at once"
    )]
    Unconditional {
        /// The archive.
        url: String,
    },
    /// The archive is a group's: the group continues, not a namenode alone.
    #[error("the archive {url} was written by a group of namenodes")]
    OfGroup {
        /// The archive.
        url: String,
    },
    /// There is nothing in it to recover from.
    #[error("the archive {url} holds no catalog")]
    Empty {
        /// The archive.
        url: String,
    },
    /// It has no such generation, or none that is whole.
    #[error("the archive {url} has no generation {generation} with a catalog; it has {there}")]
    NoGeneration {
        /// The archive.
        url: String,
        /// The generation that was wanted.
        generation: u64,
        /// Those that are there.
        there: String,
    },
    /// It holds several clusters: name one.
    #[error("the archive {url} holds several clusters: {there}")]
    SeveralClusters {
        /// The archive.
        url: String,
        /// Their ids.
        there: String,
    },
    /// An object is not what was stored. An older generation may be whole.
    #[error("{object} of the archive {url} is damaged: {damage}")]
    Damaged {
        /// The archive.
        url: String,
        /// The object.
        object: String,
        /// What is wrong with it.
        #[source]
        damage: ArchiveDamage,
    },
}

/// A kind of damage of an object of an archive.
#[derive(Debug, Error)]
pub enum ArchiveDamage {
    /// It is not there.
    #[error("it is not there")]
    Missing(#[source] object_store::Error),
    /// It is longer or shorter than what was stored.
    #[error("it has {bytes} bytes")]
    Size {
        /// Its bytes.
        bytes: u64,
    },
    /// The store ended it early.
    #[error("{received} of its {bytes} bytes came")]
    Short {
        /// Bytes that came.
        received: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A manifest ends within its checksum.
    #[error("it is cut off")]
    Cut,
    /// A manifest's bytes are not those that were stored.
    #[error("its checksum does not match")]
    Checksum,
    /// A manifest cannot be decoded.
    #[error("{0}")]
    Undecodable(#[from] serde_json::Error),
    /// A manifest names no whole catalog.
    #[error("{0}")]
    Manifest(#[from] ArchiveManifestError),
    /// A manifest is of another cluster than the generation that it is in.
    #[error("it is of cluster {:016x}", .0.0)]
    OtherCluster(ClusterId),
    /// The catalog that was read is not the one that the manifest names.
    #[error("it makes {commands} changes of cluster {:016x}", .cluster.0)]
    OtherCatalog {
        /// Changes in it.
        commands: u64,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The mark of a generation is not what was stored.
    #[error("it names no generation of a group")]
    NoGroup,
    /// No generation can begin.
    #[error("no number is left, or many namenodes began at the same time")]
    NoNumber,
    /// Another cluster has taken the place of this one.
    #[error("it is gone, and there is a generation of another cluster")]
    Replaced,
}
