//! Frames out of a stream of bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_protocol::frame::HEADER_BYTES;
use sanderling_protocol::limits::GREETING_BYTES_MAX;
use sanderling_protocol::{Frame, FrameError, Header, Op};
use thiserror::Error;
use tokio::io::{AsyncRead, ReadBuf};

use crate::body_sink::BodySink;
use crate::buffers::{Buffer, Buffers, COPIED_BYTES_MAX};
use crate::error::CloseCause;
use crate::memory::{Memory, Reserved};
use crate::pace::Pace;
use crate::stream::ReadHalf;

/// First size of the buffer for headers and short bodies: little memory per idle connection. So
/// much is not counted. 4,096 admitted connections take 16 MiB with it. A request of one page fits.
const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Largest size of it: several short frames with one system call. Four frames that are just not
/// received in place ([`COPIED_BYTES_MAX`]). With the answers it is counted ([`GROWN_BYTES`]): a
/// quarter of the 512 MiB of a server is enough for 1,024 such connections. No measurement has
/// chosen it.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// What is counted for a connection with the larger buffer: that, and the answers to what is in it.
const GROWN_BYTES: usize = 2 * CHUNK_BYTES_MAX;

/// Bytes to read when a long body is likely to follow: what comes behind its header is copied. A
/// header has 48 bytes and another short frame fits; a body of 1 MiB loses a copy of 4 KiB. Chosen,
/// not measured.
const PEEK_BYTES: usize = 4 << 10;

/// Why no more frames come.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("an answer came for which there is no memory")]
    NoMemory,
}

impl From<ReadError> for CloseCause {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Frame(error) => error.into(),
            ReadError::Io(error) => error.into(),
            ReadError::Closed => Self::ByPeer,
            ReadError::NoMemory => Self::NoMemory,
        }
    }
}

/// A complete frame.
#[derive(Debug)]
pub(crate) enum Arrived {
    Frame(Frame<Bytes>),
    /// Its body is in the buffer that [`FrameReader::buffered`] was given.
    Landed(Header, Box<dyn BodySink>),
    /// There was no memory for its body, which was read and forgotten.
    Refused(Header),
}

impl Arrived {
    pub(crate) const fn header(&self) -> &Header {
        match self {
            Self::Frame(frame) => &frame.header,
            Self::Landed(header, _) | Self::Refused(header) => header,
        }
    }

    /// Returns the body, unless it is not in a buffer of this connection.
    pub(crate) fn short_body(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => &frame.body,
            Self::Landed(..) | Self::Refused(_) => &[],
        }
    }
}

/// Where a long body goes.
#[derive(Debug)]
enum BodyTarget {
    Buffer(Buffer),
    Sink(Box<dyn BodySink>),
    /// Nowhere: every part is written over the one before.
    Nowhere(Box<[u8; PEEK_BYTES]>),
}

impl BodyTarget {
    /// Returns whether there is little memory where the body goes, as far as that is not counted
    /// with all long bodies.
    fn is_scarce(&self) -> bool {
        match self {
            Self::Sink(sink) => sink.is_scarce(),
            Self::Buffer(_) | Self::Nowhere(_) => false,
        }
    }
}

/// A body of which some bytes are still to come.
#[derive(Debug)]
struct Partial {
    header: Header,
    target: BodyTarget,
    filled: usize,
    pace: Pace,
}

/// A larger buffer.
#[derive(Debug)]
struct Grown {
    /// The memory that is counted for it.
    _counted: Reserved,
    /// Whether a small one would not have done since `needed_at`.
    is_needed: bool,
    needed_at: Instant,
}

/// Collects bytes until a whole frame is there.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffers: Buffers,
    chunk: Vec<u8>,
    grown: Option<Grown>,
    start: usize,
    end: usize,
    partial: Option<Partial>,
    /// Of a peer in the middle of a short frame, once it was waited for.
    short_pace: Option<Pace>,
    is_large_likely: bool,
}

