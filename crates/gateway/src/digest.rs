//! What bytes must be: checked while they come by.

use bytes::Bytes;
use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

use crate::md5::{Md5, Threads};
use crate::metadata::{CHECKSUM, all_sums};

/// Fields of requests whose names begin as those of checksums do.
const NO_SUMS: [&str; 3] = ["algorithm", "mode", "type"];

/// The length and digests that a request gives for its bytes.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) content_md5: Option<String>,
    pub(crate) sums: Checksum,
    /// What comes behind the body.
    pub(crate) trailer: Option<TrailingHeaders>,
    /// The checksums that are announced, by the ends of their names.
    pub(crate) announced: Announced,
    pub(crate) bytes: Option<u64>,
}

/// The checksums that headers announce: in a header, and behind the body. Which of them the gateway
/// can compute is not looked at yet.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    before: Vec<String>,
    behind: Vec<String>,
}

impl Announced {
    /// Reads the headers of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let before = headers.keys().filter_map(|name| name.as_str().strip_prefix(CHECKSUM));
        let before = before.filter(|it| !NO_SUMS.contains(it)).map(str::to_owned).collect();
        let trailers = headers.get_all("x-amz-trailer").iter();
        let names = trailers.flat_map(|all| all.as_bytes().split(|byte| *byte == b','));
        let names = names.map(|name| String::from_utf8_lossy(name.trim_ascii()).to_lowercase());
        let behind = names.filter_map(|name| name.strip_prefix(CHECKSUM).map(str::to_owned));
        Self { before, behind: behind.collect() }
    }

    /// Refuses a checksum that is none: nothing would be compared with it.
    fn check(&self) -> S3Result<()> {
        let mut all = self.before.iter().chain(&self.behind);
        match all.find(|name| !ALGORITHMS.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let all = ALGORITHMS.join(", ");
                let message = format!("{CHECKSUM}{name} is not supported: use one of {all}");
                Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
            }
        }
    }

    fn is_behind(&self, algorithm: &str) -> bool {
        self.behind.iter().any(|name| name == algorithm)
    }
}

impl Wanted {
    /// Returns what reckons the checksums to compare.
    fn hasher(&self) -> ChecksumHasher {
        let has = |algorithm: &str| {
            self.announced.is_behind(algorithm) || sum_of(&self.sums, algorithm).is_some()
        };
        ChecksumHasher {
            crc32: has("crc32").then(Default::default),
            crc32c: has("crc32c").then(Default::default),
            crc64nvme: has("crc64nvme").then(Default::default),
            sha1: has("sha1").then(Default::default),
            sha256: has("sha256").then(Default::default),
        }
    }

    /// Compares the checksums of what came with those that the request gives.
    ///
    /// # Errors
    /// `BadDigest`.
    fn compare(&self, sums: &Checksum) -> S3Result<()> {
        for algorithm in ALGORITHMS {
            let Some(sum) = sum_of(sums, algorithm) else { continue };
            let is_sent = |sent: &HeaderMap| {
                let mut sent = sent.get_all(format!("{CHECKSUM}{algorithm}")).iter().peekable();
                sent.peek().is_some() && sent.all(|it| it.as_bytes() == sum.as_bytes())
            };
            let is_right_behind = !self.announced.is_behind(algorithm)
                || self.trailer.as_ref().and_then(|it| it.read(is_sent)).unwrap_or(false);
            let is_right_before = sum_of(&self.sums, algorithm).is_none_or(|sent| sent == sum);
            if !is_right_before || !is_right_behind {
                return Err(bad(algorithm));
            }
        }
        Ok(())
    }
}

fn bad(what: &str) -> S3Error {
    let message = format!("the bytes do not have the {what} that came with them");
    S3Error::with_message(S3ErrorCode::BadDigest, message)
}

/// Compares a whole body with the checksums in the headers of its request and behind it.
///
/// # Errors
/// `InvalidRequest` for a checksum that is not supported, `BadDigest`.
pub(crate) fn check_sums(
    headers: &HeaderMap,
    trailer: Option<TrailingHeaders>,
    body: &[u8],
) -> S3Result<()> {
    let sum = |algorithm: &str| {
        let sum = headers.get(format!("{CHECKSUM}{algorithm}"))?.as_bytes().trim_ascii();
        Some(String::from_utf8_lossy(sum).into_owned())
    };
    let sums = all_sums(sum);
    let announced = Announced::of(headers);
    let wanted = Wanted { sums, trailer, announced, ..Wanted::default() };
    wanted.announced.check()?;
    let mut sums = wanted.hasher();
    sums.update(body);
    wanted.compare(&sums.finalize())
}

