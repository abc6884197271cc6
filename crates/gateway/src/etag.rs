//! Entity tags, as S3 defines them: the MD5 of the bytes; of an upload in parts, the MD5 of the
//! parts' MD5s and how many there were.

use ::md5::{Digest, Md5};
use data_encoding::HEXLOWER_PERMISSIVE;
use sanderling_protocol::ObjectId;

/// Returns the tag of bytes with that MD5.
pub(crate) fn of_digest(digest: [u8; 16]) -> String {
    HEXLOWER_PERMISSIVE.encode(&digest)
}

/// Returns the tag of an upload whose parts have these MD5s.
pub(crate) fn of_parts(digests: &[[u8; 16]]) -> String {
    let mut all = Md5::new();
    for digest in digests {
        all.update(digest);
    }
    format!("{}-{}", HEXLOWER_PERMISSIVE.encode(&all.finalize()), digests.len())
}

/// Returns the tag of an object that was not written through this interface: it changes with the
/// bytes and is no MD5, which its dash shows.
pub(crate) fn of_object(object: ObjectId, bytes: u64) -> String {
    format!("{:016x}-{bytes}", object.0)
}

/// Returns the MD5 that a tag is; `None` when it is none.
pub(crate) fn digest_of(tag: &str) -> Option<[u8; 16]> {
    HEXLOWER_PERMISSIVE.decode(tag.as_bytes()).ok()?.try_into().ok()
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
        let expected = format!("{}-2", HEXLOWER_PERMISSIVE.encode(&Md5::digest(twice)));
        assert_eq!(of_parts(&[empty, empty]), expected);
    }

    #[test]
    fn foreign_tag_is_no_md5() {
        assert_eq!(of_object(ObjectId(7), 3), "0000000000000007-3");
        assert_eq!(digest_of(&of_object(ObjectId(7), 1 << 40)), None);
        for tag in ["zz1d8cd98f00b204e9800998ecf8427e", "", "d41d8cd98f00b204", "d41d8cd98f00b20"] {
            assert_eq!(digest_of(tag), None, "{tag}");
        }
        assert!(digest_of("D41D8CD98F00B204E9800998ECF8427E").is_some());
    }
}
