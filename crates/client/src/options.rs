//! How an object is created.

use sanderling_protocol::message::{
    Affinity, Attributes, Condition, Create, CreateKind, CreateMode, RECOMPUTE_MILLIS,
};
use sanderling_protocol::{Millis, Nonce, Path, StorageClass};

/// The options with which a client creates an object.
#[derive(Debug, Clone)]
pub struct PutOptions {
    /// A file, or a key-value of a table.
    pub kind: CreateKind,
    /// What happens when the name exists.
    pub mode: CreateMode,
    /// What must be under the name when the object takes it: looked at when it is created, and
    /// again in the same step as it is sealed. With mode `Replace`, nothing is seen under the name
    /// before the seal.
    pub condition: Option<Condition>,
    /// Make missing directories above it.
    pub parents: bool,
    /// Whether its directory's listing shows it.
    pub is_listed: bool,
    /// Where its blocks go.
    pub class: StorageClass,
    /// A preference to be near something.
    pub affinity: Option<Affinity>,
    /// Time it has; `None` to keep it.
    pub ttl: Option<Millis>,
    /// Whether the first whole `get` deletes it.
    pub delete_after_read: bool,
    /// Bytes that will be written, if known.
    pub expected_bytes: Option<u64>,
    /// What is kept beside its bytes.
    pub attributes: Attributes,
    /// Time that it took to make the object: when its node gets a notice, the bytes that are most
    /// expensive to recompute leave first. Kept as an attribute ([`RECOMPUTE_MILLIS`]).
    pub recompute: Option<Millis>,
    /// Whether a small value may live in the catalog. Without it a file can be any part of a
    /// concatenation.
    pub is_inline_allowed: bool,
}

impl Default for PutOptions {
    /// A listed file that must not exist yet, in memory first, in a directory that exists.
    fn default() -> Self {
        Self {
            kind: CreateKind::File,
            mode: CreateMode::New,
            condition: None,
            parents: false,
            is_listed: true,
            class: StorageClass::default(),
            affinity: None,
            ttl: None,
            delete_after_read: false,
            expected_bytes: None,
            attributes: Attributes::none(),
            recompute: None,
            is_inline_allowed: true,
        }
    }
}

impl PutOptions {
    /// Returns the options that replace what exists and make missing directories, as most tools
    /// expect.
    #[must_use]
    pub fn replacing() -> Self {
        Self { mode: CreateMode::Replace, parents: true, ..Self::default() }
    }

    pub(crate) fn request(&self, path: &Path, writer: Nonce) -> Create {
        Create {
            path: path.clone(),
            kind: self.kind,
            mode: self.mode,
            condition: self.condition,
            parents: self.parents,
            is_listed: self.is_listed,
            class: self.class,
            affinity: self.affinity.clone(),
            ttl: self.ttl,
            delete_after_read: self.delete_after_read,
            writer,
            expected_bytes: self.expected_bytes,
            inline: None,
            attributes: self.all_attributes(),
        }
    }

    /// Returns the attributes with the cost among them.
    pub(crate) fn all_attributes(&self) -> Attributes {
        let mut all = self.attributes.clone();
        if let Some(Millis(millis)) = self.recompute {
            all.set(RECOMPUTE_MILLIS, millis.to_string());
        }
        all
    }
}
