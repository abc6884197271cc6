//! Simulated writers: the shell around the write machine and the retries that the client library
//! has.

use std::collections::{BTreeMap, VecDeque};

use sanderling_core::block_table::WriteRequest;
use sanderling_core::client::{AttemptFailure, ChangeAttempts, NextAttempt};
use sanderling_core::retry::{Retry, RetryDecision, RetryPolicy};
use sanderling_core::writer::{Placed, WriteMachine};
use sanderling_protocol::message::{
    BlockLength, Condition, Create, CreateKind, CreateMode, Grant, Repetition,
};
use sanderling_protocol::{
    LeaseId, Millis, Nonce, ObjectId, Path, Refusal, Reply, Request, StorageClass,
};

use crate::Broken;
use crate::admin::{draw_attributes, draw_condition};
use crate::client::{Sequences, is_final};
use crate::content::{Content, SessionRange};
use crate::event::{Purpose, Timer, WriterCall};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, DataAsk, Host, Response, data, meta};
use crate::world::World;

/// One writer: it writes one object after the other.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) job: Option<WriteTask>,
    pub(crate) steps_left: u32,
    sequences: Sequences,
    /// The change that was sent last and not answered yet, and as what it was sent.
    sent: Option<SentChange>,
    next_job: u32,
    random: Random,
}

/// A change as its machine knows it, as it is sent, and what came of that.
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
    machine: WriteMachine,
    total: u64,
    /// Runs to be placed, in the order of the bytes.
    queue: VecDeque<(u64, u32)>,
    /// Runs under way or acknowledged since, by their piece.
    placed: BTreeMap<u64, SentPiece>,
    /// First byte not handed to the queue yet.
    next: u64,
    window: usize,
    piece_bytes_max: u64,
    is_asking: bool,
    has_aborted: bool,
    publish_at: u64,
    retry: Retry,
    /// Most bytes behind `placed` that count as acknowledged.
    acknowledged: u64,
}

#[derive(Debug, Clone, Copy)]
struct SentPiece {
    offset: u64,
    bytes: u32,
    placed: Placed,
    is_acknowledged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteStage {
    Opening,
    Writing,
    Sealing,
}

/// Time of one metadata call, and of one write.
const CALL_MILLIS: u64 = 1000;

/// Time that one object has for each of its calls.
const JOB_MILLIS: u64 = 9000;

impl Writer {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        Self {
            job: None,
            steps_left: plan.steps / u32::from(plan.writers) + 1,
            sequences: Sequences::of_writer(number),
            sent: None,
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
    fn heard(&mut self, answer: &Result<Reply, Refusal>) {
        if is_final(answer)
            && let Some(sent) = self.sent.take()
        {
            self.sequences.end(&sent.request);
        }
    }
}

impl WriteTask {
    /// Returns the first byte of the object that is not acknowledged.
    fn prefix(&self) -> u64 {
        let open = self.placed.values().filter(|piece| !piece.is_acknowledged);
        let open = open.map(|piece| piece.offset).min();
        let queued = self.queue.front().map(|(offset, _)| *offset);
        [open, queued, Some(self.next)].into_iter().flatten().min().unwrap_or(self.next)
    }

    fn in_flight(&self) -> usize {
        self.placed.values().filter(|piece| !piece.is_acknowledged).count()
    }

    fn is_done(&self) -> bool {
        self.next == self.total && self.queue.is_empty()
    }
}

impl World {
    pub(crate) fn writer_start(&mut self, number: u8) {
        self.writers[usize::from(number)].job = None;
        let writer = &mut self.writers[usize::from(number)];
        let micros = writer.random.below(300_000);
        self.runtime.set_timer(Host::Writer(number), micros, Timer::Begin);
    }

