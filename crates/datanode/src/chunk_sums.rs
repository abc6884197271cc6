//! The checksums of a block's bytes, kept from the write.

use std::sync::LazyLock;

use sanderling_protocol::checksum::{Running, combine, crc32c};

/// Bytes of a chunk: the least whose checksum is kept. The size of random reads, so that these are
/// answered with a checksum that is kept; at four bytes each, a thousandth of the block.
pub(crate) const CHUNK_BYTES: u32 = 4 << 10;

/// The checksum of every prefix of a block that ends with a chunk, and of the whole block.
///
/// CRC32C is linear, so the checksum of the bytes between two such ends follows from the two
/// prefixes without the bytes. A read of whole chunks is answered with what was computed when they
/// were written: bytes that changed on the medium are noticed by the reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChunkSums {
    /// By chunk: the prefix that ends with it. The last chunk may be short.
    ends: Vec<u32>,
    length: u32,
}

/// Checksums of a body that becomes a part of a block: of its prefixes that end where the block's
/// chunks do, and of all of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodySums {
    ends: Vec<u32>,
    bytes: u32,
    pub(crate) whole: u32,
}

/// Computes them while the bytes come.
#[derive(Debug)]
pub(crate) struct Summing {
    running: Running,
    /// Bytes until the next chunk of the block ends.
    left: usize,
    sums: BodySums,
}

impl Summing {
    /// Begins a body that comes to lie at `offset` of its block.
    pub(crate) fn new(offset: u64) -> Self {
        let into = offset % u64::from(CHUNK_BYTES);
        let left = CHUNK_BYTES as usize - into as usize;
        Self { running: Running::default(), left, sums: BodySums::default() }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            self.running.update(now);
            self.sums.bytes += now.len() as u32;
            self.left -= now.len();
            if self.left == 0 {
                self.sums.ends.push(self.running.value());
                self.left = CHUNK_BYTES as usize;
            }
            bytes = later;
        }
    }

    pub(crate) fn finish(mut self) -> BodySums {
        self.sums.whole = self.running.value();
        self.sums
    }
}

impl ChunkSums {
    /// Returns the checksums of the block with a body added at its end. `added` was begun at the
    /// block's length: its first chunk completes the block's last one.
    pub(crate) fn with(&self, added: &BodySums) -> Self {
        let length = self.length + added.bytes;
        if self.length == 0 {
            let mut ends = added.ends.clone();
            if !length.is_multiple_of(CHUNK_BYTES) {
                ends.push(added.whole);
            }
            return Self { ends, length };
        }
        let before = self.whole();
        let mut ends = Vec::with_capacity(length.div_ceil(CHUNK_BYTES) as usize);
        ends.extend_from_slice(&self.ends[..(self.length / CHUNK_BYTES) as usize]);
        let first = CHUNK_BYTES - self.length % CHUNK_BYTES;
        let mut shifted = combine(before, 0, u64::from(first));
        for end in &added.ends {
            ends.push(shifted ^ end);
            shifted = past_a_chunk(shifted);
        }
        if !length.is_multiple_of(CHUNK_BYTES) {
            ends.push(combine(before, added.whole, u64::from(added.bytes)));
        }
        Self { ends, length }
    }

    /// Returns the sums of the first `length` bytes. `begun`: those of them that are behind the
    /// last whole chunk.
    pub(crate) fn cut(&self, length: u32, begun: &[u8]) -> Self {
        let whole = (length / CHUNK_BYTES) as usize;
        assert!(length <= self.length, "sums of bytes that are not there");
        assert_eq!(begun.len() as u32, length % CHUNK_BYTES, "all bytes of the chunk that is cut");
        let mut ends = self.ends[..whole].to_vec();
        if !begun.is_empty() {
            let before = ends.last().copied().unwrap_or(0);
            ends.push(combine(before, crc32c(begun), begun.len() as u64));
        }
        Self { ends, length }
    }

    /// Returns the chunks that a range touches, as a range.
    pub(crate) fn around(&self, start: u32, end: u32) -> (u32, u32) {
        let last = end.next_multiple_of(CHUNK_BYTES).min(self.length);
        (start / CHUNK_BYTES * CHUNK_BYTES, last)
    }

