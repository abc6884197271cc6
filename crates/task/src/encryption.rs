//! Encryption of checkpoints: AES-256-GCM by ring, as for `--encrypt` of a datanode.
//!
//! The key of the file encrypts nothing itself. Each pack and each manifest has a key of its own,
//! derived (HKDF-SHA256, RFC 5869) with 32 random bytes: the name of the pack, or the salt in the
//! manifest's head. Nothing of the key is stored in a backend but its id, from which it cannot be
//! computed.

use std::fmt;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SystemRandom, generate};
use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use rustix::io::Errno;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{
    ChunkKey, MANIFEST_BYTES_MAX, PackId, TAG_BYTES, has_release_checksum,
};
use sanderling_transport::read_private;

use crate::unfinished;

/// Bytes of a key: that of AES-256.
const KEY_BYTES: usize = 32;
/// Bytes of a key's id; they show nothing of the key. 128 bits of a derivation, so two keys with
/// one id do not occur.
const ID_BYTES: usize = 16;
/// Bytes of the salt of a manifest: as many as the hash of the derivation has (RFC 5869, section
/// 3.1).
const SALT_BYTES: usize = 32;

/// The first bytes of an encrypted manifest: what it is. The version of its encryption follows.
const MAGIC: &[u8; 7] = b"SNDLCKP";

/// The version of the encryption. A later one ends a manifest with a checksum that programs of
/// before verify (`core::checkpoint::release_checksum`).
const VERSION: u8 = 1;

/// Bytes before the encrypted manifest: what it is, the version of its encryption, the key's id,
/// and the salt.
const HEAD_BYTES: usize = MAGIC.len() + 1 + ID_BYTES + SALT_BYTES;

/// How the name of a key begins that is being written, where files have a name from the start.
const DRAFT: &str = ".sanderling-key-";

/// Age from which on one was left by a process that died. A key is written at once, so a minute is
/// for a file system that stands still. Chosen, not measured.
const DRAFT_AGE: Duration = Duration::from_secs(60);

/// What file systems answer that have no files without a name.
const IS_NAMED: [Option<Errno>; 3] =
    [Some(Errno::OPNOTSUPP), Some(Errno::ISDIR), Some(Errno::INVAL)];

/// Bytes of the longest manifest, encrypted: with its head and its tag.
pub(crate) const ENCRYPTED_MANIFEST_BYTES_MAX: u64 =
    MANIFEST_BYTES_MAX + (HEAD_BYTES + TAG_BYTES) as u64;

/// The key of a task's checkpoints.
#[derive(Clone)]
pub(crate) struct TaskKey([u8; KEY_BYTES]);

/// The key of one pack.
pub(crate) struct PackCipher(LessSafeKey);

/// Why a manifest cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecryptError {
    /// It is too short, or does not begin as a manifest does.
    NoManifest,
    /// It was encrypted by a release with this version of the encryption.
    Version(u8),
    /// It was encrypted with another key.
    OtherKey,
    /// It is not what was encrypted.
    Damaged,
}

impl fmt::Display for DecryptError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoManifest => formatter.write_str("its manifest is cut or none"),
            Self::Version(version) => write!(
                formatter,
                "its encryption has version {version}, and this program reads version {VERSION}"
            ),
            Self::OtherKey => formatter.write_str("it was encrypted with another key"),
            Self::Damaged => formatter.write_str("its manifest is damaged"),
        }
    }
}

