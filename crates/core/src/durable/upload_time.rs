//! How long an order to send parts may take, at the manager and at the datanode.

use sanderling_protocol::Millis;
use sanderling_protocol::order::UploadPart;

use super::part_lengths::part_bytes;
use super::store_times::STORE_OPERATION_MAX;

/// Longest time for which the manager waits for an order to send parts: 64 MiB at 1 MiB/s.
/// [`upload_within`] has the exception.
pub const UPLOAD_WITHIN: Millis = Millis(64_000);

/// A datanode gives an order to send parts up after this time: the manager goes on without it soon,
/// and only the datanode can end an upload that the order began. It ends it in the 4 s that are
/// left, so that its refusal arrives in time. Chosen, not measured: that is two requests.
pub const UPLOAD_ENDS_WITHIN: Millis = Millis(60_000);

const _: () = assert!(UPLOAD_ENDS_WITHIN.0 < UPLOAD_WITHIN.0);

/// Bytes in a second for which an order has time: those of one long part, which cannot be shorter.
/// They are read first and sent then. Chosen, not measured: an order of 128 MiB has the time of any
/// other.
const ORDER_RATE: u64 = 2 << 20;

/// Bytes in a second that a store has to take of a part at least. A part of up to 80 MiB has the
/// time of any other operation.
const PART_RATE: u64 = 4 << 20;

/// The longest object that a bucket has, which has the longest parts.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Returns how long the manager waits for an order to send these parts: longer for a part of more
/// than 128 MiB.
#[must_use]
pub fn upload_within(parts: &[UploadPart]) -> Millis {
    let of_part = |part: &UploadPart| {
        let blocks = part.blocks.iter().map(|block| u64::from(block.length));
        part.inline.len() as u64 + blocks.sum::<u64>()
    };
    UPLOAD_WITHIN.max(at_rate(parts.iter().map(of_part).sum(), ORDER_RATE))
}

/// Returns after how long a datanode gives such an order up.
#[must_use]
pub fn upload_ends_within(parts: &[UploadPart]) -> Millis {
    Millis(upload_within(parts).0 - (UPLOAD_WITHIN.0 - UPLOAD_ENDS_WITHIN.0))
}

/// Returns how long a store may take for a part of so many bytes: that of any operation, and longer
/// for a part of more than 80 MiB. A part is invisible, so nothing waits for one that takes longer
/// than its sender waits.
#[must_use]
pub fn part_within(bytes: u64) -> Millis {
    STORE_OPERATION_MAX.max(at_rate(bytes.min(part_bytes(OBJECT_BYTES_MAX)), PART_RATE))
}

fn at_rate(bytes: u64, rate: u64) -> Millis {
    Millis(bytes.saturating_mul(1000) / rate)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::order::UploadBlock;
    use sanderling_protocol::{BlockId, Epoch, NodeId};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns an order's only part, of so many blocks of 1 MiB.
    fn part(blocks: u64) -> Vec<UploadPart> {
        let (epoch, node, address) = (Epoch(1), NodeId(1), String::new());
        let block = |block| UploadBlock {
            block: BlockId(block),
            epoch,
            length: MIB as u32,
            node,
            address: address.clone(),
        };
        let blocks = (0..blocks).map(block).collect();
        vec![UploadPart { number: 0, offset: 0, inline: Vec::new(), blocks }]
    }

    #[test]
    fn order_of_a_long_part_has_time_in_proportion_to_its_bytes() {
        assert_eq!(upload_within(&part(72)), UPLOAD_WITHIN);
        assert_eq!(upload_ends_within(&part(72)), UPLOAD_ENDS_WITHIN);
        assert_eq!(upload_within(&part(128)), UPLOAD_WITHIN);
        assert_eq!(upload_within(&part(580)), Millis(290_000));
        assert_eq!(upload_ends_within(&part(580)), Millis(286_000));
    }

    #[test]
    fn store_has_time_for_a_long_part_within_that_of_its_order() {
        assert_eq!(part_within(8 * MIB), STORE_OPERATION_MAX);
        assert_eq!(part_within(80 * MIB), STORE_OPERATION_MAX);
        assert_eq!(part_within(580 * MIB), Millis(145_000));
        // Objects of 1 TiB and 5 TiB: half of the order's time is left to read the bytes.
        for bytes in [1 << 40, OBJECT_BYTES_MAX].map(part_bytes) {
            let order = upload_ends_within(&part(bytes / MIB));
            assert!(part_within(bytes).0 <= order.0 * 6 / 10, "{bytes}: {order}");
        }
        assert_eq!(part_within(u64::MAX), part_within(part_bytes(OBJECT_BYTES_MAX)));
    }
}
