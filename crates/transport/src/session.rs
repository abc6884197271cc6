//! One connection of a server: the complete frames in the buffer are handled, and their answers go
//! out together.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use sanderling_protocol::frame::{ACCEPTS_CANCELS, UNANSWERED, decode_body};
use sanderling_protocol::message::Hello;
use sanderling_protocol::trace::ACCEPTS_TRACES;
use sanderling_protocol::{Frame, FrameError, Header, Millis, Op, Refusal, TraceContext, version};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::buffers::COPIED_BYTES_MAX;
use crate::busy_poll::BusyPoll;
use crate::connection_slots::{Place, Places};
use crate::gather::{Gather, KeptForPeer, length, memory_beside};
use crate::held_answers::HeldAnswers;
use crate::memory::{Memory, Reserved};
use crate::reader::{Arrived, FrameReader, ReadError};
use crate::server::{Handled, Response, ServeOptions, Service};
use crate::stream::{ReadHalf, Stream, WriteHalf};
use crate::trace::{call_within, end_served, serve_span, tracer, within};

/// Bytes of answers that leave together: so many that the system call costs little beside their
/// copy, and so few that the peer works on the first while the next are made.
const SEND_BYTES: usize = 32 << 10;

/// Bytes of answers that leave together on a connection whose buffer is small: more are not
/// counted. As many as that buffer has (`CHUNK_BYTES_MIN` of `reader`): 4,096 connections keep
/// 35 MiB with it, at 8.5 KiB each (docs/SECURITY.md).
const SMALL_SEND_BYTES: usize = 4 << 10;

/// Time after which a connection gives the memory of larger buffers back that it does not need.
/// Chosen, not measured: a client that sends bursts a few times a second keeps them, and memory
/// that others lack is free within a second.
const SHRINKS_AFTER: Duration = Duration::from_secs(1);

/// What a request takes that is answered later, beside its body. Chosen, not measured.
const LATER_BYTES: usize = 256;

/// Memory of the requests of one connection that are answered later, before they are counted: eight
/// short ones. For all of 4,096 connections it is 8 MiB (docs/SECURITY.md).
const LATER_BYTES_FREE: usize = 2 << 10;

/// Memory that is counted at once for such requests. The common account has a lock, which is so
/// taken once for hundreds of short requests. Chosen, not measured.
const LATER_BYTES_STEP: usize = 64 << 10;

/// Requests that came alone, one after the other, before the next one is polled for: a peer with
/// many of them under way is not one that waits for each. Chosen, not measured: a short pause in a
/// stream of many must not look like that.
const ALONE_MIN: u32 = 16;

/// A request or an answer that is longer takes more time than is saved by busy-polling for the next
/// one. Longer ones are received in place (`COPIED_BYTES_MAX` of `buffers`). Busy-polling saves
/// some ten microseconds, and to move so much takes as long. Chosen, not measured.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// Frames after which the session looks whether its turn is over: reading the clock takes a tenth
/// of what a short read does.
const LOOKED_AFTER: u32 = 16;

/// Bytes of requests after which it looks as well: a frame of hundreds of requests takes longer
/// than a turn. A frame of 512 stats takes 500 us, twice a turn of 250 us; 4 KiB are a small part
/// of such a frame.
const LOOKED_AFTER_BYTES: usize = 4 << 10;

/// How often a peer in the middle of a frame is looked at: as often as one that takes nothing
/// (`POLL_INTERVAL` of `gather`).
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after which a caller tries again for whose request or answer there was no memory. As long
/// as a body keeps its memory at least before it makes room for others (`KEPT_MIN` of `memory`).
pub const MEMORY_PAUSE: Millis = Millis(100);

/// How long the answer to a caller that is not admitted may take to be read. A caller that greets
/// reads the answer at once, and lost packets are sent again after 1 s at most, as a rule.
const REFUSAL_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the greeting of one connection, then serves its requests until it ends. A connection whose
/// greeting does not arrive in time ends, too.
pub async fn attend<S: Service>(
    stream: impl Into<Stream>,
    service: Arc<S>,
    options: &ServeOptions,
) {
    let places = Places::new(1);
    let greeting = greeted(stream.into(), service, options, |_| places.admit(None));
    if let Ok(Some(session)) = timeout(options.hello_within, greeting).await {
        session.attend().await;
    }
}