/// Takes the length and digests from an input of s3s.
macro_rules! wanted_of {
    ($request:expr) => {{
        let trailer = $request.trailing_headers.clone();
        let announced = $crate::digest::Announced::of(&$request.headers);
        // Of a body in chunks there may be no other length.
        let decoded = $request.headers.get("x-amz-decoded-content-length");
        let decoded = decoded.and_then(|it| it.to_str().ok()?.parse::<i64>().ok());
        let input = &mut $request.input;
        $crate::digest::Wanted {
            content_md5: input.content_md5.take(),
            sums: s3s::dto::Checksum {
                checksum_crc32: input.checksum_crc32.take(),
                checksum_crc32c: input.checksum_crc32c.take(),
                checksum_crc64nvme: input.checksum_crc64nvme.take(),
                checksum_sha1: input.checksum_sha1.take(),
                checksum_sha256: input.checksum_sha256.take(),
                ..s3s::dto::Checksum::default()
            },
            trailer,
            announced,
            bytes: input.content_length.or(decoded).and_then(|it| u64::try_from(it).ok()),
        }
    }};
}
pub(crate) use wanted_of;

/// The names of the checksums, as headers end with them.
pub(crate) const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// Returns one checksum of many by its name.
pub(crate) fn sum_of<'a>(sums: &'a Checksum, algorithm: &str) -> Option<&'a str> {
    let sum = match algorithm {
        "crc32" => &sums.checksum_crc32,
        "crc32c" => &sums.checksum_crc32c,
        "crc64nvme" => &sums.checksum_crc64nvme,
        "sha1" => &sums.checksum_sha1,
        _ => &sums.checksum_sha256,
    };
    sum.as_deref()
}

/// Reckons digests of bytes that come by.
pub(crate) struct Digests {
    wanted: Wanted,
    /// `None` where it is not needed.
    md5: Option<Md5>,
    sums: ChecksumHasher,
    bytes: u64,
}

/// What bytes turned out to be.
#[derive(Debug)]
pub(crate) struct Digested {
    /// Zeros where it was left out.
    pub(crate) md5: [u8; 16],
    pub(crate) bytes: u64,
    /// The checksums that the client requested.
    pub(crate) sums: Checksum,
}

impl Digests {
    /// Prepares for what a request gives.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest` when it gives what cannot be.
    pub(crate) fn new(wanted: Wanted, threads: &Threads) -> S3Result<Self> {
        if let Some(md5) = &wanted.content_md5 {
            let decoded = base64_simd::STANDARD.decode_to_vec(md5.as_bytes());
            if !decoded.is_ok_and(|digest| digest.len() == 16) {
                let message = "Content-MD5 is not the base64 of 16 bytes";
                return Err(S3Error::with_message(S3ErrorCode::InvalidDigest, message));
            }
        }
        wanted.announced.check()?;
        let sums = wanted.hasher();
        Ok(Self { wanted, md5: Some(Md5::new(threads.clone())), sums, bytes: 0 })
    }

    /// Leaves the MD5 out, which costs more than all else: the tag is known.
    pub(crate) fn without_md5(mut self) -> Self {
        self.md5 = None;
        self
    }

    /// Returns how many bytes are to come, if the request has that.
    pub(crate) const fn bytes_wanted(&self) -> Option<u64> {
        self.wanted.bytes
    }

