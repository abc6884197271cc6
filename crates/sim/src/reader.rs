//! Simulated readers: they keep locations for a while, read, and look up again when they are
//! refused.

use std::sync::Arc;

use sanderling_core::client::AttemptFailure;
use sanderling_core::location_cache::LocationCache;
use sanderling_core::read::{Filling, ReadPiece};
use sanderling_core::retry::{Retry, RetryDecision, RetryPolicy};
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::message::Layout;
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{Millis, ObjectId, Path, Refusal, Reply, Request};

use crate::content::Content;
use crate::event::{Purpose, ReaderCall, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, DataAnswer, DataAsk, Host, Response, data, meta};
use crate::world::World;

/// One reader: it reads a range of one object after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) job: Option<ReadTask>,
    pub(crate) steps_left: u32,
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
    /// Pieces not asked for yet in this attempt.
    left: Vec<ReadPiece>,
    retry: Retry,
}

/// Time of one call.
const CALL_MILLIS: u64 = 800;

/// Time of one read: longer than a node that leaves holds it back.
const READ_MILLIS: u64 = 2000;

/// Time of one read of a range.
const JOB_MILLIS: u64 = 9000;

impl Reader {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        Self {
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

impl World {
    pub(crate) fn reader_start(&mut self, number: u8) {
        let micros = self.readers[usize::from(number)].random.below(500_000);
        self.runtime.set_timer(Host::Reader(number), micros, Timer::Begin);
    }

    pub(crate) fn reader_timer(&mut self, number: u8, timer: Timer) {
        match timer {
            Timer::Begin => self.reader_begin(number),
            Timer::Again => self.reader_look_up(number),
            Timer::Send(job) if self.reader_job(number, job as u32).is_some() => {
                self.reader_next(number);
            }
            _ => {}
        }
    }

    fn reader_job(&mut self, number: u8, job: u32) -> Option<&mut ReadTask> {
        self.readers[usize::from(number)].job.as_mut().filter(|current| current.number == job)
    }

    fn reader_begin(&mut self, number: u8) {
        let deadline = self.runtime.clock(Host::Reader(number)) + Millis(JOB_MILLIS);
        let is_calm = self.runtime.is_calm();
        let reader = &mut self.readers[usize::from(number)];
        if reader.steps_left == 0 || is_calm || reader.job.is_some() {
            return;
        }
        reader.steps_left -= 1;
        reader.next_job += 1;
        let random = &mut reader.random;
        let text = match random.below(10) {
            0..=6 => format!("/d{}/f{}", random.below(3), random.below(5)),
            7 => format!("/t/k{}", random.below(3)),
            _ => format!("/m/p{}", random.below(5)),
        };
        reader.job = Some(ReadTask {
            number: reader.next_job,
            path: text.parse().expect("a good path"),
            object: None,
            range: None,
            layout: None,
            filling: None,
            left: Vec::new(),
            retry: Retry::new(RetryPolicy::default(), deadline),
        });
        // What was read before may be read again from where it was.
        let reader = &mut self.readers[usize::from(number)];
        if !reader.known.is_empty() && reader.random.permille(400) {
            let object = reader.random.pick(&reader.known);
            if let Some(job) = &mut reader.job {
                job.object = Some(object);
            }
            if let Some(layout) = reader.cache.layout(object) {
                return self.reader_use(number, layout);
            }
        }
        self.reader_look_up(number);
    }

    fn reader_look_up(&mut self, number: u8) {
        let Some(job) = &self.readers[usize::from(number)].job else { return };
        let (offset, bytes) = job.range.unwrap_or((0, u64::MAX));
        let request = match job.object {
            None => Request::Lookup { path: job.path.clone(), offset, bytes },
            Some(object) => Request::LookupObject { object, offset, bytes },
        };
        let call = ReaderCall::Layout { job: job.number };
        let purpose = Purpose::Reader(number, call);
        self.runtime.call(
            Host::Reader(number),
            Host::Namenode,
            Ask::Meta(request),
            CALL_MILLIS,
            purpose,
        );
    }

    pub(crate) fn reader_answered(
        &mut self,
        number: u8,
        call: ReaderCall,
        answer: Option<Response>,
    ) {
        match call {
            ReaderCall::Layout { job } => self.reader_looked_up(number, job, answer),
            ReaderCall::Bytes { job, piece } => self.reader_read(number, job, piece, answer),
        }
    }

