//! Simulated writers: the shell around the write machine and the retries that the client library
//! has.

use sanderling_core::block_table::WriteRequest;
use sanderling_core::client::{
    AfterFailure, AttemptFailure, BlockRequest, ChangeAttempts, LeaseRenewals, NextAttempt, Placed,
    RenewalRequest, WriteGoal, WriteMachine, WriteStep, repeat_in_place,
};
use sanderling_core::retry::{Retry, RetryDecision, RetryPolicy};
use sanderling_protocol::message::{Condition, Create, CreateKind, CreateMode, Grant, Repetition};
use sanderling_protocol::{
    Instant, LeaseId, Millis, Nonce, ObjectId, Path, Refusal, Reply, Request, StorageClass,
};

use crate::InjectedBug;
use crate::admin::{draw_attributes, draw_condition};
use crate::client::{Sequences, is_final};
use crate::content::{Content, SessionRange};
use crate::context::Context;
use crate::event::{Purpose, SentPiece, Timer, WriterCall};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{DataRequest, Host, RequestBody, Response, data, meta};

/// One writer: it writes one object after the other.
#[derive(Debug)]
pub(crate) struct Writer {
    number: u8,
    job: Option<WriteTask>,
    steps_left: u32,
    sequences: Sequences,
    /// The change that was sent last and not answered yet, and as what it was sent.
    sent: Option<SentChange>,
    /// A writer is the number of its task.
    renewals: LeaseRenewals<u32>,
    next_job: u32,
    random: Random,
}

/// A change as its machine has it, as it is sent, and its attempts.
#[derive(Debug)]
struct SentChange {
    plain: Request,
    request: Request,
    attempts: ChangeAttempts,
}

/// One object being written.
#[derive(Debug)]
pub(crate) struct WriteTask {
    number: u32,
    path: Path,
    open: Request,
    stage: WriteStage,
    object: ObjectId,
    lease: LeaseId,
    session: u32,
    /// A piece is the offset of its first byte in the object.
    machine: WriteMachine<u64>,
    total: u64,
    /// First byte not handed to the machine yet.
    next: u64,
    window: usize,
    piece_bytes_max: u64,
    is_calling: bool,
    has_aborted: bool,
    publish_at: u64,
    /// The attempts of the call that writes. The client's library has one for each piece that the
    /// application hands over, and one for the end of the object.
    writing: Retry,
    /// Failures of that call after which it still waits. It sends nothing meanwhile.
    pauses: u32,
    /// The writing call is the last one: it waits until everything is acknowledged.
    is_closing: bool,
    /// The attempts of the call to open, publish or seal that is under way.
    calling: Option<Retry>,
    /// Most bytes behind `placed` that count as acknowledged.
    acknowledged: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteStage {
    Opening,
    Writing,
    Sealing,
}

/// Time of one metadata call, and of one write. A third of an attempt of the product's client by
/// default, so that runs of some virtual seconds have many that time out.
const CALL_MILLIS: u64 = 1000;

/// Time that each of the library's calls has. Longer than the 6 s in which a namenode finds
/// that a silent node is dead by default.
const JOB_MILLIS: u64 = 9000;

impl Writer {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        Self {
            number,
            job: None,
            steps_left: plan.steps / u32::from(plan.writers) + 1,
            sequences: Sequences::of_writer(number),
            sent: None,
            renewals: LeaseRenewals::default(),
            next_job: 0,
            random: Random::new(plan.seed, 200 + u64::from(number)),
        }
    }

    /// Returns a request as it is sent: the same change again under the same sequence.
    fn numbered(&mut self, request: Request) -> Request {
        if request.repeat() != Repetition::Once {
            return request;
        }
        if let Some(sent) = &self.sent {
            if sent.plain == request {
                return sent.request.clone();
            }
            self.sequences.end(&sent.request);
        }
        let sent = self.sequences.begin(request.clone());
        let attempts = ChangeAttempts::default();
        self.sent = Some(SentChange { plain: request, request: sent.clone(), attempts });
        sent
    }