impl FrameReader {
    pub(crate) fn new(buffers: Buffers) -> Self {
        Self {
            buffers,
            chunk: vec![0; CHUNK_BYTES_MIN],
            grown: None,
            start: 0,
            end: 0,
            partial: None,
            short_pace: None,
            is_large_likely: false,
        }
    }

    /// Returns the next complete frame of the buffer, without reading. `land` may offer memory for
    /// a long body, of which it sees the header.
    pub(crate) fn buffered(
        &mut self,
        land: impl FnOnce(&Header) -> Option<Box<dyn BodySink>>,
    ) -> Result<Option<Arrived>, FrameError> {
        if let Some(arrived) = self.landed() {
            return Ok(Some(arrived));
        }
        if self.partial.is_some() {
            return Ok(None);
        }
        let waiting = &self.chunk[self.start..self.end];
        let Some(start) = waiting.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(start)?;
        let bytes = header.body_bytes as usize;
        self.is_large_likely = bytes > COPIED_BYTES_MAX;
        if self.is_large_likely {
            self.begin(header, land(&header));
            return Ok(self.landed());
        }
        if HEADER_BYTES + bytes > self.chunk.len() && !self.grow() {
            // There is no memory for all that may follow it: the body is received as a long one.
            self.begin(header, None);
            return Ok(self.landed());
        }
        let waiting = &self.chunk[self.start + HEADER_BYTES..self.end];
        let Some(body) = waiting.get(..bytes) else { return Ok(None) };
        let body = Bytes::copy_from_slice(body);
        self.start += HEADER_BYTES + bytes;
        self.short_pace = None;
        if HEADER_BYTES + bytes > CHUNK_BYTES_MIN {
            self.note_needed();
        }
        Ok(Some(Arrived::Frame(Frame { header, body })))
    }

    /// Begins a long body with what is there of it.
    fn begin(&mut self, header: Header, sink: Option<Box<dyn BodySink>>) {
        let bytes = header.body_bytes as usize;
        let target = match sink {
            Some(sink) => BodyTarget::Sink(sink),
            None => match self.buffers.take(bytes) {
                Some(buffer) => BodyTarget::Buffer(buffer),
                None => BodyTarget::Nowhere(Box::new([0; PEEK_BYTES])),
            },
        };
        let pace = self.short_pace.take().unwrap_or_else(Pace::begin);
        let mut partial = Partial { header, target, filled: 0, pace };
        self.start += HEADER_BYTES;
        let end = self.end.min(self.start + bytes);
        while self.start < end {
            let spare = partial.spare();
            let taken = spare.len().min(end - self.start);
            spare[..taken].copy_from_slice(&self.chunk[self.start..self.start + taken]);
            self.start += taken;
            partial.advance(taken);
        }
        self.partial = Some(partial);
    }

    fn landed(&mut self) -> Option<Arrived> {
        let is_whole = |partial: &mut Partial| partial.left() == 0;
        let Partial { header, target, .. } = self.partial.take_if(is_whole)?;
        Some(match target {
            BodyTarget::Buffer(buffer) => Arrived::Frame(Frame { header, body: buffer.freeze() }),
            BodyTarget::Sink(sink) => Arrived::Landed(header, sink),
            BodyTarget::Nowhere(_) => Arrived::Refused(header),
        })
    }

    /// Notes that a peer in the middle of a short frame is waited for from now on.
    pub(crate) fn begin_pace(&mut self) {
        if self.partial.is_none() && self.is_amid_frame() {
            self.short_pace.get_or_insert_with(Pace::begin);
        }
    }

    fn pace(&mut self) -> Option<&mut Pace> {
        self.partial.as_mut().map(|partial| &mut partial.pace).or(self.short_pace.as_mut())
    }

    /// Returns whether a peer is waited for in the middle of a frame.
    pub(crate) const fn is_paced(&self) -> bool {
        self.partial.is_some() || self.short_pace.is_some()
    }

