//! Simulated callers: applications that share a few names and note what they requested and what
//! they were answered. `check/history.rs` judges it.
//!
//! Nothing else touches their names, so that their notes are the whole history. What they write is
//! so small that it needs no datanode: how bytes fare is looked at elsewhere.

use sanderling_core::client::{ChangeAttempts, NextAttempt};
use sanderling_core::retry::{Retry, RetryPolicy};
use sanderling_protocol::message::{
    Attributes, ClientId, Condition as NameCondition, Create, CreateKind, CreateMode, Grant,
    ObjectKind, ObjectStat,
};
use sanderling_protocol::{Millis, Nonce, ObjectId, Path, Refusal, Reply, Request};

use crate::check::history::{
    Call, ChangeFailure, Condition, NAMES, OPERATIONS_MAX, Observation, OperationOutcome,
};
use crate::client::{Sequences, failed};
use crate::context::Context;
use crate::event::{CallerCall, Purpose, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{CALLERS_MAX, Host, Response, meta};

/// One caller: it does one thing after the other.
#[derive(Debug)]
pub(crate) struct Caller {
    number: u8,
    job: Option<PendingOperation>,
    steps_left: u32,
    next_job: u32,
    sequences: Sequences,
    /// What it last saw at each name.
    last_seen: [[Option<Observation>; NAMES]; GROUPS],
    pause_micros_max: u64,
    random: Random,
}

/// One operation under way.
#[derive(Debug)]
pub(crate) struct PendingOperation {
    number: u32,
    /// Its number in the history.
    operation: usize,
    group: u8,
    call: Call,
    /// As it is sent, now and again.
    request: Request,
    /// The object of a file that is to be sealed, and whether its name was taken at once.
    created: Option<(ObjectId, bool)>,
    retry: Retry,
    attempts: ChangeAttempts,
    /// Whether another client is being opened, because the namenode does not know this one.
    is_opening: bool,
}

/// Groups of names; each is a directory. Two, so that renames lead from one to the other; the
/// search for an order grows with the operations of each, so few.
const GROUPS: usize = 2;

/// Operations of one caller: all of them fit into one group's history.
const STEPS_MAX: u32 = OPERATIONS_MAX as u32 / CALLERS_MAX as u32;

/// Time of one call: shorter than most faults last, so that calls time out and their outcome is
/// unknown.
const CALL_MILLIS: u64 = 800;

/// Time of one operation: five calls.
const JOB_MILLIS: u64 = 4000;

/// Names of the attributes for the operation that made an object, and for the one that marked it.
const TAG: &str = "tag";
const MARK: &str = "mark";

impl PendingOperation {
    /// Returns the key of the client that is opened for it.
    const fn key(&self) -> Nonce {
        Nonce(1 << 32 | self.operation as u64)
    }
}

impl Caller {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        let mut random = Random::new(plan.seed, 500 + u64::from(number));
        // One's own clients come behind those of the operator and the writers.
        let client = plan.writers + number;
        Self {
            number,
            job: None,
            steps_left: plan.steps.min(STEPS_MAX),
            next_job: 0,
            sequences: Sequences::of_writer(client),
            last_seen: [[None; NAMES]; GROUPS],
            pause_micros_max: random.pick(&[5_000, 100_000, 500_000]),
            random,
        }
    }
}

