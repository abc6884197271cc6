//! What a generation consists of.
//!
//! A manifest is encoded as one version byte, its fields in postcard, and the first
//! [`CHECKSUM_BYTES`] of their keyed hash. What was added since the first release of a version
//! follows the fields: readers of an earlier release pass over it.

use std::fmt;

use sanderling_protocol::Instant;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::chunk::{CHUNK_BYTES, ChunkKey, ChunkName};
use super::driver::DriverRecord;
use super::packing::{PACK_BYTES, TAG_BYTES};

/// The version of the encoding.
const VERSION: u8 = 2;

/// Bytes of the checksum at the end. 128 bits of a hash, so damage and another file are always
/// found.
const CHECKSUM_BYTES: usize = 16;

/// Chunks that a manifest names at most, beside those of zeros: 1 TiB of state. A position has 32
/// bits and could name 256 times as many, in a manifest that no machine has the memory to read.
pub const CHUNKS_MAX: u64 = 1 << 24;

/// Packs that a manifest names at most: those of so many chunks, half used, twice over.
const PACKS_MAX: u64 = 4 * CHUNKS_MAX * CHUNK_BYTES as u64 / PACK_BYTES;

/// The longest chunk in a manifest: position, pack and offset of up to 5 bytes each, a name of 32,
/// lengths of 3 each for up to 65,536, and the codec.
const CHUNK_ENTRY_BYTES_MAX: u64 = 3 * 5 + 32 + 2 * 3 + 1;

/// The longest pack in a manifest: its name and a length of up to 10 bytes.
const PACK_ENTRY_BYTES_MAX: u64 = 32 + 10;

/// Bytes of the longest rest of a manifest: the task's name, and features of a processor. Both
/// together have some KiB at most; chosen, not measured.
const REST_BYTES_MAX: u64 = 64 << 10;

/// The longest manifest that is written or read, about 0.9 GB. A backend that is damaged, or not
/// trusted, may have a longer object under the name of one.
pub const MANIFEST_BYTES_MAX: u64 =
    CHUNKS_MAX * CHUNK_ENTRY_BYTES_MAX + PACKS_MAX * PACK_ENTRY_BYTES_MAX + REST_BYTES_MAX;

/// The name of a pack, 32 bytes drawn at random: it shows nothing about the content, and no two
/// packs share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackId(pub [u8; 32]);

/// A pack with chunks of the generation that a manifest describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPack {
    /// Its name.
    pub id: PackId,
    /// Its length.
    pub bytes: u64,
}

/// The place where a chunk of the stream is stored: its pack, and the bytes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredChunk {
    /// Which chunk of the stream it is. Those that are missing are zeros.
    pub position: u32,
    /// The keyed hash of its content.
    pub name: ChunkName,
    /// Which of the manifest's packs it is in.
    pub pack: u32,
    /// Where it begins there.
    pub offset: u32,
    /// Its content, and how it is stored there.
    pub content: StoredContent,
}

/// The content of a chunk in its pack: its length before and after compression, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContent {
    /// Its bytes, without the zeros at the end of the chunk.
    pub bytes: u32,
    /// Bytes of it in the pack, without the tag.
    pub stored: u32,
    /// What was done with it before it was encrypted.
    pub codec: ChunkCodec,
}

/// The treatment of a content before it is encrypted, which a restore reverses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkCodec {
    /// Nothing.
    Plain,
    /// It is compressed by Zstandard (RFC 8878), as one frame.
    Zstd,
}

/// The description of a generation: the chunks of which it consists, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointManifest {
    /// The name of the task.
    pub task: String,
    /// The number of the generation.
    pub generation: u64,
    /// When it was taken, by the clock of its machine.
    pub taken_at: Instant,
    /// What took it.
    pub driver: DriverRecord,
    /// The length of the stream.
    pub stream_bytes: u64,
    /// Bytes of packs that this generation added.
    pub added_bytes: u64,
    /// The packs with its chunks.
    pub packs: Vec<ManifestPack>,
    /// Its chunks, in the order of the stream.
    pub chunks: Vec<StoredChunk>,
    /// The number of the lock under which it was written; 0 in those of earlier releases. It is
    /// encoded behind the fields.
    #[serde(skip)]
    pub lock: u64,
}

/// A reason why bytes are not a manifest that this release can use. Restore another generation.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CheckpointManifestError {
    /// There are too few.
    #[error("the manifest is cut")]
    Cut,
    /// It was written by another release.
    #[error("its manifest has version {0}, and this program reads version {VERSION}")]
    Version(u8),
    /// Its checksum is another one.
    #[error("the manifest is damaged: its checksum does not match")]
    Checksum,
    /// What it contains is impossible.
    #[error("the manifest is damaged: {0}")]
    Malformed(#[from] CheckpointManifestFault),
}

