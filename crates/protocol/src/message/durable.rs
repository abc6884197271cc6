//! Durable directories: what is below them is copied to a store outside of the cluster.

use serde::{Deserialize, Serialize};

use super::once::Repetition;
use crate::ids::{BlockId, Epoch, NodeId, Nonce, ObjectId};
use crate::path::Path;
use crate::tier::Tier;
use crate::time::Millis;

/// The first name of what a store of a durable directory has that is no object: uploads until they
/// are completed, and the file that names its owner. No object right below a durable directory has
/// this name.
pub const STORE_OWN_NAME: &str = ".sanderling";

/// Returns why a directory is stalled by a change whose object the store never takes: it refuses
/// the object's name. The namenode distinguishes it by this text from what may pass by itself, and
/// lets the object be deleted.
#[must_use]
pub fn refused_name(number: u64, why: &str) -> String {
    format!("the store takes no object of this name (change {number}): {why}")
}

/// Returns whether that is why a directory is stalled by a change.
#[must_use]
pub fn is_refused_name(stalled: &str, number: u64) -> bool {
    stalled.starts_with(&refused_name(number, ""))
}

/// A request about durable directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurableRequest {
    /// Makes a directory durable: what is sealed below it is copied to a store. Reply: `Stat`.
    Make(MakeDurable),
    /// How far what is at a path is copied to its store. Reply: `Durability`.
    Look {
        /// An object or a directory.
        path: Path,
    },
    /// How far all durable directories are copied. Reply: `Overview`.
    Overview,
    /// How far entries of one directory are copied to its store. Reply: `States`.
    States {
        /// The directory.
        path: Path,
        /// The names of the entries, at most `LIST_PAGE_MAX`.
        names: Vec<String>,
    },
    /// A datanode reports the stores that it reaches. Reply: `Done`.
    ServeStores {
        /// The node.
        node: NodeId,
        /// Its process.
        nonce: Nonce,
        /// The names of the stores, at most `STORES_PER_NODE_MAX`.
        stores: Vec<String>,
    },
    /// A datanode requests whether a removal that it was ordered still waits. Reply: `Waits`.
    Waits {
        /// The directory.
        directory: ObjectId,
        /// The number of the change.
        number: u64,
    },
    /// What is to be done for durable directories, and which nodes reach their stores. Reply:
    /// `Work`.
    Work {
        /// The manager.
        holder: Nonce,
    },
    /// Reports what was done for durable directories. Reply: `Done`.
    Progress {
        /// The manager.
        holder: Nonce,
        /// What was done.
        progress: DurableProgress,
    },
    /// A datanode requests whether a store that it was ordered to take over still is to be taken.
    /// Reply: `Waits`.
    WaitsToTake {
        /// The directory that adopts the store.
        directory: ObjectId,
    },
    /// Reports what was done for durable directories, and which objects their stores lack by which
    /// names. Without such objects a manager sends `Progress`. Reply: `Done`.
    Report {
        /// The manager.
        holder: Nonce,
        /// What was done, and what is missing.
        report: DurableReport,
    },
    /// Reports what was done for durable directories: uploads with those that they replace, and
    /// changes with the uploads by which they were made. A report of neither is a `Report` or a
    /// `Progress`. Reply: `Done`. One that does not follow on what the namenode has recorded is
    /// refused as a whole: the manager begins anew.
    Record {
        /// The manager.
        holder: Nonce,
        /// What was done.
        record: DurableRecord,
    },
}

/// A reply about durable directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurableReply {
    /// Answer to `Look`: `None` outside of durable directories.
    Durability(Option<Durability>),
    /// Answer to `Overview`, by directory.
    Overview(Vec<DurableStatus>),
    /// Answer to `States`: one for each name, `None` outside of durable directories.
    States(Option<Vec<DurableState>>),
    /// Answer to `Waits` and `WaitsToTake`.
    Waits(bool),
    /// Answer to `Work`.
    Work {
        /// By directory.
        directories: Vec<DurableWork>,
        /// Objects to be read back.
        losses: Vec<DurableLoss>,
        /// The nodes that reach stores.
        nodes: Vec<StoreNode>,
    },
}