    pub(crate) fn writer_timer(&mut self, number: u8, timer: Timer) {
        match timer {
            Timer::Begin => self.writer_begin(number),
            Timer::Send(job) => {
                let Some(job) = self.writer_job(number, job as u32) else { return };
                job.is_asking = false;
                self.writer_pump(number);
            }
            Timer::Renew(job_number) => {
                let Some(job) = self.writer_job(number, job_number) else { return };
                let leases = vec![(job.object, job.lease)];
                let request = Request::RenewLeases { leases };
                self.writer_call(number, request, WriterCall::Renew { job: job_number });
                let micros = self.runtime.plan().lease_millis * 1000 / 3;
                self.runtime.set_timer(Host::Writer(number), micros, Timer::Renew(job_number));
            }
            _ => {}
        }
    }

    fn writer_job(&mut self, number: u8, job: u32) -> Option<&mut WriteTask> {
        self.writers[usize::from(number)].job.as_mut().filter(|current| current.number == job)
    }

    fn writer_call(&mut self, number: u8, request: Request, call: WriterCall) {
        let purpose = Purpose::Writer(number, call);
        let request = self.writers[usize::from(number)].numbered(request);
        self.runtime.call(
            Host::Writer(number),
            Host::Namenode,
            Ask::Meta(request),
            CALL_MILLIS,
            purpose,
        );
    }

    fn writer_begin(&mut self, number: u8) {
        let deadline = self.runtime.clock(Host::Writer(number)) + Millis(JOB_MILLIS);
        let is_calm = self.runtime.is_calm();
        let writer = &mut self.writers[usize::from(number)];
        if writer.steps_left == 0 || is_calm || writer.job.is_some() {
            return;
        }
        writer.steps_left -= 1;
        writer.next_job += 1;
        let random = &mut writer.random;
        let nonce = Nonce(random.next());
        let total = match random.below(4) {
            0 => random.between(1, 3000),
            1 => random.between(1, 200_000),
            2 => random.between(1, 1_500_000),
            _ => random.between(1, 3_500_000),
        };
        let (path, open) = draw_open(random, nonce, total);
        let job = WriteTask {
            number: writer.next_job,
            path,
            open,
            stage: WriteStage::Opening,
            object: ObjectId(0),
            lease: LeaseId(0),
            session: 0,
            machine: WriteMachine::default(),
            total,
            queue: VecDeque::new(),
            placed: BTreeMap::new(),
            next: 0,
            window: random.pick(&[1, 2, 4]),
            // Few enough pieces that the run has time for other things.
            piece_bytes_max: random.pick(&[2_000, 60_000, 400_000]).max(total / 24),
            is_asking: false,
            has_aborted: random.permille(50),
            publish_at: 0,
            retry: Retry::new(RetryPolicy::default(), deadline),
            acknowledged: 0,
        };
        writer.job = Some(job);
        self.writer_pump(number);
    }

    /// Does whatever can be done now.
    fn writer_pump(&mut self, number: u8) {
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        let (job_number, open) = (job.number, job.open.clone());
        match job.stage {
            WriteStage::Opening if !job.is_asking => {
                job.is_asking = true;
                self.writer_call(number, open, WriterCall::Open { job: job_number });
            }
            WriteStage::Writing => self.writer_write(number),
            WriteStage::Sealing if !job.is_asking => {
                job.is_asking = true;
                let (object, lease) = (job.object, job.lease);
                let (lengths, prefix) = (job.machine.lengths(), job.prefix());
                let attributes = [("sealed", lease.to_string())].into_iter().collect();
                let request = Request::Seal { object, lease, lengths, attributes };
                self.writer_call(number, request, WriterCall::Seal { job: job_number, prefix });
            }
            WriteStage::Opening | WriteStage::Sealing => {}
        }
    }