    /// Returns whether such a peer is too slow: see [`Pace`].
    pub(crate) fn is_late(&self, within: Duration) -> bool {
        match (&self.partial, &self.short_pace) {
            (Some(partial), _) => {
                let bytes = partial.header.body_bytes as usize;
                let is_late = |kept| partial.pace.is_late(partial.filled, within, kept);
                let is_scarce = || self.memory().is_scarce() || partial.target.is_scarce();
                // A peer that is fast enough for scarce memory is so for any: most are.
                is_late(Some(bytes)) && (is_scarce() || is_late(None))
            }
            (None, Some(pace)) => pace.is_late(self.end - self.start, within, None),
            (None, None) => false,
        }
    }

    /// Does not count time in which this side did not read against a peer in the middle of a frame.
    pub(crate) fn forgive_stall(&mut self, time: Duration) {
        if let Some(pace) = self.pace() {
            pace.exclude(time);
        }
    }

    /// Counts the memory of long bodies from now on for a connection of its own, of a tenant if
    /// that is known.
    pub(crate) fn count_for(&mut self, tenant: Option<&str>) {
        self.buffers = self.buffers.of_connection(tenant);
        self.shrink_uncounted();
    }

    /// Makes the buffer small again which a long token has had.
    fn shrink_uncounted(&mut self) {
        if self.grown.is_none() && self.chunk.len() > CHUNK_BYTES_MIN {
            self.shrink();
        }
    }

    /// Makes the buffer large, if there is memory that is not needed for long bodies and answers.
    fn grow(&mut self) -> bool {
        if self.grown.is_none() {
            let counted = self.buffers.memory().reserve_spare(GROWN_BYTES);
            self.grown = counted.map(|counted| {
                self.chunk.resize(CHUNK_BYTES_MAX, 0);
                Grown { _counted: counted, is_needed: true, needed_at: Instant::now() }
            });
        }
        self.grown.is_some()
    }

    /// Returns whether the buffer is large.
    pub(crate) const fn is_grown(&self) -> bool {
        self.grown.is_some()
    }

    /// Notes that a small buffer would not do.
    pub(crate) fn note_needed(&mut self) {
        if let Some(grown) = &mut self.grown {
            grown.is_needed = true;
        }
    }

    /// Makes the buffer small again if that would have done for `time` at least. `now` may be some
    /// turns ago.
    pub(crate) fn shrink_unneeded(&mut self, time: Duration, now: Instant) {
        let Some(grown) = &mut self.grown else { return self.shrink_uncounted() };
        if std::mem::take(&mut grown.is_needed) {
            grown.needed_at = now;
        } else if now.saturating_duration_since(grown.needed_at) >= time {
            self.shrink();
        }
    }

    /// Makes the buffer small again, unless complete frames in it wait to be handled. A frame that
    /// has begun and is longer is received as a long one from now on.
    pub(crate) fn shrink(&mut self) {
        if let Some(header) = self.partial_beyond_small() {
            self.begin(header, None);
        }
        let waiting = self.start..self.end;
        if waiting.len() <= CHUNK_BYTES_MIN {
            let mut chunk = vec![0; CHUNK_BYTES_MIN];
            chunk[..waiting.len()].copy_from_slice(&self.chunk[waiting.clone()]);
            (self.start, self.end) = (0, waiting.len());
            (self.chunk, self.grown) = (chunk, None);
        }
    }

    /// Returns the header of a short frame that is not complete and does not fit in a small buffer.
    fn partial_beyond_small(&self) -> Option<Header> {
        let waiting = &self.chunk[self.start..self.end];
        let header = Header::decode(waiting.first_chunk::<HEADER_BYTES>()?).ok()?;
        let (body, whole) = (header.body_bytes as usize, HEADER_BYTES + header.body_bytes as usize);
        let is_partial = body <= COPIED_BYTES_MAX && waiting.len() < whole;
        (is_partial && whole > CHUNK_BYTES_MIN).then_some(header)
    }

    /// Returns whether a long body has begun and is not complete whose memory is counted.
    pub(crate) const fn is_amid_counted_body(&self) -> bool {
        matches!(&self.partial, Some(Partial { target: BodyTarget::Buffer(_), .. }))
    }

    /// Returns where the memory of long bodies is counted.
    pub(crate) const fn memory(&self) -> &Memory {
        self.buffers.memory()
    }

