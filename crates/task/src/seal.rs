//! Encryption of checkpoints: AES-256-GCM by ring, as for `--encrypt` of a datanode.
//!
//! The key of the file seals nothing itself. Each pack and each manifest has a key of its own,
//! derived (HKDF-SHA256, RFC 5869) with 32 random bytes: the name of the pack, or the salt in the
//! manifest's head. Nothing of the key is stored in a backend but its id, from which it cannot be
//! computed.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SystemRandom, generate};
use sanderling_cli_common::failure::{Exit, Failure};
use sanderling_core::checkpoint::{ChunkKey, MANIFEST_BYTES_MAX, PackId, SEAL_BYTES};
use sanderling_transport::read_private;

const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 16;
const SALT_BYTES: usize = 32;

/// The first bytes of a sealed manifest: what it is, and the version of its sealing.
const MAGIC: &[u8; 8] = b"SNDLCKP\x01";

const HEAD_BYTES: usize = MAGIC.len() + ID_BYTES + SALT_BYTES;

/// The longest manifest, sealed.
pub(crate) const SEALED_MANIFEST_BYTES_MAX: u64 =
    MANIFEST_BYTES_MAX + (HEAD_BYTES + SEAL_BYTES) as u64;

/// The key of a task's checkpoints.
#[derive(Clone)]
pub(crate) struct TaskKey([u8; KEY_BYTES]);

/// The key of one pack.
pub(crate) struct PackCipher(LessSafeKey);

/// Why sealed bytes cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealError {
    /// There are too few, or others than a manifest begins with.
    NoManifest,
    /// They were sealed with another key.
    OtherKey,
    /// They are not what was sealed.
    Damaged,
}

impl fmt::Display for SealError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoManifest => "its manifest is cut or none",
            Self::OtherKey => "it was sealed with another key",
            Self::Damaged => "its manifest is damaged",
        })
    }
}

impl TaskKey {
    /// Reads the key from a file that only its owner may read; `None` if there is no such file.
    ///
    /// # Errors
    /// Others can read the file, or it holds no key.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        if !path.try_exists().map_err(|error| Failure::file(path, &error))? {
            return Ok(None);
        }
        let failed = |cause: String| Failure::new(Exit::Failure, "TaskKey", cause);
        let text = read_private(path).map_err(|error| failed(error.to_string()))?;
        let text = text.trim_ascii();
        let key = HEXLOWER_PERMISSIVE.decode(text).ok().and_then(|key| key.try_into().ok());
        let none = || failed(format!("{}: no key of 64 hexadecimal digits", path.display()));
        key.map(Self).ok_or_else(none).map(Some)
    }

    /// Draws a key and writes it into a new file that only its owner may read. Where another runner
    /// has made the file meanwhile, its key is the key of both.
    ///
    /// # Errors
    /// The file cannot be written, or another one made it and it holds no key.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file(path, &error);
        if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let key = Self(drawn());
        // The name appears with the whole key: a disk that is full leaves no file that holds none.
        let draft = path.with_file_name(format!(".{}", HEXLOWER.encode(&drawn::<16>())));
        let written = key.write_new(&draft).and_then(|()| std::fs::hard_link(&draft, path));
        let _ = std::fs::remove_file(&draft);
        match written {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::read(path)?.ok_or_else(|| failed(error))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn write_new(&self, path: &Path) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", HEXLOWER.encode(&self.0))?;
        file.sync_all()
    }

    /// Returns a key for measurements, with which nothing is stored.
    pub(crate) const fn of_nothing() -> Self {
        Self([0; KEY_BYTES])
    }

    /// Returns the key of the names of chunks.
    pub(crate) fn chunk_key(&self) -> ChunkKey {
        ChunkKey::new(self.expand(&[], "sanderling task chunk names 1"))
    }

    /// Returns the key of a pack.
    pub(crate) fn pack_cipher(&self, pack: PackId) -> PackCipher {
        PackCipher(cipher(&self.expand(&pack.0, "sanderling task pack 1")))
    }

    /// Seals a manifest for its place: it cannot be opened as another generation.
    pub(crate) fn seal_manifest(&self, task: &str, generation: u64, manifest: Vec<u8>) -> Vec<u8> {
        let salt: [u8; SALT_BYTES] = drawn();
        let mut body = manifest;
        let key = cipher(&self.expand(&salt, "sanderling task manifest 1"));
        let (nonce, place) = (nonce(0), place(task, generation));
        let sealed = key.seal_in_place_append_tag(nonce, Aad::from(place), &mut body);
        sealed.expect("a manifest is shorter than what may be sealed at once");
        [&MAGIC[..], &self.id(), &salt, &body].concat()
    }

    /// Opens the manifest of a place.
    ///
    /// # Errors
    /// [`SealError`]: the generation is of no use.
    pub(crate) fn open_manifest(
        &self,
        task: &str,
        generation: u64,
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let (head, body) = sealed.split_at_checked(HEAD_BYTES).ok_or(SealError::NoManifest)?;
        let rest = head.strip_prefix(&MAGIC[..]).ok_or(SealError::NoManifest)?;
        let (id, salt) = rest.split_at(ID_BYTES);
        if *id != self.id() {
            return Err(SealError::OtherKey);
        }
        let key = cipher(&self.expand(salt, "sanderling task manifest 1"));
        let mut body = body.to_vec();
        let opened = key.open_in_place(nonce(0), Aad::from(place(task, generation)), &mut body);
        let bytes = opened.map_err(|_| SealError::Damaged)?.len();
        body.truncate(bytes);
        Ok(body)
    }

    fn id(&self) -> [u8; ID_BYTES] {
        let whole = self.expand(&[], "sanderling task key id 1");
        std::array::from_fn(|at| whole[at])
    }

    fn expand(&self, salt: &[u8], purpose: &str) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let info = [purpose.as_bytes()];
        let okm = prk.expand(&info, hkdf::HKDF_SHA256).expect("32 bytes are few");
        okm.fill(&mut key).expect("it has the requested length");
        key
    }
}