impl DurableRequest {
    /// Names the request for metrics and traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Make(_) => "make_durable",
            Self::Look { .. } => "durability",
            Self::Overview => "durable_overview",
            Self::States { .. } => "durable_states",
            Self::ServeStores { .. } => "serve_stores",
            Self::Waits { .. } => "durable_waits",
            Self::Work { .. } => "durable_work",
            Self::Progress { .. } => "durable_progress",
            Self::WaitsToTake { .. } => "durable_waits_to_take",
            Self::Report { .. } => "durable_report",
            Self::Record { .. } => "durable_record",
        }
    }

    /// Returns what happens when the request arrives twice: the change is made once, the outcome is
    /// alike, or nothing changes as the request only reads.
    #[must_use]
    pub const fn repeat(&self) -> Repetition {
        match self {
            Self::Make(_) => Repetition::Once,
            // A datanode's present state; numbers of changes, steps, names, epochs and uploads are
            // compared. A manager of before sends what is `gone` only once.
            Self::ServeStores { .. }
            | Self::Progress { .. }
            | Self::Report { .. }
            | Self::Record { .. } => Repetition::Alike,
            Self::Look { .. }
            | Self::Overview
            | Self::States { .. }
            | Self::Waits { .. }
            | Self::WaitsToTake { .. }
            | Self::Work { .. } => Repetition::Reads,
        }
    }
}

/// Makes a directory durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDurable {
    /// The directory; made if it is missing. It must be empty.
    pub path: Path,
    /// The name of the store, as datanodes were started with it.
    pub store: String,
    /// Make missing directories above it, and accept that it has this store already.
    pub parents: bool,
    /// Bytes that may wait for the store: while more do, nothing is created below the directory.
    pub backlog_bytes_max: u64,
    /// Take the store over with what it has, from whichever directory it belonged to: its objects
    /// become those of the directory.
    pub adopt: bool,
}

/// The progress of the copy of an object, or a directory, to its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durability {
    /// The durable directory at or above the path.
    pub directory: Path,
    /// The name of its store.
    pub store: String,
    /// The object's name in the store, relative to the store's URL; empty for the directory itself.
    pub key: String,
    /// Whether the store has everything that is sealed at or below the path, as it is now.
    pub is_durable: bool,
    /// Changes of the directory that wait for the store.
    pub backlog_changes: u64,
    /// Bytes of the objects among them.
    pub backlog_bytes: u64,
    /// Age of the oldest of them; `None` if none waits.
    pub backlog_age: Option<Millis>,
    /// The number of the oldest change that waits: all below it are in the store.
    pub done_below: u64,
    /// More than the numbers of all changes so far.
    pub next: u64,
    /// Why the oldest change could not be made when it was tried last; empty if it could.
    pub stalled: String,
    /// Bytes of the object that are in the store only: they are read back when they are read first.
    pub stored_bytes: u64,
    /// What became of the objects that the store had before; `None` if it began empty.
    pub adoption: Option<Adoption>,
}

impl Durability {
    /// Returns whether the store has every change below the number `target` that concerns the path,
    /// or everything that is there now.
    #[must_use]
    pub fn is_copied(&self, target: u64) -> bool {
        let is_adopted = self.adoption.as_ref().is_none_or(|adoption| adoption.is_done);
        is_adopted && (self.is_durable || self.done_below >= target)
    }
}

/// The progress of the copy of one durable directory to its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableStatus {
    /// The directory.
    pub directory: Path,
    /// The name of its store.
    pub store: String,
    /// Changes that wait for the store.
    pub backlog_changes: u64,
    /// Bytes of the objects among them.
    pub backlog_bytes: u64,
    /// Bytes above which writers wait.
    pub backlog_bytes_max: u64,
    /// Age of the oldest of them; `None` if none waits.
    pub backlog_age: Option<Millis>,
    /// Why the oldest change could not be made when it was tried last; empty if it could.
    pub stalled: String,
    /// What became of the objects that the store had before; `None` if it began empty.
    pub adoption: Option<Adoption>,
}

