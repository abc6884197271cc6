//! Bodies in aws-chunks: a line with the length of each chunk, and with its signature if it has
//! one, before its bytes (S3, "Transferring payload in multiple chunks").
//!
//! s3s gathers a whole chunk in memory before it passes the bytes on, because a signature covers
//! the chunk, and it reads eight digits of a length. But clients send an object of any length as
//! one chunk when they sign none. So chunks without a signature are cut into short ones before s3s
//! gets them: no signature covers how these bytes are divided. A chunk with a signature cannot be
//! cut; a long one is refused.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::HeaderMap;
use hyper::body::{Body, Frame};

use crate::slow_client::{BodyError, SlowClientLimit};

/// The header whose value announces chunks, and how such values begin.
const PAYLOAD: &str = "x-amz-content-sha256";
const CHUNKED: &str = "STREAMING-";

/// Longest chunk without a signature that s3s gets, in bytes: a sixteenth of a block, so that a
/// body in chunks takes hardly more memory than another one. For each chunk s3s makes a few
/// allocations. Chosen, not measured.
const CUT_BYTES_MAX: u64 = 64 << 10;

/// Longest chunk with a signature, in bytes. SDKs sign chunks of 64 KiB to a few MiB; a connection
/// takes so much memory for one. Chosen, not measured.
pub(crate) const SIGNED_BYTES_MAX: u64 = 16 << 20;

/// Longest line before a chunk, in bytes: that of s3s.
const LINE_BYTES_MAX: usize = 1 << 10;

/// What ends each line of the chunks, and each chunk ("Signature calculations" of the S3 API,
/// section on chunks).
const LINE_BREAK: &[u8] = b"\r\n";

/// Why a body in chunks ends early. s3s puts it into an error of its own, in which its text stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    /// Its signature could only be checked with all of it in memory.
    #[error("SignedChunkTooLong")]
    TooLong,
    /// What is before a chunk is not its length.
    #[error("the line before a chunk is not its length")]
    Line,
    /// The chunk is longer than its line announced.
    #[error("no line break is behind a chunk")]
    Break,
    /// The body ends early.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Returns whether a body comes in chunks. Only what s3s takes for chunks is cut: a value that is
/// no text does not count there, and of two that are texts none does.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PAYLOAD).iter();
    let mut texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    let first = texts.next();
    texts.next().is_none() && first.is_some_and(|text| text.starts_with(CHUNKED))
}

/// Returns a request's body for s3s, with short chunks if it has any.
pub(crate) fn body(body: SlowClientLimit, is_chunked: bool) -> s3s::Body {
    if is_chunked {
        let (cutter, came) = (ChunkCutter::default(), Bytes::new());
        s3s::Body::http_body(ShortChunks { body, cutter, came })
    } else {
        s3s::Body::http_body(body)
    }
}

/// A body in chunks, of which those without a signature are short.
struct ShortChunks {
    body: SlowClientLimit,
    cutter: ChunkCutter,
    /// What came and was not passed on yet.
    came: Bytes,
}

