//! How much memory the catalog takes, by an account that follows from what is in it.
//!
//! The account is an estimate: what was measured for an object and a block (`docs/SCALE.md`), and
//! the bytes of everything that clients choose the length of. It is no part of the log: whether a
//! change is refused for want of memory is decided before it is logged.

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::Attributes;

use super::object::{Data, Object, Objects};

/// Bytes of an object without its name, value and attributes: `sanderling bench scale` measures 250
/// to 400 for a value of 64 bytes.
const OBJECT_BYTES: u64 = 320;

/// Bytes of a block: a file of one block takes 360 to 430.
const BLOCK_BYTES: u64 = 160;

/// Bytes of a job, with its limits, accounts and hints. Jobs are few, so it is a round number above
/// what its types have. Not measured.
const JOB_BYTES: u64 = 512;

/// Bytes that an attribute takes beside its name and text: two strings in a node of a tree.
const ATTRIBUTE_BYTES: u64 = 96;

/// The account of everything that clients choose the length of: names, values and attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    text_bytes: u64,
}

impl Memory {
    /// Returns the account as it follows from the objects and their attributes. Cost: linear in the
    /// objects.
    pub(super) fn of<'a>(
        objects: &Objects,
        attributes: impl Iterator<Item = &'a Attributes>,
    ) -> Self {
        let objects: u64 = objects.values().map(texts).sum();
        let attributes: u64 = attributes.map(of_attributes).sum();
        Self { text_bytes: objects + attributes }
    }

    /// Notes that texts came, or went.
    pub(super) const fn count(&mut self, came: u64, went: u64) {
        self.text_bytes = self.text_bytes.saturating_add(came).saturating_sub(went);
    }

    /// Returns about how many bytes a catalog takes.
    pub(super) const fn bytes(self, objects: usize, blocks: usize, jobs: usize) -> u64 {
        objects as u64 * OBJECT_BYTES
            + blocks as u64 * BLOCK_BYTES
            + jobs as u64 * JOB_BYTES
            + self.text_bytes
    }

    /// Adds where the account is not what follows from the objects and their attributes.
    pub(super) fn check<'a>(
        &self,
        objects: &Objects,
        attributes: impl Iterator<Item = &'a Attributes>,
        problems: &mut Vec<String>,
    ) {
        if *self != Self::of(objects, attributes) {
            problems.push("the account of memory is not what the objects hold".to_owned());
        }
    }
}

/// Returns about how many bytes an object takes that is adopted from a store.
pub(crate) const fn of_adopted(name_bytes: u64, bytes: u64) -> u64 {
    let blocks = bytes.div_ceil(BLOCK_BYTES_MAX as u64);
    OBJECT_BYTES + name_bytes + blocks * BLOCK_BYTES
}

/// Returns what an object's name and its value take.
pub(super) fn texts(object: &Object) -> u64 {
    object.name.as_bytes().len() as u64 + object.data().map_or(0, Data::inline_bytes)
}

/// Returns what attributes take.
pub(crate) fn of_attributes(attributes: &Attributes) -> u64 {
    attributes.bytes() as u64 + attributes.iter().count() as u64 * ATTRIBUTE_BYTES
}