impl Caller {
    const fn host(&self) -> Host {
        Host::Caller(self.number)
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
            Timer::Send(job) if self.task(job as u32).is_some() => {
                self.send(context);
            }
            _ => {}
        }
    }

    fn task(&mut self, job: u32) -> Option<&mut PendingOperation> {
        self.job.as_mut().filter(|current| current.number == job)
    }

    fn begin(&mut self, context: &mut Context<'_>) {
        let deadline = context.runtime.clock(self.host()) + Millis(JOB_MILLIS);
        let (now, is_calm) = (context.runtime.now(), context.runtime.is_calm());
        if self.steps_left == 0 || is_calm || self.job.is_some() {
            return;
        }
        self.steps_left -= 1;
        self.next_job += 1;
        let group = self.random.below(GROUPS as u64) as u8;
        let history = &mut context.checks.history;
        let (call, request) = self.draw(group, history.next_tag());
        let operation = history.begin(now, self.number, group, call.clone());
        self.job = Some(PendingOperation {
            number: self.next_job,
            operation,
            group,
            call,
            request: self.sequences.begin(request),
            created: None,
            retry: Retry::new(RetryPolicy::default(), deadline),
            attempts: ChangeAttempts::default(),
            is_opening: false,
        });
        self.send(context);
    }

    fn send(&mut self, context: &mut Context<'_>) {
        let Some(job) = &self.job else { return };
        let call = CallerCall { job: job.number, operation: job.operation };
        let purpose = Purpose::Caller(self.number, call);
        let open = Request::OpenClient { key: job.key() };
        let request = if job.is_opening { open } else { job.request.clone() };
        context.runtime.call_namenode(self.host(), request, CALL_MILLIS, purpose);
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: CallerCall,
        answer: Option<Response>,
    ) {
        let now = context.runtime.clock(self.host());
        let Some(job) = self.job.as_mut().filter(|job| job.number == call.job) else { return };
        let answer = meta(answer);
        match failed(&mut job.attempts, &mut job.retry, now, answer.as_ref()) {
            None => {}
            Some(NextAttempt::Again { pause, as_other_client }) => {
                job.is_opening |= as_other_client;
                let again = Timer::Send(u64::from(job.number));
                return context.runtime.set_timer(self.host(), pause.0 * 1000, again);
            }
            Some(next @ (NextAttempt::GiveUp | NextAttempt::TooLate)) => {
                let answer = answer.filter(|_| next == NextAttempt::GiveUp);
                if answer.is_none() {
                    context.checks.failed_call(context.runtime, "change", None);
                }
                return self.end(context, answer);
            }
        }
        let Some(answer) = answer else { return };
        if let Ok(Reply::Client { number: client }) = answer {
            let client = ClientId { number: client, key: job.key() };
            self.sequences = Sequences::of(client);
            job.request = self.sequences.begin(job.request.inner().clone());
            job.is_opening = false;
            return self.send(context);
        }
        if let Ok(Reply::Grant(grant)) = &answer {
            let request = seal(grant);
            let is_named = matches!(job.call, Call::Put { is_new: true, .. });
            job.created = Some((grant.object, is_named));
            self.sequences.end(&job.request);
            job.request = self.sequences.begin(request);
            return self.send(context);
        }
        self.end(context, Some(answer));
    }

    fn end(&mut self, context: &mut Context<'_>, answer: Option<Result<Reply, Refusal>>) {
        let now = context.runtime.now();
        let Some(job) = self.job.take() else { return };
        let host = self.host();
        self.sequences.end(&job.request);
        let outcome = match job.created {
            // Its name was taken before it was sealed.
            Some((object, true)) => OperationOutcome::Done(Some(object)),
            _ => outcome_of(&job.call, answer),
        };
        self.note(&job, &outcome);
        context.runtime.log(14, job.operation as u64, || {
            format!("{host}: /h{} {:?}: {outcome:?}", job.group, job.call)
        });
        context.checks.history.end(now, job.operation, outcome);
        let micros = self.random.below(self.pause_micros_max);
        context.runtime.set_timer(self.host(), micros, Timer::Begin);
    }
}

impl Caller {
    /// Notes what is at the names now, as far as the caller has seen.
    fn note(&mut self, job: &PendingOperation, outcome: &OperationOutcome) {
        let seen = &mut self.last_seen[usize::from(job.group)];
        match (&job.call, outcome) {
            (Call::Put { at, tag, .. }, OperationOutcome::Done(Some(object))) => {
                seen[usize::from(*at)] = Some(Observation { object: *object, tag: *tag, mark: 0 });
            }
            (Call::Read { at }, OperationOutcome::Saw(saw)) => {
                seen[usize::from(*at)] = saw[usize::from(*at)];
            }
            (Call::List, OperationOutcome::Saw(saw)) => *seen = *saw,
            _ => {}
        }
    }

    fn draw(&mut self, group: u8, tag: u16) -> (Call, Request) {
        let random = &mut self.random;
        let at = random.below(NAMES as u64) as u8;
        let path = path_of(group, at);
        let seen = self.last_seen[usize::from(group)][usize::from(at)];
        match random.below(20) {
            0..=4 => self.draw_put(group, at, tag),
            5 | 6 => {
                let to = (at + 1 + random.below(NAMES as u64 - 1) as u8) % NAMES as u8;
                let replace = random.permille(600);
                let request = Request::Rename { from: path, to: path_of(group, to), replace };
                (Call::Rename { from: at, to, replace }, request)
            }
            7 | 8 => {
                let expected = seen.map(|seen| seen.object).filter(|_| random.permille(600));
                let request = match expected {
                    Some(object) => Request::DeleteObject { path, object, recursive: false },
                    None => Request::Delete { path, recursive: false },
                };
                (Call::Delete { at, expected }, request)
            }
            9 if random.permille(300) => {
                let (kind, parents) = (ObjectKind::Directory, true);
                let request = Request::MakeDirectory { path, kind, parents, is_listed: true };
                (Call::MakeDirectory { at }, request)
            }
            9..=11 => {
                let Some(seen) = seen.filter(|seen| seen.tag != 0) else {
                    return self.draw_put(group, at, tag);
                };
                let attributes = attributes(seen.tag, Some(tag));
                let expected = Some(seen.object);
                let request = Request::SetAttributes { path, expected, attributes };
                (Call::Mark { at, expected: seen.object, mark: tag }, request)
            }
            12 | 13 => {
                let (after, path) = (String::new(), directory(group));
                let request = Request::List { path, after, limit: 100, with_attributes: true };
                (Call::List, request)
            }
            14 | 15 => (Call::Read { at }, Request::Lookup { path, offset: 0, bytes: u64::MAX }),
            _ => (Call::Read { at }, Request::Stat { path }),
        }
    }

