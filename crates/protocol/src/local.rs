//! The messages between a client and a datanode of the same machine over a Unix socket.
//!
//! Packets keep their boundaries there (`SOCK_SEQPACKET`). Each is a [`crate::Header`] and a body,
//! one request at a time on each connection: `Hello`, answered with [`LocalGreetingReply`] and the
//! arena's descriptor when flag [`REQUESTS_ARENA`] is set, and both with the version that they
//! speak ([`crate::version::local_flags`]); `Lease`; `Return`; `Stage`; `Fill`; `Write`, whose
//! bytes are at the start of the staging memory.

use serde::{Deserialize, Serialize};

use crate::frame::RangeRequest;
use crate::ids::NodeId;
use crate::refusal::Refusal;

/// Most bytes of one packet: a full lease request has 7 KiB; a full reply has 3 KiB, up to a
/// quarter of the packet for copied ranges, and refusals until half of it is used. Far below a Unix
/// socket's default send buffer of 208 KiB.
pub const PACKET_BYTES_MAX: usize = 32 << 10;

/// Most ranges of one lease request: as many as 128 MiB of whole blocks. No measurement has chosen
/// it: one thread of the datanode answers a packet at a time, and more ranges go in further packets
/// or over other connections.
pub const LEASES_PER_PACKET_MAX: usize = 128;

/// Most leases given back with one packet. Four times as many as one request takes, so that returns
/// that have piled up leave within few requests; they have 4 KiB of the packet.
pub const RETURNS_PER_PACKET_MAX: usize = 512;

/// Longest range that is copied into the reply: a lease of less than a page keeps more memory than
/// it saves time.
pub const COPIED_BYTES_MAX: u32 = 4096;

/// In `Hello`: the reply shall bring the arena's descriptor. A client maps the arena once, however
/// many connections it has.
pub const REQUESTS_ARENA: u16 = 1;

/// The endpoint at which a client of the same machine finds a datanode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalEndpoint {
    /// The path of its Unix socket.
    pub socket: String,
    /// The kernel's `boot_id` on its machine: a client elsewhere does not try.
    pub boot_id: String,
}

/// The datanode's answer to the greeting of a client on the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalGreetingReply {
    /// The incarnation that answers.
    pub node: NodeId,
    /// The bytes of its arena.
    pub arena_bytes: u64,
}

/// The body of a request for leases. The lease of range `i` has the number `request + i`, which the
/// client never uses twice on a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Leases given back with this request, first of all.
    pub returned: Vec<u64>,
    /// The ranges to lease, each within one block.
    pub ranges: Vec<RangeRequest>,
}

impl LeaseRequest {
    /// Writes a body at the end of `out`: how many leases are returned, their numbers, the ranges.
    pub fn encode(returned: &[u64], ranges: &[RangeRequest], out: &mut Vec<u8>) {
        out.extend_from_slice(&(returned.len() as u64).to_le_bytes());
        encode_returns(returned, out);
        ranges.iter().for_each(|range| range.encode(out));
    }

    /// Decodes a request's body: the numbers of the returned leases, then the ranges to lease.
    ///
    /// # Errors
    /// [`Refusal::BadFrame`] when it is no such request, or longer than the limits: answer with it.
    pub fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let bad = || Refusal::BadFrame { why: "not a request for leases".to_owned() };
        let (count, rest) = body.split_first_chunk::<8>().ok_or_else(bad)?;
        let count = usize::try_from(u64::from_le_bytes(*count)).map_err(|_| bad())?;
        if count > RETURNS_PER_PACKET_MAX || rest.len() < 8 * count {
            return Err(bad());
        }
        let (returned, ranges) = rest.split_at(8 * count);
        let ranges = RangeRequest::decode_all(ranges)?;
        if ranges.len() > LEASES_PER_PACKET_MAX {
            return Err(bad());
        }
        Ok(Self { returned: decode_returns(returned)?, ranges })
    }
}

/// Writes the numbers of returned leases at the end of `out`.
pub fn encode_returns(returned: &[u64], out: &mut Vec<u8>) {
    returned.iter().for_each(|lease| out.extend_from_slice(&lease.to_le_bytes()));
}

/// Decodes the numbers of returned leases, eight bytes each in little endian.
///
/// # Errors
/// [`Refusal::BadFrame`] when the body is not a whole number of them: close the connection.
pub fn decode_returns(body: &[u8]) -> Result<Vec<u64>, Refusal> {
    if !body.len().is_multiple_of(8) {
        return Err(Refusal::BadFrame { why: "not a list of leases".to_owned() });
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    Ok(body.chunks_exact(8).map(number).collect())
}

/// The answer to one range of a lease request. The bytes of copied ranges and the refusals follow
/// all of them, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseReply {
    /// The bytes are in the arena and stay as they are until the lease is given back.
    Leased {
        /// Where in the arena.
        place: u64,
        /// How many.
        length: u32,
    },
    /// The bytes follow.
    Copied {
        /// How many.
        length: u32,
        /// Their CRC32C.
        checksum: u32,
    },
    /// The refusal follows.
    Refused {
        /// Its bytes.
        length: u32,
    },
    /// The range has to be requested over TCP: its block is on disk or in the object tier, lies in
    /// several places of the arena, or this client holds as much as it may.
    Elsewhere,
}

