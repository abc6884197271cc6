//! How long an order to send parts may take, at the manager and at the datanode.

use sanderling_protocol::Millis;

/// Longest time for which the manager waits for an order to send parts: 64 MiB at 1 MiB/s.
pub const UPLOAD_WITHIN: Millis = Millis(64_000);

/// A datanode gives an order to send parts up after this time: the manager goes on without it soon,
/// and only the datanode can end an upload that the order began. It ends it in the 4 s that are
/// left, so that its refusal arrives in time. Chosen, not measured: that is two requests.
pub const UPLOAD_ENDS_WITHIN: Millis = Millis(60_000);

const _: () = assert!(UPLOAD_ENDS_WITHIN.0 < UPLOAD_WITHIN.0);
