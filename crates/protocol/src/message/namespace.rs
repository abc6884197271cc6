//! Objects and where their bytes are.

use serde::{Deserialize, Serialize};

use super::attributes::{Attributes, Condition};
use crate::ids::{BlockId, Epoch, JobId, LeaseId, NodeId, Nonce, ObjectId};
use crate::path::Path;
use crate::refusal::ByteRange;
use crate::tier::{StorageClass, Tier};
use crate::time::{Instant, Millis};

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// One writer, append, sealed at close.
    File,
    /// Holds objects of any kind.
    Directory,
    /// Holds files, its parts, written by many and read as one stream in the order of their names.
    Multifile,
    /// Holds key-values.
    Table,
    /// An entry of a table: the last create wins, replaced at its seal at once.
    KeyValue,
}

impl ObjectKind {
    /// Returns whether objects of this kind hold others rather than bytes.
    #[must_use]
    pub const fn is_container(self) -> bool {
        matches!(self, Self::Directory | Self::Multifile | Self::Table)
    }

    /// Returns the kind's name in JSON, such as `file` or `key_value`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Multifile => "multifile",
            Self::Table => "table",
            Self::KeyValue => "key_value",
        }
    }
}

/// The kinds that hold bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateKind {
    /// A file, in a directory or a multifile.
    File,
    /// A key-value, in a table.
    KeyValue,
}

/// The behaviour when an object of that name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateMode {
    /// Refuse with `Exists`. The new name is visible, empty, at once.
    New,
    /// Readers see the old object until the new one is sealed, then the new one.
    Replace,
}

/// A preference to be near something. It is followed where there is room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affinity {
    /// Near a machine.
    Host(String),
    /// Near an object's first block.
    Object(Path),
}

/// Creates a file or key-value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Its path.
    pub path: Path,
    /// Its kind.
    pub kind: CreateKind,
    /// The behaviour when an object of that name exists. A key-value always replaces.
    pub mode: CreateMode,
    /// The condition on the object under the name; mode `New` allows none there anyway.
    pub condition: Option<Condition>,
    /// Make missing directories above it.
    pub parents: bool,
    /// Whether its directory's listing shows it.
    pub is_listed: bool,
    /// The storage class of its blocks.
    pub class: StorageClass,
    /// A preference to be near something.
    pub affinity: Option<Affinity>,
    /// Time it has; `None` to keep it.
    pub ttl: Option<Millis>,
    /// Whether a client's first whole read deletes it.
    pub delete_after_read: bool,
    /// The writer's process.
    pub writer: Nonce,
    /// Bytes that will be written, if known: that many blocks are reserved at once.
    pub expected_bytes: Option<u64>,
    /// The whole value, at most `INLINE_BYTES_MAX`: the object is sealed at once and has no blocks.
    #[serde(with = "crate::byte_vec::optional")]
    pub inline: Option<Vec<u8>>,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Create {
    /// Returns the request for a listed file that must not exist yet, with its directories, in
    /// memory first. The number of its bytes is unknown.
    #[must_use]
    pub fn new(path: Path, writer: Nonce) -> Self {
        Self {
            path,
            kind: CreateKind::File,
            mode: CreateMode::New,
            condition: None,
            parents: true,
            is_listed: true,
            class: StorageClass::default(),
            affinity: None,
            ttl: None,
            delete_after_read: false,
            writer,
            expected_bytes: None,
            inline: None,
            attributes: Attributes::none(),
        }
    }
}

/// One block that a writer may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedBlock {
    /// The block.
    pub block: BlockId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its home; 0 if that is gone.
    pub node: NodeId,
    /// The tier to write to.
    pub tier: Tier,
    /// Most bytes it may get. If 0, its home is gone, and the writer ends the block without bytes.
    pub bytes_max: u32,
}

/// A datanode's id and address, so that each address travels once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// The incarnation of the datanode.
    pub node: NodeId,
    /// The address at which it serves blocks: `host:port`.
    pub address: String,
    /// Its machine.
    pub host: String,
}

/// The right to write an object, and blocks to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The object.
    pub object: ObjectId,
    /// The writer's lease.
    pub lease: LeaseId,
    /// It ends when it is not renewed for this long.
    pub lease_millis: Millis,
    /// Bytes that the object has already: where an append starts.
    pub bytes: u64,
    /// New blocks, in the order in which they must be filled.
    pub blocks: Vec<GrantedBlock>,
    /// The addresses of the blocks' nodes.
    pub places: Vec<NodeAddress>,
}

/// The acknowledged length of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLength {
    /// The block.
    pub block: BlockId,
    /// Its acknowledged bytes.
    pub length: u32,
}

/// One block of an object, in the namenode's present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLocation {
    /// The block.
    pub block: BlockId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The offset of its first byte in the object.
    pub offset: u64,
    /// Its published bytes.
    pub length: u32,
    /// Its home; `None` when it is lost.
    pub home: Option<NodeId>,
    /// Its tier.
    pub tier: Tier,
}

/// An object and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The object.
    pub stat: ObjectStat,
    /// All its bytes, if it is small enough to live in the catalog.
    #[serde(with = "crate::byte_vec::optional")]
    pub inline: Option<Vec<u8>>,
    /// The blocks that overlap the requested range, in order, at most `BLOCKS_PER_LAYOUT_MAX`.
    /// Blocks without bytes are left out.
    pub blocks: Vec<BlockLocation>,
    /// The addresses of the blocks' nodes.
    pub places: Vec<NodeAddress>,
    /// The offset at which the next request begins, when the range has more blocks.
    pub next_offset: Option<u64>,
}

impl Layout {
    /// Returns the lost runs among the blocks of this layout, adjacent ones joined.
    #[must_use]
    pub fn lost_ranges(&self) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for block in self.blocks.iter().filter(|block| block.home.is_none()) {
            let bytes = u64::from(block.length);
            match ranges.last_mut() {
                Some(last) if last.offset + last.bytes == block.offset => last.bytes += bytes,
                _ => ranges.push(ByteRange { offset: block.offset, bytes }),
            }
        }
        ranges
    }
}

/// The metadata of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStat {
    /// Its path now.
    pub path: Path,
    /// Its id, which a rename keeps and a replacement changes.
    pub object: ObjectId,
    /// Its kind.
    pub kind: ObjectKind,
    /// Published bytes; of a multifile or table the sum of its parts, of a directory 0.
    pub bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Whether its writer has closed it. Directories always are.
    pub is_sealed: bool,
    /// Whether its directory's listing shows it.
    pub is_listed: bool,
    /// Whether a client's first whole read deletes it.
    pub delete_after_read: bool,
    /// The storage class of its blocks.
    pub class: StorageClass,
    /// When it was created.
    pub created_at: Instant,
    /// When its bytes or entries last changed.
    pub modified_at: Instant,
    /// Time until its TTL deletes it; `None` without a TTL.
    pub expires_in: Option<Millis>,
    /// Its blocks with bytes.
    pub blocks: u32,
    /// Listed and unlisted entries of a container.
    pub entries: u64,
    /// The job it belongs to.
    pub job: Option<JobId>,
    /// Its attributes.
    pub attributes: Attributes,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name inside its directory.
    pub name: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its id.
    pub object: ObjectId,
    /// Published bytes.
    pub bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Whether its writer has closed it.
    pub is_sealed: bool,
    /// When its bytes or entries last changed.
    pub modified_at: Instant,
    /// Its attributes, if they were requested.
    pub attributes: Attributes,
}