/// Reads the greeting and answers it. Returns the session of a caller that is admitted, in the
/// place that `place` gives its tenant; the answer is sent with the session's start. A caller that
/// is refused receives the refusal.
pub(crate) async fn greeted<S: Service>(
    stream: Stream,
    service: Arc<S>,
    options: &ServeOptions,
    place: impl FnOnce(Option<&str>) -> Result<Place, Refusal>,
) -> Option<ServerSession<'_, S>> {
    let (mut read, write) = stream.prepared();
    let mut reader = FrameReader::new(options.buffers.clone());
    let (reply, welcome) = match reader.greeting(&mut read).await {
        Err(ReadError::Io(_) | ReadError::Closed | ReadError::NoMemory) => return None,
        Err(ReadError::Frame(error)) => (refuse_connection(&error.refusal()), None),
        Ok(frame) => greet(&service, &frame, place),
    };
    let (service, place) = match welcome {
        Some((service, place)) => {
            reader.count_for(service.tenant().as_deref());
            (service.counting_in(reader.memory()), Some(place))
        }
        None => (service, None),
    };
    let (later, gather) = (FuturesUnordered::new(), Gather::default());
    let (busy_poll, alone, turn_began) = (BusyPoll::default(), 0, Instant::now());
    let evicted = reader.memory().evicted().clone();
    let mut session = ServerSession {
        evicted,
        place,
        service,
        options,
        reader,
        read,
        write,
        later,
        waiting: Waiting::default(),
        held: HeldAnswers::default(),
        gather,
        busy_poll,
        alone,
        announced: None,
        turn_began,
    };
    session.answer(reply);
    if session.place.is_none() {
        session.turn_away().await;
        return None;
    }
    Some(session)
}

/// Answers a greeting. Returns the service of the connection and its place, if the caller is
/// admitted.
fn greet<S: Service>(
    service: &Arc<S>,
    frame: &Frame<Bytes>,
    place: impl FnOnce(Option<&str>) -> Result<Place, Refusal>,
) -> (Response, Option<(Arc<S>, Place)>) {
    let admit = || {
        if frame.header.op != Op::Hello {
            return Err(Refusal::NoHello);
        }
        let hello = decode_body::<Hello>(&frame.body)?;
        let (reply, service) = service.admit(&hello)?;
        let generation = service.generation(&hello, frame.header.offset)?;
        let version = version::agreed(frame.header.flags)?;
        let place = place(service.tenant().as_deref())?;
        Ok((reply, service.speaking(version), (place, generation)))
    };
    match admit() {
        Ok((reply, service, (place, generation))) => {
            let mut response = Response::message(&frame.header, &reply);
            response.header.flags = version::greeting_flags();
            response.header.offset = generation;
            let accepts_traces = if tracer().is_some() { ACCEPTS_TRACES } else { 0 };
            response.header.length = ACCEPTS_CANCELS | accepts_traces;
            (response, Some((service, place)))
        }
        Err(refusal) => (Response::refused(&frame.header, &refusal), None),
    }
}

/// A refusal of the connection itself: it answers request 0, which no caller sends.
pub(crate) fn refuse_connection(refusal: &Refusal) -> Response {
    Response::refused(&Header::new(Op::Hello, 0), refusal)
}

/// A connection whose caller has been admitted.
pub(crate) struct ServerSession<'a, S> {
    service: Arc<S>,
    /// `None` if the caller was not admitted.
    place: Option<Place>,
    /// Cancelled when others need the memory that this connection keeps.
    evicted: CancellationToken,
    options: &'a ServeOptions,
    reader: FrameReader,
    read: ReadHalf,
    write: WriteHalf,
    later: FuturesUnordered<LaterAnswer>,
    waiting: Waiting,
    /// Of `later`, what may be held back for long.
    held: HeldAnswers,
    gather: Gather,
    busy_poll: BusyPoll,
    /// Requests in a row that came alone, short ones with short answers.
    alone: u32,
    /// The number and the trace of the request that comes next, if its caller has announced one.
    announced: Option<(u64, TraceContext)>,
    /// When other connections had their turn last, or this one waited for its peer.
    turn_began: Instant,
}