    fn writer_write(&mut self, number: u8) {
        loop {
            let writer = &mut self.writers[usize::from(number)];
            let Some(job) = &mut writer.job else { return };
            if job.queue.is_empty() && job.next < job.total {
                let bytes = writer.random.between(1, job.piece_bytes_max).min(job.total - job.next);
                job.queue.push_back((job.next, bytes as u32));
                job.next += bytes;
            }
            let Some((offset, bytes)) = job.queue.front().copied() else {
                return self.writer_maybe_seal(number);
            };
            if job.in_flight() >= job.window {
                break;
            }
            let room = job.machine.room();
            if room == 0 {
                if !job.machine.must_settle() {
                    self.writer_add(number);
                }
                break;
            }
            let bytes_now = bytes.min(room);
            let placed = job.machine.place(bytes_now).expect("there is room");
            job.queue.pop_front();
            if bytes_now < bytes {
                job.queue.push_front((offset + u64::from(bytes_now), bytes - bytes_now));
            }
            let piece = SentPiece { offset, bytes: bytes_now, placed, is_acknowledged: false };
            job.placed.insert(placed.piece, piece);
            self.writer_send(number, placed.piece, false);
        }
        self.writer_publish(number);
    }

    fn writer_send(&mut self, number: u8, piece_number: u64, is_again: bool) {
        let Some(job) = &self.writers[usize::from(number)].job else { return };
        let Some(piece) = job.placed.get(&piece_number) else { return };
        let granted = piece.placed.block;
        let request = WriteRequest {
            block: granted.block,
            epoch: granted.epoch,
            tier: granted.tier,
            offset: u64::from(piece.placed.offset),
            bytes: piece.bytes,
        };
        let run = SessionRange { session: job.session, offset: piece.offset, bytes: piece.bytes };
        let call = WriterCall::Piece { job: job.number, piece: piece_number, is_again };
        let ask = Ask::Data(granted.node, DataAsk::Write(request, Content::of(run)));
        let Some(place) = self.place_of(granted.node) else {
            return self.writer_refused(number, piece_number, true);
        };
        self.runtime.call(
            Host::Writer(number),
            place,
            ask,
            CALL_MILLIS,
            Purpose::Writer(number, call),
        );
    }

    /// Asks for more blocks.
    fn writer_add(&mut self, number: u8) {
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        if std::mem::replace(&mut job.is_asking, true) {
            return;
        }
        let want = job.machine.want();
        let call = WriterCall::Add { job: job.number, ended: want.ended.clone() };
        let (object, lease) = (job.object, job.lease);
        let count = u32::try_from(job.window).expect("a window is small");
        let (ended, avoid) = (want.ended, want.avoid);
        self.writer_call(number, Request::AddBlocks { object, lease, ended, count, avoid }, call);
    }

    /// Publishes what is acknowledged, now and then.
    fn writer_publish(&mut self, number: u8) {
        let now = self.runtime.now();
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        if job.is_asking || job.publish_at > now || job.prefix() <= job.acknowledged {
            return;
        }
        job.is_asking = true;
        job.publish_at = now + 150_000;
        let (object, lease, prefix) = (job.object, job.lease, job.prefix());
        let call = WriterCall::Publish { job: job.number, prefix };
        let lengths = job.machine.lengths();
        self.writer_call(number, Request::Publish { object, lease, lengths }, call);
    }

    fn writer_maybe_seal(&mut self, number: u8) {
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        if !job.is_done() || job.in_flight() > 0 || job.is_asking {
            return self.writer_publish(number);
        }
        if job.has_aborted {
            job.is_asking = true;
            let (object, lease, job) = (job.object, job.lease, job.number);
            return self.writer_call(
                number,
                Request::Abort { object, lease },
                WriterCall::Abort { job },
            );
        }
        job.stage = WriteStage::Sealing;
        self.writer_pump(number);
    }

    pub(crate) fn writer_answered(
        &mut self,
        number: u8,
        call: WriterCall,
        answer: Option<Response>,
    ) {
        let is_change = !matches!(call, WriterCall::Piece { .. } | WriterCall::Renew { .. });
        if is_change && let Some(Response::Meta(answer)) = &answer {
            self.writers[usize::from(number)].heard(answer);
        }
        match call {
            WriterCall::Open { job } => self.writer_opened(number, job, answer),
            WriterCall::Piece { job, piece, is_again } => {
                self.writer_wrote(number, job, piece, is_again, answer);
            }
            WriterCall::Add { job, ended } => self.writer_added(number, job, ended, answer),
            WriterCall::Publish { job, prefix } => {
                self.writer_published(number, job, prefix, answer, false);
            }
            WriterCall::Seal { job, prefix } => {
                self.writer_published(number, job, prefix, answer, true);
            }
            WriterCall::Renew { job } => {
                let Some(current) = self.writer_job(number, job) else { return };
                let object = current.object;
                if let Some(Ok(Reply::Renewed { ended })) = meta(answer)
                    && ended.contains(&object)
                {
                    self.writer_end(number, false, "its lease has ended");
                }
            }
            WriterCall::Abort { job } => {
                if self.writer_job(number, job).is_some() {
                    self.writer_end(number, true, "aborted");
                }
            }
        }
    }