    /// Notes that the change that was sent last was answered.
    fn note_answer(&mut self, answer: &Result<Reply, Refusal>) {
        if is_final(answer)
            && let Some(sent) = self.sent.take()
        {
            self.sequences.end(&sent.request);
        }
    }
}

/// Which call of an object failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedCall {
    /// A write at a datanode.
    Write,
    /// A request for blocks, which belongs to the call that writes.
    AddBlocks,
    /// Any other to the namenode.
    Own,
}

/// Returns the attempts of a call that begins `now`.
fn attempts_from(now: Instant) -> Retry {
    Retry::new(RetryPolicy::default(), now + Millis(JOB_MILLIS))
}

impl WriteTask {
    /// Returns the first byte of the object that is not acknowledged.
    fn prefix(&self) -> u64 {
        self.next - self.machine.unsettled_bytes()
    }
}

impl Writer {
    const fn host(&self) -> Host {
        Host::Writer(self.number)
    }

    /// Returns whether it has something under way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        self.job = None;
        self.renewals = LeaseRenewals::default();
        let micros = self.random.below(300_000);
        context.runtime.set_timer(self.host(), micros, Timer::Begin);
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Begin => self.begin(context),
            Timer::Send(job) => {
                let Some(job) = self.task(job as u32) else { return };
                job.is_calling = false;
                self.pump(context);
            }
            Timer::Pause(job) => {
                let Some(job) = self.task(job) else { return };
                job.pauses -= 1;
                self.pump(context);
            }
            Timer::Renew => self.renew(context),
            Timer::Repeat(job, piece) if self.task(job).is_some() => {
                self.send(context, piece);
            }
            _ => {}
        }
    }

    fn task(&mut self, job: u32) -> Option<&mut WriteTask> {
        self.job.as_mut().filter(|current| current.number == job)
    }

    fn call(&mut self, context: &mut Context<'_>, request: Request, call: WriterCall) {
        let purpose = Purpose::Writer(self.number, call);
        let request = self.numbered(request);
        context.runtime.call_namenode(self.host(), request, CALL_MILLIS, purpose);
    }

    /// Renews the leases if that is due, or sets the timer for it.
    fn renew(&mut self, context: &mut Context<'_>) {
        // A clock that does not jump, as the one of the library.
        let now = context.runtime.monotonic();
        if let Some(request) = self.renewals.poll_request(now) {
            let RenewalRequest { number, leases, within } = request;
            let (request, millis) = (Request::RenewLeases { leases }, within.0.min(CALL_MILLIS));
            let purpose = Purpose::Writer(self.number, WriterCall::Renew { number });
            context.runtime.call_namenode(self.host(), request, millis, purpose);
        } else if let Some(due) = self.renewals.deadline() {
            let micros = due.0.saturating_sub(now.0);
            context.runtime.set_timer(self.host(), micros, Timer::Renew);
        }
    }

    /// Takes what came of a request that renews leases.
    fn renewed(&mut self, context: &mut Context<'_>, number: u64, answer: Option<Response>) {
        let ended = match meta(answer) {
            Some(Ok(Reply::Renewed { ended })) => self.renewals.answered(number, &ended),
            _ => {
                self.renewals.failed(number);
                Vec::new()
            }
        };
        for job in ended {
            if self.task(job).is_some() {
                self.end(context, false, "its lease has ended");
            }
        }
        self.renew(context);
    }

    fn begin(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.clock(self.host());
        let is_calm = context.runtime.is_calm();
        if self.steps_left == 0 || is_calm || self.job.is_some() {
            return;
        }
        self.steps_left -= 1;
        self.next_job += 1;
        let random = &mut self.random;
        let nonce = Nonce(random.next());
        let total = match random.below(4) {
            0 => random.between(1, 3000),
            1 => random.between(1, 200_000),
            2 => random.between(1, 1_500_000),
            _ => random.between(1, 3_500_000),
        };
        // The injected bug shows only where two append to one file at once.
        let is_crowded = context.runtime.has_bug(InjectedBug::SecondWriter);
        let (path, open) = draw_open(random, nonce, total, is_crowded);
        let job = WriteTask {
            number: self.next_job,
            path,
            open,
            stage: WriteStage::Opening,
            object: ObjectId(0),
            lease: LeaseId(0),
            session: 0,
            machine: WriteMachine::new(0, &[], 1),
            total,
            next: 0,
            window: random.pick(&[1, 2, 4]),
            // Few enough pieces that the run has time for other things.
            piece_bytes_max: random.pick(&[2_000, 60_000, 400_000]).max(total / 24),
            is_calling: false,
            has_aborted: random.permille(50),
            publish_at: 0,
            writing: attempts_from(now),
            pauses: 0,
            is_closing: false,
            calling: None,
            acknowledged: 0,
        };
        self.job = Some(job);
        self.pump(context);
    }

    /// Does whatever can be done now.
    fn pump(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.clock(self.host());
        let Some(job) = &mut self.job else { return };
        let (job_number, open) = (job.number, job.open.clone());
        match job.stage {
            WriteStage::Opening if !job.is_calling => {
                job.is_calling = true;
                job.calling.get_or_insert_with(|| attempts_from(now));
                self.call(context, open, WriterCall::Open { job: job_number });
            }
            WriteStage::Writing if job.pauses == 0 => self.write(context),
            WriteStage::Sealing if !job.is_calling => {
                job.is_calling = true;
                job.calling.get_or_insert_with(|| attempts_from(now));
                let (object, lease) = (job.object, job.lease);
                let lengths = job.machine.final_lengths().expect("everything is acknowledged");
                let prefix = job.prefix();
                let attributes = [("sealed", lease.to_string())].into_iter().collect();
                let request = Request::Seal { object, lease, lengths, attributes };
                self.call(context, request, WriterCall::Seal { job: job_number, prefix });
            }
            WriteStage::Opening | WriteStage::Writing | WriteStage::Sealing => {}
        }
    }

    fn write(&mut self, context: &mut Context<'_>) {
        loop {
            let now = context.runtime.clock(self.host());
            let Some(job) = self.job.as_mut().filter(|job| job.pauses == 0) else { return };
            match job.machine.next(WriteGoal::Room) {
                WriteStep::Send(placed, piece) => {
                    let (offset, give_up) = (piece + placed.from as u64, now + Millis(JOB_MILLIS));
                    self.send(context, SentPiece { placed, offset, give_up });
                }
                // One change at a time.
                WriteStep::AddBlocks(_) if job.is_calling => {
                    job.machine.not_granted();
                    break;
                }
                WriteStep::AddBlocks(request) => self.add(context, request),
                WriteStep::Wait => break,
                WriteStep::Done if job.next < job.total => {
                    job.writing = attempts_from(now);
                    let left = job.total - job.next;
                    let bytes = self.random.between(1, job.piece_bytes_max).min(left);
                    job.machine.passed(bytes);
                    job.machine.push(job.next, bytes as u32);
                    job.next += bytes;
                }
                WriteStep::Done => {
                    if !std::mem::replace(&mut job.is_closing, true) {
                        job.writing = attempts_from(now);
                    }
                    return self.maybe_seal(context);
                }
            }
        }
        self.publish(context);
    }

    fn send(&mut self, context: &mut Context<'_>, piece: SentPiece) {
        let Some(job) = &self.job else { return };
        let SentPiece { placed, offset, .. } = piece;
        let granted = placed.block;
        let request = WriteRequest {
            block: granted.block,
            epoch: granted.epoch,
            tier: granted.tier,
            offset: u64::from(placed.offset),
            bytes: placed.length,
        };
        let run = SessionRange { session: job.session, offset, bytes: placed.length };
        let call = WriterCall::Piece { job: job.number, piece };
        let body = RequestBody::Data(granted.node, DataRequest::Write(request, Content::of(run)));
        let Some(place) = context.namenode.place_of(granted.node) else {
            return self.refused(context, placed, None);
        };
        context.runtime.call(
            self.host(),
            place,
            body,
            CALL_MILLIS,
            Purpose::Writer(self.number, call),
        );
    }

    /// Requests more blocks.
    fn add(&mut self, context: &mut Context<'_>, request: BlockRequest) {
        let Some(job) = &mut self.job else { return };
        job.is_calling = true;
        let call = WriterCall::Add { job: job.number };
        let (object, lease) = (job.object, job.lease);
        let BlockRequest { ended, count, avoid } = request;
        self.call(context, Request::AddBlocks { object, lease, ended, count, avoid }, call);
    }

    /// Publishes what is acknowledged, now and then.
    fn publish(&mut self, context: &mut Context<'_>) {
        let (now, clock) = (context.runtime.now(), context.runtime.clock(self.host()));
        let Some(job) = &mut self.job else { return };
        if job.is_calling || job.publish_at > now || job.prefix() <= job.acknowledged {
            return;
        }
        job.is_calling = true;
        job.calling.get_or_insert_with(|| attempts_from(clock));
        job.publish_at = now + 150_000;
        let (object, lease, prefix) = (job.object, job.lease, job.prefix());
        let call = WriterCall::Publish { job: job.number, prefix };
        let lengths = job.machine.lengths();
        self.call(context, Request::Publish { object, lease, lengths }, call);
    }

    fn maybe_seal(&mut self, context: &mut Context<'_>) {
        let Some(job) = &mut self.job else { return };
        if job.is_calling || job.machine.final_lengths().is_none() {
            return self.publish(context);
        }
        if job.has_aborted {
            job.is_calling = true;
            let (object, lease, job) = (job.object, job.lease, job.number);
            return self.call(context, Request::Abort { object, lease }, WriterCall::Abort { job });
        }
        (job.stage, job.calling) = (WriteStage::Sealing, None);
        self.pump(context);
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: WriterCall,
        answer: Option<Response>,
    ) {
        let is_change = !matches!(call, WriterCall::Piece { .. } | WriterCall::Renew { .. });
        if is_change && let Some(Response::Meta(answer)) = &answer {
            self.note_answer(answer);
        }
        match call {
            WriterCall::Open { job } => self.opened(context, job, answer),
            WriterCall::Piece { job, piece } => self.wrote(context, job, piece, answer),
            WriterCall::Add { job } => self.added(context, job, answer),
            WriterCall::Publish { job, prefix } => {
                self.published(context, job, prefix, answer, false);
            }
            WriterCall::Seal { job, prefix } => {
                self.published(context, job, prefix, answer, true);
            }
            WriterCall::Renew { number } => self.renewed(context, number, answer),
            WriterCall::Abort { job } => {
                if self.task(job).is_some() {
                    self.end(context, true, "aborted");
                }
            }
        }
    }

    fn opened(&mut self, context: &mut Context<'_>, job_number: u32, answer: Option<Response>) {
        let Some(job) = self.task(job_number) else { return };
        job.is_calling = false;
        let total = job.total;
        match meta(answer) {
            Some(Ok(Reply::Grant(grant))) => self.granted(context, &grant),
            Some(Ok(Reply::Stat(stat))) => {
                // A value in the catalog, or a repeated create that is sealed already.
                let is_whole = stat.bytes == total;
                self.end(context, is_whole, "sealed at once");
            }
            other => self.failed(context, other.and_then(Result::err), FailedCall::Own),
        }
    }

    fn granted(&mut self, context: &mut Context<'_>, grant: &Grant) {
        let session = context.checks.bytes.open(grant.object, grant.bytes);
        let Some(job) = &mut self.job else { return };
        job.stage = WriteStage::Writing;
        (job.object, job.lease, job.session) = (grant.object, grant.lease, session);
        (job.next, job.acknowledged) = (grant.bytes, grant.bytes);
        job.total += grant.bytes;
        job.machine = WriteMachine::new(grant.bytes, &grant.blocks, job.window);
        job.calling = None;
        let job_number = job.number;
        if self.renewals.open(context.runtime.monotonic(), grant, job_number) {
            self.renew(context);
        }
        self.pump(context);
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        job_number: u32,
        piece: SentPiece,
        answer: Option<Response>,
    ) {
        let believes_moved = context.runtime.has_bug(InjectedBug::WriteAfterMoved);
        let (host, now) = (self.host(), context.runtime.clock(self.host()));
        let Some(job) = self.task(job_number) else { return };
        match data(answer) {
            Some(Err(Refusal::Moved { .. })) if believes_moved => {}
            Some(Ok(_)) => {}
            Some(Err(refusal)) => {
                let Some(pause) = repeat_in_place(&refusal, now.until(piece.give_up)) else {
                    return self.refused(context, piece.placed, Some(refusal));
                };
                let timer = Timer::Repeat(job_number, piece);
                return context.runtime.set_timer(host, pause.0 * 1000, timer);
            }
            // Whether it was done is unknown: its bytes go into another block.
            None => return self.refused(context, piece.placed, None),
        }
        job.machine.acknowledged(piece.placed.number);
        self.pump(context);
    }

    fn refused(&mut self, context: &mut Context<'_>, placed: Placed, refusal: Option<Refusal>) {
        let host = self.host();
        let Some(job) = &mut self.job else { return };
        let failure = refusal.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused);
        let next = job.machine.refused(placed.number, &failure);
        if next != AfterFailure::Late && failure.makes_suspect() {
            context.runtime.suspect(host, placed.block.node);
        }
        match next {
            AfterFailure::Late | AfterFailure::GoOn => self.pump(context),
            AfterFailure::Pause => self.failed(context, refusal, FailedCall::Write),
        }
    }

    fn added(&mut self, context: &mut Context<'_>, job_number: u32, answer: Option<Response>) {
        let Some(job) = self.task(job_number) else { return };
        job.is_calling = false;
        match meta(answer) {
            Some(Ok(Reply::Grant(grant))) if job.machine.granted(&grant.blocks) => {
                self.pump(context);
            }
            Some(Ok(_)) => {
                let why = "no block was granted that can be filled".to_owned();
                let again = Refusal::RetryAfter { after: Millis(0), why };
                self.failed(context, Some(again), FailedCall::AddBlocks);
            }
            other => {
                job.machine.not_granted();
                self.failed(context, other.and_then(Result::err), FailedCall::AddBlocks);
            }
        }
    }

    fn published(
        &mut self,
        context: &mut Context<'_>,
        job_number: u32,
        prefix: u64,
        answer: Option<Response>,
        is_seal: bool,
    ) {
        let Some(job) = self.task(job_number) else { return };
        job.is_calling = false;
        let session = job.session;
        match meta(answer) {
            Some(Ok(reply)) => {
                job.calling = None;
                job.acknowledged = job.acknowledged.max(prefix);
                let found = context.checks.bytes.promise(session, prefix);
                context.runtime.expect(found);
                if is_seal && let Reply::Stat(stat) = &reply {
                    let found = context.checks.bytes.sealed(session, stat.bytes, prefix);
                    context.runtime.expect(found);
                }
                if is_seal {
                    self.end(context, true, "sealed");
                } else {
                    self.pump(context);
                }
            }
            other => self.failed(context, other.and_then(Result::err), FailedCall::Own),
        }
    }

    /// A call failed: another try, or the end of the object.
    fn failed(&mut self, context: &mut Context<'_>, refusal: Option<Refusal>, of: FailedCall) {
        let now = context.runtime.clock(self.host());
        let Some(job) = &mut self.job else { return };
        let failure = refusal.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused);
        let retry = match of {
            FailedCall::Write | FailedCall::AddBlocks => &mut job.writing,
            FailedCall::Own => job.calling.get_or_insert_with(|| attempts_from(now)),
        };
        let verdict = if of == FailedCall::Write {
            retry.failed(now, failure.recovery())
        } else {
            // Of a change that was answered for good nothing is left to be done.
            let mut answered = ChangeAttempts::default();
            let sent = self.sent.as_mut().map_or(&mut answered, |sent| &mut sent.attempts);
            match sent.failed(retry, now, &failure) {
                NextAttempt::Again { pause, as_other_client: false } => {
                    RetryDecision::Again { pause }
                }
                _ => RetryDecision::GiveUp,
            }
        };
        match verdict {
            RetryDecision::Again { pause } => {
                let again = if of == FailedCall::Write {
                    job.pauses += 1;
                    Timer::Pause(job.number)
                } else {
                    job.is_calling = true;
                    Timer::Send(u64::from(job.number))
                };
                context.runtime.set_timer(self.host(), pause.0 * 1000, again);
            }
            RetryDecision::GiveUp | RetryDecision::TooLate => {
                context.checks.failed_call(context.runtime, "write", refusal.as_ref());
                let why = refusal.map_or_else(|| "no answer".to_owned(), |it| it.to_string());
                self.end(context, false, &why);
            }
        }
    }

    fn end(&mut self, context: &mut Context<'_>, is_good: bool, why: &str) {
        let Some(job) = self.job.take() else { return };
        let host = self.host();
        self.renewals.close(job.object, job.lease);
        context
            .runtime
            .log(12, job.object.0, || format!("{host}: {} object {}: {why}", job.path, job.object));
        if is_good {
            context.runtime.statistics_mut().writes += 1;
        } else {
            context.runtime.statistics_mut().failed_writes += 1;
        }
        let micros = self.random.below(200_000);
        context.runtime.set_timer(self.host(), micros, Timer::Begin);
    }
}