/// The memory of requests that are answered later.
#[derive(Default)]
struct Waiting {
    bytes: usize,
    counted: Vec<Reserved>,
}

impl Waiting {
    /// Counts memory for one more request before it is handled; returns whether there is so much.
    fn has_room(&mut self, bytes: usize, memory: &Memory) -> bool {
        let wanted = self.bytes + bytes;
        while wanted > LATER_BYTES_FREE + self.counted.len() * LATER_BYTES_STEP {
            let Some(more) = memory.reserve_waiting(LATER_BYTES_STEP) else { return false };
            self.counted.push(more);
        }
        true
    }

    /// Gives back what is counted for more than wait. Half a step too much is kept.
    fn ended(&mut self, bytes: usize) {
        self.bytes -= bytes;
        let kept = (self.bytes + LATER_BYTES_STEP / 2).div_ceil(LATER_BYTES_STEP);
        self.counted.truncate(if self.bytes == 0 { 0 } else { kept });
    }
}

/// An answer that is made later.
type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// An answer that is made later, and what its request takes until then.
struct LaterAnswer {
    future: ResponseFuture,
    waits: LaterRequest,
}

/// What is known of a request that is answered later.
#[derive(Clone, Copy)]
struct LaterRequest {
    bytes: usize,
    /// Its number, if the answer may be held back for long.
    held: Option<u64>,
}

impl Future for LaterAnswer {
    type Output = (LaterRequest, Response);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waits = self.waits;
        self.future.as_mut().poll(context).map(|response| (waits, response))
    }
}

/// What was done with the buffer.
#[derive(PartialEq, Eq)]
enum Buffer {
    /// There is no whole frame in it.
    Handled,
    /// There may be; what is answered by now leaves first.
    MoreToHandle,
}

/// Why a session ends: what the peer sent is no frame, or it is gone.
type End = Option<FrameError>;