    /// Returns whether a frame has begun and is not complete.
    pub(crate) const fn is_amid_frame(&self) -> bool {
        self.partial.is_some() || self.start < self.end
    }

    /// Reads once. Safe to drop half-way: what was read stays in the buffer.
    pub(crate) async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<(), ReadError> {
        poll_fn(|context| self.poll_fill(context, stream)).await
    }

    /// Reads once, or sees to it that the task is woken when there is something.
    pub(crate) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<Result<(), ReadError>> {
        let mut room = ReadBuf::new(self.room());
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        let read = room.filled().len();
        Poll::Ready(self.took(read))
    }

    /// Reads what is there now; returns whether that was anything.
    pub(crate) fn fill_now(&mut self, stream: &ReadHalf) -> Result<bool, ReadError> {
        match stream.read_now(self.room())? {
            Some(read) => self.took(read).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns where the next bytes go.
    fn room(&mut self) -> &mut [u8] {
        if self.partial.is_none() {
            self.make_room();
        }
        match &mut self.partial {
            Some(partial) => partial.spare(),
            None => {
                let ahead = if self.is_large_likely { PEEK_BYTES } else { CHUNK_BYTES_MAX };
                let upto = self.chunk.len().min(self.end + ahead);
                &mut self.chunk[self.end..upto]
            }
        }
    }

    /// Records that so many bytes are in the buffer of [`Self::room`].
    fn took(&mut self, read: usize) -> Result<(), ReadError> {
        match &mut self.partial {
            _ if read == 0 => return Err(ReadError::Closed),
            Some(partial) => {
                partial.pace.moved();
                partial.advance(read);
            }
            None => {
                self.end += read;
                if let Some(pace) = &mut self.short_pace {
                    pace.moved();
                }
                if read > CHUNK_BYTES_MIN {
                    self.note_needed();
                }
            }
        }
        Ok(())
    }

    /// Moves what waits to the buffer's start; lets the buffer grow once it was full, if it may.
    fn make_room(&mut self) {
        let was_full = self.end == self.chunk.len();
        if self.start > 0 {
            self.chunk.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if was_full {
            self.grow();
        }
    }

    /// Reads the first frame, of a peer that has not been admitted: only a greeting that keeps to
    /// its limit is read further than its header. Takes no buffer from those that connections
    /// share, and no more memory than the greeting has bytes.
    pub(crate) async fn greeting(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Frame<Bytes>, ReadError> {
        loop {
            if let Some(frame) = self.buffered_greeting()? {
                return Ok(frame);
            }
            self.fill(stream).await?;
        }
    }

    pub(crate) fn buffered_greeting(&mut self) -> Result<Option<Frame<Bytes>>, FrameError> {
        let waiting = &self.chunk[self.start..self.end];
        let Some((start, rest)) = waiting.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::decode(start)?;
        if header.op != Op::Hello {
            return Ok(Some(Frame { header, body: Bytes::new() }));
        }
        if header.body_bytes > GREETING_BYTES_MAX {
            return Err(FrameError::GreetingTooLarge(header.body_bytes));
        }
        let bytes = header.body_bytes as usize;
        if let Some(body) = rest.get(..bytes) {
            let body = Bytes::copy_from_slice(body);
            self.start += HEADER_BYTES + bytes;
            return Ok(Some(Frame { header, body }));
        }
        // Otherwise it would grow to its largest size as soon as it is full.
        let room = HEADER_BYTES + bytes;
        if self.chunk.len() < room {
            self.chunk.resize(room, 0);
        }
        Ok(None)
    }

    /// Reads and forgets until the peer closes.
    pub(crate) async fn discard(&mut self, stream: &mut (impl AsyncRead + Unpin)) {
        loop {
            (self.start, self.end) = (0, 0);
            if self.fill(stream).await.is_err() {
                return;
            }
        }
    }
}

impl Partial {
    fn left(&self) -> usize {
        self.header.body_bytes as usize - self.filled
    }

    /// Returns memory for the next bytes of the body, never more than it has.
    fn spare(&mut self) -> &mut [u8] {
        let left = self.left();
        match &mut self.target {
            BodyTarget::Buffer(buffer) => &mut buffer.bytes_mut()[self.filled..],
            BodyTarget::Sink(sink) => {
                let spare = sink.spare();
                let room = spare.len().min(left);
                assert!(room > 0, "a sink has room for the whole body");
                &mut spare[..room]
            }
            BodyTarget::Nowhere(scratch) => &mut scratch[..left.min(PEEK_BYTES)],
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
        match &mut self.target {
            BodyTarget::Sink(sink) => sink.advance(bytes),
            BodyTarget::Buffer(buffer) => buffer.came(self.filled),
            BodyTarget::Nowhere(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(op: Op, bytes: u32) -> Vec<u8> {
        let mut header = Header::new(op, 1);
        header.body_bytes = bytes;
        header.encode().to_vec()
    }

    fn reader() -> FrameReader {
        FrameReader::new(Buffers::default())
    }

    /// Reads all of it, and takes the complete frames; returns how many these are.
    async fn take_all(reader: &mut FrameReader, mut sent: &[u8]) -> usize {
        let mut frames = 0;
        loop {
            while reader.buffered(|_| None).unwrap().is_some() {
                frames += 1;
            }
            if sent.is_empty() {
                return frames;
            }
            reader.fill(&mut sent).await.unwrap();
        }
    }

    fn frame(bytes: usize) -> Vec<u8> {
        [announced(Op::Write, bytes as u32), vec![7; bytes]].concat()
    }

    /// A reader with a larger buffer, which was needed `ago`.
    async fn grown_reader(ago: Duration) -> FrameReader {
        let mut reader = FrameReader::new(Buffers::within(0, Memory::new(64 << 20)));
        assert_eq!(take_all(&mut reader, &frame(10_000)).await, 1);
        let grown = reader.grown.as_mut().unwrap();
        grown.is_needed = false;
        grown.needed_at = grown.needed_at.checked_sub(ago).unwrap();
        reader
    }

    #[tokio::test]
    async fn larger_buffer_is_given_back_unless_it_is_needed() {
        let within = Duration::from_secs(1);
        for (sent, is_needed) in [(frame(10), false), (frame(5000), true), (frame(10), false)] {
            let mut reader = grown_reader(within).await;
            assert_eq!(take_all(&mut reader, &sent).await, 1);
            reader.shrink_unneeded(within, Instant::now());
            assert_eq!(reader.is_grown(), is_needed, "{}", sent.len());
            assert_eq!(reader.memory().used(), if is_needed { GROWN_BYTES } else { 0 });
        }
        // Many at once, too; and those that are complete are not lost.
        let mut reader = grown_reader(within).await;
        let many = frame(10).repeat(200);
        reader.fill(&mut &many[..]).await.unwrap();
        reader.shrink();
        assert!(reader.is_grown());
        assert_eq!(take_all(&mut reader, &[]).await, 200);
    }

    #[tokio::test]
    async fn frame_that_has_begun_keeps_no_larger_buffer_and_is_received() {
        for (bytes, sent_bytes) in [(3000, 10), (3000, 3000), (10_000, 10), (10_000, 10_000)] {
            let mut reader = grown_reader(Duration::ZERO).await;
            let whole = frame(bytes);
            let (begin, rest) = whole.split_at(sent_bytes);
            assert_eq!(take_all(&mut reader, begin).await, 0);
            reader.shrink();
            assert!(!reader.is_grown() && reader.chunk.len() == CHUNK_BYTES_MIN);
            assert!(reader.memory().used() < GROWN_BYTES);
            assert_eq!(take_all(&mut reader, rest).await, 1);
            assert!(!reader.is_amid_frame());
        }
    }

    #[tokio::test]
    async fn buffer_of_a_long_token_is_given_back_whatever_follows_it() {
        let mut reader = reader();
        // More than is there behind any greeting that is read by itself.
        reader.chunk = vec![0; 3 * CHUNK_BYTES_MIN];
        let sent = frame(100).repeat(80);
        reader.fill(&mut &sent[..]).await.unwrap();
        reader.count_for(None);
        assert_eq!(reader.chunk.len(), 3 * CHUNK_BYTES_MIN, "complete frames wait in it");
        let (mut taken, mut lengths) = (0, Vec::new());
        while reader.buffered(|_| None).unwrap().is_some() {
            taken += 1;
            reader.shrink_unneeded(Duration::ZERO, Instant::now());
            lengths.push(reader.chunk.len());
        }
        assert_eq!((taken, lengths[0], lengths[79]), (80, 3 * CHUNK_BYTES_MIN, CHUNK_BYTES_MIN));
        let mut reader = self::reader();
        reader.chunk = vec![0; 3 * CHUNK_BYTES_MIN];
        reader.fill(&mut &sent[..200]).await.unwrap();
        reader.count_for(None);
        assert_eq!(reader.chunk.len(), CHUNK_BYTES_MIN);
        assert_eq!(take_all(&mut reader, &sent[200..]).await, 80);
    }

    #[tokio::test]
    async fn peer_in_the_middle_of_a_short_frame_is_late_although_bytes_come() {
        let (mut reader, whole) = (reader(), frame(100));
        let within = Duration::from_millis(50);
        let began = Instant::now();
        for byte in &whole[..30] {
            take_all(&mut reader, &[*byte]).await;
            reader.begin_pace();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(reader.is_late(within));
        reader.forgive_stall(began.elapsed());
        assert!(!reader.is_late(within), "nothing was read meanwhile");
        assert_eq!(take_all(&mut reader, &whole[30..]).await, 1);
        assert!(!reader.is_paced());
    }

    async fn read(reader: &mut FrameReader, mut sent: &[u8]) -> Result<Frame<Bytes>, ReadError> {
        reader.greeting(&mut sent).await
    }

    #[tokio::test]
    async fn greeting_that_announces_too_much_is_refused_by_its_header() {
        for bytes in [GREETING_BYTES_MAX + 1, 16 << 20] {
            let mut reader = reader();
            let refused = read(&mut reader, &announced(Op::Hello, bytes)).await.unwrap_err();
            let is_right = matches!(
                refused,
                ReadError::Frame(FrameError::GreetingTooLarge(announced)) if announced == bytes
            );
            assert!(is_right, "{refused}");
            assert!(reader.partial.is_none());
            assert_eq!(reader.chunk.len(), CHUNK_BYTES_MIN);
        }
    }

    #[tokio::test]
    async fn greeting_takes_no_more_memory_than_it_has_bytes() {
        let body = vec![7; GREETING_BYTES_MAX as usize];
        let sent = [&announced(Op::Hello, GREETING_BYTES_MAX)[..], &body].concat();
        let mut reader = reader();
        let half = read(&mut reader, &sent[..sent.len() - 1]).await.unwrap_err();
        assert!(matches!(half, ReadError::Closed), "{half}");
        assert_eq!(reader.chunk.len(), sent.len());
        assert!(reader.partial.is_none());
        let frame = read(&mut reader, &sent[sent.len() - 1..]).await.unwrap();
        assert_eq!(frame.body, body);
    }

    #[tokio::test]
    async fn what_follows_a_greeting_is_read_as_frames() {
        let body = vec![7; 20_000];
        let next = [&announced(Op::Write, 20_000)[..], &body].concat();
        let sent = [&announced(Op::Hello, 3)[..], b"abc", &next].concat();
        let (mut reader, mut sent) = (reader(), &sent[..]);
        assert_eq!(reader.greeting(&mut sent).await.unwrap().body, b"abc"[..]);
        loop {
            match reader.buffered(|_| None).unwrap() {
                Some(Arrived::Frame(frame)) => break assert_eq!(frame.body, body),
                Some(other) => unreachable!("{other:?}"),
                None => reader.fill(&mut sent).await.unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn body_of_a_frame_that_is_no_greeting_is_not_waited_for() {
        let frame = read(&mut reader(), &announced(Op::Write, 16 << 20)).await.unwrap();
        assert_eq!((frame.header.op, frame.body.len()), (Op::Write, 0));
    }
}