impl Body for ShortChunks {
    type Data = Bytes;
    type Error = ChunkError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ChunkError>>> {
        let Self { body, cutter, came } = &mut *self;
        loop {
            match cutter.next(came) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            match ready!(Pin::new(&mut *body).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => *came = frame.into_data().unwrap_or_default(),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.came.is_empty() && self.body.is_end_stream()
    }
}

/// Where in a body its next byte is.
#[derive(Debug, Clone, Copy, Default)]
enum ChunkPosition {
    /// In the line before a chunk.
    #[default]
    Line,
    /// In a chunk without a signature, of which so many bytes are to come, so many of them of the
    /// short chunk that has begun.
    Cut { left: u64, left_of_short: u64 },
    /// In the line break behind such a chunk.
    Break { is_half: bool },
    /// In a chunk with a signature, or the line break behind it.
    Signed { left: u64 },
    /// Behind the last chunk.
    Trailer,
}

/// Cuts the chunks of one body.
#[derive(Debug, Default)]
struct ChunkCutter {
    position: ChunkPosition,
    /// What came of the line before a chunk.
    line: Vec<u8>,
}

impl ChunkCutter {
    /// Takes some of the bytes that came, and returns the next ones for s3s; `None` when more have
    /// to come.
    fn next(&mut self, came: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        loop {
            if let ChunkPosition::Cut { left, left_of_short: 0 } = self.position {
                if left > 0 {
                    return Ok(Some(self.next_short(left)));
                }
                self.position = ChunkPosition::Break { is_half: false };
            }
            if came.is_empty() {
                return Ok(None);
            }
            match self.position {
                ChunkPosition::Line => {
                    if let Some(line) = self.take_line(came)? {
                        return self.begin(&line).map(Some);
                    }
                }
                ChunkPosition::Cut { left, left_of_short } => {
                    let (bytes, count) = take(came, left_of_short);
                    let (left, left_of_short) = (left - count, left_of_short - count);
                    self.position = ChunkPosition::Cut { left, left_of_short };
                    return Ok(Some(bytes));
                }
                ChunkPosition::Break { is_half } => {
                    if came[0] != LINE_BREAK[usize::from(is_half)] {
                        return Err(ChunkError::Break);
                    }
                    came.advance(1);
                    if is_half {
                        self.position = ChunkPosition::Line;
                        return Ok(Some(Bytes::from_static(LINE_BREAK)));
                    }
                    self.position = ChunkPosition::Break { is_half: true };
                }
                ChunkPosition::Signed { left } => {
                    let (bytes, count) = take(came, left);
                    self.position = match left - count {
                        0 => ChunkPosition::Line,
                        left => ChunkPosition::Signed { left },
                    };
                    return Ok(Some(bytes));
                }
                ChunkPosition::Trailer => return Ok(Some(std::mem::take(came))),
            }
        }
    }

    /// Ends a short chunk and begins the next one of those into which a chunk is cut.
    fn next_short(&mut self, left: u64) -> Bytes {
        let left_of_short = left.min(CUT_BYTES_MAX);
        self.position = ChunkPosition::Cut { left, left_of_short };
        format!("\r\n{left_of_short:x}\r\n").into()
    }

    /// Takes what came of the line before a chunk; returns the line once it is whole.
    fn take_line(&mut self, came: &mut Bytes) -> Result<Option<Vec<u8>>, ChunkError> {
        let end = came.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(came.len(), |end| end + 1);
        if self.line.len() + count > LINE_BYTES_MAX {
            return Err(ChunkError::Line);
        }
        self.line.extend_from_slice(&came.split_to(count));
        Ok(end.map(|_| std::mem::take(&mut self.line)))
    }

    /// Begins a chunk. Returns its line for s3s, with the length as s3s reads it: without zeros in
    /// front. So s3s finds the end of a chunk where it is found here.
    fn begin(&mut self, line: &[u8]) -> Result<Bytes, ChunkError> {
        let line = line.strip_suffix(LINE_BREAK).ok_or(ChunkError::Line)?;
        let end = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
        let (digits, signature) = line.split_at(end);
        let left = length(digits).ok_or(ChunkError::Line)?;
        let left_of_short = left.min(CUT_BYTES_MAX);
        self.position = match left {
            0 => ChunkPosition::Trailer,
            _ if signature.is_empty() => ChunkPosition::Cut { left, left_of_short },
            _ if left > SIGNED_BYTES_MAX => return Err(ChunkError::TooLong),
            _ => ChunkPosition::Signed { left: left + LINE_BREAK.len() as u64 },
        };
        let passed_on = if signature.is_empty() { left_of_short } else { left };
        let mut line = format!("{passed_on:x}").into_bytes();
        line.extend_from_slice(signature);
        line.extend_from_slice(LINE_BREAK);
        Ok(line.into())
    }
}

/// Takes at most so many bytes of those that came; returns their number, too.
fn take(came: &mut Bytes, most: u64) -> (Bytes, u64) {
    let count = usize::try_from(most).unwrap_or(usize::MAX).min(came.len());
    (came.split_to(count), count as u64)
}

/// Reads the length of a chunk.
fn length(digits: &[u8]) -> Option<u64> {
    let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hexadecimal)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = ";chunk-signature=0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Returns what s3s gets of a body that comes in pieces of so many bytes.
    fn cut(body: &[u8], piece: usize) -> Result<Vec<u8>, ChunkError> {
        let (mut cutter, mut passed_on) = (ChunkCutter::default(), Vec::new());
        for piece in body.chunks(piece) {
            let mut came = Bytes::copy_from_slice(piece);
            while let Some(bytes) = cutter.next(&mut came)? {
                passed_on.extend_from_slice(&bytes);
            }
            assert!(came.is_empty());
        }
        Ok(passed_on)
    }

    fn check(body: &[u8], passed_on: &[u8]) {
        for piece in [1, 2, 7, 1000, 1 << 20] {
            assert!(cut(body, piece).unwrap() == passed_on, "in pieces of {piece} bytes");
        }
    }

    #[test]
    fn chunk_without_a_signature_is_cut() {
        let most = CUT_BYTES_MAX as usize;
        let bytes: Vec<u8> = (0..2 * most + 5).map(|at| (at % 251) as u8).collect();
        let end = b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let line = format!("{:x}\r\n", bytes.len());
        let more = b"\r\n3\r\nabc\r\n";
        let body = [line.as_bytes(), &bytes[..], &more[..], &end[..]].concat();
        let short = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes].concat();
        let short: Vec<Vec<u8>> = bytes.chunks(most).map(short).collect();
        check(&body, &[&short.join(LINE_BREAK)[..], &more[..], &end[..]].concat());
    }