    fn writer_opened(&mut self, number: u8, job_number: u32, answer: Option<Response>) {
        let Some(job) = self.writer_job(number, job_number) else { return };
        job.is_asking = false;
        let total = job.total;
        match meta(answer) {
            Some(Ok(Reply::Grant(grant))) => self.writer_granted(number, &grant),
            Some(Ok(Reply::Stat(stat))) => {
                // A value in the catalog, or a repeated create that is sealed already.
                let is_whole = stat.bytes == total;
                self.writer_end(number, is_whole, "sealed at once");
            }
            other => self.writer_failed(number, other.and_then(Result::err), true),
        }
    }

    fn writer_granted(&mut self, number: u8, grant: &Grant) {
        let session = self.checks.bytes.open(grant.object, grant.bytes);
        let deadline = self.runtime.clock(Host::Writer(number)) + Millis(JOB_MILLIS);
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        job.stage = WriteStage::Writing;
        (job.object, job.lease, job.session) = (grant.object, grant.lease, session);
        (job.next, job.acknowledged) = (grant.bytes, grant.bytes);
        job.total += grant.bytes;
        job.machine = WriteMachine::new(&grant.blocks);
        job.retry = Retry::new(RetryPolicy::default(), deadline);
        let job_number = job.number;
        let micros = self.runtime.plan().lease_millis * 1000 / 3;
        self.runtime.set_timer(Host::Writer(number), micros, Timer::Renew(job_number));
        self.writer_pump(number);
    }

    fn writer_wrote(
        &mut self,
        number: u8,
        job_number: u32,
        piece_number: u64,
        is_again: bool,
        answer: Option<Response>,
    ) {
        let believes_moved = self.runtime.is_broken(Broken::WriteAfterMoved);
        let deadline = self.runtime.clock(Host::Writer(number)) + Millis(JOB_MILLIS);
        let Some(job) = self.writer_job(number, job_number) else { return };
        let Some(piece) = job.placed.get_mut(&piece_number) else { return };
        let is_refused = matches!(answer, Some(Response::Refused));
        match data(answer) {
            Some(Err(Refusal::Moved { .. })) if believes_moved => piece.is_acknowledged = true,
            Some(Ok(_)) => piece.is_acknowledged = true,
            Some(Err(refusal)) => {
                let is_gone =
                    matches!(refusal, Refusal::WrongNode { .. } | Refusal::NodeGone { .. });
                return self.writer_refused(number, piece_number, is_gone);
            }
            // Nobody knows whether it was done: the same bytes again are acknowledged again.
            None if !is_again && !is_refused => {
                return self.writer_send(number, piece_number, true);
            }
            None => return self.writer_refused(number, piece_number, true),
        }
        job.machine.acknowledged(piece_number);
        job.retry = Retry::new(RetryPolicy::default(), deadline);
        self.writer_pump(number);
    }

    fn writer_refused(&mut self, number: u8, piece_number: u64, is_gone: bool) {
        let Some(job) = &mut self.writers[usize::from(number)].job else { return };
        let again = job.machine.refused(piece_number, is_gone);
        let mut runs: Vec<(u64, u32)> = again
            .iter()
            .filter_map(|piece| job.placed.remove(piece))
            .map(|piece| (piece.offset, piece.bytes))
            .collect();
        runs.sort_unstable();
        for run in runs.into_iter().rev() {
            job.queue.push_front(run);
        }
        self.writer_failed(number, None, false);
    }

