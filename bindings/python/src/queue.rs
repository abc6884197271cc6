//! The completion queue of an asyncio loop: its thread begins calls, another one runs them, and the
//! loop takes many results at once.
//!
//! The thread that runs them never takes Python's lock. It writes one byte into a pipe when the
//! first answer is there; the loop, which reads the pipe, takes that answer and all that came
//! meanwhile. So thousands of calls under way cost a wake-up per turn of the loop, not one each.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use crate::runtime::background;

/// Calls of one loop that are under way together; the others wait their turn, and their deadlines
/// begin with it. More would only wait for each other on the way, and time out there. As many as
/// four connections have under way by default. Chosen, not measured.
const CALLS_MAX: usize = 1024;

/// Makes Python's result of what a call returned, under Python's lock.
pub(crate) type Made = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A call's result.
pub(crate) type CallResult = Result<Made, ClientError>;

type Call = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// Where calls go and answers come from.
pub(crate) struct CompletionQueue {
    runtime: Handle,
    calls: Mutex<PendingCalls>,
    begun: Notify,
    answers: Mutex<Vec<(u64, CallResult)>>,
    reader: PipeReader,
    writer: PipeWriter,
}

#[derive(Default)]
struct PendingCalls {
    next: u64,
    /// Those that wait their turn, in order.
    waiting: BTreeMap<u64, Call>,
    under_way: HashMap<u64, AbortHandle>,
    is_closed: bool,
}

/// A call that completes in any case: run to its end, cancelled, or never begun.
struct RunningCall {
    queue: Arc<CompletionQueue>,
    call_id: u64,
    call: Option<Call>,
    answer: Option<CallResult>,
}

impl CompletionQueue {
    /// Opens a queue.
    ///
    /// # Errors
    /// `RuntimeError` when the process may not start a thread or open a pipe.
    pub(crate) fn open() -> PyResult<Arc<Self>> {
        let runtime = background()?;
        let (reader, writer) =
            pipe().map_err(|error| PyRuntimeError::new_err(format!("no pipe: {error}")))?;
        let queue = Arc::new(Self {
            runtime,
            calls: Mutex::default(),
            begun: Notify::new(),
            answers: Mutex::default(),
            reader,
            writer,
        });
        queue.runtime.spawn(run(Arc::clone(&queue)));
        Ok(queue)
    }

    /// Returns the runtime of its calls.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Begins a call and returns its call id.
    ///
    /// # Errors
    /// `RuntimeError` when it is closed.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, ClientError>> + Send + 'static,
        made: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let call = async move {
            let value = call.await?;
            Ok(Box::new(move |py: Python<'_>| made(py, value)) as Made)
        };
        let mut calls = self.calls.lock();
        if calls.is_closed {
            return Err(PyRuntimeError::new_err("the store is closed"));
        }
        calls.next += 1;
        let call_id = calls.next;
        calls.waiting.insert(call_id, Box::pin(call));
        drop(calls);
        self.begun.notify_one();
        Ok(call_id)
    }

    /// Cancels a call, if it has not ended.
    pub(crate) fn cancel(&self, call_id: u64) {
        let mut calls = self.calls.lock();
        let waiting = calls.waiting.remove(&call_id);
        if let Some(under_way) = calls.under_way.get(&call_id) {
            under_way.abort();
        }
        drop(calls);
        let _context = self.runtime.enter();
        drop(waiting);
    }

    /// Cancels all calls.
    pub(crate) fn close(&self) {
        let mut calls = self.calls.lock();
        calls.is_closed = true;
        let waiting = std::mem::take(&mut calls.waiting);
        drop(calls);
        let _context = self.runtime.enter();
        drop(waiting);
        self.begun.notify_one();
    }

    fn answered(&self, call_id: u64, answer: CallResult) {
        self.calls.lock().under_way.remove(&call_id);
        let mut answers = self.answers.lock();
        answers.push((call_id, answer));
        if answers.len() == 1 {
            // One byte is in the pipe while answers are here, so this does not wait. A loop that
            // has ended does not read.
            let _ = (&self.writer).write(&[1]);
        }
    }

    /// Returns the descriptor that is readable while answers are there.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Removes the answers that are there.
    pub(crate) fn take(&self) -> Vec<(u64, CallResult)> {
        let mut answers = self.answers.lock();
        if !answers.is_empty() {
            let _ = (&self.reader).read(&mut [0]);
        }
        std::mem::take(&mut *answers)
    }
}

/// Runs the calls of a completion queue until it is closed.
async fn run(queue: Arc<CompletionQueue>) {
    let mut running = JoinSet::new();
    loop {
        {
            let mut calls = queue.calls.lock();
            if calls.is_closed {
                return;
            }
            while running.len() < CALLS_MAX
                && let Some((call_id, call)) = calls.waiting.pop_first()
            {
                let queue = Arc::clone(&queue);
                let answering = RunningCall { queue, call_id, call: Some(call), answer: None };
                let handle = running.spawn(answer(answering));
                calls.under_way.insert(call_id, handle);
            }
        }
        tokio::select! {
            () = queue.begun.notified() => {}
            Some(_) = running.join_next() => while running.try_join_next().is_some() {},
        }
    }
}

async fn answer(mut answering: RunningCall) {
    if let Some(call) = &mut answering.call {
        answering.answer = Some(call.await);
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // First: what the call held is free when its answer is there.
        drop(self.call.take());
        let given_up = || Err(ClientError::BadReply { what: "a call was given up".to_owned() });
        let answer = self.answer.take().unwrap_or_else(given_up);
        self.queue.answered(self.call_id, answer);
    }
}
