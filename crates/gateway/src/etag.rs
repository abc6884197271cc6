//! Entity tags, as S3 defines them: the MD5 of the bytes; of an upload in parts, the MD5 of the
//! parts' MD5s and how many there were.

use ::md5::{Digest, Md5};
use sanderling_protocol::ObjectId;

/// Returns the tag of bytes with that MD5.
pub(crate) fn of_digest(digest: [u8; 16]) -> String {
    hex(&digest)
}

/// Returns the tag of an upload whose parts have these MD5s.
pub(crate) fn of_parts(digests: &[[u8; 16]]) -> String {
    let mut all = Md5::new();
    for digest in digests {
        all.update(digest);
    }
    format!("{}-{}", hex(&all.finalize()), digests.len())
}

/// Returns the tag of an object that was not written through this door: it changes with the bytes
/// and is no MD5, which its dash tells.
pub(crate) fn of_object(object: ObjectId, bytes: u64) -> String {
    format!("{:016x}-{bytes}", object.0)
}

/// Returns the MD5 that a tag is; `None` when it is none.
pub(crate) fn digest_of(tag: &str) -> Option<[u8; 16]> {
    let tag = tag.as_bytes();
    if tag.len() != 32 {
        return None;
    }
    let mut digest = [0; 16];
    for (byte, pair) in digest.iter_mut().zip(tag.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(digest)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_s3() {
        let empty: [u8; 16] = Md5::digest(b"").into();
        assert_eq!(of_digest(empty), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(digest_of(&of_digest(empty)), Some(empty));
        // By `printf '' | md5sum | xxd -r -p | md5sum`, with the digest twice.
        let twice: Vec<u8> = [empty, empty].concat();
        let expected = format!("{}-2", hex(&Md5::digest(twice)));
        assert_eq!(of_parts(&[empty, empty]), expected);
    }

    #[test]
    fn foreign_tag_is_no_md5() {
        assert_eq!(of_object(ObjectId(7), 3), "0000000000000007-3");
        assert_eq!(digest_of(&of_object(ObjectId(7), 1 << 40)), None);
        assert_eq!(digest_of("zz1d8cd98f00b204e9800998ecf8427e"), None);
    }
}
