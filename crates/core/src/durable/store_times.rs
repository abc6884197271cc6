//! How long a datanode may take for what it is ordered to do in a store.

use sanderling_protocol::Millis;

/// A datanode begins a change of a store so soon after the order for it arrives, or never. After a
/// failure, removals wait for it (`REMOVAL_SETTLES`), so it is short; a change that a queue
/// delays for longer is sent again.
pub const CHANGE_BEGINS_WITHIN: Millis = Millis(5_000);

/// Longest time that a datanode waits for one operation on a store. After it, the operation counts
/// as failed.
///
/// A failed operation may still take effect: the server of a bucket goes on with the request, and a
/// thread with its call of the file system. Only a removal of a file does not begin any more.
///
/// It is a hundred times what a write to a bucket usually takes. Removals after a failure wait for
/// it (30 s), and so do adoptions (50 s); that is why it is not longer. Chosen, not measured.
pub const STORE_OPERATION_MAX: Millis = Millis(20_000);
