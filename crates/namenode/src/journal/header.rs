//! The header of a segment, and the versions of segments.

use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;

use super::record::Layout;

/// The first bytes of a segment.
pub(super) const MAGIC: [u8; 8] = *b"SNDLJRNL";

/// The version of new segments. All from [`PLAIN_VERSION`] on can be read.
pub(crate) const VERSION: u32 = TIED_VERSION;

/// Records with a length and a checksum.
pub(crate) const PLAIN_VERSION: u32 = 3;

/// Records that are tied to their place.
pub(super) const TIED_VERSION: u32 = 4;

/// Bytes of a plain header: 8 of the magic, 4 each of version and checksum, 8 each of cluster and
/// first number.
pub(super) const HEADER_BYTES: usize = 32;

/// Bytes of a tied one, with 8 of the salt.
pub(super) const TIED_HEADER_BYTES: usize = 40;

/// Returns the length of a header.
pub(super) const fn length(layout: Layout) -> u64 {
    match layout {
        Layout::Plain => HEADER_BYTES as u64,
        Layout::Tied { .. } => TIED_HEADER_BYTES as u64,
    }
}

/// Encodes the header of a segment whose first command has the number `first`.
pub(super) fn encode(layout: Layout, version: u32, cluster: ClusterId, first: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(cluster.0.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    if let Layout::Tied { salt } = layout {
        bytes.extend(salt.to_le_bytes());
    }
    let checksum = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