impl<S: Service> ServerSession<'_, S> {
    /// Serves the caller until the connection ends, or until another one has its place.
    pub(crate) async fn attend(mut self) {
        let Some(activity) = self.place.as_ref().map(Place::activity) else { return };
        let mut served = pin!(async {
            // Whatever ended it, the peer receives the reason if it can.
            if let Err(Some(error)) = self.run().await {
                self.answer(refuse_connection(&error.refusal()));
                let _ = self.send().await;
            }
        });
        poll_fn(|context| match activity.is_evicted(context) {
            true => Poll::Ready(()),
            false => served.as_mut().poll(context),
        })
        .await;
    }

    /// Sends the refusal and closes once the peer has. What it still sends is taken and forgotten:
    /// unread bytes would end the connection with a reset, which may overtake the answer.
    async fn turn_away(mut self) {
        if self.send().await.is_err() {
            return;
        }
        let Self { mut reader, mut read, write, .. } = self;
        drop(write);
        let _ = timeout(REFUSAL_READ_TIMEOUT, reader.discard(&mut read)).await;
    }

    async fn run(&mut self) -> Result<(), End> {
        loop {
            let handled = self.handle_buffered();
            self.report_held();
            // The requests before something that is no frame are answered.
            let began = self.reader.is_paced().then(Instant::now);
            if waits(self.send()).await? {
                self.turn_began = Instant::now();
            }
            if let Some(began) = began {
                // This side did not read meanwhile: that is not the peer's time.
                self.reader.forgive_stall(began.elapsed());
            }
            if self.turn_began.elapsed() > self.options.turn {
                tokio::task::yield_now().await;
                self.turn_began = Instant::now();
            }
            if handled? == Buffer::MoreToHandle {
                continue;
            }
            self.reader.shrink_unneeded(SHRINKS_AFTER, self.turn_began);
            if !self.reader.is_grown() {
                // Requests that were answered at once have been counted, too.
                self.waiting.ended(0);
            }
            let has_waited = if !self.later.is_empty() {
                waits(self.fill_or_finish()).await?
            } else if !self.fill_spinning()? {
                waits(self.fill_idle()).await?
            } else {
                false
            };
            if has_waited {
                self.turn_began = Instant::now();
            }
        }
    }

    /// Handles the complete frames of the buffer, as far as their answers are to leave together.
    fn handle_buffered(&mut self) -> Result<Buffer, FrameError> {
        let (mut frames, mut asked, mut unlooked) = (0, 0, 0);
        let send_bytes = self.send_bytes();
        while self.later.len() < self.options.in_flight_max {
            if self.gather.added() >= send_bytes {
                self.alone = 0;
                return Ok(Buffer::MoreToHandle);
            }
            if frames % LOOKED_AFTER == LOOKED_AFTER - 1 || asked - unlooked >= LOOKED_AFTER_BYTES {
                unlooked = asked;
                if self.turn_began.elapsed() > self.options.turn {
                    self.alone = 0;
                    return Ok(Buffer::MoreToHandle);
                }
            }
            let land = |header: &Header| self.service.body_sink(header);
            let Some(arrived) = self.reader.buffered(land)? else { break };
            let header = *arrived.header();
            if let Op::Trace | Op::Cancel = header.op {
                match header.op {
                    Op::Trace => self.announce(&header),
                    _ => self.held.cancel(header.offset),
                }
                frames += 1;
                continue;
            }
            let (bytes, handled) = self.handle_traced(arrived);
            asked += bytes;
            frames += 1;
            match handled {
                Handled::Now(response) => self.answer(response),
                Handled::Later(future) => {
                    let bytes = counted_bytes(bytes);
                    self.waiting.bytes += bytes;
                    let later = self.later_answer(&header, future, bytes);
                    self.later.push(later);
                }
            }
        }
        let is_alone = frames == 1 && asked.max(self.gather.added()) <= SHORT_BYTES_MAX;
        self.alone = if frames == 0 || is_alone { self.alone.saturating_add(frames) } else { 0 };
        Ok(Buffer::Handled)
    }

    /// Returns an answer that is made later; its caller can cancel one that may be held back.
    fn later_answer(
        &mut self,
        header: &Header,
        future: ResponseFuture,
        bytes: usize,
    ) -> LaterAnswer {
        if !self.service.holds(header) {
            return LaterAnswer { future, waits: LaterRequest { bytes, held: None } };
        }
        let unanswered = Header::new(header.op, UNANSWERED);
        let cancelled = move || Response { header: unanswered, body: Vec::new() };
        let future = self.held.begin(header.request, future, cancelled);
        LaterAnswer { future, waits: LaterRequest { bytes, held: Some(header.request) } }
    }

    /// Takes note of a request that waits for its answer no more.
    fn note_ended(&mut self, request: LaterRequest) {
        self.waiting.ended(request.bytes);
        if let Some(number) = request.held {
            self.held.ended(number);
        }
    }

    /// Reports which answers are held back, if that is due: a caller that sees nothing of a server
    /// for a few seconds takes it for dead.
    fn report_held(&mut self) {
        if let Some(body) = self.held.due(Instant::now())
            && self.service.reports_held()
        {
            self.answer_with(Header::held(), vec![body.into()]);
        }
    }

    /// Keeps the trace of the next request. An earlier one whose request never came is forgotten.
    fn announce(&mut self, header: &Header) {
        let context = TraceContext::of(header).filter(|_| tracer().is_some());
        self.announced = context.map(|context| (header.request, context));
    }

    /// Handles a frame, within a span if its caller has announced its trace.
    fn handle_traced(&mut self, arrived: Arrived) -> (usize, Handled) {
        let Some((request, parent)) = self.announced.take() else { return self.handle(arrived) };
        let header = *arrived.header();
        let span = (request == header.request)
            .then(|| serve_span(parent, &header, arrived.short_body()))
            .flatten();
        let Some(span) = span else { return self.handle(arrived) };
        let context = span.context();
        let (bytes, handled) = call_within(context, || self.handle(arrived));
        let handled = match handled {
            Handled::Now(response) => {
                end_served(span, &response.header, &response.body);
                Handled::Now(response)
            }
            Handled::Later(future) => Handled::Later(Box::pin(within(context, async move {
                let response = future.await;
                end_served(span, &response.header, &response.body);
                response
            }))),
        };
        (bytes, handled)
    }

    /// Handles a frame, if there is memory for it should it be answered later. Returns the length
    /// of its body, too.
    fn handle(&mut self, arrived: Arrived) -> (usize, Handled) {
        match arrived {
            Arrived::Frame(frame) => {
                let (bytes, memory) = (frame.body.len(), self.reader.memory());
                let handled = match self.waiting.has_room(counted_bytes(bytes), memory) {
                    true => self.service.handle(frame.header, frame.body),
                    false => Handled::Now(no_memory(&frame.header)),
                };
                (bytes, handled)
            }
            // The memory has the body: there is nothing to be refused any more.
            Arrived::Landed(header, sink) => (header.body_bytes as usize, sink.arrived(header)),
            Arrived::Refused(header) => (0, Handled::Now(no_memory(&header))),
        }
    }

    /// Busy-polls for the next request of a peer that sends one after the other, for a moment, if
    /// that has been worth it. Returns whether something came.
    fn fill_spinning(&mut self) -> Result<bool, End> {
        let Self { reader, read, busy_poll, .. } = self;
        if self.alone < ALONE_MIN
            || reader.is_amid_frame()
            || !read.can_look()
            || !busy_poll.is_due()
        {
            return Ok(false);
        }
        Ok(busy_poll.wait(|| reader.fill_now(read))?)
    }

    /// Reads while nothing is under way: between two requests the connection is idle.
    async fn fill_idle(&mut self) -> Result<(), End> {
        if let Some(place) = &self.place
            && !self.reader.is_amid_frame()
        {
            place.note_idle(self.turn_began);
        }
        let mut filled = None;
        if self.reader.is_grown() && !self.reader.is_amid_frame() {
            filled = timeout(SHRINKS_AFTER, self.fill()).await.ok();
            if filled.is_none() {
                self.reader.shrink();
                self.gather.shrink(0);
                self.waiting.ended(0);
            }
        }
        let filled = match filled {
            Some(filled) => filled,
            None => self.fill().await,
        };
        if let Some(place) = &self.place {
            place.note_busy();
        }
        filled
    }

    /// Reads, for some time. In the middle of a frame, the peer may be too slow, or others may need
    /// the memory of a long body.
    async fn fill(&mut self) -> Result<(), End> {
        if !self.reader.is_amid_frame() {
            return Ok(self.reader.fill(&mut self.read).await?);
        }
        self.reader.begin_pace();
        let (look, keeps) = (self.look_every(), self.keeps_memory());
        tokio::select! {
            // After an eviction the memory counts as another connection's, so give up even if the
            // body is complete by now.
            biased;
            () = self.evicted.cancelled(), if keeps => return Err(given_up()),
            filled = self.reader.fill(&mut self.read) => filled?,
            () = tokio::time::sleep(look) => {}
        }
        self.check_pace()
    }

    /// Returns whether memory that others may need is kept for a long body.
    fn keeps_memory(&self) -> bool {
        self.reader.is_amid_counted_body()
    }

    /// Returns how often a peer in the middle of a frame is looked at.
    fn look_every(&self) -> Duration {
        POLL_INTERVAL.min(self.options.read_within)
    }

    /// Gives up a peer that keeps the memory of a frame without sending it; that of a long body
    /// earlier while memory is scarce.
    fn check_pace(&self) -> Result<(), End> {
        if self.reader.is_late(self.options.read_within) { Err(given_up()) } else { Ok(()) }
    }

    /// Reads, unless as many frames are under way as may be, or takes the answers that are ready.
    async fn fill_or_finish(&mut self) -> Result<(), End> {
        let may_read = self.later.len() < self.options.in_flight_max;
        let is_amid_frame = self.reader.is_amid_frame();
        if may_read {
            self.reader.begin_pace();
        }
        let stalled = (!may_read && self.reader.is_paced()).then(Instant::now);
        let (look, keeps) = (self.look_every(), self.keeps_memory());
        let report_at = self.held.report_at();
        let answered = tokio::select! {
            filled = self.reader.fill(&mut self.read), if may_read => {
                filled?;
                None
            }
            answered = self.later.next() => answered,
            () = tokio::time::sleep(look), if may_read && is_amid_frame => None,
            () = sleep_until(report_at), if report_at.is_some() => None,
            () = self.evicted.cancelled(), if keeps => return Err(given_up()),
        };
        if let Some(stalled) = stalled {
            self.reader.forgive_stall(stalled.elapsed());
        }
        let Some((request, response)) = answered else { return self.check_pace() };
        self.note_ended(request);
        self.answer(response);
        let send_bytes = self.send_bytes();
        while self.gather.added() < send_bytes
            && let Some(Some((request, response))) = self.later.next().now_or_never()
        {
            self.note_ended(request);
            self.answer(response);
        }
        Ok(())
    }

    /// Adds an answer to those that leave together. One of many short pieces is refused if there is
    /// no memory for them: they are copied, and the peer may not take them. Only reads are answered
    /// with such, so whatever was done may be repeated.
    fn answer(&mut self, mut response: Response) {
        if response.header.request == UNANSWERED {
            return;
        }
        if self.gather.added() >= SMALL_SEND_BYTES {
            self.reader.note_needed();
        }
        if response.body.len() > 1 {
            let beside = memory_beside(&response.body);
            if beside > SMALL_SEND_BYTES {
                match self.reader.memory().reserve(beside) {
                    Some(memory) => self.gather.count(memory),
                    None => response = no_memory(&response.header),
                }
            }
        }
        self.answer_with(response.header, response.body);
    }

    fn answer_with(&mut self, mut header: Header, body: Vec<Bytes>) {
        let bytes = length(&body);
        header.body_bytes = u32::try_from(bytes).expect("a service keeps to the frame's limit");
        self.gather.push(&header, body);
    }

    async fn send(&mut self) -> Result<(), End> {
        let (within, memory) = (self.options.write_within, self.reader.memory());
        // They are not answered while the peer does not take the answers before theirs.
        let waiting = if self.waiting.bytes > LATER_BYTES_FREE { self.waiting.bytes } else { 0 };
        let service = &*self.service;
        let awaited = || service.awaited_bytes();
        let kept = Some(KeptForPeer { memory, beside: waiting, awaited: &awaited });
        let sent = self.gather.write_all(&self.write, within, kept, || ()).await;
        if !self.reader.is_grown() {
            self.gather.shrink(2 * SMALL_SEND_BYTES);
        }
        sent.map_err(|_| None)
    }

    /// Returns how many bytes of answers leave together.
    const fn send_bytes(&self) -> usize {
        if self.reader.is_grown() { SEND_BYTES } else { SMALL_SEND_BYTES }
    }
}

