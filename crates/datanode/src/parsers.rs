//! What reads bytes of peers and of the object tier, for the fuzz targets only.

use sanderling_protocol::{BlockId, Epoch, Header, Refusal};

use crate::local::session::read_packet;
use crate::object::encryption::End;
use crate::object::trailer::Trailer;

/// The fields at the end of an object of the object tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectEnd {
    /// The block.
    pub block: BlockId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its length in bytes.
    pub length: u32,
    /// The CRC32C of its bytes.
    pub checksum: u32,
}

/// Reads the end of an object of the object tier; `None` when it is none of ours.
#[must_use]
pub fn object_end(object: &[u8]) -> Option<ObjectEnd> {
    let (Trailer { block, epoch, length, checksum }, bytes) = Trailer::decode(object)?;
    assert_eq!(length as usize, bytes, "the block is all before the trailer");
    Some(ObjectEnd { block, epoch, length, checksum })
}

/// Returns whether these bytes of a whole object of the object tier end with the footer of an
/// encrypted one. Nothing is decrypted.
#[must_use]
pub fn is_encrypted(object: &[u8]) -> bool {
    matches!(End::of(object), End::Encrypted(_))
}

/// Returns the trailer that ends the object of a block that is not encrypted.
#[must_use]
pub fn write_object_end(end: ObjectEnd) -> Vec<u8> {
    let ObjectEnd { block, epoch, length, checksum } = end;
    Trailer { block, epoch, length, checksum }.encode().to_vec()
}

/// Takes apart a packet of a client on the same machine.
///
/// # Errors
/// [`Refusal`]: it is no packet, or of another version. Close the connection.
pub fn packet(packet: &[u8]) -> Result<(Header, &[u8]), Refusal> {
    read_packet(packet)
}