    #[test]
    fn length_has_any_number_of_digits() {
        check(b"000000000003\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n");
        let signed = |digits: &str| format!("{digits}{SIGNATURE}\r\nabc\r\n0\r\n\r\n");
        check(signed("00000000003").as_bytes(), signed("3").as_bytes());
        assert_eq!(cut(b"100000000\r\n", 100).unwrap(), b"10000\r\n");
        for line in ["\r\n", "+3\r\n", "3 \r\n", "g\r\n", "3\n", "10000000000000000\r\n"] {
            assert!(matches!(cut(line.as_bytes(), 1), Err(ChunkError::Line)), "{line:?}");
        }
        assert!(matches!(cut(&[b'0'; 2000], 100), Err(ChunkError::Line)));
    }

    #[test]
    fn chunk_with_a_signature_is_whole_or_refused() {
        let bytes = vec![b'x'; 3 * CUT_BYTES_MAX as usize];
        let line = format!("{:x}{SIGNATURE}\r\n", bytes.len());
        let end = format!("\r\n0{SIGNATURE}\r\n\r\n");
        let body = [line.as_bytes(), &bytes[..], end.as_bytes()].concat();
        check(&body, &body);
        let long = format!("{:x}{SIGNATURE}\r\n", SIGNED_BYTES_MAX + 1);
        assert!(matches!(cut(long.as_bytes(), 1), Err(ChunkError::TooLong)));
        let longest = format!("{SIGNED_BYTES_MAX:x}{SIGNATURE}\r\n");
        assert!(cut(longest.as_bytes(), 1).is_ok());
    }

    #[test]
    fn chunk_ends_where_its_line_announced() {
        assert!(matches!(cut(b"3\r\nabcd\r\n", 1), Err(ChunkError::Break)));
        assert!(matches!(cut(b"3\r\nabc\rd", 1), Err(ChunkError::Break)));
    }

    #[test]
    fn only_what_s3s_takes_for_chunks_is_cut() {
        let of = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PAYLOAD, hyper::header::HeaderValue::from_bytes(value).unwrap());
            }
            is_chunked(&headers)
        };
        let unsigned: &[u8] = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        assert!(of(&[unsigned]) && of(&[b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"]));
        assert!(of(&[unsigned, b"\xff"]));
        assert!(!of(&[]) && !of(&[b"UNSIGNED-PAYLOAD"]) && !of(&[unsigned, b"UNSIGNED-PAYLOAD"]));
    }
}