/// A contradiction in the content of a manifest whose checksum matches: nothing of it is used.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum CheckpointManifestFault {
    /// It is not of the format.
    #[error("it cannot be decoded")]
    Undecodable,
    /// A chunk names a pack that the manifest does not.
    #[error("a chunk has no pack")]
    ChunkWithoutPack,
    /// A chunk's place, length or codec does not fit its pack.
    #[error("a chunk is not within its pack")]
    ChunkOutsidePack,
    /// Chunks are not ascending by position, or lie beyond the stream's end.
    #[error("chunks are not in order")]
    Unordered,
}

impl fmt::Debug for PackId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PackId({self})")
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl PackId {
    /// Returns the id of the pack whose object has this name, in hexadecimal; `None` if it is no
    /// such name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER.decode(name.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl CheckpointManifest {
    /// Returns the manifest as it is stored: its version, its body and a checksum under `key`.
    #[must_use]
    pub fn encode(&self, key: &ChunkKey) -> Vec<u8> {
        let encoded = "a manifest can be encoded";
        let mut bytes = vec![VERSION];
        bytes.extend(postcard::to_stdvec(self).expect(encoded));
        if self.lock > 0 {
            bytes.extend(postcard::to_stdvec(&self.lock).expect(encoded));
        }
        let checksum = key.name(&bytes).0;
        bytes.extend(&checksum[..CHECKSUM_BYTES]);
        bytes
    }

    /// Decodes a stored manifest and verifies its version and its checksum under `key`.
    ///
    /// # Errors
    /// [`CheckpointManifestError::Version`]: use the release that wrote it, as the generation may
    /// be newer work than those that can be read. Any other [`CheckpointManifestError`]: restore
    /// the generation before.
    pub fn decode(key: &ChunkKey, bytes: &[u8]) -> Result<Self, CheckpointManifestError> {
        let version = *bytes.first().ok_or(CheckpointManifestError::Cut)?;
        if version != VERSION {
            return Err(CheckpointManifestError::Version(version));
        }
        let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(CheckpointManifestError::Cut)?;
        let (body, checksum) = bytes.split_at(split);
        if body.is_empty() {
            return Err(CheckpointManifestError::Cut);
        }
        if key.name(body).0[..CHECKSUM_BYTES] != *checksum {
            return Err(CheckpointManifestError::Checksum);
        }
        let undecodable = |_: postcard::Error| CheckpointManifestFault::Undecodable;
        let (manifest, added) =
            postcard::take_from_bytes::<Self>(&body[1..]).map_err(undecodable)?;
        // What a later release has added behind that is passed over.
        let lock = match added {
            [] => 0,
            added => postcard::take_from_bytes::<u64>(added).map_err(undecodable)?.0,
        };
        Self { lock, ..manifest }.verified()
    }

    /// Returns how many chunks the stream has, those of zeros among them.
    #[must_use]
    pub const fn chunk_count(&self) -> u64 {
        self.stream_bytes.div_ceil(CHUNK_BYTES as u64)
    }

    fn verified(self) -> Result<Self, CheckpointManifestError> {
        let mut next = 0;
        for chunk in &self.chunks {
            let Some(pack) = self.packs.get(chunk.pack as usize) else {
                return Err(CheckpointManifestFault::ChunkWithoutPack.into());
            };
            let StoredContent { bytes, stored, codec } = chunk.content;
            let end = u64::from(chunk.offset) + u64::from(stored) + TAG_BYTES as u64;
            let is_possible = match codec {
                ChunkCodec::Plain => stored == bytes,
                ChunkCodec::Zstd => stored < bytes,
            };
            if bytes == 0 || bytes as usize > CHUNK_BYTES || !is_possible || end > pack.bytes {
                return Err(CheckpointManifestFault::ChunkOutsidePack.into());
            }
            let position = u64::from(chunk.position);
            if position < next || position >= self.chunk_count() {
                return Err(CheckpointManifestFault::Unordered.into());
            }
            next = position + 1;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> CheckpointManifest {
        let chunk = |position, pack, offset, stored, codec| StoredChunk {
            position,
            name: ChunkName([position as u8; 32]),
            pack,
            offset,
            content: StoredContent { bytes: 65_000, stored, codec },
        };
        CheckpointManifest {
            task: "count".to_owned(),
            generation: 7,
            taken_at: Instant(1_700_000_000_000_000),
            driver: DriverRecord::Hook,
            stream_bytes: 200_000,
            added_bytes: 1000,
            packs: vec![ManifestPack { id: PackId([0xab; 32]), bytes: 70_000 }],
            chunks: vec![
                chunk(0, 0, 0, 984, ChunkCodec::Zstd),
                chunk(3, 0, 1000, 65_000, ChunkCodec::Plain),
            ],
            lock: 0,
        }
    }

    #[test]
    fn bytes_are_the_golden_ones() {
        let bytes = manifest().encode(&ChunkKey::new([7; 32]));
        let golden = concat!(
            "0205636f756e74078080f9c0c1c4820300c09a0ce80701ababababababababababababababababab",
            "abababababababababababababababf0a20402000000000000000000000000000000000000000000",
            "0000000000000000000000000000e8fb03d807010303030303030303030303030303030303030303",
            "0303030303030303030303030300e807e8fb03e8fb0300ad9276025acbbe2b3e7728e963af20aa",
        );
        assert_eq!(data_encoding::HEXLOWER.encode(&bytes), golden);
        assert_eq!(CheckpointManifest::decode(&ChunkKey::new([7; 32]), &bytes), Ok(manifest()));
    }

    #[test]
    fn number_of_the_lock_follows_the_fields_and_what_follows_it_is_passed_over() {
        let key = ChunkKey::new([7; 32]);
        let locked = CheckpointManifest { lock: 300, ..manifest() };
        let bytes = locked.encode(&key);
        assert_eq!(CheckpointManifest::decode(&key, &bytes), Ok(locked));
        let body = |bytes: &[u8]| bytes[..bytes.len() - CHECKSUM_BYTES].to_vec();
        let (plain, mut later) = (body(&manifest().encode(&key)), body(&bytes));
        // How an earlier release reads it: it passes over what follows the fields.
        let earlier: CheckpointManifest = postcard::from_bytes(&later[1..]).expect("as before");
        assert_eq!(earlier, manifest());
        assert_eq!(later, [&plain[..], &[0xac, 0x02]].concat());
        later.extend([1, 2, 3]);
        later.extend(&key.name(&later).0[..CHECKSUM_BYTES]);
        assert_eq!(CheckpointManifest::decode(&key, &later).map(|it| it.lock), Ok(300));
    }

    #[test]
    fn entries_are_no_longer_than_the_limit_assumes() {
        let longest = StoredChunk {
            position: u32::MAX,
            name: ChunkName([0xff; 32]),
            pack: u32::MAX,
            offset: u32::MAX,
            content: StoredContent {
                bytes: CHUNK_BYTES as u32,
                stored: CHUNK_BYTES as u32,
                codec: ChunkCodec::Zstd,
            },
        };
        let bytes = |encoded: Vec<u8>| encoded.len() as u64;
        assert_eq!(bytes(postcard::to_stdvec(&longest).unwrap()), CHUNK_ENTRY_BYTES_MAX);
        let longest = ManifestPack { id: PackId([0xff; 32]), bytes: u64::MAX };
        assert_eq!(bytes(postcard::to_stdvec(&longest).unwrap()), PACK_ENTRY_BYTES_MAX);
        assert_eq!(PACKS_MAX, 1 << 17);
        assert_eq!(MANIFEST_BYTES_MAX, 911_540_224);
    }

    #[test]
    fn damaged_manifests_are_refused() {
        let key = ChunkKey::new([7; 32]);
        let bytes = manifest().encode(&key);
        for cut in 0..bytes.len() {
            assert!(CheckpointManifest::decode(&key, &bytes[..cut]).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(CheckpointManifest::decode(&key, &damaged).is_err(), "{at}");
        }
        let other = CheckpointManifest::decode(&ChunkKey::new([8; 32]), &bytes);
        assert_eq!(other, Err(CheckpointManifestError::Checksum));
    }

    #[test]
    fn impossible_manifests_are_refused() {
        let key = ChunkKey::new([7; 32]);
        let broken = |change: fn(&mut CheckpointManifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            CheckpointManifest::decode(&key, &manifest.encode(&key)).expect_err("refused")
        };
        broken(|it| it.chunks[0].pack = 1);
        broken(|it| it.chunks[0].content.bytes = 0);
        broken(|it| it.chunks[0].content.stored = 65_000);
        broken(|it| it.chunks[1].content.stored = 64_999);
        broken(|it| it.chunks[1].offset = 60_000);
        broken(|it| it.chunks[0].position = 3);
        broken(|it| it.chunks[1].position = 4);
    }

    #[test]
    fn names_of_packs_are_read() {
        let id = PackId([0x5a; 32]);
        assert_eq!(PackId::parse(&id.to_string()), Some(id));
        assert_eq!(PackId::parse("5a"), None);
        assert_eq!(PackId::parse(".tmp"), None);
    }
}