/// Refuses a request for which, or for whose answer, there is no memory.
fn no_memory(header: &Header) -> Response {
    let why = "the server's memory for requests is used up".to_owned();
    Response::refused(header, &Refusal::RetryAfter { after: MEMORY_PAUSE, why })
}

/// Returns what a request with so long a body is counted with while it waits. Long bodies are
/// counted where they are.
const fn counted_bytes(body_bytes: usize) -> usize {
    if body_bytes > COPIED_BYTES_MAX { LATER_BYTES } else { LATER_BYTES + body_bytes }
}

/// Waits until a moment, if there is one.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns whether what succeeded had to be waited for: then others had their turn meanwhile.
async fn waits<E>(done: impl Future<Output = Result<(), E>>) -> Result<bool, E> {
    let mut done = pin!(done);
    let mut has_waited = false;
    let polled = poll_fn(|context| {
        let polled = done.as_mut().poll(context);
        has_waited |= polled.is_pending();
        polled
    });
    polled.await?;
    Ok(has_waited)
}

fn given_up() -> End {
    tracing::warn!("a peer fell silent in the middle of a frame, or sends it too slowly: given up");
    None
}

impl From<ReadError> for End {
    fn from(_: ReadError) -> Self {
        None
    }
}

#[cfg(test)]
mod tests;