impl LeaseReply {
    /// Bytes on the wire: 8 of the place, 4 each of kind, length and checksum, and 4 zeros, so that
    /// the next answer begins at a multiple of 8.
    pub const BYTES: usize = 24;

    /// Appends the answer to `out` as [`Self::BYTES`] bytes. Copied bytes or the refusal follow
    /// behind all answers.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, length, place, checksum): (u32, u32, u64, u32) = match self {
            Self::Leased { place, length } => (1, length, place, 0),
            Self::Copied { length, checksum } => (2, length, 0, checksum),
            Self::Refused { length } => (3, length, 0, 0),
            Self::Elsewhere => (4, 0, 0, 0),
        };
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&place.to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    /// Reads `count` answers from the start of a body; returns them and what follows.
    ///
    /// # Errors
    /// [`Refusal::BadFrame`] when the body is shorter than they state, or longer: close the
    /// connection.
    pub fn decode_all(body: &[u8], count: usize) -> Result<(Vec<Self>, &[u8]), Refusal> {
        let bad = || Refusal::BadFrame { why: "not an answer to a request for leases".to_owned() };
        let (head, rest) = body.split_at_checked(count * Self::BYTES).ok_or_else(bad)?;
        let replies: Option<Vec<Self>> = head.chunks_exact(Self::BYTES).map(Self::decode).collect();
        let replies = replies.ok_or_else(bad)?;
        let follows: u64 = replies.iter().map(|reply| u64::from(reply.follows())).sum();
        if follows != rest.len() as u64 {
            return Err(bad());
        }
        Ok((replies, rest))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let length = number(4);
        Some(match number(0) {
            1 => {
                let place = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
                Self::Leased { place, length }
            }
            2 => Self::Copied { length, checksum: number(16) },
            3 => Self::Refused { length },
            4 => Self::Elsewhere,
            _ => return None,
        })
    }

    /// Returns how many bytes behind all answers belong to this one.
    #[must_use]
    pub const fn follows(self) -> u32 {
        match self {
            Self::Leased { .. } | Self::Elsewhere => 0,
            Self::Copied { length, .. } | Self::Refused { length } => length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BlockId, Epoch};

    #[test]
    fn requests_have_golden_bytes() {
        let range = RangeRequest { block: BlockId(5), epoch: Epoch(2), offset: 7, length: 11 };
        let mut body = Vec::new();
        LeaseRequest::encode(&[9], &[range], &mut body);
        #[rustfmt::skip]
        let golden = [
            1, 0, 0, 0, 0, 0, 0, 0,
            9, 0, 0, 0, 0, 0, 0, 0,
            5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(body, golden);
        let request = LeaseRequest { returned: vec![9], ranges: vec![range] };
        assert_eq!(LeaseRequest::decode(&body).unwrap(), request);
        for cut in [0, 7, 15, 20, 39] {
            assert!(LeaseRequest::decode(&body[..cut]).is_err(), "{cut} bytes");
        }
        body[0] = 255;
        assert!(LeaseRequest::decode(&body).is_err());
    }

    #[test]
    fn replies_have_golden_bytes() {
        let replies = [
            LeaseReply::Leased { place: 4096, length: 3 },
            LeaseReply::Copied { length: 2, checksum: 7 },
            LeaseReply::Refused { length: 1 },
            LeaseReply::Elsewhere,
        ];
        let mut body = Vec::new();
        replies.iter().for_each(|reply| reply.encode(&mut body));
        #[rustfmt::skip]
        let golden = [
            1, 0, 0, 0, 3, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(body, golden);
        body.extend_from_slice(b"abc");
        let (read, rest) = LeaseReply::decode_all(&body, 4).unwrap();
        assert_eq!(read, replies);
        assert_eq!(rest, b"abc");
        assert!(LeaseReply::decode_all(&body[..98], 4).is_err());
        assert!(LeaseReply::decode_all(&body, 5).is_err());
        body[0] = 9;
        assert!(LeaseReply::decode_all(&body, 4).is_err());
    }

    #[test]
    fn full_packets_keep_to_the_limit() {
        let header = crate::frame::HEADER_BYTES;
        let request = 8 + 8 * RETURNS_PER_PACKET_MAX + LEASES_PER_PACKET_MAX * RangeRequest::BYTES;
        assert!(header + request <= PACKET_BYTES_MAX);
        assert!(header + LEASES_PER_PACKET_MAX * LeaseReply::BYTES <= PACKET_BYTES_MAX / 2);
    }
}
