//! Encrypted objects.
//!
//! An object is encrypted whole, because it is fetched whole: the block and its trailer, then the
//! tag, then a footer of 60 bytes with the id of the key. The key of an object is derived from the
//! key of the tier and a salt that is drawn for it, and encrypts nothing else; cluster, block and
//! epoch are bound to it. So any node with the same key can decrypt an object, and takes none for
//! another.

use bytes::Bytes;
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use thiserror::Error;

use super::trailer::{TierKey, Trailer};
use crate::encryption_key::{
    Cipher, EncryptionKey, Forged, KEY_ID_BYTES, KeyId, Salt, TAG_BYTES, salt,
};

/// Marks an encrypted block of ours, and the layout of the footer.
const MAGIC: [u8; 8] = *b"sndrlnx1";

/// What keys of objects are derived for.
const PURPOSE: &str = "sanderling object 1";

/// The one nonce of a key that encrypts one object. GCM requires only that no key uses one twice
/// (NIST SP 800-38D, section 8).
const NONCE: [u8; 12] = [0; 12];

/// Bytes by which an object is longer than its block.
const EXTRA_BYTES: usize = Trailer::BYTES + TAG_BYTES + EncryptionFooter::BYTES;

/// How many bytes at its end identify the format of an object.
pub(super) const END_BYTES: usize = EncryptionFooter::BYTES;

/// Most bytes of an object: the longest block, and what an object is longer.
pub(super) const OBJECT_BYTES_MAX: u64 = BLOCK_BYTES_MAX as u64 + EXTRA_BYTES as u64;

/// The end of an encrypted object. Magic 8, id of the key 16, salt 32, CRC32C of the footer before
/// it 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EncryptionFooter {
    key: KeyId,
    salt: Salt,
}

/// What the end of an object shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Plain,
    Encrypted(EncryptionFooter),
    /// It is damaged, or no object of ours.
    Unknown,
}

/// How the objects of the tier are written and read.
#[derive(Debug)]
pub(super) struct ObjectEncryption {
    key: Option<(EncryptionKey, KeyId)>,
}

/// An object that was written another way than this node's: with another key, or one of both
/// without any. It is not damaged; another node may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncryptionMismatch {
    /// It is encrypted, and the node has no key.
    #[error(
        "it is encrypted and this node has no key: start it with --encrypt and the key of the \
         node that wrote it"
    )]
    NoKey,
    /// It is encrypted with another key.
    #[error(
        "it is encrypted with another key than this node's: start it with the key of the node \
         that wrote it"
    )]
    OtherKey,
    /// It is not encrypted, and the node takes only what is.
    #[error(
        "it is not encrypted and this node reads only what is: give nodes with --encrypt a store \
         of their own"
    )]
    Plain,
}

impl EncryptionFooter {
    /// Bytes of a footer: 8 of the magic, 16 of the key's id, 32 of the salt, and 4 of the checksum
    /// of these.
    const BYTES: usize = 60;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..8 + KEY_ID_BYTES].copy_from_slice(&self.key);
        bytes[24..56].copy_from_slice(&self.salt);
        let own = crc32c(&bytes[..56]);
        bytes[56..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    fn decode(footer: &[u8]) -> Option<Self> {
        let is_footer = footer[..8] == MAGIC && footer[56..] == crc32c(&footer[..56]).to_le_bytes();
        let key = footer[8..24].try_into().expect("an id's length");
        let salt = footer[24..56].try_into().expect("a salt's length");
        is_footer.then_some(Self { key, salt })
    }
}

impl End {
    /// Reads the end of an object.
    pub(crate) fn of(object: &[u8]) -> Self {
        // A trailer comes first: what is before it was written by others.
        if Trailer::is_at_end_of(object) {
            return Self::Plain;
        }
        let footer = object.len().checked_sub(EncryptionFooter::BYTES).map(|at| &object[at..]);
        footer.and_then(EncryptionFooter::decode).map_or(Self::Unknown, Self::Encrypted)
    }
}

impl ObjectEncryption {
    pub(super) fn new(key: Option<EncryptionKey>) -> Self {
        Self { key: key.map(|key| (key.clone(), key.id())) }
    }

    /// Returns by how many bytes the node's objects are longer than their blocks.
    pub(super) const fn extra_bytes(&self) -> usize {
        if self.key.is_some() { EXTRA_BYTES } else { Trailer::BYTES }
    }

    /// Returns what the node cannot read of an object that ends so.
    ///
    /// # Errors
    /// [`EncryptionMismatch`]: start the node with the key that the object was written with.
    pub(super) fn check(&self, end: End) -> Result<(), EncryptionMismatch> {
        match (&self.key, end) {
            (_, End::Unknown) | (None, End::Plain) => Ok(()),
            (None, End::Encrypted(_)) => Err(EncryptionMismatch::NoKey),
            (Some(_), End::Plain) => Err(EncryptionMismatch::Plain),
            (Some((_, id)), End::Encrypted(footer)) if footer.key == *id => Ok(()),
            (Some(_), End::Encrypted(_)) => Err(EncryptionMismatch::OtherKey),
        }
    }

    /// Returns an object's bytes as they are to be stored, in pieces.
    pub(super) fn encrypt(
        &self,
        cluster: ClusterId,
        key: TierKey,
        bytes: Bytes,
        trailer: &Trailer,
    ) -> Vec<Bytes> {
        let Some((tier_key, id)) = &self.key else {
            return vec![bytes, Bytes::copy_from_slice(&trailer.encode())];
        };
        let salt = salt();
        let mut encrypted = Vec::with_capacity(bytes.len() + EXTRA_BYTES);
        encrypted.extend_from_slice(&bytes);
        encrypted.extend_from_slice(&trailer.encode());
        let tag = derived(tier_key, &salt).encrypt(NONCE, &context(cluster, key), &mut encrypted);
        encrypted.extend_from_slice(tag.as_ref());
        encrypted.extend_from_slice(&EncryptionFooter { key: *id, salt }.encode());
        vec![encrypted.into()]
    }

    /// Returns a block and its trailer, of an object that [`Self::check`] lets pass.
    ///
    /// # Errors
    /// [`Forged`]: the object is damaged.
    pub(super) fn decrypt(
        &self,
        cluster: ClusterId,
        key: TierKey,
        object: Bytes,
    ) -> Result<Bytes, Forged> {
        let Some((tier_key, _)) = &self.key else { return Ok(object) };
        let End::Encrypted(footer) = End::of(&object) else { return Err(Forged) };
        let end = object.len().checked_sub(EncryptionFooter::BYTES + TAG_BYTES).ok_or(Forged)?;
        let mut bytes = Vec::from(object);
        let tag = bytes[end..end + TAG_BYTES].try_into().expect("a tag's length");
        bytes.truncate(end);
        derived(tier_key, &footer.salt).decrypt(
            NONCE,
            &context(cluster, key),
            tag,
            &mut bytes,
            0,
        )?;
        Ok(bytes.into())
    }
}

fn derived(key: &EncryptionKey, salt: &Salt) -> Cipher {
    key.derive(salt, PURPOSE)
}

fn context(cluster: ClusterId, (block, epoch): TierKey) -> [u8; 20] {
    let mut context = [0; 20];
    context[..8].copy_from_slice(&cluster.0.to_le_bytes());
    context[8..16].copy_from_slice(&block.0.to_le_bytes());
    context[16..].copy_from_slice(&epoch.0.to_le_bytes());
    context
}