    /// Takes bytes in as they come; [`Digests::update_block`] takes the same ones in again.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.sums.update(bytes);
    }

    /// Takes in, for the MD5, a block of what came. It is worked on while the caller goes on.
    pub(crate) async fn update_block(&mut self, block: Bytes) {
        if let Some(md5) = &mut self.md5 {
            md5.update(block).await;
        }
    }

    /// Compares what came with what the request gave.
    ///
    /// # Errors
    /// `IncompleteBody`, `BadDigest`.
    pub(crate) async fn finish(self) -> S3Result<Digested> {
        let Self { wanted, md5, sums, bytes } = self;
        if wanted.bytes.is_some_and(|wanted| wanted != bytes) {
            return Err(S3ErrorCode::IncompleteBody.into());
        }
        let md5 = match md5 {
            Some(md5) => md5.finish().await,
            None => [0; 16],
        };
        let encoded = || base64_simd::STANDARD.encode_to_string(md5);
        if wanted.content_md5.as_ref().is_some_and(|wanted| encoded() != *wanted) {
            return Err(bad("Content-MD5"));
        }
        let sums = sums.finalize();
        wanted.compare(&sums)?;
        Ok(Digested { md5, bytes, sums })
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    async fn finish(wanted: Wanted, bytes: &'static [u8]) -> S3Result<Digested> {
        let mut digests = Digests::new(wanted, &Threads::start(1))?;
        digests.update(bytes);
        digests.update_block(Bytes::from_static(bytes)).await;
        digests.finish().await
    }

    fn code(result: S3Result<Digested>) -> S3ErrorCode {
        result.unwrap_err().code().clone()
    }

    #[tokio::test]
    async fn right_digests_are_taken_and_wrong_ones_refused() {
        let md5 = |text: &str| Wanted { content_md5: Some(text.to_owned()), ..Wanted::default() };
        finish(md5("XUFAKrxLKna5cZ2REBfFkg=="), b"hello").await.unwrap();
        assert_eq!(
            code(finish(md5("XUFAKrxLKna5cZ2REBfFkg=="), b"hallo").await),
            S3ErrorCode::BadDigest
        );
        assert_eq!(code(finish(md5("XUFA"), b"hello").await), S3ErrorCode::InvalidDigest);
        let crc = |text: &str| {
            let sums = Checksum { checksum_crc32: Some(text.to_owned()), ..Checksum::default() };
            Wanted { sums, ..Wanted::default() }
        };
        finish(crc("NhCmhg=="), b"hello").await.unwrap();
        assert_eq!(code(finish(crc("NhCmhg=="), b"hallo").await), S3ErrorCode::BadDigest);
    }

    #[tokio::test]
    async fn announced_checksums_are_there_and_are_supported() {
        let announced = |headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, text) in headers {
                map.append(*name, HeaderValue::from_static(text));
            }
            Wanted { announced: Announced::of(&map), ..Wanted::default() }
        };
        let trailer = |text| announced(&[("x-amz-trailer", text)]);
        for text in ["x-amz-checksum-crc32", "X-Amz-Checksum-CRC32", "a , x-amz-Checksum-sha1,b"] {
            assert_eq!(code(finish(trailer(text), b"hello").await), S3ErrorCode::BadDigest);
        }
        for text in ["x-amz-checksum-md4", "x-amz-checksum-crc32,X-Amz-Checksum-"] {
            assert_eq!(code(finish(trailer(text), b"hello").await), S3ErrorCode::InvalidRequest);
        }
        finish(trailer("x-amz-meta-a"), b"hello").await.unwrap();
        let header = announced(&[("x-amz-checksum-md4", "AAAA")]);
        assert_eq!(code(finish(header, b"hello").await), S3ErrorCode::InvalidRequest);
        let others = announced(&[
            ("x-amz-checksum-algorithm", "CRC32"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-amz-checksum-mode", "ENABLED"),
        ]);
        finish(others, b"hello").await.unwrap();
    }

    #[tokio::test]
    async fn fewer_bytes_than_announced_are_refused() {
        let wanted = Wanted { bytes: Some(6), ..Wanted::default() };
        assert_eq!(code(finish(wanted, b"hello").await), S3ErrorCode::IncompleteBody);
    }

    #[test]
    fn checksums_in_the_headers_of_a_body_are_compared() {
        let checked = |name: &'static str, text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(text));
            check_sums(&headers, None, b"hello").map_err(|error| error.code().clone())
        };
        assert_eq!(checked("x-amz-checksum-crc32", "NhCmhg=="), Ok(()));
        assert_eq!(checked("x-amz-checksum-crc32", "AAAAAA=="), Err(S3ErrorCode::BadDigest));
        assert_eq!(checked("x-amz-checksum-sha256", ""), Err(S3ErrorCode::BadDigest));
        assert_eq!(checked("x-amz-trailer", "x-amz-checksum-sha1"), Err(S3ErrorCode::BadDigest));
        assert_eq!(checked("x-amz-checksum-md4", "AAAA"), Err(S3ErrorCode::InvalidRequest));
        assert_eq!(checked("x-amz-checksum-algorithm", "CRC32"), Ok(()));
    }
}
