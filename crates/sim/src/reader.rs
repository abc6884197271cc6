//! Simulated readers: they keep locations for a while, read, and look up again when they are
//! refused.

use std::sync::Arc;

use sanderling_core::client::AttemptFailure;
use sanderling_core::location_cache::LocationCache;
use sanderling_core::read::{FailedRead, Filling, ReadAttempt, ReadPiece};
use sanderling_core::retry::{Retry, RetryDecision, RetryPolicy};
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::message::Layout;
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{Millis, NodeId, ObjectId, Path, Refusal, Reply, Request};

use crate::InjectedBug;
use crate::content::Content;
use crate::context::Context;
use crate::event::{Purpose, ReaderCall, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{DataAnswer, DataRequest, Host, RequestBody, Response, data, meta};

/// One reader: it reads a range of one object after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    number: u8,
    job: Option<ReadTask>,
    steps_left: u32,
    next_job: u32,
    cache: LocationCache,
    /// Objects that were looked up.
    known: Vec<ObjectId>,
    random: Random,
}

/// One range being read.
#[derive(Debug)]
pub(crate) struct ReadTask {
    number: u32,
    path: Path,
    object: Option<ObjectId>,
    range: Option<(u64, u64)>,
    layout: Option<Arc<Layout>>,
    /// What has come of the range.
    filling: Option<Filling<Content>>,
    /// Pieces not requested yet in this attempt.
    left: Vec<ReadPiece>,
    retry: Retry,
}

/// Time of one call. As that of callers: shorter than most faults last.
const CALL_MILLIS: u64 = 800;

/// Time of one read: longer than a node that leaves holds it back. That is 1.5 s at most
/// (`READ_WAIT_MAX` of the drain's throttle).
const READ_MILLIS: u64 = 2000;

/// Time of one read of a range. Longer than the 6 s in which a namenode finds that a silent node is
/// dead by default, so that a read ends with the loss.
const JOB_MILLIS: u64 = 9000;

/// Returns how an attempt failed: with a refusal, or without an answer.
fn failure(refusal: &Option<Refusal>) -> AttemptFailure<'_> {
    refusal.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused)
}

impl Reader {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        Self {
            number,
            job: None,
            steps_left: plan.steps,
            next_job: 0,
            // So small that old layouts make room, too.
            cache: LocationCache::new(24),
            known: Vec::new(),
            random: Random::new(plan.seed, 300 + u64::from(number)),
        }
    }
}

impl Reader {
    const fn host(&self) -> Host {
        Host::Reader(self.number)
    }