/// The state of an object's copy in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurableState {
    /// It waits for the store, or is written; of a directory, something in it.
    Volatile,
    /// The store has the object with its present bytes.
    Durable,
    /// The store has the object with its present bytes, and some of them are in the store only.
    Stored,
}

impl DurableState {
    /// Returns the state's name in lower case, the same as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::Durable => "durable",
            Self::Stored => "stored",
        }
    }
}

/// The progress of the adoption of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    /// Whether the whole store was listed.
    pub is_done: bool,
    /// Objects that were adopted.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects of the store that were left out, because they cannot be objects of the directory.
    pub skipped: u64,
    /// The first of them, and why; empty if there is none.
    pub skipped_first: String,
}

/// The next step in the adoption of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdoptionStep {
    /// The store is made the directory's.
    Take,
    /// The names after this one are listed; all of them after an empty one.
    List(String),
}

/// A part of what a store has, in the order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSlice {
    /// Name and bytes of each object.
    pub objects: Vec<(String, u64)>,
    /// What cannot be adopted: how many, and the first with the reason.
    pub skipped: u64,
    /// The first of them.
    pub skipped_first: String,
    /// The next slice begins after this name; `None` if there is none.
    pub next: Option<String>,
}

/// A step in the adoption of a store that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The directory.
    pub directory: ObjectId,
    /// The step. What was made before changes nothing.
    pub step: AdoptionStep,
    /// What the store has; empty for `Take`.
    pub slice: StoreSlice,
}

/// The work that is to be done for a durable directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableWork {
    /// The durable directory.
    pub directory: ObjectId,
    /// The name of its store.
    pub store: String,
    /// Whether the store may be new: only then may an empty place become the directory's.
    pub may_claim: bool,
    /// What is next in the adoption of the store; `None` if nothing is.
    pub adoption: Option<AdoptionStep>,
    /// The first changes that wait, in the order in which they must become visible.
    pub changes: Vec<DurableChange>,
}

/// A durable object that has lost bytes here, to be read back from its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableLoss {
    /// The durable directory.
    pub directory: ObjectId,
    /// The name of its store.
    pub store: String,
    /// The object.
    pub object: ObjectId,
    /// Its name in the store.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
    /// The first of its lost blocks.
    pub blocks: Vec<LostBlock>,
}

/// A lost block, and where its bytes are in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBlock {
    /// The block.
    pub block: BlockId,
    /// The epoch at which it may be stored again.
    pub epoch: Epoch,
    /// The offset of its first byte in the object.
    pub offset: u64,
    /// Its bytes.
    pub length: u32,
}

/// A block that a datanode has read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredBlock {
    /// The block.
    pub block: BlockId,
    /// The epoch at which it is stored.
    pub epoch: Epoch,
    /// The node.
    pub node: NodeId,
    /// The tier.
    pub tier: Tier,
}

/// A change of a durable directory that its store does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableChange {
    /// Its number: those of a directory increase.
    pub number: u64,
    /// The name in the store, relative to the store's URL.
    pub key: String,
    /// What becomes of the name.
    pub kind: DurableChangeKind,
    /// The last upload for it that was completed, or may have been: it must be ended before another
    /// one is completed.
    pub upload: Option<String>,
}

/// The kind of a change of a name in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurableChangeKind {
    /// It gets the bytes of a sealed object.
    Put {
        /// The object.
        object: ObjectId,
        /// Its bytes.
        bytes: u64,
    },
    /// The object is gone already: nothing is to be done.
    Skip,
    /// It goes.
    Remove,
    /// Everything below it goes.
    RemoveTree,
}

/// A datanode that reaches stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreNode {
    /// The incarnation.
    pub node: NodeId,
    /// The address at which it serves blocks: `host:port`.
    pub address: String,
    /// The names of its stores.
    pub stores: Vec<String>,
}