    fn writer_added(
        &mut self,
        number: u8,
        job_number: u32,
        ended: Vec<BlockLength>,
        answer: Option<Response>,
    ) {
        let deadline = self.runtime.clock(Host::Writer(number)) + Millis(JOB_MILLIS);
        let Some(job) = self.writer_job(number, job_number) else { return };
        job.is_asking = false;
        match meta(answer) {
            Some(Ok(Reply::Grant(grant))) => {
                job.machine.granted(&grant.blocks);
                job.retry = Retry::new(RetryPolicy::default(), deadline);
                self.writer_pump(number);
            }
            other => {
                job.machine.not_told(ended);
                self.writer_failed(number, other.and_then(Result::err), true);
            }
        }
    }

    fn writer_published(
        &mut self,
        number: u8,
        job_number: u32,
        prefix: u64,
        answer: Option<Response>,
        is_seal: bool,
    ) {
        let Some(job) = self.writer_job(number, job_number) else { return };
        job.is_asking = false;
        let session = job.session;
        match meta(answer) {
            Some(Ok(reply)) => {
                job.acknowledged = job.acknowledged.max(prefix);
                let found = self.checks.bytes.promise(session, prefix);
                self.runtime.expect(found);
                if is_seal && let Reply::Stat(stat) = &reply {
                    let found = self.checks.bytes.sealed(session, stat.bytes, prefix);
                    self.runtime.expect(found);
                }
                if is_seal {
                    self.writer_end(number, true, "sealed");
                } else {
                    self.writer_pump(number);
                }
            }
            other => self.writer_failed(number, other.and_then(Result::err), true),
        }
    }

    /// A call failed: another try, or the end of the object. `is_asked` tells a call to the
    /// namenode from a write.
    fn writer_failed(&mut self, number: u8, refusal: Option<Refusal>, is_asked: bool) {
        let now = self.runtime.clock(Host::Writer(number));
        let writer = &mut self.writers[usize::from(number)];
        let Some(job) = &mut writer.job else { return };
        let failure = refusal.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused);
        let verdict = if is_asked {
            // Of a change that was answered for good nothing is left to be done.
            let mut answered = ChangeAttempts::default();
            let sent = writer.sent.as_mut().map_or(&mut answered, |sent| &mut sent.attempts);
            match sent.failed(&mut job.retry, now, &failure) {
                NextAttempt::Again { pause, as_other_client: false } => {
                    RetryDecision::Again { pause, refresh: false }
                }
                _ => RetryDecision::GiveUp,
            }
        } else {
            job.retry.failed(now, failure.recovery())
        };
        match verdict {
            RetryDecision::Again { pause, .. } if is_asked => {
                job.is_asking = true;
                let again = Timer::Send(u64::from(job.number));
                self.runtime.set_timer(Host::Writer(number), pause.0 * 1000, again);
            }
            RetryDecision::Again { .. } => self.writer_pump(number),
            RetryDecision::GiveUp | RetryDecision::TooLate => {
                self.check_failed_call("write", refusal.as_ref());
                let why = refusal.map_or_else(|| "no answer".to_owned(), |it| it.to_string());
                self.writer_end(number, false, &why);
            }
        }
    }

    fn writer_end(&mut self, number: u8, is_good: bool, why: &str) {
        let writer = &mut self.writers[usize::from(number)];
        let Some(job) = writer.job.take() else { return };
        self.runtime.log(12, job.object.0, || {
            format!("writer{number}: {} object {}: {why}", job.path, job.object)
        });
        if is_good {
            self.runtime.statistics_mut().writes += 1;
        } else {
            self.runtime.statistics_mut().failed_writes += 1;
        }
        let micros = writer.random.below(200_000);
        self.runtime.set_timer(Host::Writer(number), micros, Timer::Begin);
    }
}

/// Chooses what to write, and where.
fn draw_open(random: &mut Random, nonce: Nonce, total: u64) -> (Path, Request) {
    let directory = random.below(3);
    let name = random.below(5);
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
