//! Frames on their way into a socket: many of them in one system call.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::Header;
use sanderling_protocol::frame::HEADER_BYTES;
use tokio::time::timeout;

use crate::memory::{Memory, Reserved};
use crate::pace::Pace;
use crate::stream::WriteHalf;

/// Shorter bodies are copied beside their headers: a slice of its own costs the kernel and the
/// allocator more than so many bytes. Chosen, not measured: to copy 1 KiB takes some ten
/// nanoseconds, to allocate and count a slice about as long.
const COPIED_BYTES_MAX: usize = 1 << 10;

/// Slices given to one system call. Linux takes up to 1024 (`UIO_MAXIOV`); the list is on the
/// stack, where 128 take 2 KiB. They hold 64 frames with a body of their own: a whole batch of
/// `outgoing`.
const SLICES_MAX: usize = 128;

/// Bytes of headers after which the memory for them is given back once they are written. Headers
/// and short bodies of 256 answers of 1 KiB: a connection that has had one burst of answers does
/// not keep more for its life. Chosen, not measured.
const COPIED_BYTES_KEPT_MAX: usize = 256 << 10;

/// Parts after which the memory for their list is given back: 32 KiB. Chosen, not measured, like
/// [`COPIED_BYTES_KEPT_MAX`]: some hundreds of answers are at most as many parts.
const PARTS_KEPT_MAX: usize = 1 << 10;

/// How often a peer is looked at that takes nothing. Half of the shortest time that such a peer has
/// (`SCARCE_GRACE` of `pace`, 2 s), so that it is given up at most half as long again too late.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What a connection keeps while its peer does not take the answers.
pub(crate) struct KeptForPeer<'a> {
    /// Where its long bodies and answers are counted.
    pub(crate) memory: &'a Memory,
    /// Bytes of the same memory beside those.
    pub(crate) beside: usize,
    /// Returns how many bytes the connection keeps of something else that others wait for.
    pub(crate) awaited: &'a (dyn Fn() -> usize + Sync),
}

impl KeptForPeer<'_> {
    /// Returns how many bytes it keeps that others lack. Of what others wait for it is to give back
    /// as much as there are bytes of `answers` on their way: the rest follows with further ones.
    fn lacked(&self, answers: usize) -> usize {
        let own = if self.memory.is_scarce() { self.memory.own() + self.beside } else { 0 };
        own.max((self.awaited)().min(answers))
    }
}

#[derive(Debug)]
enum Segment {
    /// So many bytes of what was copied.
    Copied(usize),
    Own(Bytes),
}

/// Bytes to write, in order: headers and short bodies copied together, others where they are.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    copied: Vec<u8>,
    parts: Vec<Segment>,
    /// Where the first unwritten part begins, and how much of what was copied is written.
    first: usize,
    skip: usize,
    copied_written: usize,
    /// Bytes of all frames that were added since it was empty.
    added: usize,
    /// The memory of long answers among what was copied.
    counted: Vec<Reserved>,
}

impl Gather {
    /// Adds a frame. The header contains the length of the body.
    pub(crate) fn push<I>(&mut self, header: &Header, body: I)
    where
        I: IntoIterator<Item = Bytes>,
    {
        self.copy(&header.encode());
        self.added += HEADER_BYTES + header.body_bytes as usize;
        for bytes in body {
            if bytes.len() <= COPIED_BYTES_MAX {
                self.copy(&bytes);
            } else {
                self.parts.push(Segment::Own(bytes));
            }
        }
    }

    /// Keeps the memory of the next frame counted until everything is written.
    pub(crate) fn count(&mut self, memory: Reserved) {
        self.counted.push(memory);
    }

    fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.copied.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(Segment::Copied(length)) => *length += bytes.len(),
            _ => self.parts.push(Segment::Copied(bytes.len())),
        }
    }

    /// Returns how many bytes were added since it was empty.
    pub(crate) const fn added(&self) -> usize {
        self.added
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.parts.len()
    }

    /// Writes what the kernel takes at once and returns how much that was.
    pub(crate) fn write_now(&mut self, socket: &WriteHalf) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut skip, mut copied) = (0, self.skip, self.copied_written);
        for part in self.parts[self.first..].iter().take(SLICES_MAX) {
            let whole = match part {
                Segment::Copied(length) => {
                    let start = copied - skip;
                    copied = start + length;
                    &self.copied[start..copied]
                }
                Segment::Own(bytes) => bytes,
            };
            slices[count] = IoSlice::new(&whole[skip..]);
            count += 1;
            skip = 0;
        }
        let written = socket.write_now(&slices[..count])?;
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let (length, is_copied) = match &self.parts[self.first] {
                Segment::Copied(length) => (*length, true),
                Segment::Own(bytes) => (bytes.len(), false),
            };
            let taken = written.min(length - self.skip);
            written -= taken;
            self.skip += taken;
            if is_copied {
                self.copied_written += taken;
            }
            if self.skip == length {
                // The memory of what is written is free at once.
                self.parts[self.first] = Segment::Copied(0);
                self.first += 1;
                self.skip = 0;
            }
        }
        if self.is_empty() {
            self.clear();
        }
    }

    /// Gives its memory back, if it is empty, but for `kept` bytes of headers and short bodies, and
    /// the list of parts of twice as many bytes.
    pub(crate) fn shrink(&mut self, kept: usize) {
        if self.is_empty() {
            self.copied.shrink_to(kept);
            self.parts.shrink_to(2 * kept / COPIED_BYTES_MAX);
        }
    }

    /// Returns the bytes of memory that it has.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.copied.capacity() + self.parts.capacity() * size_of::<Segment>()
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.copied.clear();
        self.counted.clear();
        if self.copied.capacity() > COPIED_BYTES_KEPT_MAX {
            self.copied = Vec::new();
        }
        if self.parts.capacity() > PARTS_KEPT_MAX {
            self.parts = Vec::new();
        }
        (self.first, self.skip, self.copied_written, self.added) = (0, 0, 0, 0);
    }

    /// Writes everything. Fails when the peer takes nothing for `within`, or beyond that time less
    /// than 64 KiB a second on average: it would keep the answers' memory by a byte now and then.
    /// A connection that keeps what others lack has the times of [`Pace`].
    pub(crate) async fn write_all(
        &mut self,
        socket: &WriteHalf,
        within: Duration,
        kept: Option<KeptForPeer<'_>>,
        mut progress: impl FnMut(),
    ) -> io::Result<()> {
        let (mut pace, mut written) = (None::<Pace>, 0);
        loop {
            if !self.is_empty() {
                let taken = self.write_now(socket)?;
                if taken > 0 {
                    written += taken;
                    if let Some(pace) = &mut pace {
                        pace.moved();
                    }
                    progress();
                    continue;
                }
            } else if socket.flush_now()? {
                return Ok(());
            } else {
                // Encrypted bytes leave after they were taken.
                progress();
            }
            let pace = pace.get_or_insert_with(Pace::begin);
            let lacked = kept.as_ref().map_or(0, |kept| kept.lacked(self.added));
            if pace.is_late(written, within, Some(lacked).filter(|lacked| *lacked > 0)) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let look = timeout(POLL_INTERVAL.min(within), socket.writable());
            let looked = match &kept {
                None => look.await,
                Some(KeptForPeer { memory, .. }) => tokio::select! {
                    looked = look => looked,
                    () = memory.evicted().cancelled() => return Err(io::ErrorKind::TimedOut.into()),
                },
            };
            looked.unwrap_or(Ok(()))?;
        }
    }
}

/// Returns the bytes of a body in pieces.
pub(crate) fn length(body: &[Bytes]) -> usize {
    body.iter().map(Bytes::len).sum()
}

/// Returns the memory that a body takes until it is written, beside its long pieces: the copies of
/// its short ones, which are twice as long while they grow, and the list.
pub(crate) fn memory_beside(body: &[Bytes]) -> usize {
    let copied = |piece: &Bytes| if piece.len() <= COPIED_BYTES_MAX { piece.len() } else { 0 };
    body.iter().map(|piece| 2 * copied(piece) + size_of::<Segment>()).sum()
}

const _: () = assert!(HEADER_BYTES < COPIED_BYTES_MAX);

#[cfg(test)]
mod tests {
    use sanderling_protocol::Op;
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::stream::Stream;

