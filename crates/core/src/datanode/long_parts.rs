//! How a datanode sends parts that are longer than others: those of objects above 70 GiB.
//!
//! A store in a bucket takes so many parts of an upload at most that parts of such an object are
//! longer, up to hundreds of megabytes. A bucket gets each as the body of one request, which is in
//! memory until it is sent. So a datanode sends one of them at a time. A store in a directory takes
//! bytes at any offset, and gets all parts in pieces.

use sanderling_protocol::limits::BLOCK_BYTES_MAX;

use crate::durable::PART_BYTES_MIN;

/// Most bytes of any other part: it ends with the block by which it has the shortest length.
pub const USUAL_PART_BYTES_MAX: u64 = PART_BYTES_MIN + BLOCK_BYTES_MAX as u64;

/// Returns how much of the memory for joined parts a part of so many bytes leaves to no other one
/// while it is in memory; `None` if it is not longer than others. It may take more than all that
/// there is: it is the only one, and cannot be shorter.
#[must_use]
pub fn long_part_memory(bytes: u64, memory: u64, joined_parts: u64) -> Option<u64> {
    (bytes > USUAL_PART_BYTES_MAX).then(|| memory.min(joined_parts))
}

/// Returns how many of a part's blocks, which have these lengths, each of its pieces has. All but
/// the last one have the bytes of the shortest part or a little more.
#[must_use]
pub fn pieces(lengths: &[u32]) -> Vec<usize> {
    let (mut pieces, mut count, mut bytes) = (Vec::new(), 0, 0);
    for length in lengths {
        count += 1;
        bytes += u64::from(*length);
        if bytes >= PART_BYTES_MIN {
            pieces.push(std::mem::take(&mut count));
            bytes = 0;
        }
    }
    if count > 0 || pieces.is_empty() {
        pieces.push(count);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn part_of_a_huge_object_takes_the_memory_of_joined_parts_and_no_more_is_counted() {
        let budget = 100 * MIB;
        for bytes in [0, PART_BYTES_MIN, PART_BYTES_MIN + MIB] {
            assert_eq!(long_part_memory(bytes, 2 * bytes, budget), None, "{bytes}");
        }
        assert_eq!(long_part_memory(20 * MIB, 20 * MIB, budget), Some(20 * MIB));
        assert_eq!(long_part_memory(117 * MIB, 117 * MIB, budget), Some(budget));
        assert_eq!(long_part_memory(580 * MIB, 580 * MIB, 0), Some(0));
    }

    #[test]
    fn pieces_of_a_part_are_short_and_have_all_of_its_blocks() {
        let block = BLOCK_BYTES_MAX;
        assert_eq!(pieces(&[block; 8]), [8]);
        assert_eq!(pieces(&[block; 20]), [8, 8, 4]);
        // A part that ends with the block that makes it long enough is one piece.
        assert_eq!(pieces(&[&[1][..], &[block; 8]].concat()), [9]);
        assert_eq!(pieces(&[100; 1000]), [1000]);
        assert_eq!(pieces(&[]), [0], "the bytes of a value have no block");
        let many = pieces(&[block - 1; 583]);
        assert_eq!(many.iter().sum::<usize>(), 583);
        let bytes = |count: &usize| *count as u64 * u64::from(block - 1);
        assert!(many.iter().all(|count| bytes(count) <= USUAL_PART_BYTES_MAX), "{many:?}");
    }
}
