//! The secrets that a server accepts, from a file that is read again when it changes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use ring::hmac;

use crate::secret::{SECRET_BYTES_MIN, SECRETS_MAX, SecretError, read_private};

/// Time between two looks at the file. A removed secret is accepted by servers for this long at
/// most; a look costs a system call. Chosen, not measured.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Distinguishes one key from others, in this process alone.
pub(crate) type KeyNumber = u64;

/// The keys of a file, or of bytes that were given.
pub(crate) struct Keyring {
    keys: RwLock<Arc<SigningKeys>>,
    /// Counts the times that other keys were read.
    version: AtomicU64,
    file: Option<File>,
}

/// Keys, the one that signs first.
pub(crate) struct SigningKeys(Vec<(KeyNumber, hmac::Key)>);

struct File {
    path: PathBuf,
    began: Instant,
    /// When the file was looked at last, in milliseconds after `began`.
    looked: AtomicU64,
    /// Held while the file is read.
    seen: Mutex<SeenFile>,
}

/// What was found of the file.
#[derive(Default)]
struct SeenFile {
    /// What it was when its bytes were read last, whether they can be used or not.
    read: Option<FileIdentity>,
    /// What it was when it could not be read and that was logged.
    unread: Option<FileIdentity>,
}

/// Inode, bytes, and the time of the last change in seconds and nanoseconds.
type FileIdentity = (u64, u64, i64, i64);

impl SigningKeys {
    /// Returns how many there are.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Signs with the first key.
    pub(crate) fn sign(&self, bytes: &[u8]) -> hmac::Tag {
        let (_, first) = self.0.first().expect("a keyring has a key");
        hmac::sign(first, bytes)
    }

    /// Returns the number of the key that made a signature; `None` if none did.
    pub(crate) fn signer(&self, bytes: &[u8], signature: &[u8]) -> Option<KeyNumber> {
        let made = |(_, key): &&(_, _)| hmac::verify(key, bytes, signature).is_ok();
        self.0.iter().find(made).map(|(number, _)| *number)
    }

    /// Returns whether a key is among them.
    pub(crate) fn has(&self, number: KeyNumber) -> bool {
        self.0.iter().any(|(known, _)| *known == number)
    }

    fn of<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let key = |secret: &[u8]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let tag = hmac::sign(&key, b"sanderling: the number of a key");
            let number = tag.as_ref().first_chunk().copied().expect("32 bytes");
            (KeyNumber::from_le_bytes(number), key)
        };
        Self(secrets.into_iter().map(key).collect())
    }

    fn read(path: &Path) -> Result<Self, SecretError> {
        let bytes = read_private(path)?;
        let secrets = secrets(&bytes);
        if let Some(short) = secrets.iter().find(|secret| secret.len() < SECRET_BYTES_MIN) {
            return Err(SecretError::TooShort { path: path.to_owned(), bytes: short.len() });
        }
        if secrets.len() > SECRETS_MAX {
            return Err(SecretError::TooMany { path: path.to_owned(), secrets: secrets.len() });
        }
        Ok(Self::of(secrets))
    }
}

/// Returns the secrets in a file, one a line. What is not text is one secret, whatever bytes it
/// has.
fn secrets(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.trim_ascii();
    let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if !is_text {
        return vec![bytes];
    }
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { vec![bytes] } else { lines }
}

impl Keyring {
    pub(crate) fn of(secret: &[u8]) -> Self {
        Self {
            keys: RwLock::new(Arc::new(SigningKeys::of([secret]))),
            version: 0.into(),
            file: None,
        }
    }

    pub(crate) fn read(path: &Path) -> Result<Self, SecretError> {
        let seen = SeenFile { read: identity(path), ..SeenFile::default() };
        let keys = SigningKeys::read(path)?;
        let (began, looked, seen) = (Instant::now(), AtomicU64::new(0), Mutex::new(seen));
        let file = Some(File { path: path.to_owned(), began, looked, seen });
        Ok(Self { keys: RwLock::new(Arc::new(keys)), version: 0.into(), file })
    }

    /// Returns the keys as the file has them, or had them at most [`POLL_INTERVAL`] ago.
    pub(crate) fn keys(&self) -> Arc<SigningKeys> {
        self.look();
        Arc::clone(&self.keys.read())
    }

    /// Returns how often other keys were read. Keys of this version or a newer one are those of
    /// [`Keyring::keys`] after it.
    pub(crate) fn version(&self) -> u64 {
        self.look();
        self.version.load(Ordering::Acquire)
    }

    /// Looks at the file now, for a server at which no caller arrives: it, too, reads other keys
    /// and warns of a file that cannot be used.
    pub(crate) fn look_now(&self) {
        let Some(file) = &self.file else { return };
        file.looked.store(file.now(), Ordering::Relaxed);
        self.look_at(file);
    }

