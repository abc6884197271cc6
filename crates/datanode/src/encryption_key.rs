//! The key of `--encrypt`, and what is derived from it: AES-256-GCM by ring, which rustls uses too.
//!
//! The key itself encrypts nothing. Every process derives a key of its own for its disk tier, and
//! every object of the object tier has one (HKDF-SHA256, RFC 5869), each with a random salt of 32
//! bytes. So no two of them are the same, and a nonce is compared only with those of one disk tier
//! or one object.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf;
use ring::rand::{SystemRandom, generate};
use sanderling_transport::{SecretError, read_private};
use thiserror::Error;

/// Bytes of a key: that of AES-256.
pub(crate) const KEY_BYTES: usize = 32;

/// Bytes of the tag behind encrypted bytes: the longest of GCM (NIST SP 800-38D, section 5.2.1.2).
pub(crate) const TAG_BYTES: usize = 16;

/// Bytes of a key's id; they show nothing of the key. 128 bits of a derivation, so two keys with
/// one id do not occur.
pub(crate) const KEY_ID_BYTES: usize = 16;

/// A number that is drawn for each derived key.
pub(crate) type Salt = [u8; 32];

/// The id of a key. An encrypted object carries it, so that an object of another key is recognized.
pub(crate) type KeyId = [u8; KEY_ID_BYTES];

/// A reason why no encryption key can be read from a file. It never contains bytes of the file.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] SecretError),
    /// There is something else in it.
    #[error(
        "{}: no key of 32 bytes: 64 hexadecimal digits or base64, as \
         (umask 077; head -c 32 /dev/urandom | base64 > FILE) makes it",
        path.display()
    )]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

/// The key that the disk tier and the object tier are encrypted with. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey(Arc<[u8; KEY_BYTES]>);

/// A derived key, ready for use.
pub(crate) struct Cipher(LessSafeKey);

/// Encrypted bytes are not what was encrypted with this key, nonce and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forged;

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EncryptionKey(hidden)")
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cipher(hidden)")
    }
}

impl EncryptionKey {
    /// Reads the key from a file that only its owner may read: 32 bytes as 64 hexadecimal
    /// digits or in base64.
    ///
    /// # Errors
    /// [`KeyError`]: correct the file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let bytes = read_private(path)?;
        let key = decoded(bytes.trim_ascii());
        let key = key.ok_or_else(|| KeyError::NotAKey { path: path.to_owned() })?;
        Ok(Self::of(key))
    }

    /// Returns the key that consists of these bytes.
    #[must_use]
    pub fn of(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Arc::new(bytes))
    }

    /// Returns the id of the key.
    pub(crate) fn id(&self) -> KeyId {
        let mut id = [0; KEY_ID_BYTES];
        let prk = self.extract(&[]);
        let okm = prk.expand(&[b"sanderling key id 1"], IdLength).expect("16 bytes are few");
        okm.fill(&mut id).expect("it has the requested length");
        id
    }

    /// Returns the key for one purpose and salt.
    pub(crate) fn derive(&self, salt: &Salt, purpose: &'static str) -> Cipher {
        let prk = self.extract(salt);
        let info = [purpose.as_bytes()];
        let okm = prk.expand(&info, &AES_256_GCM).expect("32 bytes are few");
        Cipher(LessSafeKey::new(UnboundKey::from(okm)))
    }

    fn extract(&self, salt: &[u8]) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0[..])
    }
}

impl Cipher {
    /// Encrypts bytes where they are and returns their tag. No nonce is used twice.
    pub(crate) fn encrypt(&self, nonce: [u8; 12], context: &[u8], bytes: &mut [u8]) -> Tag {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(context), bytes);
        tag.expect("a block is shorter than what may be encrypted at once")
    }

    /// Decrypts the bytes that begin `skipped` bytes into `bytes` and moves them to its start.
    ///
    /// # Errors
    /// [`Forged`]; what is in `bytes` is of no use.
    pub(crate) fn decrypt(
        &self,
        nonce: [u8; 12],
        context: &[u8],
        tag: [u8; TAG_BYTES],
        bytes: &mut [u8],
        skipped: usize,
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (context, tag) = (Aad::from(context), Tag::from(tag));
        let opened = self.0.open_in_place_separate_tag(nonce, context, tag, bytes, skipped..);
        opened.map(|_| ()).map_err(|_| Forged)
    }
}

/// Draws a salt.
pub(crate) fn salt() -> Salt {
    generate(&SystemRandom::new()).expect("the system has random numbers").expose()
}

struct IdLength;

impl hkdf::KeyType for IdLength {
    fn len(&self) -> usize {
        KEY_ID_BYTES
    }
}

fn decoded(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    if text.len() == 2 * KEY_BYTES {
        return HEXLOWER_PERMISSIVE.decode(text).ok()?.try_into().ok();
    }
    base64_simd::forgiving_decode_to_vec(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn key_is_read_as_digits_or_base64_from_a_file_of_ones_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            EncryptionKey::read(&path).map_err(|error| error.to_string())
        };
        let key = EncryptionKey::of(std::array::from_fn(|index| index as u8 * 8));
        let digits = data_encoding::HEXUPPER.encode(&key.0[..]);
        let base64 = base64_simd::STANDARD.encode_to_string(&key.0[..]);
        let bare = base64_simd::STANDARD_NO_PAD.encode_to_string(&key.0[..]);
        for text in [&digits, &base64, &bare, &format!("{base64}\n")] {
            assert_eq!(read(text, 0o600).unwrap(), key, "{text}");
        }
        for text in ["", "secret", &digits[2..], &format!("{digits}00"), &base64[4..]] {
            let refused = read(text, 0o600).unwrap_err();
            assert!(refused.contains("32 bytes"), "{refused}");
            assert!(text.is_empty() || !refused.contains(text), "{refused}");
        }
        for mode in [0o640, 0o604] {
            assert!(read(&digits, mode).unwrap_err().contains("chmod 600"));
        }
        assert_eq!(format!("{key:?}"), "EncryptionKey(hidden)");
    }

    #[test]
    fn keys_differ_by_file_salt_and_purpose() {
        let (key, other) = (EncryptionKey::of([1; 32]), EncryptionKey::of([2; 32]));
        assert_ne!(key.id(), other.id());
        assert_ne!(salt(), salt());
        let encrypted = |cipher: &Cipher| {
            let mut bytes = *b"some bytes";
            let tag = cipher.encrypt([0; 12], b"", &mut bytes);
            (bytes, tag.as_ref().to_vec())
        };
        let first = encrypted(&key.derive(&[0; 32], "a"));
        assert_eq!(encrypted(&key.derive(&[0; 32], "a")), first);
        let others =
            [key.derive(&[1; 32], "a"), key.derive(&[0; 32], "b"), other.derive(&[0; 32], "a")];
        others.iter().for_each(|cipher| assert_ne!(encrypted(cipher), first));
    }
}
