//! Reading: bytes of an object go out as they are read, with the next ones on their way.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use sanderling_client::{ClientError, Reader};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_transport::trace::carried;
use tokio_util::task::AbortOnDropHandle;

use crate::metrics::GatewayMetrics;

/// Blocks that are read ahead of the client: one while another is on the wire. 256 connections keep
/// 512 MiB with it, of the 2 GiB in `GatewayOptions::connections_max`.
const AHEAD_MAX: usize = 2;

/// The bytes of a range of an object.
pub(crate) struct Blocks {
    reader: Reader,
    metrics: Arc<GatewayMetrics>,
    /// What was read before the answer began.
    first: Option<Bytes>,
    ahead: VecDeque<AbortOnDropHandle<Result<Bytes, ClientError>>>,
    /// Blocks of which no read has begun.
    rest: Range<u64>,
    /// Bytes that have not been handed out.
    left: u64,
}

impl Blocks {
    /// Reads the first bytes of a range, so that an error is known before the answer begins.
    ///
    /// # Errors
    /// [`ClientError`] of the reader.
    pub(crate) async fn open(
        reader: Reader,
        range: Range<u64>,
        metrics: Arc<GatewayMetrics>,
    ) -> Result<Self, ClientError> {
        let left = range.end - range.start;
        let (first, rest) = cut(&range);
        let first = if first.is_empty() {
            None
        } else {
            Some(reader.read_range(first.start, first.end - first.start).await?)
        };
        let mut blocks = Self { reader, metrics, first, ahead: VecDeque::new(), rest, left };
        blocks.read_ahead();
        Ok(blocks)
    }

    /// Returns the bytes as the body of an answer.
    pub(crate) fn into_blob(self) -> StreamingBlob {
        StreamingBlob::new(self)
    }

    fn read_ahead(&mut self) {
        while self.ahead.len() < AHEAD_MAX && !self.rest.is_empty() {
            let (next, rest) = cut(&self.rest);
            self.rest = rest;
            let reader = self.reader.clone();
            let read = async move { reader.read_range(next.start, next.end - next.start).await };
            self.ahead.push_back(AbortOnDropHandle::new(tokio::spawn(carried(read))));
        }
    }
}

/// Cuts the part off a range that ends with a block, if all blocks are whole.
fn cut(range: &Range<u64>) -> (Range<u64>, Range<u64>) {
    let block = u64::from(BLOCK_BYTES_MAX);
    let end = range.end.min((range.start / block + 1) * block);
    (range.start..end, end..range.end)
}

impl Stream for Blocks {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let read = match self.first.take() {
            Some(first) => Ok(first),
            None => {
                let Some(next) = self.ahead.front_mut() else { return Poll::Ready(None) };
                let read = ready!(Pin::new(next).poll(context));
                self.ahead.pop_front();
                self.read_ahead();
                read.unwrap_or_else(|_| {
                    Err(ClientError::BadReply { what: "read ahead".to_owned() })
                })
            }
        };
        Poll::Ready(Some(match read {
            Ok(bytes) => {
                self.left -= bytes.len() as u64;
                self.metrics.sent(bytes.len() as u64);
                Ok(bytes)
            }
            Err(error) => {
                // The answer has begun: all that is left is to break it off.
                tracing::info!(%error, "an answer is broken off");
                self.metrics.broken_off();
                (self.rest, self.left) = (0..0, 0);
                self.ahead.clear();
                Err(Box::new(error))
            }
        }))
    }
}

impl ByteStream for Blocks {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_blocks() {
        let mib = u64::from(BLOCK_BYTES_MAX);
        assert_eq!(cut(&(5..mib + 9)), (5..mib, mib..mib + 9));
        assert_eq!(cut(&(mib..mib + 9)), (mib..mib + 9, mib + 9..mib + 9));
        assert!(cut(&(7..7)).0.is_empty());
    }
}