    fn look(&self) {
        let Some(file) = &self.file else { return };
        let now = file.now();
        let looked = file.looked.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(looked)) < POLL_INTERVAL.as_millis() {
            return;
        }
        // One of the connections that come now looks.
        let order = Ordering::Relaxed;
        if file.looked.compare_exchange(looked, now, order, order).is_ok() {
            self.look_at(file);
        }
    }

    fn look_at(&self, file: &File) {
        self.look_with(file, SigningKeys::read);
    }

    fn look_with(&self, file: &File, read: impl Fn(&Path) -> Result<SigningKeys, SecretError>) {
        let mut seen = file.seen.lock();
        let found = identity(&file.path);
        if found == seen.read {
            return;
        }
        match read(&file.path) {
            Ok(keys) => {
                seen.read = found;
                let secrets = keys.0.len();
                *self.keys.write() = Arc::new(keys);
                self.version.fetch_add(1, Ordering::AcqRel);
                tracing::info!(file = %file.path.display(), secrets, "the secret was read again");
            }
            // The system may lack a descriptor for a moment: the next look tries again.
            Err(error @ SecretError::File { .. }) if found.is_some() => {
                if seen.unread != found {
                    seen.unread = found;
                    tracing::warn!(%error, "the secret stays the one before");
                }
            }
            Err(error) => {
                // A file that is being written is read again when it has changed again.
                seen.read = found;
                tracing::warn!(%error, "the secret stays the one before");
            }
        }
    }
}

impl File {
    /// Returns the milliseconds since it was read first.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const FIRST: &str = "0123456789abcdef0123456789abcdef";
    const SECOND: &str = "fedcba9876543210fedcba9876543210";

    fn write(path: &Path, text: &str) {
        let partial = path.with_extension("next");
        std::fs::write(&partial, text).unwrap();
        std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&partial, path).unwrap();
    }

    fn signed(secret: &str) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), b"x")
    }

    #[test]
    fn first_secret_signs_and_all_of_the_file_are_accepted() {
        let path = std::env::temp_dir().join(format!("sanderling-keyring-{}", std::process::id()));
        write(&path, &format!("{FIRST}\n"));
        let ring = Keyring::read(&path).unwrap();
        let accepts = |secret: &str| ring.keys().signer(b"x", signed(secret).as_ref());
        let signs = |secret: &str| ring.keys().sign(b"x").as_ref() == signed(secret).as_ref();
        let number = accepts(FIRST).unwrap();
        let change = |text: &str| {
            write(&path, text);
            ring.look_at(ring.file.as_ref().unwrap());
            ring.version()
        };
        assert_eq!(change(&format!("{FIRST}\n\n{SECOND}\n")), 1);
        assert!(signs(FIRST) && accepts(SECOND).is_some());
        assert_eq!(change(&format!("{SECOND}\r\n{FIRST}\n")), 2);
        assert!(signs(SECOND) && accepts(FIRST) == Some(number));
        assert_eq!(change(SECOND), 3);
        assert!(signs(SECOND) && accepts(FIRST).is_none() && !ring.keys().has(number));
        // What is wrong changes nothing.
        let line = format!("{FIRST}\n");
        for bad in ["", "short", &format!("{FIRST}\nshort"), &line.repeat(SECRETS_MAX + 1)] {
            assert_eq!(change(bad), 3, "{bad:?}");
            assert!(signs(SECOND));
        }
        std::fs::remove_file(&path).unwrap();
        ring.look_at(ring.file.as_ref().unwrap());
        assert!(signs(SECOND));
        assert_eq!(change(&line), 4);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_that_could_not_be_read_is_read_at_the_next_look() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, FIRST);
        let ring = Keyring::read(&path).unwrap();
        let file = ring.file.as_ref().unwrap();
        write(&path, SECOND);
        let accepts = |secret: &str| ring.keys.read().signer(b"x", signed(secret).as_ref());
        for attempts in 1..=2 {
            let tried = AtomicU64::new(0);
            // EMFILE.
            let unreadable = |path: &Path| {
                tried.fetch_add(1, Ordering::Relaxed);
                let cause = std::io::Error::from_raw_os_error(24);
                Err(SecretError::File { path: path.to_owned(), cause })
            };
            ring.look_with(file, unreadable);
            assert_eq!(tried.load(Ordering::Relaxed), 1, "attempt {attempts}");
            assert!(accepts(FIRST).is_some() && accepts(SECOND).is_none());
        }
        // The file has not changed since, and its last look found no descriptor.
        ring.look_at(file);
        assert!(accepts(FIRST).is_none() && accepts(SECOND).is_some());
        // What was read is not read again before it changes.
        ring.look_with(file, |_| panic!("it is as it was"));
    }

    #[test]
    fn ring_that_is_not_used_reads_a_changed_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, FIRST);
        let ring = Keyring::read(&path).unwrap();
        write(&path, &format!("{SECOND}\n{FIRST}\n"));
        let known = || ring.keys.read().len();
        assert_eq!(known(), 1);
        ring.look_now();
        assert_eq!(known(), 2);
        // A ring of given bytes has no file.
        Keyring::of(FIRST.as_bytes()).look_now();
    }

    #[test]
    fn secret_that_is_no_text_is_one_whatever_its_bytes() {
        let mut bytes = [7; 80];
        (bytes[40], bytes[60]) = (b'\n', 0xff);
        assert_eq!(secrets(&bytes), [&bytes[..]]);
        assert_eq!(secrets(b" a \n\n b\n").len(), 2);
        assert_eq!(secrets(b" \n").len(), 1);
    }
}
