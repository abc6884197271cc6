//! Frames out of a stream of bytes.

use std::io;

use bytes::{Bytes, BytesMut};
use sanderling_protocol::frame::HEADER_BYTES;
use sanderling_protocol::{Frame, FrameError, Header};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked of the kernel at once when no large body is expected: several small frames, and
/// little memory per idle connection.
const READ_BYTES: usize = 64 << 10;

/// Why no more frames come.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection")]
    Closed,
}

/// Collects bytes until a whole frame is there.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Returns the next complete frame of the buffer, without reading.
    pub(crate) fn buffered(&mut self) -> Result<Option<Frame<Bytes>>, FrameError> {
        let Some(start) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(start)?;
        let whole = HEADER_BYTES + header.body_bytes as usize;
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(whole);
        let body = frame.split_off(HEADER_BYTES).freeze();
        Ok(Some(Frame { header, body }))
    }

    /// Reads once. Safe to drop half-way: what was read stays in the buffer.
    pub(crate) async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<(), ReadError> {
        // A body whose length is known is received in place: no later growing and copying.
        let missing = match self.buffer.first_chunk::<HEADER_BYTES>() {
            Some(start) => {
                let whole = HEADER_BYTES + Header::decode(start)?.body_bytes as usize;
                whole.saturating_sub(self.buffer.len())
            }
            None => 0,
        };
        self.buffer.reserve(missing.max(READ_BYTES));
        match stream.read_buf(&mut self.buffer).await? {
            0 => Err(ReadError::Closed),
            _ => Ok(()),
        }
    }

    /// Reads until a frame is complete.
    pub(crate) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Frame<Bytes>, ReadError> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            self.fill(stream).await?;
        }
    }
}