/// A report of what a manager has done for durable directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableProgress {
    /// Uploads that are going to be completed: directory, number of the change, upload. Each takes
    /// the place of any other. Only managers without [`DurableRecord`] send any, and those whose
    /// namenode does not read it.
    pub uploads: Vec<(ObjectId, u64, String)>,
    /// Changes that the store has, by directory: all up to this number. Sent as `uploads` are.
    pub done: Vec<(ObjectId, u64)>,
    /// Directories whose oldest change cannot be made, and why; an empty text if it can again.
    pub stalled: Vec<(ObjectId, String)>,
    /// Blocks that were read back.
    pub restored: Vec<RestoredBlock>,
    /// Objects that the store does not have as they were, without the names by which it lacks
    /// them: what is lost of them is lost. Only managers without [`DurableReport`] send any.
    pub gone: Vec<(ObjectId, String)>,
    /// Steps of adoptions.
    pub adopted: Vec<Adopted>,
}

/// A report of what a manager has done for durable directories, and of what their stores lack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableReport {
    /// What was done.
    pub progress: DurableProgress,
    /// Objects that the store does not have as they were.
    pub missing: Vec<MissingObject>,
}

impl DurableReport {
    /// Returns the request with which a manager sends the report. A namenode that does not read
    /// [`DurableRequest::Report`] reads it, too, as long as no object is missing.
    #[must_use]
    pub fn into_request(self, holder: Nonce) -> DurableRequest {
        match self.missing.is_empty() {
            true => DurableRequest::Progress { holder, progress: self.progress },
            false => DurableRequest::Report { holder, report: self },
        }
    }
}

/// A report of what a manager has done for durable directories, with what it takes for recorded. So
/// the namenode recognizes one that was held up on its way: it does not follow on what others
/// reported since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableRecord {
    /// Uploads that are going to be completed.
    pub uploads: Vec<RecordedUpload>,
    /// Changes that the stores have, of each directory in their order.
    pub made: Vec<MadeChange>,
    /// What else was done, and what is missing.
    pub report: DurableReport,
}

impl DurableRecord {
    /// Returns the request with which a manager sends the report. A namenode that does not read
    /// [`DurableRequest::Record`] reads it, too, as long as it has no uploads and no changes.
    #[must_use]
    pub fn into_request(self, holder: Nonce) -> DurableRequest {
        match self.uploads.is_empty() && self.made.is_empty() {
            true => self.report.into_request(holder),
            false => DurableRequest::Record { holder, record: self },
        }
    }

    /// Returns the report for a namenode that takes each upload for the last one, and each change
    /// for made.
    #[must_use]
    pub fn without_comparison(self) -> Self {
        let Self { uploads, made, mut report } = self;
        let uploads = uploads.into_iter().map(|it| (it.directory, it.number, it.upload));
        report.progress.uploads.extend(uploads);
        report.progress.done.extend(made.into_iter().map(|it| (it.directory, it.number)));
        Self { uploads: Vec::new(), made: Vec::new(), report }
    }
}

/// An upload that is going to be completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedUpload {
    /// The durable directory.
    pub directory: ObjectId,
    /// The number of the change.
    pub number: u64,
    /// The upload.
    pub upload: String,
    /// The upload of the change that was recorded before, if any. It was ended.
    pub replaces: Option<String>,
}

/// A change that a store has, or that was passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeChange {
    /// The durable directory.
    pub directory: ObjectId,
    /// The number of the change.
    pub number: u64,
    /// The upload of the change that was recorded last, if any.
    pub upload: Option<String>,
}

/// An object that a datanode was to read back, and that its store does not have as it was. The
/// namenode takes it for lost only if it would have the object read by the same name at present,
/// and the block is still lost at the same epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingObject {
    /// The object.
    pub object: ObjectId,
    /// The name by which the datanode looked for it.
    pub key: String,
    /// The first block that was to be read back.
    pub block: BlockId,
    /// The epoch at which it was to be stored.
    pub epoch: Epoch,
    /// Why it is missing.
    pub why: String,
}
