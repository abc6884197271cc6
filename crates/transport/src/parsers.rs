//! The parsers of a connection's bytes, exported for the fuzz targets alone.

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use sanderling_protocol::{Frame, Op};

use crate::buffers::Buffers;
use crate::reader::{Arrived, FrameReader};

/// Parses the frames in a peer's bytes, which arrive in pieces of `piece_bytes`: first the
/// greeting, unless the peer is admitted. Ends at the end of the bytes, or at the first bytes that
/// are no frame.
#[must_use]
pub fn frames(sent: &[u8], piece_bytes: usize, is_admitted: bool) -> Vec<Frame<Bytes>> {
    let mut reader = FrameReader::new(Buffers::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut frames = Vec::new();
    let mut pieces = sent.chunks(piece_bytes.max(1));
    let mut piece: &[u8] = &[];
    let mut is_greeted = is_admitted;
    loop {
        let next = match is_greeted {
            true => reader.buffered(|_| None),
            false => reader.buffered_greeting().map(|frame| frame.map(Arrived::Frame)),
        };
        match next {
            Ok(Some(Arrived::Frame(frame))) => {
                // Anything but a greeting ends the connection of a peer that is not admitted.
                let is_end = !is_greeted && frame.header.op != Op::Hello;
                is_greeted = true;
                frames.push(frame);
                if is_end {
                    return frames;
                }
            }
            Ok(Some(Arrived::Landed(..))) => unreachable!("no memory was offered"),
            Ok(None) => {
                if piece.is_empty() {
                    let Some(next) = pieces.next() else { return frames };
                    piece = next;
                }
                match reader.poll_fill(&mut context, &mut piece) {
                    Poll::Ready(Ok(())) => {}
                    _ => return frames,
                }
            }
            Ok(Some(Arrived::Refused(_))) => unreachable!("the memory has no bound"),
            Err(_) => return frames,
        }
    }
}
