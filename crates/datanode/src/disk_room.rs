//! The bound on the memory that reads of blocks on disk and their answers take.

use std::sync::Arc;

use bytes::Bytes;
use sanderling_core::shared_room::RoomBounds;
use sanderling_protocol::Refusal;
use sanderling_transport::Response;

use crate::connection_share::ConnectionShare;
use crate::fair_room::{FairRoom, RoomPermit, RoomRequest};

/// Bytes read from the disk and not sent yet, of all connections together: many times what keeps a
/// disk busy, and a part of the memory that a datanode takes beyond its arena. A tenant that is
/// alone has half of them, and an eighth, as many as a client requests in a frame by default, while
/// more than half are taken.
const ROOM_BYTES: u64 = 32 << 20;

/// What a read is accounted at least. It bounds the threads that read at once. With it at most 128
/// threads do, each of which is one request in the disk's queue; fast disks are busy with fewer.
/// Chosen, not measured.
const READ_BYTES_MIN: u64 = 256 << 10;

/// Most reads that wait for room; the next one is refused. A connection has some hundred requests
/// under way at most, which are counted where they wait. Chosen, not measured: many times what the
/// disk reads within the longest wait.
const READS_WAITING_MAX: usize = 16_384;

/// The memory for reads from the disk.
#[derive(Debug)]
pub(crate) struct DiskRoom(FairRoom);

/// Bytes of an answer together with their room.
struct Roomed {
    bytes: Bytes,
    _room: Arc<RoomPermit>,
}

impl Default for DiskRoom {
    fn default() -> Self {
        let bounds = RoomBounds { units_max: ROOM_BYTES, waiting_max: READS_WAITING_MAX };
        Self(FairRoom::new(bounds, "memory for reads from the disk"))
    }
}

impl DiskRoom {
    /// Requests room for a read of so many bytes.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: too many reads wait for room.
    pub(crate) fn request(
        &self,
        share: &ConnectionShare,
        bytes: u64,
    ) -> Result<RoomRequest, Refusal> {
        self.0.request(&share.disk, bytes.clamp(READ_BYTES_MIN, ROOM_BYTES))
    }

    /// Returns how many bytes of room a connection has while others wait for some.
    pub(crate) fn awaited_bytes(&self, share: &ConnectionShare) -> usize {
        usize::try_from(self.0.awaited_units(&share.disk)).unwrap_or(usize::MAX)
    }
}

/// Gives the room back when the last byte of an answer has been sent.
pub(crate) fn roomed(answer: Response, room: RoomPermit) -> Response {
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
    use crate::connection_share::ConnectionShares;

    fn granted(room: &DiskRoom, share: &ConnectionShare, bytes: u64) -> Option<RoomPermit> {
        let waiting = room.request(share, bytes).unwrap();
        waiting.granted().now_or_never().map(Result::unwrap)
    }

    #[tokio::test]
    async fn room_is_bounded_and_comes_back_with_the_last_byte() {
        let (room, shares) = (DiskRoom::default(), ConnectionShares::default());
        let connections: Vec<_> = (0..10).map(|_| shares.connection(None)).collect();
        let mut taken = Vec::new();
        for share in &connections[..8] {
            taken.extend([(); 4].map(|()| granted(&room, share, 1 << 20).unwrap()));
        }
        assert!(granted(&room, &connections[8], 1).is_none(), "all of it is taken");
        let waiting = room.request(&connections[9], 1 << 20).unwrap();
        assert_eq!(room.awaited_bytes(&connections[0]), 4 << 20);
        let mut answers: Vec<Response> = Vec::new();
        for taken in taken {
            let header = Header::new(Op::Read, 1);
            let body = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")];
            answers.push(roomed(Response { header, body }, taken));
        }
        let mut last = answers.pop().unwrap().body;
        last.pop();
        assert_eq!(room.awaited_bytes(&connections[0]), 4 << 20, "a piece is not sent");
        drop(last);
        assert!(waiting.granted().await.is_ok());
        assert_eq!(room.awaited_bytes(&connections[0]), 0, "no other waits");
        drop(answers);
        assert!(granted(&room, &connections[9], u64::MAX).is_some());
    }

    #[tokio::test]
    async fn readers_that_take_nothing_leave_room_to_others_whatever_they_have_requested() {
        let (room, shares) = (DiskRoom::default(), ConnectionShares::default());
        let [still, other, honest] = [(); 3].map(|()| shares.connection(None));
        let _kept = granted(&room, &still, 16 << 20).unwrap();
        assert!(granted(&room, &other, 16 << 20).is_none());
        let waiting = room.request(&other, 16 << 20).unwrap();
        for _ in 0..100 {
            assert!(granted(&room, &honest, 4 << 20).is_some());
        }
        assert_eq!(room.awaited_bytes(&still), 16 << 20, "it is given up when it stands still");
        drop(waiting);
        assert_eq!(room.awaited_bytes(&still), 0);
    }
}
