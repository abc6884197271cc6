//! The trace that a request belongs to, as a peer sends it ahead of the request.
//!
//! A server that records spans sets [`ACCEPTS_TRACES`] in the `length` of its answer to the
//! greeting; older peers leave it 0 and ignore it. Only to such a server, and only for a sampled
//! request, a caller sends a frame [`Op::Trace`] right before the request's own, with the same
//! `request`. It has no body and no answer:
//!
//! ```text
//!  8 u64 request    16 u64 trace, low half    24 u32 span, low half
//! 32 u64 trace, high half                     40 u32 span, high half
//! ```

use crate::frame::{Header, Op};
use crate::ids::{BlockId, Epoch};

/// In the `length` of the answer to a greeting: the server reads [`Op::Trace`].
pub const ACCEPTS_TRACES: u32 = 1;

/// A span of a trace: the parent of what is done for it. It has ids and nothing else, because a
/// server must not trust them: a hostile caller can only place its own requests in a wrong trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, never 0.
    pub trace: u128,
    /// The span in it, never 0.
    pub span: u64,
}

impl TraceContext {
    /// Returns the frame that announces the context of a request.
    #[must_use]
    pub const fn header(&self, request: u64) -> Header {
        let mut header = Header::new(Op::Trace, request);
        header.block = BlockId(self.trace as u64);
        header.offset = (self.trace >> 64) as u64;
        header.epoch = Epoch(self.span as u32);
        header.checksum = (self.span >> 32) as u32;
        header
    }

    /// Reads the context that a frame announces; `None` if one of its ids is 0, which is no id.
    #[must_use]
    pub const fn of(header: &Header) -> Option<Self> {
        let trace = header.block.0 as u128 | (header.offset as u128) << 64;
        let span = header.epoch.0 as u64 | (header.checksum as u64) << 32;
        if trace == 0 || span == 0 { None } else { Some(Self { trace, span }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MAGIC;

    #[test]
    fn frame_of_a_trace_has_these_bytes() {
        let trace = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
        let context = TraceContext { trace, span: 0x0123_4567_89ab_cdef };
        let bytes = context.header(7).encode();
        let mut golden = Vec::from(MAGIC.to_le_bytes());
        golden.extend([3, 13, 0, 0, 0, 0]);
        golden.extend(7_u64.to_le_bytes());
        golden.extend([0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88]);
        golden.extend([0xef, 0xcd, 0xab, 0x89, 0, 0, 0, 0]);
        golden.extend([0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00]);
        golden.extend([0x67, 0x45, 0x23, 0x01, 0, 0, 0, 0]);
        assert_eq!(bytes.to_vec(), golden);
        let read = Header::decode(&bytes).expect("a header");
        assert_eq!(TraceContext::of(&read), Some(context));
    }

    #[test]
    fn ids_of_zero_are_no_context() {
        for (trace, span) in [(0, 1), (1, 0)] {
            assert_eq!(TraceContext::of(&TraceContext { trace, span }.header(1)), None);
        }
    }
}