    fn reader_looked_up(&mut self, number: u8, job_number: u32, answer: Option<Response>) {
        let Some(_) = self.reader_job(number, job_number) else { return };
        let layout = match meta(answer) {
            Some(Ok(Reply::Layout(layout))) => layout,
            other => return self.reader_failed(number, other.and_then(Result::err)),
        };
        let reader = &mut self.readers[usize::from(number)];
        let layout = Arc::new(layout);
        let is_whole = reader.job.as_ref().is_some_and(|job| job.range.is_none());
        if is_whole {
            reader.known.push(layout.stat.object);
            reader.cache.insert(Arc::clone(&layout));
        }
        self.reader_use(number, layout);
    }

    /// Reads by a layout, new or old.
    fn reader_use(&mut self, number: u8, layout: Arc<Layout>) {
        let reader = &mut self.readers[usize::from(number)];
        let Some(job) = &mut reader.job else { return };
        let random = &mut reader.random;
        let job_number = job.number;
        job.object = Some(layout.stat.object);
        let end = layout.stat.bytes;
        if end == 0 || layout.inline.is_some() || layout.stat.kind.is_container() {
            return self.reader_end(number, true);
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
                let found = self.checks.bytes.unavailable(object, &lost);
                self.runtime.expect(found);
                return self.reader_end(number, true);
            }
        }
        // The location is used at once, or when it has grown old.
        let micros = if random.permille(700) { 0 } else { random.below(1_500_000) };
        self.runtime.set_timer(Host::Reader(number), micros, Timer::Send(u64::from(job_number)));
    }

    fn reader_next(&mut self, number: u8) {
        let Some(job) = &mut self.readers[usize::from(number)].job else { return };
        let Some(piece) = job.left.pop() else {
            let left = job.filling.as_ref().and_then(|filling| filling.after(None));
            return match left {
                None => self.reader_end(number, true),
                // The layout ends before the range.
                Some(recovery) => self.reader_goes_on(number, recovery, None),
            };
        };
        let call = ReaderCall::Bytes { job: job.number, piece };
        let RangeRequest { block, epoch, offset, length } = piece.range;
        let ask = DataAsk::Read { block, epoch, offset, bytes: length };
        let Some(to) = self.place_of(piece.node) else { return self.reader_failed(number, None) };
        let purpose = Purpose::Reader(number, call);
        let ask = Ask::Data(piece.node, ask);
        self.runtime.call(Host::Reader(number), to, ask, READ_MILLIS, purpose);
    }

    fn reader_read(
        &mut self,
        number: u8,
        job_number: u32,
        piece: ReadPiece,
        answer: Option<Response>,
    ) {
        let Some(job) = self.reader_job(number, job_number) else { return };
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
                    // The next read asks where the object is now, before this place is gone.
                    self.readers[usize::from(number)].cache.forget(object);
                }
                let found = self.checks.bytes.read(object, at, length, &content);
                self.runtime.expect(found);
                if held > epoch {
                    let text =
                        format!("block {block} was asked at epoch {epoch} and read at {held}");
                    self.runtime.violate("read-epoch", text);
                }
                self.reader_next(number);
            }
            Some(Err(refusal)) => self.reader_failed(number, Some(refusal)),
            _ => self.reader_failed(number, None),
        }
    }

    fn reader_failed(&mut self, number: u8, refusal: Option<Refusal>) {
        let failure = refusal.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused);
        self.reader_goes_on(number, failure.recovery(), refusal.as_ref());
    }

    /// Forgets the location and looks the object up again, if that may help in time.
    fn reader_goes_on(&mut self, number: u8, recovery: Recovery, refusal: Option<&Refusal>) {
        let now = self.runtime.clock(Host::Reader(number));
        let reader = &mut self.readers[usize::from(number)];
        let Some(job) = &mut reader.job else { return };
        if let Some(object) = job.object {
            reader.cache.forget(object);
        }
        match job.retry.failed(now, recovery) {
            RetryDecision::Again { pause, .. } => {
                self.runtime.set_timer(Host::Reader(number), pause.0 * 1000, Timer::Again);
            }
            RetryDecision::GiveUp | RetryDecision::TooLate => {
                self.check_failed_call("read", refusal);
                self.reader_end(number, false);
            }
        }
    }

    fn reader_end(&mut self, number: u8, is_good: bool) {
        let reader = &mut self.readers[usize::from(number)];
        if reader.job.take().is_none() {
            return;
        }
        if is_good {
            self.runtime.statistics_mut().reads += 1;
        } else {
            self.runtime.statistics_mut().failed_reads += 1;
        }
        let micros = reader.random.below(400_000);
        self.runtime.set_timer(Host::Reader(number), micros, Timer::Begin);
    }
}