    /// Returns the checksum of the bytes from `start` to `end`; `None` unless they are whole
    /// chunks.
    pub(crate) fn checksum(&self, start: u32, end: u32) -> Option<u32> {
        let (before, all) = (self.prefix(start)?, self.prefix(end)?);
        Some(match end.checked_sub(start)? {
            _ if start == 0 => all,
            CHUNK_BYTES => past_a_chunk(before) ^ all,
            bytes => combine(before, 0, u64::from(bytes)) ^ all,
        })
    }

    /// Returns the checksum of the whole block.
    pub(crate) fn whole(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn prefix(&self, end: u32) -> Option<u32> {
        match end {
            0 => Some(0),
            _ if end == self.length => Some(self.whole()),
            _ if end > self.length || !end.is_multiple_of(CHUNK_BYTES) => None,
            _ => self.ends.get((end / CHUNK_BYTES - 1) as usize).copied(),
        }
    }
}

/// Returns the checksum of a prefix and a chunk of zeros behind it, less that of the zeros: what
/// [`combine`] does, for the one length that each append needs hundreds of times.
fn past_a_chunk(prefix: u32) -> u32 {
    // What each value of each of the four bytes of a prefix makes.
    static TABLES: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let shifted = |byte: usize, value: usize| {
            combine((value as u32) << (8 * byte), 0, u64::from(CHUNK_BYTES))
        };
        std::array::from_fn(|byte| std::array::from_fn(|value| shifted(byte, value)))
    });
    let bytes = prefix.to_le_bytes();
    let [first, second, third, fourth] = &*TABLES;
    first[usize::from(bytes[0])]
        ^ second[usize::from(bytes[1])]
        ^ third[usize::from(bytes[2])]
        ^ fourth[usize::from(bytes[3])]
}

/// Returns the sums of bytes that come to lie at `offset` of their block.
pub(crate) fn sums_of(offset: u64, bytes: &[u8]) -> BodySums {
    let mut summing = Summing::new(offset);
    summing.update(bytes);
    summing.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        (0..40_000_u32).map(|index| (index * 31 % 251) as u8).collect()
    }

    fn written(bytes: &[u8], pieces: &[usize]) -> ChunkSums {
        let (mut sums, mut at) = (ChunkSums::default(), 0);
        for piece in pieces.iter().copied().cycle() {
            let end = bytes.len().min(at + piece);
            sums = sums.with(&sums_of(at as u64, &bytes[at..end]));
            at = end;
            if at == bytes.len() {
                return sums;
            }
        }
        sums
    }

    #[test]
    fn whole_chunks_have_the_checksums_of_their_bytes_however_they_were_written() {
        let bytes = bytes();
        let whole = written(&bytes, &[40_000]);
        for pieces in [&[1000][..], &[4096], &[5000, 1], &[4095, 2, 30_000], &[8192, 7]] {
            assert_eq!(written(&bytes, pieces), whole, "{pieces:?}");
        }
        let ends: Vec<usize> = (0..10).map(|run| run * 4096).chain([40_000]).collect();
        for start in ends.iter().copied() {
            for end in ends.iter().copied().filter(|end| *end >= start) {
                let checksum = whole.checksum(start as u32, end as u32);
                assert_eq!(checksum, Some(crc32c(&bytes[start..end])), "{start}..{end}");
            }
        }
        assert_eq!(whole.whole(), crc32c(&bytes));
    }

    #[test]
    fn first_bytes_have_the_sums_that_they_would_have_alone() {
        let bytes = bytes();
        let whole = written(&bytes, &[40_000]);
        for length in [1, 4095, 4096, 4097, 8192, 39_999, 40_000] {
            let begun = &bytes[length / 4096 * 4096..length];
            let alone = written(&bytes[..length], &[40_000]);
            assert_eq!(whole.cut(length as u32, begun), alone, "{length}");
        }
    }

    #[test]
    fn other_ranges_have_none_and_lie_in_whole_chunks() {
        let sums = written(&bytes(), &[40_000]);
        for (start, end) in [(1, 4096), (4096, 8191), (8192, 4096), (0, 40_001), (0, 45_056)] {
            assert_eq!(sums.checksum(start, end), None, "{start}..{end}");
        }
        assert_eq!(sums.around(1, 2), (0, 4096));
        assert_eq!(sums.around(4095, 4097), (0, 8192));
        assert_eq!(sums.around(39_000, 39_999), (36_864, 40_000));
        assert_eq!(sums.around(4096, 8192), (4096, 8192));
    }
}
