//! How long the parts of an upload are, and how many of them an order sends.

/// Bytes of one part: S3 takes no smaller one than 5 MiB, but for the last.
pub const PART_BYTES_MIN: u64 = 8 << 20;

/// Parts of one upload at most; S3 takes 10,000. The parts of objects above 70 GiB are larger.
pub(super) const PARTS_MAX: u64 = 9000;

/// Parts that one order sends: 64 MiB if each has [`PART_BYTES_MIN`], and fewer of longer ones. An
/// order that fails sends its parts again, so this bounds what a failure costs; with fewer, a large
/// object takes more orders and look-ups. An object for which an order had no answer in its time,
/// because its nodes or the store are slow, goes with one part in each order from then on: that
/// needs an eighth of the rate.
pub(super) const PARTS_PER_ORDER_MAX: usize = 8;

/// Returns the bytes of each part of an object of so many bytes but the last.
pub(super) fn part_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN)
}

/// Returns how many parts of an object of so many bytes an order sends; one if an order for it had
/// no answer in its time.
pub(super) fn parts_max(bytes: u64, is_slow: bool) -> usize {
    let part_bytes = part_bytes(bytes);
    let fits =
        |parts: &usize| *parts as u64 * part_bytes <= PARTS_PER_ORDER_MAX as u64 * PART_BYTES_MIN;
    let most = (2..=PARTS_PER_ORDER_MAX).rev().find(fits);
    most.filter(|_| !is_slow).unwrap_or(1)
}

/// Returns whether the parts of an object of so many bytes are longer than those of others.
pub(super) fn has_long_parts(bytes: u64) -> bool {
    part_bytes(bytes) > PART_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn order_sends_as_many_bytes_in_fewer_parts_where_they_are_longer() {
        for (bytes, parts) in [(0, 8), (70 * GIB, 8), (79 * GIB, 7), (150 * GIB, 3), (400 * GIB, 1)]
        {
            assert_eq!(parts_max(bytes, false), parts, "{bytes}");
            assert_eq!(parts_max(bytes, true), 1, "{bytes}");
        }
    }

    #[test]
    fn parts_of_huge_objects_are_longer_and_no_more_than_a_bucket_takes() {
        assert!(!has_long_parts(70 * GIB) && has_long_parts(71 * GIB));
        for bytes in [71 * GIB, 1 << 40, 5 << 40] {
            assert!(bytes.div_ceil(part_bytes(bytes)) <= PARTS_MAX);
        }
    }
}