    fn frame(number: u64, bytes: usize) -> (Header, Vec<Bytes>, Vec<u8>) {
        let body: Vec<u8> = (0..bytes).map(|at| (at as u64 * 31 + number) as u8).collect();
        let mut header = Header::new(Op::Read, number);
        header.body_bytes = bytes as u32;
        let whole = [&header.encode()[..], &body].concat();
        let (first, second) = body.split_at(bytes / 3);
        (header, vec![Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)], whole)
    }

    #[tokio::test]
    async fn frames_of_all_sizes_arrive_in_order_whatever_the_kernel_takes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_read, write) = Stream::from(ours).prepared();
        let mut gather = Gather::default();
        let mut expected = Vec::new();
        for round in 0..3 {
            for number in 0..60 {
                let bytes = [0, 1, 700, 5000, 3 << 19][(number % 5) as usize] / (1 + round);
                let (header, body, whole) = frame(number, bytes);
                gather.push(&header, body);
                expected.extend(whole);
            }
            let mut got = vec![0; expected.len()];
            let within = Duration::from_secs(20);
            let (written, read) = tokio::join!(
                gather.write_all(&write, within, None, || ()),
                theirs.read_exact(&mut got)
            );
            written.unwrap();
            read.unwrap();
            assert!(got == expected);
            assert!(gather.is_empty());
            expected.clear();
        }
    }

    /// Returns whether a peer that takes nothing is given up within 3 s of 30.
    async fn is_given_up(memory: &Memory, beside: usize, awaited: usize) -> bool {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (_read, write) = Stream::from(ours).prepared();
        let mut gather = Gather::default();
        let (header, body, _) = frame(1, 8 << 20);
        gather.push(&header, body);
        let awaited_bytes = || awaited;
        let kept = Some(KeptForPeer { memory, beside, awaited: &awaited_bytes });
        let sent = gather.write_all(&write, Duration::from_secs(30), kept, || ());
        timeout(Duration::from_millis(3500), sent).await.is_ok()
    }

    #[tokio::test]
    async fn peer_has_less_time_while_memory_is_scarce_if_it_keeps_some_that_others_need() {
        let memory = Memory::new(16 << 20);
        let _scarce = memory.of_connection(None).reserve(10 << 20).unwrap();
        let [merely_grown, waits, keeps] = std::array::from_fn(|_| memory.of_connection(None));
        let _spare = (merely_grown.reserve_spare(1 << 17), waits.reserve_spare(1 << 17));
        let _counted = (merely_grown.reserve_waiting(1 << 16), waits.reserve_waiting(1 << 16));
        let _body = keeps.reserve(1 << 17);
        let given_up = tokio::join!(
            is_given_up(&merely_grown, 0, 0),
            is_given_up(&waits, 1 << 16, 0),
            is_given_up(&keeps, 0, 0)
        );
        assert_eq!(given_up, (false, true, true));
    }

    #[tokio::test]
    async fn peer_has_less_time_while_others_wait_for_what_it_keeps() {
        let memory = Memory::new(16 << 20);
        let [keeps, keeps_nothing] = std::array::from_fn(|_| memory.of_connection(None));
        let given_up =
            tokio::join!(is_given_up(&keeps, 0, 1 << 20), is_given_up(&keeps_nothing, 0, 0));
        assert_eq!(given_up, (true, false));
    }

    #[tokio::test]
    async fn memory_of_headers_and_of_the_list_of_parts_is_given_back() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_read, write) = Stream::from(ours).prepared();
        let mut gather = Gather::default();
        for (piece_bytes, pieces, kept) in [(100, 500, 8 << 10), (1100, 900, 8 << 10), (1100, 9, 0)]
        {
            let body: Vec<_> = (0..pieces).map(|_| Bytes::from(vec![7; piece_bytes])).collect();
            let mut header = Header::new(Op::Read, 1);
            header.body_bytes = (piece_bytes * pieces) as u32;
            gather.push(&header, body);
            gather.shrink(0);
            assert!(!gather.is_empty() && gather.copied.capacity() > 0, "it is to be written");
            let mut got = vec![0; HEADER_BYTES + piece_bytes * pieces];
            let within = Duration::from_secs(20);
            let (written, read) = tokio::join!(
                gather.write_all(&write, within, None, || ()),
                theirs.read_exact(&mut got)
            );
            written.unwrap();
            read.unwrap();
            gather.shrink(kept);
            assert!(gather.copied.capacity() <= kept, "{}", gather.copied.capacity());
            let list_bytes = gather.parts.capacity() * size_of::<Segment>();
            assert!(list_bytes <= kept / 16, "{list_bytes}");
        }
        // Of a connection that need not give it back, the list is no larger either.
        gather.parts = Vec::with_capacity(PARTS_KEPT_MAX + 1);
        gather.clear();
        assert_eq!(gather.parts.capacity(), 0);
    }

    #[tokio::test]
    async fn peer_that_takes_nothing_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_read, write) = Stream::from(ours).prepared();
        let mut gather = Gather::default();
        let (header, body, _) = frame(1, 8 << 20);
        gather.push(&header, body);
        let stuck = gather.write_all(&write, Duration::from_millis(50), None, || ()).await;
        assert_eq!(stuck.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
