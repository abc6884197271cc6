//! The checksums that came with a block's bytes.

use sanderling_protocol::checksum::combine;

/// Shorter runs are joined with the one before them, which bounds a block's marks by its length.
const RUN_BYTES_MIN: u32 = 4096;

/// The checksum of every prefix of a block that ends where a write ended.
///
/// CRC32C is linear, so the checksum of the bytes between two marks follows from the two prefixes
/// without the bytes. A read that starts and ends at marks is answered with the checksum that the
/// writer sent: bytes that changed on the medium are noticed by the reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    end: u32,
    prefix: u32,
}

impl Runs {
    /// Returns these runs with one more after them: `bytes` long, with its own checksum.
    pub(crate) fn with(&self, bytes: u32, checksum: u32) -> Self {
        let mut marks = self.marks.clone();
        let last = marks.last().copied().unwrap_or(Mark { end: 0, prefix: 0 });
        let before_last = marks.len().checked_sub(2).map_or(0, |index| marks[index].end);
        let end = last.end + bytes;
        // The common case, a block written or read whole, costs nothing.
        let prefix = match last.end {
            0 => checksum,
            _ => combine(last.prefix, checksum, u64::from(bytes)),
        };
        if last.end - before_last < RUN_BYTES_MIN {
            marks.pop();
        }
        marks.push(Mark { end, prefix });
        Self { marks }
    }

    /// Returns the checksum of the bytes from `start` to `end`; `None` unless both are marks.
    pub(crate) fn checksum(&self, start: u32, end: u32) -> Option<u32> {
        let before = self.prefix(start)?;
        let all = self.prefix(end)?;
        let bytes = end.checked_sub(start)?;
        if start == 0 {
            return Some(all);
        }
        Some(combine(before, 0, u64::from(bytes)) ^ all)
    }

    fn prefix(&self, end: u32) -> Option<u32> {
        if end == 0 {
            return Some(0);
        }
        let index = self.marks.binary_search_by_key(&end, |mark| mark.end).ok()?;
        Some(self.marks[index].prefix)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::checksum::crc32c;

    use super::*;

    fn bytes() -> Vec<u8> {
        (0..40_000_u32).map(|index| (index * 31 % 251) as u8).collect()
    }

    #[test]
    fn ranges_between_marks_have_the_checksums_of_their_bytes() {
        let bytes = bytes();
        let mut runs = Runs::default();
        let ends = [0, 5000, 10_000, 25_000, 40_000];
        for pair in ends.windows(2) {
            runs = runs.with((pair[1] - pair[0]) as u32, crc32c(&bytes[pair[0]..pair[1]]));
        }
        for start in ends {
            for end in ends.iter().copied().filter(|end| *end >= start) {
                let checksum = runs.checksum(start as u32, end as u32);
                assert_eq!(checksum, Some(crc32c(&bytes[start..end])), "{start}..{end}");
            }
        }
        assert_eq!(runs.checksum(1, 5000), None);
        assert_eq!(runs.checksum(5000, 9999), None);
        assert_eq!(runs.checksum(10_000, 5000), None);
    }

    #[test]
    fn small_runs_are_joined() {
        let bytes = bytes();
        let mut runs = Runs::default();
        for piece in bytes.chunks(100) {
            runs = runs.with(100, crc32c(piece));
        }
        assert!(runs.marks.len() <= bytes.len() / RUN_BYTES_MIN as usize + 1);
        assert_eq!(runs.checksum(0, 40_000), Some(crc32c(&bytes)));
    }
}
