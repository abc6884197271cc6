//! The calls of an asyncio loop: its thread begins them, another runs them, and their answers come
//! back many at once.
//!
//! The thread that runs them never takes Python's lock. It writes one byte into a pipe when the
//! first answer is there; the loop, which reads the pipe, takes that answer and all that came
//! meanwhile. So thousands of calls under way cost a wake-up per turn of the loop, not one each.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::{Client, ClientError};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use crate::buffer::let_go;
use crate::caller::Caller;
use crate::client::{PyClient, config};
use crate::credentials::PyCredentials;
use crate::error::raised;
use crate::runtime::background;

/// Calls of one loop that are under way together; the others wait their turn, and their deadlines
/// begin with it. More would only wait for each other on the way, and time out there.
const CALLS_MAX: usize = 1024;

/// Makes Python's result of what a call returned, under Python's lock.
type Made = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

type Answer = Result<Made, ClientError>;

type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// An answer as the loop takes it: its ticket, whether it is an error, and the result.
type Taken = (u64, bool, Py<PyAny>);

/// Where calls go and answers come from.
pub(crate) struct Mailbox {
    runtime: Handle,
    calls: Mutex<Calls>,
    begun: Notify,
    answers: Mutex<Vec<(u64, Answer)>>,
    reader: PipeReader,
    writer: PipeWriter,
}

#[derive(Default)]
struct Calls {
    next: u64,
    /// Those that wait their turn, in order.
    waiting: BTreeMap<u64, Call>,
    under_way: HashMap<u64, AbortHandle>,
    is_closed: bool,
}

/// A call that is answered whatever becomes of it: run to its end, given up, or never begun.
struct Answering {
    mailbox: Arc<Mailbox>,
    ticket: u64,
    call: Option<Call>,
    answer: Option<Answer>,
}

impl Mailbox {
    fn open() -> PyResult<Arc<Self>> {
        let runtime = background()?;
        let (reader, writer) =
            pipe().map_err(|error| PyRuntimeError::new_err(format!("no pipe: {error}")))?;
        let mailbox = Arc::new(Self {
            runtime,
            calls: Mutex::default(),
            begun: Notify::new(),
            answers: Mutex::default(),
            reader,
            writer,
        });
        mailbox.runtime.spawn(run(Arc::clone(&mailbox)));
        Ok(mailbox)
    }

    /// Returns the runtime of its calls.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Begins a call and returns its ticket.
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
        let ticket = calls.next;
        calls.waiting.insert(ticket, Box::pin(call));
        drop(calls);
        self.begun.notify_one();
        Ok(ticket)
    }

    /// Gives a call up, if it has not ended.
    fn cancel(&self, ticket: u64) {
        let mut calls = self.calls.lock();
        let waiting = calls.waiting.remove(&ticket);
        if let Some(under_way) = calls.under_way.get(&ticket) {
            under_way.abort();
        }
        drop(calls);
        let _context = self.runtime.enter();
        drop(waiting);
    }

    /// Gives all calls up.
    fn close(&self) {
        let mut calls = self.calls.lock();
        calls.is_closed = true;
        let waiting = std::mem::take(&mut calls.waiting);
        drop(calls);
        let _context = self.runtime.enter();
        drop(waiting);
        self.begun.notify_one();
    }

    fn answered(&self, ticket: u64, answer: Answer) {
        self.calls.lock().under_way.remove(&ticket);
        let mut answers = self.answers.lock();
        answers.push((ticket, answer));
        if answers.len() == 1 {
            // One byte is in the pipe while answers are here, so this does not wait. A loop that is
            // gone does not listen.
            let _ = (&self.writer).write(&[1]);
        }
    }

    fn take(&self) -> Vec<(u64, Answer)> {
        let mut answers = self.answers.lock();
        if !answers.is_empty() {
            let _ = (&self.reader).read(&mut [0]);
        }
        std::mem::take(&mut *answers)
    }
}

/// Runs the calls of a mailbox until it is closed.
async fn run(mailbox: Arc<Mailbox>) {
    let mut running = JoinSet::new();
    loop {
        {
            let mut calls = mailbox.calls.lock();
            if calls.is_closed {
                return;
            }
            while running.len() < CALLS_MAX
                && let Some((ticket, call)) = calls.waiting.pop_first()
            {
                let mailbox = Arc::clone(&mailbox);
                let answering = Answering { mailbox, ticket, call: Some(call), answer: None };
                let handle = running.spawn(answer(answering));
                calls.under_way.insert(ticket, handle);
            }
        }
        tokio::select! {
            () = mailbox.begun.notified() => {}
            Some(_) = running.join_next() => while running.try_join_next().is_some() {},
        }
    }
}

async fn answer(mut answering: Answering) {
    if let Some(call) = &mut answering.call {
        answering.answer = Some(call.await);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // First: what the call held is free when its answer is there.
        drop(self.call.take());
        let given_up = || Err(ClientError::BadReply { what: "a call was given up".to_owned() });
        let answer = self.answer.take().unwrap_or_else(given_up);
        self.mailbox.answered(self.ticket, answer);
    }
}

/// A mailbox as the loop holds it.
#[pyclass(frozen, name = "Mailbox")]
pub(crate) struct PyMailbox(Arc<Mailbox>);

#[pymethods]
impl PyMailbox {
    #[new]
    fn new() -> PyResult<Self> {
        Mailbox::open().map(Self)
    }

    /// Returns the descriptor that is readable while answers are there.
    fn fileno(&self) -> i32 {
        self.0.reader.as_raw_fd()
    }

    /// Connects; the answer is a client whose methods return tickets.
    fn connect(
        &self,
        address: String,
        timeout_millis: Option<u64>,
        credentials: Option<&PyCredentials>,
    ) -> PyResult<u64> {
        let config = config(timeout_millis, credentials);
        let caller = Caller::mails(Arc::clone(&self.0));
        let connecting = async move { Client::connect(&address, config).await };
        self.0.begin(connecting, |py, client| {
            Ok(Py::new(py, PyClient::new(client, caller))?.into_any())
        })
    }

    /// Returns the answers that are there: ticket, whether it failed, result or exception.
    fn take(&self, py: Python<'_>) -> Vec<Taken> {
        let taken = self.0.take().into_iter().map(|(ticket, answer)| {
            let made = match answer {
                Ok(made) => made(py),
                Err(error) => Err(raised(py, &error)),
            };
            match made {
                Ok(value) => (ticket, false, value),
                Err(error) => (ticket, true, error.into_value(py).into_any()),
            }
        });
        let taken = taken.collect();
        let_go(py);
        taken
    }

    fn cancel(&self, py: Python<'_>, ticket: u64) {
        self.0.cancel(ticket);
        let_go(py);
    }

    fn close(&self, py: Python<'_>) {
        self.0.close();
        let_go(py);
    }
}

impl Drop for PyMailbox {
    fn drop(&mut self) {
        self.0.close();
    }
}