    /// Returns whether it has something under way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        let micros = self.random.below(500_000);
        context.runtime.set_timer(self.host(), micros, Timer::Begin);
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Begin => self.begin(context),
            Timer::Again => self.look_up(context),
            Timer::Send(job) if self.task(job as u32).is_some() => {
                self.next(context);
            }
            _ => {}
        }
    }

    fn task(&mut self, job: u32) -> Option<&mut ReadTask> {
        self.job.as_mut().filter(|current| current.number == job)
    }

    fn begin(&mut self, context: &mut Context<'_>) {
        let deadline = context.runtime.clock(self.host()) + Millis(JOB_MILLIS);
        let is_calm = context.runtime.is_calm();
        if self.steps_left == 0 || is_calm || self.job.is_some() {
            return;
        }
        self.steps_left -= 1;
        self.next_job += 1;
        let random = &mut self.random;
        let text = match random.below(10) {
            0..=6 => format!("/d{}/f{}", random.below(3), random.below(5)),
            7 => format!("/t/k{}", random.below(3)),
            _ => format!("/m/p{}", random.below(5)),
        };
        self.job = Some(ReadTask {
            number: self.next_job,
            path: text.parse().expect("a good path"),
            object: None,
            range: None,
            layout: None,
            filling: None,
            left: Vec::new(),
            retry: Retry::new(RetryPolicy::default(), deadline),
        });
        // What was read before may be read again from where it was.
        if !self.known.is_empty() && self.random.permille(400) {
            let object = self.random.pick(&self.known);
            if let Some(job) = &mut self.job {
                job.object = Some(object);
            }
            if let Some(layout) = self.cache.layout(object) {
                return self.read_by(context, layout);
            }
        }
        self.look_up(context);
    }

    fn look_up(&mut self, context: &mut Context<'_>) {
        let Some(job) = &self.job else { return };
        let (offset, bytes) = job.range.unwrap_or((0, u64::MAX));
        let request = match job.object {
            None => Request::Lookup { path: job.path.clone(), offset, bytes },
            Some(object) => Request::LookupObject { object, offset, bytes },
        };
        let call = ReaderCall::Layout { job: job.number };
        let purpose = Purpose::Reader(self.number, call);
        context.runtime.call_namenode(self.host(), request, CALL_MILLIS, purpose);
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: ReaderCall,
        answer: Option<Response>,
    ) {
        match call {
            ReaderCall::Layout { job } => self.looked_up(context, job, answer),
            ReaderCall::Bytes { job, piece } => self.read(context, job, piece, answer),
        }
    }

    fn looked_up(&mut self, context: &mut Context<'_>, job_number: u32, answer: Option<Response>) {
        let Some(_) = self.task(job_number) else { return };
        let layout = match meta(answer) {
            Some(Ok(Reply::Layout(layout))) => layout,
            other => {
                let refusal = other.and_then(Result::err);
                return self.goes_on(context, failure(&refusal).recovery(), refusal.as_ref());
            }
        };
        let layout = Arc::new(layout);
        let is_whole = self.job.as_ref().is_some_and(|job| job.range.is_none());
        if is_whole {
            self.known.push(layout.stat.object);
            self.cache.insert(Arc::clone(&layout));
        }
        self.read_by(context, layout);
    }

    /// Reads by a layout, new or old.
    fn read_by(&mut self, context: &mut Context<'_>, layout: Arc<Layout>) {
        let Some(job) = &mut self.job else { return };
        let random = &mut self.random;
        let job_number = job.number;
        job.object = Some(layout.stat.object);
        let end = layout.stat.bytes;
        if end == 0 || layout.inline.is_some() || layout.stat.kind.is_container() {
            return self.end(context, true);
        }
        let range = *job.range.get_or_insert_with(|| {
            if random.permille(500) {
                (0, end)
            } else {
                let offset = random.below(end);
                (offset, random.between(1, end - offset))
            }
        });
        let lost = layout.lost_ranges();
        let wanted = ByteRange { offset: range.0, bytes: range.1 };
        let filling = job.filling.get_or_insert_with(|| Filling::new(&[wanted]));
        let planned = filling.plan(&layout, |_| unreachable!("inline bytes end the read above"));
        let object = layout.stat.object;
        job.layout = Some(layout);
        match planned {
            Ok(pieces) => job.left = pieces,
            Err(_) => {
                let found = context.checks.bytes.unavailable(object, &lost);
                context.runtime.expect(found);
                return self.end(context, true);
            }
        }
        // The location is used at once, or when it has grown old.
        let micros = if random.permille(700) { 0 } else { random.below(1_500_000) };
        context.runtime.set_timer(self.host(), micros, Timer::Send(u64::from(job_number)));
    }

    fn next(&mut self, context: &mut Context<'_>) {
        let Some(job) = &mut self.job else { return };
        let Some(piece) = job.left.pop() else {
            let short = job.filling.as_ref().and_then(Filling::shortfall);
            return match ReadAttempt::default().end(short.map(Some)) {
                None => self.end(context, true),
                Some(failed) => self.goes_on(context, failure(&failed.error).recovery(), None),
            };
        };
        let call = ReaderCall::Bytes { job: job.number, piece };
        let RangeRequest { block, epoch, offset, length } = piece.range;
        let body = DataRequest::Read { block, epoch, offset, bytes: length };
        let Some(to) = context.namenode.place_of(piece.node) else {
            return self.failed(context, piece.node, None);
        };
        let purpose = Purpose::Reader(self.number, call);
        let body = RequestBody::Data(piece.node, body);
        context.runtime.call(self.host(), to, body, READ_MILLIS, purpose);
    }

    fn read(
        &mut self,
        context: &mut Context<'_>,
        job_number: u32,
        piece: ReadPiece,
        answer: Option<Response>,
    ) {
        let Some(job) = self.task(job_number) else { return };
        let (Some(layout), Some(range)) = (&job.layout, job.range) else { return };
        let object = layout.stat.object;
        match data(answer) {
            Some(Ok(DataAnswer::Bytes { content, held, is_leaving })) => {
                let RangeRequest { block, epoch, length, .. } = piece.range;
                if let Some(filling) = &mut job.filling {
                    filling.fill(&piece, content.clone());
                }
                let at = range.0 + piece.offset as u64;
                if is_leaving {
                    // The next read looks the object up, before this place is gone.
                    self.cache.forget(object);
                }
                let found = context.checks.bytes.read(object, at, length, &content);
                context.runtime.expect(found);
                if held > epoch {
                    let text =
                        format!("block {block} was requested at epoch {epoch} and read at {held}");
                    context.runtime.violate("read-epoch", text);
                }
                self.next(context);
            }
            Some(Err(refusal)) => self.failed(context, piece.node, Some(refusal)),
            _ => self.failed(context, piece.node, None),
        }
    }

    /// Ends the attempt: a piece has failed. A node that did not answer is reported, and nothing is
    /// read by other locations on it.
    fn failed(&mut self, context: &mut Context<'_>, node: NodeId, refusal: Option<Refusal>) {
        let mut attempt = ReadAttempt::default();
        attempt.failed(node, refusal, failure);
        let Some(FailedRead { error, suspects }) = attempt.end(None) else { return };
        for node in suspects {
            self.cache.forget_node(node);
            context.runtime.suspect(self.host(), node);
        }
        self.goes_on(context, failure(&error).recovery(), error.as_ref());
    }

    /// Forgets the location and looks the object up again, if that may help in time.
    fn goes_on(
        &mut self,
        context: &mut Context<'_>,
        recovery: Recovery,
        refusal: Option<&Refusal>,
    ) {
        let now = context.runtime.clock(self.host());
        let Some(job) = &mut self.job else { return };
        if let Some(object) = job.object {
            self.cache.forget(object);
        }
        let is_final = context.runtime.has_bug(InjectedBug::FailureFinal);
        match job.retry.failed(now, recovery) {
            RetryDecision::Again { pause, .. } if !is_final => {
                context.runtime.set_timer(self.host(), pause.0 * 1000, Timer::Again);
            }
            _ => {
                context.checks.failed_call(context.runtime, "read", refusal);
                self.end(context, false);
            }
        }
    }

    fn end(&mut self, context: &mut Context<'_>, is_good: bool) {
        if self.job.take().is_none() {
            return;
        }
        if is_good {
            context.runtime.statistics_mut().reads += 1;
        } else {
            context.runtime.statistics_mut().failed_reads += 1;
        }
        let micros = self.random.below(400_000);
        context.runtime.set_timer(self.host(), micros, Timer::Begin);
    }
}
