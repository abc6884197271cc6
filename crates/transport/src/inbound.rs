//! The answers of one connection: read by its task, or by a caller that busy-polls for one of
//! them.

use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sanderling_protocol::{Frame, FrameError};

use crate::buffers::Buffers;
use crate::busy_poll::BusyPoll;
use crate::reader::{Arrived, FrameReader, ReadError};
use crate::stream::ReadHalf;

/// The task that holds the lock reads. A task that finds it held is woken when it is free, since
/// the frame that woke it may still be there.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: Mutex<ReadState>,
    turned_away: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct ReadState {
    reader: FrameReader,
    stream: ReadHalf,
    busy_poll: BusyPoll,
    /// Why the peer refused the connection: every later reader gets the same refusal, and not only
    /// the end of the connection.
    refused: Option<Frame<Bytes>>,
}

/// Why nothing more is read.
#[derive(Debug)]
pub(crate) enum InboundError {
    Read(ReadError),
    /// The peer refuses the connection itself.
    Refused(Frame<Bytes>),
}

impl From<ReadError> for InboundError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<FrameError> for InboundError {
    fn from(error: FrameError) -> Self {
        Self::Read(error.into())
    }
}

/// The right to read, until it is dropped.
struct ReadGuard<'a> {
    inbound: &'a Inbound,
    state: Option<MutexGuard<'a, ReadState>>,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.state = None;
        // Checked after the lock is free: a task that finds it held leaves the waker and looks
        // again.
        let waker = self.inbound.turned_away.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Inbound {
    pub(crate) fn new(stream: ReadHalf, buffers: Buffers) -> Self {
        let (reader, busy_poll) = (FrameReader::new(buffers), BusyPoll::default());
        let state = ReadState { reader, stream, busy_poll, refused: None };
        Self { state: Mutex::new(state), turned_away: Mutex::default() }
    }

    /// Reads until some frames are there and gives them to `take`; returns how many. `progress`
    /// records that bytes came.
    ///
    /// # Errors
    /// What is not a frame, or the end: the connection is broken.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        mut take: impl FnMut(Frame<Bytes>),
        progress: impl Fn(),
    ) -> Poll<Result<usize, InboundError>> {
        let Some(mut state) = self.state.try_lock().or_else(|| self.turn_away(context)) else {
            return Poll::Pending;
        };
        let ReadState { reader, stream, refused, .. } = &mut *state;
        loop {
            let frames = take_buffered(reader, refused, &mut take)?;
            if frames > 0 {
                return Poll::Ready(Ok(frames));
            }
            ready!(reader.poll_fill(context, stream))?;
            progress();
        }
    }

    /// Leaves the task's waker with the task that reads, unless it has just stopped.
    fn turn_away(&self, context: &Context<'_>) -> Option<MutexGuard<'_, ReadState>> {
        *self.turned_away.lock() = Some(context.waker().clone());
        self.state.try_lock()
    }

    /// Reads by busy-polling until `is_done`, for a moment, if that has been worth it. Gives frames
    /// to `take` as the task does.
    ///
    /// # Errors
    /// What is not a frame, or the end: the connection is broken.
    pub(crate) fn read_spinning(
        &self,
        mut take: impl FnMut(Frame<Bytes>),
        progress: impl Fn(),
        is_done: impl Fn() -> bool,
    ) -> Result<(), InboundError> {
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        let mut reading = ReadGuard { inbound: self, state: Some(state) };
        let state = reading.state.as_mut().expect("held until the end");
        let ReadState { reader, stream, busy_poll, refused } = &mut **state;
        if !stream.can_look() || !busy_poll.is_due() {
            return Ok(());
        }
        let look = || {
            if !reader.fill_now(stream)? {
                return Ok(false);
            }
            progress();
            Ok::<_, InboundError>(take_buffered(reader, refused, &mut take)? > 0 && is_done())
        };
        busy_poll.wait(look).map(|_| ())
    }
}