/// Chooses what to write, and where. Where it `is_crowded` writers often choose the same file.
fn draw_open(random: &mut Random, nonce: Nonce, total: u64, is_crowded: bool) -> (Path, Request) {
    let (directory, name) = (random.below(3), random.below(5));
    let (directory, name) = if is_crowded { (0, name % 2) } else { (directory, name) };
    let kind = random.below(10);
    let text = match kind {
        0..=5 => format!("/d{directory}/f{name}"),
        6 | 7 => format!("/t/k{}", name % 3),
        _ => format!("/m/p{name}"),
    };
    let path: Path = text.parse().expect("a good path");
    if kind < 2 {
        return (path.clone(), Request::Append { path, writer: nonce });
    }
    let is_key = kind == 6 || kind == 7;
    let is_inline = is_key && total <= 500;
    let condition = draw_condition(random);
    // What must not exist yet cannot be to replace a given object.
    let is_given = matches!(condition, Some(Condition::Is(_)));
    let is_new = random.permille(400) && !is_given;
    let mode = if is_new { CreateMode::New } else { CreateMode::Replace };
    let create = Create {
        kind: if is_key { CreateKind::KeyValue } else { CreateKind::File },
        mode,
        parents: random.permille(500),
        is_listed: random.permille(900),
        class: draw_class(random),
        ttl: random.permille(100).then(|| Millis(random.between(200, 6000))),
        expected_bytes: random.permille(400).then_some(total),
        inline: is_inline.then(|| vec![0; total as usize]),
        condition,
        attributes: draw_attributes(random),
        ..Create::new(path.clone(), nonce)
    };
    (path, Request::Create(create))
}

fn draw_class(random: &mut Random) -> StorageClass {
    let text = random.pick(&["dram", "dram", "disk", "dram:wait", "dram:refuse"]);
    text.parse().expect("a known class")
}