impl PackCipher {
    /// Appends a sealed chunk to its pack. No two chunks of a pack begin at the same place.
    pub(crate) fn append(&self, pack: &mut Vec<u8>, name: &[u8; 32], content: &[u8]) {
        let start = pack.len();
        pack.extend_from_slice(content);
        let body = &mut pack[start..];
        let tag = self.0.seal_in_place_separate_tag(nonce(start as u64), Aad::from(name), body);
        pack.extend_from_slice(tag.expect("a chunk is short").as_ref());
    }

    /// Opens the chunk that begins at a place; `None` if it is not what was sealed there.
    pub(crate) fn open(&self, start: u64, name: &[u8; 32], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut body = sealed.to_vec();
        let bytes = self.0.open_in_place(nonce(start), Aad::from(name), &mut body).ok()?.len();
        body.truncate(bytes);
        Some(body)
    }
}

/// Draws random bytes.
pub(crate) fn drawn<const N: usize>() -> [u8; N]
where
    [u8; N]: ring::rand::RandomlyConstructable,
{
    generate(&SystemRandom::new()).expect("the system has random numbers").expose()
}

fn cipher(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has 32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn place(task: &str, generation: u64) -> Vec<u8> {
    [&generation.to_le_bytes()[..], task.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn manifest_opens_only_in_its_place_with_its_key() {
        let (key, other) = (TaskKey([1; 32]), TaskKey([2; 32]));
        let sealed = key.seal_manifest("t", 3, b"manifest".to_vec());
        assert_eq!(key.open_manifest("t", 3, &sealed), Ok(b"manifest".to_vec()));
        assert_eq!(key.open_manifest("t", 4, &sealed), Err(SealError::Damaged));
        assert_eq!(key.open_manifest("u", 3, &sealed), Err(SealError::Damaged));
        assert_eq!(other.open_manifest("t", 3, &sealed), Err(SealError::OtherKey));
        for cut in 0..sealed.len() {
            assert!(key.open_manifest("t", 3, &sealed[..cut]).is_err(), "{cut}");
        }
        assert!(!sealed.windows(8).any(|bytes| bytes == b"manifest"));
    }

    #[test]
    fn chunk_opens_only_in_its_place() {
        let cipher = TaskKey([1; 32]).pack_cipher(PackId([2; 32]));
        let mut pack = Vec::new();
        cipher.append(&mut pack, &[1; 32], b"one");
        cipher.append(&mut pack, &[2; 32], b"two");
        assert_eq!(cipher.open(19, &[2; 32], &pack[19..]).as_deref(), Some(&b"two"[..]));
        assert_eq!(cipher.open(0, &[2; 32], &pack[19..]), None);
        assert_eq!(cipher.open(19, &[1; 32], &pack[19..]), None);
        let other = TaskKey([1; 32]).pack_cipher(PackId([3; 32]));
        assert_eq!(other.open(0, &[1; 32], &pack[..19]), None);
    }

    #[test]
    fn key_is_made_once_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/key");
        assert!(TaskKey::read(&path).unwrap().is_none());
        let made = TaskKey::create(&path).unwrap();
        assert_eq!(TaskKey::read(&path).unwrap().unwrap().0, made.0);
        // One that comes later, or was slower, gets the key that is there.
        assert_eq!(TaskKey::create(&path).unwrap().0, made.0);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(TaskKey::read(&path).is_err() && TaskKey::create(&path).is_err());
    }

    #[test]
    fn runners_that_make_the_key_at_once_have_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(|| TaskKey::create(&path)));
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap().0).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "drafts are removed");
    }
}
