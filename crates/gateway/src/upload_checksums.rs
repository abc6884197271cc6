//! Checksums of an upload's parts together, as a client sends them when it completes the upload.

use crc_fast::{CrcAlgorithm, checksum_combine};
use s3s::checksum::ChecksumHasher;
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result};
use sanderling_protocol::message::Entry;

use crate::digest::{ALGORITHMS, sum_of};
use crate::metadata::checksum_of;

/// Checks that the parts together have the checksum that the client sent for the whole, if any.
/// One that ends with `-N` is composite, made of the parts' checksums; another is that of all bytes
/// as one, which only CRCs have (S3, "Checking object integrity").
///
/// # Errors
/// `BadDigest` when it is another, `InvalidRequest` when the parts were stored without it.
pub(crate) fn check(parts: &[&Entry], wanted: &Checksum) -> S3Result<()> {
    for algorithm in ALGORITHMS {
        let Some(wanted) = sum_of(wanted, algorithm) else { continue };
        let sums: Option<Vec<(Vec<u8>, u64)>> =
            parts.iter().map(|part| Some((raw(part, algorithm)?, part.bytes))).collect();
        let sums = sums.ok_or_else(|| {
            let message =
                format!("not all of the parts were stored with a checksum of {algorithm}");
            S3Error::with_message(S3ErrorCode::InvalidRequest, message)
        })?;
        let joined = match wanted.split_once('-') {
            Some(_) => composite(&sums, algorithm),
            None => whole(&sums, algorithm)?,
        };
        if joined != wanted {
            let message = format!("the parts have the checksum {joined} together, not {wanted}");
            return Err(S3Error::with_message(S3ErrorCode::BadDigest, message));
        }
    }
    Ok(())
}

fn raw(part: &Entry, algorithm: &str) -> Option<Vec<u8>> {
    let text = checksum_of(&part.attributes, algorithm, part.bytes)?;
    base64_simd::STANDARD.decode_to_vec(text.as_bytes()).ok()
}

fn composite(sums: &[(Vec<u8>, u64)], algorithm: &str) -> String {
    let is = |name: &str| name == algorithm;
    let mut hasher = ChecksumHasher {
        crc32: is("crc32").then(Default::default),
        crc32c: is("crc32c").then(Default::default),
        crc64nvme: is("crc64nvme").then(Default::default),
        sha1: is("sha1").then(Default::default),
        sha256: is("sha256").then(Default::default),
    };
    sums.iter().for_each(|(sum, _)| hasher.update(sum));
    let sum = hasher.finalize();
    format!("{}-{}", sum_of(&sum, algorithm).unwrap_or_default(), sums.len())
}

fn whole(sums: &[(Vec<u8>, u64)], algorithm: &str) -> S3Result<String> {
    let (kind, bytes) = match algorithm {
        "crc32" => (CrcAlgorithm::Crc32IsoHdlc, 4),
        "crc32c" => (CrcAlgorithm::Crc32Iscsi, 4),
        "crc64nvme" => (CrcAlgorithm::Crc64Nvme, 8),
        _ => {
            let message = format!("{algorithm} of parts is composite: it ends with their number");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
    };
    let number = |sum: &[u8]| sum.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let joined = sums.iter().fold(None, |joined, (sum, length)| {
        let sum = number(sum);
        Some(joined.map_or(sum, |before| checksum_combine(kind, before, sum, *length)))
    });
    let joined = joined.unwrap_or_default().to_be_bytes();
    Ok(base64_simd::STANDARD.encode_to_string(&joined[8 - bytes..]))
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::ObjectKind;
    use sanderling_protocol::{Instant, ObjectId};

    use super::*;
    use crate::metadata;

    fn sums(bytes: &[u8]) -> Checksum {
        let mut hasher = ChecksumHasher {
            crc32: Some(Default::default()),
            crc32c: Some(Default::default()),
            crc64nvme: Some(Default::default()),
            sha1: Some(Default::default()),
            sha256: Some(Default::default()),
        };
        hasher.update(bytes);
        hasher.finalize()
    }

    fn part(bytes: &[u8]) -> Entry {
        let sums = sums(bytes);
        let length = bytes.len() as u64;
        let attributes = ALGORITHMS.map(|algorithm| {
            let sum = sum_of(&sums, algorithm).unwrap();
            (format!("{}{algorithm}", metadata::CHECKSUM), format!("{sum} {length}"))
        });
        Entry {
            name: "00001".to_owned(),
            kind: ObjectKind::File,
            object: ObjectId(1),
            bytes: length,
            lost_bytes: 0,
            is_sealed: true,
            modified_at: Instant(0),
            attributes: attributes.into_iter().collect(),
        }
    }

    fn one(algorithm: &str, sum: String) -> Checksum {
        let mut sums = Checksum::default();
        *match algorithm {
            "crc32" => &mut sums.checksum_crc32,
            "crc32c" => &mut sums.checksum_crc32c,
            "crc64nvme" => &mut sums.checksum_crc64nvme,
            "sha1" => &mut sums.checksum_sha1,
            _ => &mut sums.checksum_sha256,
        } = Some(sum);
        sums
    }

    #[test]
    fn crc_of_all_bytes_follows_from_those_of_the_parts() {
        let parts = [part(b"some bytes"), part(b""), part(b"and others")];
        let parts: Vec<&Entry> = parts.iter().collect();
        let all = sums(b"some bytesand others");
        for algorithm in ["crc32", "crc32c", "crc64nvme"] {
            let sum = sum_of(&all, algorithm).unwrap().to_owned();
            check(&parts, &one(algorithm, sum)).unwrap();
            let wrong =
                check(&parts[1..], &one(algorithm, sum_of(&all, algorithm).unwrap().into()));
            assert_eq!(wrong.unwrap_err().code(), &S3ErrorCode::BadDigest, "{algorithm}");
        }
        let sum = sum_of(&all, "sha256").unwrap().to_owned();
        let refused = check(&parts, &one("sha256", sum)).unwrap_err();
        assert_eq!(refused.code(), &S3ErrorCode::InvalidRequest);
    }

    #[test]
    fn composite_sum_is_that_of_the_parts_sums() {
        let parts = [part(b"some bytes"), part(b"and others")];
        let parts: Vec<&Entry> = parts.iter().collect();
        for algorithm in ALGORITHMS {
            let raw: Vec<u8> = parts.iter().flat_map(|it| raw(it, algorithm).unwrap()).collect();
            let sum = sum_of(&sums(&raw), algorithm).unwrap().to_owned();
            check(&parts, &one(algorithm, format!("{sum}-2"))).unwrap();
            for wrong in [format!("{sum}-3"), format!("A{sum}-2")] {
                let refused = check(&parts, &one(algorithm, wrong)).unwrap_err();
                assert_eq!(refused.code(), &S3ErrorCode::BadDigest, "{algorithm}");
            }
        }
        let bare =
            Entry { attributes: std::iter::empty::<(String, String)>().collect(), ..part(b"x") };
        let refused = check(&[&bare], &one("crc32", "AAAAAA==".to_owned())).unwrap_err();
        assert_eq!(refused.code(), &S3ErrorCode::InvalidRequest);
    }
}
