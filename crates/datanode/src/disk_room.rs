//! The bound on the memory that reads of blocks on disk and their answers take.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::{Millis, Refusal};
use sanderling_transport::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes read from the disk and not sent yet, of all connections together: many times what keeps a
/// disk busy, and a part of the memory that a datanode takes beyond its arena.
const ROOM_BYTES: u32 = 32 << 20;

/// What a read is accounted at least. It bounds the threads that read at once. With it at most 128
/// threads do, each of which is one request in the disk's queue; fast disks are busy with fewer.
/// Chosen, not measured.
const READ_BYTES_MIN: u32 = 256 << 10;

/// Bytes that one permit of the semaphore stands for. A page, the unit of tiers, so that all of
/// [`ROOM_BYTES`] are a number that a semaphore can count.
const PERMIT_BYTES: u32 = 4096;

/// Longest wait for room. Other callers receive their answers too slowly then. Half of the default
/// deadline of a client's call, so that the caller still has time for another attempt.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// When to come back after that. The caller has waited fifty times as long already, so the pause
/// only keeps many such callers from returning at once.
const COME_BACK: Millis = Millis(100);

/// The memory for reads from the disk.
#[derive(Debug)]
pub(crate) struct DiskRoom(Arc<Semaphore>);

/// Bytes of an answer together with their room.
struct Roomed {
    bytes: Bytes,
    _room: Arc<OwnedSemaphorePermit>,
}

impl Default for DiskRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new((ROOM_BYTES / PERMIT_BYTES) as usize)))
    }
}

impl DiskRoom {
    fn units(bytes: u64) -> u32 {
        let bytes = bytes.clamp(u64::from(READ_BYTES_MIN), u64::from(ROOM_BYTES));
        (bytes as u32).div_ceil(PERMIT_BYTES)
    }

    /// Takes room for a read if there is some.
    pub(crate) fn take_now(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(Self::units(bytes)).ok()
    }

    /// Takes room for a read, and waits for it.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: others receive their answers too slowly.
    pub(crate) async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Refusal> {
        let taking = Arc::clone(&self.0).acquire_many_owned(Self::units(bytes));
        match tokio::time::timeout(ROOM_WITHIN, taking).await {
            Ok(taken) => Ok(taken.expect("the semaphore is never closed")),
            Err(_) => {
                let why = "no memory for reads from the disk".to_owned();
                Err(Refusal::RetryAfter { after: COME_BACK, why })
            }
        }
    }
}

/// Gives the room back when the last byte of an answer has been sent.
pub(crate) fn roomed(answer: Response, room: OwnedSemaphorePermit) -> Response {
    let room = Arc::new(room);
    let keep = |bytes| Bytes::from_owner(Roomed { bytes, _room: Arc::clone(&room) });
    Response { header: answer.header, body: answer.body.into_iter().map(keep).collect() }
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use sanderling_protocol::{Header, Op};

    use super::*;

    #[tokio::test]
    async fn room_is_bounded_and_comes_back_with_the_last_byte() {
        let room = DiskRoom::default();
        let all: Vec<_> = (0..32).map(|_| room.take_now(1 << 20).unwrap()).collect();
        assert!(room.take_now(1).is_none());
        assert!(room.take(1).now_or_never().is_none());
        let mut answers: Vec<Response> = Vec::new();
        for taken in all {
            let header = Header::new(Op::Read, 1);
            let body = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")];
            answers.push(roomed(Response { header, body }, taken));
        }
        let mut last = answers.pop().unwrap().body;
        last.pop();
        assert!(room.take_now(1).is_none());
        drop(last);
        assert!(room.take(1 << 20).await.is_ok());
        drop(answers);
        assert!(room.take(u64::MAX).await.is_ok());
    }
}