    fn draw_put(&mut self, group: u8, at: u8, tag: u16) -> (Call, Request) {
        let random = &mut self.random;
        let is_new = random.permille(300);
        let seen = self.last_seen[usize::from(group)][usize::from(at)].filter(|_| !is_new);
        let condition = match (random.below(10), seen) {
            (0 | 1, _) => Some(Condition::Absent),
            (2..=4, Some(seen)) => Some(Condition::Is(seen.object)),
            _ => None,
        };
        let create = Create {
            kind: CreateKind::File,
            mode: if is_new { CreateMode::New } else { CreateMode::Replace },
            parents: true,
            inline: random.permille(600).then(|| tag.to_le_bytes().to_vec()),
            expected_bytes: Some(0),
            condition: condition.map(|condition| match condition {
                Condition::Absent => NameCondition::Absent,
                Condition::Is(object) => NameCondition::Is(object),
            }),
            attributes: attributes(tag, None),
            ..Create::new(path_of(group, at), Nonce(random.next()))
        };
        (Call::Put { at, tag, is_new, condition }, Request::Create(create))
    }
}

fn directory(group: u8) -> Path {
    format!("/h{group}").parse().expect("a good path")
}

fn path_of(group: u8, at: u8) -> Path {
    format!("/h{group}/{at}").parse().expect("a good path")
}

fn attributes(tag: u16, mark: Option<u16>) -> Attributes {
    let mark = mark.map(|mark| (MARK, mark.to_string()));
    [(TAG, tag.to_string())].into_iter().chain(mark).collect()
}

fn seal(grant: &Grant) -> Request {
    let (object, lease) = (grant.object, grant.lease);
    Request::Seal { object, lease, lengths: Vec::new(), attributes: Attributes::none() }
}

/// Returns the outcome that an answer has for the names.
fn outcome_of(call: &Call, answer: Option<Result<Reply, Refusal>>) -> OperationOutcome {
    let at_one = |at: &u8, seen: Option<Observation>| {
        let mut all = [None; NAMES];
        all[usize::from(*at)] = seen;
        OperationOutcome::Saw(all)
    };
    match (call, answer) {
        (_, None | Some(Err(Refusal::OutcomeUnknown { .. }))) => OperationOutcome::Unknown,
        // The log has not decided it, and the network may deliver the same message once more, as no
        // connection of the servers does: then there may be room.
        (_, Some(Err(Refusal::JournalFull { .. }))) => OperationOutcome::Unknown,
        (Call::Read { at }, Some(Err(Refusal::NotFound { .. }))) => at_one(at, None),
        (Call::List, Some(Err(Refusal::NotFound { .. }))) => OperationOutcome::Saw([None; NAMES]),
        // A repeat was answered when the lease had ended: the name was taken before.
        (Call::Put { is_new: true, .. }, Some(Err(Refusal::LeaseEnded { object }))) => {
            OperationOutcome::Done(Some(object))
        }
        (_, Some(Err(refusal))) => OperationOutcome::Refused(why(&refusal)),
        (Call::Read { at }, Some(Ok(Reply::Stat(stat)))) => at_one(at, Some(seen(&stat))),
        (Call::Read { at }, Some(Ok(Reply::Layout(layout)))) => {
            let mut seen = seen(&layout.stat);
            if let Some([low, high]) = layout.inline.as_deref() {
                seen.tag = u16::from_le_bytes([*low, *high]);
            }
            at_one(at, Some(seen))
        }
        (Call::List, Some(Ok(Reply::Entries { entries, .. }))) => {
            let mut all = [None; NAMES];
            for entry in entries {
                let at: usize = entry.name.parse().expect("the names are numbers");
                let (tag, mark) = marks(&entry.attributes);
                all[at] = Some(Observation { object: entry.object, tag, mark });
            }
            OperationOutcome::Saw(all)
        }
        (_, Some(Ok(Reply::Stat(stat)))) => OperationOutcome::Done(Some(stat.object)),
        (_, Some(Ok(_))) => OperationOutcome::Done(None),
    }
}

fn seen(stat: &ObjectStat) -> Observation {
    let (tag, mark) = marks(&stat.attributes);
    Observation { object: stat.object, tag, mark }
}

fn marks(attributes: &Attributes) -> (u16, u16) {
    let of = |name| attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    (of(TAG), of(MARK))
}

const fn why(refusal: &Refusal) -> ChangeFailure {
    match refusal {
        Refusal::NotFound { .. } => ChangeFailure::NotFound,
        Refusal::Exists { .. } => ChangeFailure::Exists,
        Refusal::Changed { .. } => ChangeFailure::Changed,
        Refusal::IsADirectory { .. } => ChangeFailure::IsADirectory,
        _ => ChangeFailure::Other,
    }
}