fn take_buffered(
    reader: &mut FrameReader,
    refused: &mut Option<Frame<Bytes>>,
    mut take: impl FnMut(Frame<Bytes>),
) -> Result<usize, InboundError> {
    let mut frames = 0;
    if let Some(frame) = refused {
        return Err(InboundError::Refused(frame.clone()));
    }
    loop {
        match reader.buffered(|_| None)? {
            None => return Ok(frames),
            Some(Arrived::Landed(..)) => unreachable!("no memory was offered"),
            // A client bounds what it requests: its buffers have no other bound by default.
            Some(Arrived::Refused(_)) => return Err(InboundError::Read(ReadError::NoMemory)),
            Some(Arrived::Frame(frame)) if frame.header.request == 0 => {
                *refused = Some(frame.clone());
                return Err(InboundError::Refused(frame));
            }
            Some(Arrived::Frame(frame)) => {
                frames += 1;
                take(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use sanderling_protocol::{Header, Op};
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::stream::{Stream, WriteHalf};

    fn pair() -> (Inbound, WriteHalf, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = Stream::from(ours).prepared();
        (Inbound::new(read, Buffers::default()), write, theirs)
    }

    fn frame(request: u64) -> Vec<u8> {
        let mut header = Header::new(Op::Read, request);
        header.body_bytes = 100;
        [&header.encode()[..], &[request as u8; 100]].concat()
    }

    async fn read(inbound: &Inbound, taken: &mut Vec<u64>) -> Result<usize, InboundError> {
        let take = |frame: Frame<Bytes>| taken.push(frame.header.request);
        let mut take = take;
        poll_fn(|context| inbound.poll_read(context, &mut take, || ())).await
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn answers_of_others_are_handed_out_by_polling_and_the_task_goes_on_with_the_rest() {
        let (inbound, _write, mut peer) = pair();
        let last = frame(9);
        peer.write_all(&[&frame(7)[..], &frame(8), &last[..50]].concat()).await.unwrap();
        let taken = Mutex::new(Vec::new());
        let take = |frame: Frame<Bytes>| taken.lock().push(frame.header.request);
        inbound.read_spinning(take, || (), || taken.lock().contains(&8)).unwrap();
        assert_eq!(*taken.lock(), [7, 8], "both, in one look");
        peer.write_all(&last[50..]).await.unwrap();
        let mut rest = Vec::new();
        assert_eq!(read(&inbound, &mut rest).await.unwrap(), 1);
        assert_eq!(rest, [9]);
    }

    #[tokio::test]
    async fn task_that_came_while_a_caller_read_is_woken_when_that_stops() {
        let (inbound, _write, mut peer) = pair();
        peer.write_all(&frame(7)).await.unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let poll_task = || {
            let polled = inbound.poll_read(&mut Context::from_waker(&waker), |_| (), || ());
            assert!(polled.is_pending());
        };
        inbound.read_spinning(|_| poll_task(), || (), || true).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn end_in_the_middle_of_an_answer_is_returned_to_whatever_reads() {
        let (inbound, _write, mut peer) = pair();
        peer.write_all(&frame(7)[..50]).await.unwrap();
        drop(peer);
        // Time may be up between the two.
        let broken = match inbound.read_spinning(|_| (), || (), || false) {
            Ok(()) => read(&inbound, &mut Vec::new()).await.unwrap_err(),
            Err(broken) => broken,
        };
        assert!(matches!(broken, InboundError::Read(ReadError::Closed)), "{broken:?}");
    }

    #[tokio::test]
    async fn refusal_of_the_connection_ends_it() {
        let (inbound, _write, mut peer) = pair();
        peer.write_all(&frame(0)).await.unwrap();
        let broken = inbound.read_spinning(|_| (), || (), || true).unwrap_err();
        assert!(matches!(broken, InboundError::Refused(_)), "{broken:?}");
        drop(peer);
        let again = read(&inbound, &mut Vec::new()).await.unwrap_err();
        assert!(
            matches!(again, InboundError::Refused(_)),
            "the next reader gets the same: {again:?}"
        );
    }
}