impl TaskKey {
    /// Reads the key from a file that only its owner may read; `None` if there is no such file.
    ///
    /// # Errors
    /// Others can read the file, or it holds no key.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        if !path.try_exists().map_err(|error| Failure::file(path, error))? {
            return Ok(None);
        }
        let failed = |cause: String| Failure::new(Exit::Failure, FailureKind::TaskKey, cause);
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
        let failed = |error: std::io::Error| Failure::file(path, error);
        if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let key = Self(drawn());
        // The name appears with the whole key: a disk that is full leaves no file that holds none.
        match key.link(path) {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::read(path)?.ok_or_else(|| failed(error))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the key into a file without a name, and gives it the name. A process that is killed
    /// leaves nothing.
    fn link(&self, path: &Path) -> std::io::Result<()> {
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let mut options = std::fs::OpenOptions::new();
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let file = match options.write(true).mode(0o600).custom_flags(flags).open(directory) {
            Ok(file) => file,
            // Some network file systems have no such files.
            Err(error) if IS_NAMED.contains(&Errno::from_io_error(&error)) => {
                return self.link_draft(path, directory);
            }
            Err(error) => return Err(error),
        };
        self.write(&file)?;
        // How a process without CAP_DAC_READ_SEARCH does it: open(2), on O_TMPFILE.
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        File::open(directory)?.sync_all()
    }

    /// Does the same with a file that has another name first. One that a killed process left is
    /// removed by the next that makes a key there.
    fn link_draft(&self, path: &Path, directory: &Path) -> std::io::Result<()> {
        let is_left = |name: &str| name.starts_with(DRAFT);
        unfinished::remove_left(directory, DRAFT_AGE, is_left);
        let draft = directory.join(format!("{DRAFT}{}", HEXLOWER.encode(&drawn::<16>())));
        let write = || {
            let file = unfinished::create_draft(&draft)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            self.write(&file)?;
            std::fs::hard_link(&draft, path)?;
            // The name, too, is on disk before a checkpoint is that needs the key.
            File::open(directory)?.sync_all()
        };
        let written = write();
        let _ = std::fs::remove_file(&draft);
        written
    }

    fn write(&self, mut file: &File) -> std::io::Result<()> {
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

    /// Encrypts a manifest for its place: it cannot be decrypted as another generation.
    pub(crate) fn encrypt_manifest(
        &self,
        task: &str,
        generation: u64,
        manifest: Vec<u8>,
    ) -> Vec<u8> {
        let salt: [u8; SALT_BYTES] = drawn();
        let mut body = manifest;
        let key = cipher(&self.expand(&salt, "sanderling task manifest 1"));
        let (nonce, place) = (nonce(0), place(task, generation));
        let encrypted = key.seal_in_place_append_tag(nonce, Aad::from(place), &mut body);
        encrypted.expect("a manifest is shorter than what may be encrypted at once");
        [&MAGIC[..], &[VERSION], &self.id(), &salt, &body].concat()
    }

    /// Decrypts the manifest of a place.
    ///
    /// # Errors
    /// [`DecryptError::Version`]: use the release that wrote it. Any other [`DecryptError`]: the
    /// generation is of no use.
    pub(crate) fn decrypt_manifest(
        &self,
        task: &str,
        generation: u64,
        encrypted: &[u8],
    ) -> Result<Vec<u8>, DecryptError> {
        let (head, body) =
            encrypted.split_at_checked(HEAD_BYTES).ok_or(DecryptError::NoManifest)?;
        let rest = head.strip_prefix(&MAGIC[..]).ok_or(DecryptError::NoManifest)?;
        let (version, rest) = rest.split_at(1);
        let is_ours = version[0] == VERSION;
        if !is_ours && has_release_checksum(encrypted) {
            return Err(DecryptError::Version(version[0]));
        }
        let (id, salt) = rest.split_at(ID_BYTES);
        if *id != self.id() {
            return Err(DecryptError::OtherKey);
        }
        if !is_ours {
            return Err(DecryptError::Damaged);
        }
        let key = cipher(&self.expand(salt, "sanderling task manifest 1"));
        let mut body = body.to_vec();
        let opened = key.open_in_place(nonce(0), Aad::from(place(task, generation)), &mut body);
        let bytes = opened.map_err(|_| DecryptError::Damaged)?.len();
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
    /// Appends an encrypted chunk to its pack. No two chunks of a pack begin at the same place.
    pub(crate) fn append(&self, pack: &mut Vec<u8>, name: &[u8; 32], content: &[u8]) {
        let start = pack.len();
        pack.extend_from_slice(content);
        let body = &mut pack[start..];
        let tag = self.0.seal_in_place_separate_tag(nonce(start as u64), Aad::from(name), body);
        pack.extend_from_slice(tag.expect("a chunk is short").as_ref());
    }

    /// Decrypts the chunk that begins at `start` where it is; `None` if it is not what was
    /// encrypted there.
    pub(crate) fn decrypt<'a>(
        &self,
        start: u64,
        name: &[u8; 32],
        encrypted: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let content: &[u8] = self.0.open_in_place(nonce(start), Aad::from(name), encrypted).ok()?;
        Some(content)
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
    use sanderling_core::checkpoint::release_checksum;

    use super::*;

    #[test]
    fn manifest_is_decrypted_only_in_its_place_with_its_key() {
        let (key, other) = (TaskKey([1; 32]), TaskKey([2; 32]));
        let encrypted = key.encrypt_manifest("t", 3, b"manifest".to_vec());
        assert_eq!(key.decrypt_manifest("t", 3, &encrypted), Ok(b"manifest".to_vec()));
        assert_eq!(key.decrypt_manifest("t", 4, &encrypted), Err(DecryptError::Damaged));
        assert_eq!(key.decrypt_manifest("u", 3, &encrypted), Err(DecryptError::Damaged));
        assert_eq!(other.decrypt_manifest("t", 3, &encrypted), Err(DecryptError::OtherKey));
        let mut later = encrypted.clone();
        later[0] = 0;
        assert_eq!(key.decrypt_manifest("t", 3, &later), Err(DecryptError::NoManifest));
        for cut in 0..encrypted.len() {
            assert!(key.decrypt_manifest("t", 3, &encrypted[..cut]).is_err(), "{cut}");
        }
        assert!(!encrypted.windows(8).any(|bytes| bytes == b"manifest"));
    }

    #[test]
    fn version_is_that_of_a_later_release_only_with_its_checksum() {
        let (key, other) = (TaskKey([1; 32]), TaskKey([2; 32]));
        let encrypted = key.encrypt_manifest("t", 3, b"manifest".to_vec());
        for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
            let mut stored = encrypted.clone();
            stored[MAGIC.len()] = version;
            assert_eq!(key.decrypt_manifest("t", 3, &stored), Err(DecryptError::Damaged));
            assert_eq!(other.decrypt_manifest("t", 3, &stored), Err(DecryptError::OtherKey));
            stored.extend(release_checksum(&stored));
            for key in [&key, &other] {
                let opened = key.decrypt_manifest("t", 3, &stored);
                assert_eq!(opened, Err(DecryptError::Version(version)));
            }
            // The version is damaged, or anything else of a later release's.
            for at in [MAGIC.len(), stored.len() - 20, stored.len() - 1] {
                let mut damaged = stored.clone();
                damaged[at] ^= 0x80;
                assert_eq!(key.decrypt_manifest("t", 3, &damaged), Err(DecryptError::Damaged));
            }
        }
    }

    #[test]
    fn chunk_is_decrypted_only_in_its_place() {
        let cipher = TaskKey([1; 32]).pack_cipher(PackId([2; 32]));
        let mut pack = Vec::new();
        cipher.append(&mut pack, &[1; 32], b"one");
        cipher.append(&mut pack, &[2; 32], b"two");
        assert_eq!(cipher.decrypt(19, &[2; 32], &mut pack.clone()[19..]), Some(&b"two"[..]));
        assert_eq!(cipher.decrypt(0, &[2; 32], &mut pack.clone()[19..]), None);
        assert_eq!(cipher.decrypt(19, &[1; 32], &mut pack.clone()[19..]), None);
        let other = TaskKey([1; 32]).pack_cipher(PackId([3; 32]));
        assert_eq!(other.decrypt(0, &[1; 32], &mut pack.clone()[..19]), None);
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
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(TaskKey::read(&path).is_err() && TaskKey::create(&path).is_err());
    }

    #[test]
    fn file_system_without_nameless_files_has_a_private_key_and_no_drafts() {
        let directory = tempfile::tempdir().unwrap();
        let (path, left) =
            (directory.path().join("key"), directory.path().join(format!("{DRAFT}x")));
        let then = File::create(&left).unwrap().metadata().unwrap().modified().unwrap();
        let times = std::fs::FileTimes::new().set_modified(then - 2 * DRAFT_AGE);
        File::options().write(true).open(&left).unwrap().set_times(times).unwrap();
        TaskKey([7; 32]).link_draft(&path, directory.path()).unwrap();
        assert_eq!(TaskKey::read(&path).unwrap().unwrap().0, [7; 32]);
        assert!(TaskKey([8; 32]).link_draft(&path, directory.path()).is_err());
        assert_eq!(TaskKey::read(&path).unwrap().unwrap().0, [7; 32]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
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
