//! Objects of the namespace.

use sanderling_protocol::message::{Condition, ObjectKind};
use sanderling_protocol::{Instant, JobId, LeaseId, Nonce, ObjectId, Path, StorageClass};
use serde::{Deserialize, Serialize};

use super::block_list::BlockList;
use super::id_map::IdMap;
use super::name::Name;

/// The root directory.
pub const ROOT: ObjectId = ObjectId(1);

/// The container of a deleted root: no object has this id.
pub(super) const NOWHERE: ObjectId = ObjectId(0);

/// All objects.
pub(crate) type Objects = IdMap<ObjectId, Object>;

/// One object, whatever its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    /// The container that names it. The root is its own.
    pub(crate) parent: ObjectId,
    /// Its name there.
    pub(crate) name: Name,
    /// Whether the container's entries hold it. An object that will replace another is bound by its
    /// seal.
    pub(crate) is_bound: bool,
    /// Whether listings show it.
    pub(crate) is_listed: bool,
    pub(crate) created_at: Instant,
    pub(crate) modified_at: Instant,
    pub(crate) expires_at: Option<Instant>,
    pub(crate) job: Option<JobId>,
    pub(crate) body: ObjectBody,
}

/// What an object consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ObjectBody {
    Container(Container),
    Data(Data),
}

/// A directory, multifile or table. What it holds is in [`super::names::Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) kind: ObjectKind,
}

/// A file or key-value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    pub(crate) kind: ObjectKind,
    pub(crate) class: StorageClass,
    pub(crate) delete_after_read: bool,
    pub(crate) is_sealed: bool,
    /// Published bytes.
    pub(crate) bytes: u64,
    /// Published bytes that were declared lost.
    pub(crate) lost_bytes: u64,
    /// The whole value, if it lives here.
    pub(crate) inline: Option<Box<[u8]>>,
    /// In the order of the bytes. Some may have none.
    pub(crate) blocks: BlockList,
    /// Drawn by the writer that created it, so that a repeated create differs from another's.
    pub(crate) created_by: Nonce,
    pub(crate) lease: Option<Box<WriterLease>>,
    /// The lease under which it was sealed last, so that a repeated seal is answered alike.
    pub(crate) sealed_by: LeaseId,
}

/// The right of one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriterLease {
    pub(crate) id: LeaseId,
    pub(crate) writer: Nonce,
    pub(crate) until: Instant,
    /// The lease has ended, and the datanodes have not yet returned how far the writer got.
    pub(crate) is_recovering: bool,
    /// What must be under the object's name when its seal binds it.
    pub(crate) condition: Option<Condition>,
    /// Blocks without published bytes: what is sealed has none. Made anew when a snapshot is read.
    #[serde(skip)]
    pub(crate) blank_blocks: u32,
}

impl Data {
    /// Returns what has no bytes yet and was never sealed.
    pub(crate) fn new(kind: ObjectKind, class: StorageClass, created_by: Nonce) -> Self {
        Self {
            kind,
            class,
            delete_after_read: false,
            is_sealed: false,
            bytes: 0,
            lost_bytes: 0,
            inline: None,
            blocks: BlockList::default(),
            created_by,
            lease: None,
            sealed_by: LeaseId(0),
        }
    }
}

impl Data {
    /// Returns the bytes of its value that live in the catalog: the first ones.
    pub(crate) fn inline_bytes(&self) -> u64 {
        self.inline.as_ref().map_or(0, |inline| inline.len() as u64)
    }

    /// Returns how many blocks have published bytes.
    pub(crate) fn blocks_with_bytes(&self) -> u32 {
        let blocks = u32::try_from(self.blocks.as_slice().len()).unwrap_or(u32::MAX);
        blocks - self.lease.as_ref().map_or(0, |lease| lease.blank_blocks)
    }

    /// Notes that a block without published bytes came, or that it gets some or goes.
    pub(crate) fn count_blank(&mut self, comes: bool) {
        let Some(lease) = &mut self.lease else { return };
        match comes {
            true => lease.blank_blocks += 1,
            false => lease.blank_blocks -= 1,
        }
    }
}

impl Container {
    /// Returns whether an object of that kind may live here.
    pub(crate) const fn accepts(&self, kind: ObjectKind) -> bool {
        match self.kind {
            ObjectKind::Multifile => matches!(kind, ObjectKind::File),
            ObjectKind::Table => matches!(kind, ObjectKind::KeyValue),
            _ => !matches!(kind, ObjectKind::KeyValue),
        }
    }
}

impl Object {
    pub(crate) const fn kind(&self) -> ObjectKind {
        match &self.body {
            ObjectBody::Container(container) => container.kind,
            ObjectBody::Data(data) => data.kind,
        }
    }

    pub(crate) const fn data(&self) -> Option<&Data> {
        match &self.body {
            ObjectBody::Data(data) => Some(data),
            ObjectBody::Container(_) => None,
        }
    }

    pub(crate) const fn data_mut(&mut self) -> Option<&mut Data> {
        match &mut self.body {
            ObjectBody::Data(data) => Some(data),
            ObjectBody::Container(_) => None,
        }
    }

    pub(crate) const fn container(&self) -> Option<&Container> {
        match &self.body {
            ObjectBody::Container(container) => Some(container),
            ObjectBody::Data(_) => None,
        }
    }
}

/// Returns the path under which an object is, or will be, named; `None` if it is gone or a
/// directory above it is.
pub(super) fn path_of(objects: &Objects, id: ObjectId) -> Option<Path> {
    let mut names = Vec::new();
    let mut at = id;
    while at != ROOT {
        let object = objects.get(&at)?;
        names.push(object.name.as_str());
        at = object.parent;
    }
    Some(Path::of_components(names.into_iter().rev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million objects are to fit half a gibibyte with everything that is kept about them.
    #[test]
    fn an_object_takes_little_more_than_two_cache_lines() {
        assert!(size_of::<Object>() <= 168, "{}", size_of::<Object>());
    }
}
