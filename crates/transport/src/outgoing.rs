//! The frames of one connection that are to be sent.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_protocol::Header;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::gather::Gather;
use crate::stream::WriteHalf;

/// Frames written together at most; a cancelled call's frame is no longer among the rest. Their
/// headers and short bodies are some tens of KiB, as much as one system call does well; what waits
/// behind them can still be cancelled. Chosen, not measured.
const BATCH_MAX: usize = 64;

#[derive(Debug)]
struct Queued {
    header: Header,
    body: Vec<Bytes>,
}

/// Frames wait here while a task writes. A sender that finds no task writing and nothing under way
/// writes at once, without waking another; else the connection's task writes what has come
/// together.
#[derive(Debug)]
pub(crate) struct Outgoing {
    socket: WriteHalf,
    state: Mutex<WriteState>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct WriteState {
    queue: VecDeque<Queued>,
    /// A task writes, or will soon.
    is_writing: bool,
    /// What the kernel did not take of a frame that its caller began to write.
    rest: Gather,
}

impl Outgoing {
    pub(crate) fn new(socket: WriteHalf) -> Self {
        Self { socket, state: Mutex::default(), wake: Notify::new() }
    }

    /// Sends a frame, now if `at_once` and no other task writes. Never waits.
    pub(crate) fn send(&self, header: Header, body: Vec<Bytes>, at_once: bool) -> io::Result<()> {
        let mut state = self.state.lock();
        let is_first = !std::mem::replace(&mut state.is_writing, true);
        if !is_first || !at_once {
            state.queue.push_back(Queued { header, body });
            drop(state);
            if is_first {
                self.wake.notify_one();
            }
            return Ok(());
        }
        // Empty, but its memory is used again.
        let mut frame = std::mem::take(&mut state.rest);
        drop(state);
        frame.push(&header, body);
        let written = self.write_now(&mut frame);
        // What fails here fails again where the rest is written.
        let is_flushed = self.socket.flush_now().unwrap_or(false);
        let mut state = self.state.lock();
        state.rest = frame;
        state.is_writing = !state.rest.is_empty() || !state.queue.is_empty() || !is_flushed;
        if state.is_writing {
            drop(state);
            self.wake.notify_one();
        }
        written
    }

    /// Writes until the kernel takes no more.
    fn write_now(&self, frame: &mut Gather) -> io::Result<()> {
        while !frame.is_empty() && frame.write_now(&self.socket)? > 0 {}
        Ok(())
    }

    /// Returns how many frames wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Takes a frame back that is not being written yet; returns whether there was one.
    pub(crate) fn withdraw(&self, request: u64) -> bool {
        let queue = &mut self.state.lock().queue;
        let before = queue.len();
        queue.retain(|queued| queued.header.request != request);
        queue.len() < before
    }

    /// Writes what is queued whenever there is something. Returns why it cannot any more.
    pub(crate) async fn run(&self, within: Duration, progress: impl Fn()) -> io::Error {
        let mut gather = Gather::default();
        let has_threads = Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread;
        loop {
            self.wake.notified().await;
            // Other tasks that can run now may have frames, too: they go together. On a runtime of
            // one thread all tasks that were ready have run by now.
            if has_threads {
                tokio::task::yield_now().await;
            }
            while self.next_batch(&mut gather) {
                if let Err(error) = gather.write_all(&self.socket, within, None, &progress).await {
                    return error;
                }
            }
        }
    }

    fn next_batch(&self, gather: &mut Gather) -> bool {
        let mut state = self.state.lock();
        if !state.rest.is_empty() {
            std::mem::swap(gather, &mut state.rest);
        }
        for _ in 0..BATCH_MAX {
            let Some(Queued { header, body }) = state.queue.pop_front() else { break };
            gather.push(&header, body);
        }
        state.is_writing = !gather.is_empty() || !self.socket.flush_now().unwrap_or(false);
        state.is_writing
    }
}
