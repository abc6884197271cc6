//! The simulated operator and the application's changes of names.

use std::collections::VecDeque;

use sanderling_protocol::message::{
    Attributes, Concat, Condition, JobHints, ObjectKind, RECOMPUTE_MILLIS, RegisterJob,
};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::{JobId, Millis, Nonce, ObjectId, Path, Refusal, Reply, Request};

use crate::client::Sequences;
use crate::context::Context;
use crate::event::{AdminCall, Purpose, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Host, Response, address, meta};

/// The operator: it makes, renames and deletes things, and gives notices.
#[derive(Debug)]
pub(crate) struct Admin {
    steps_left: u32,
    sequences: Sequences,
    jobs: Vec<JobId>,
    /// What was refused for the moment and must be done.
    refused: VecDeque<Request>,
    random: Random,
}

/// Time of one call. A tenth of the product's default deadline of a call, so that runs of some
/// virtual seconds have many that time out.
const CALL_MILLIS: u64 = 1000;

/// How often a change is sent whose answer does not come. Enough that most repeats find a namenode,
/// few enough that some changes stay in doubt.
const TRIES_MAX: u32 = 5;

impl Admin {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        Self {
            steps_left: plan.steps,
            sequences: Sequences::of_admin(),
            jobs: Vec::new(),
            refused: VecDeque::new(),
            random: Random::new(plan.seed, 400),
        }
    }
}

impl Admin {
    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        for (path, kind) in [
            ("/d0", ObjectKind::Directory),
            ("/d1", ObjectKind::Directory),
            ("/d2", ObjectKind::Directory),
            ("/t", ObjectKind::Table),
            ("/m", ObjectKind::Multifile),
        ] {
            let path: Path = path.parse().expect("a good path");
            if context.runtime.plan().has_large_jobs && kind == ObjectKind::Directory {
                // It ends when it is not renewed, and what was written below goes at once.
                let lease = Millis(self.random.between(1500, 8000));
                let hints = JobHints::default();
                let quota_bytes = None;
                self.must(
                    context,
                    Request::RegisterJob(RegisterJob { path, lease, quota_bytes, hints }),
                );
                continue;
            }
            self.must(
                context,
                Request::MakeDirectory { path, kind, parents: true, is_listed: true },
            );
        }
        context.runtime.set_timer(Host::Admin, 300_000, Timer::Begin);
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, timer: Timer) {
        if timer == Timer::Again
            && let Some(request) = self.refused.pop_front()
        {
            return self.must_again(context, request);
        }
        if timer == Timer::Begin && !context.runtime.is_calm() && self.steps_left > 0 {
            self.steps_left -= 1;
            let request = self.draw();
            let request = self.sequences.begin(request);
            self.change(context, request, 1);
            let micros = self.random.between(20_000, 600_000);
            context.runtime.set_timer(Host::Admin, micros, Timer::Begin);
        }
    }

    fn change(&mut self, context: &mut Context<'_>, request: Request, tries: u32) {
        let purpose = Purpose::Admin(AdminCall::Change { request: request.clone(), tries });
        context.runtime.call_namenode(Host::Admin, request, CALL_MILLIS, purpose);
    }

    /// Sends a request until it is answered.
    pub(crate) fn must(&mut self, context: &mut Context<'_>, request: Request) {
        let request = self.sequences.begin(request);
        self.must_again(context, request);
    }

    fn must_again(&mut self, context: &mut Context<'_>, request: Request) {
        let purpose = Purpose::Admin(AdminCall::Must(request.clone()));
        context.runtime.call_namenode(Host::Admin, request, CALL_MILLIS, purpose);
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: AdminCall,
        answer: Option<Response>,
    ) {
        match (call, meta(answer)) {
            (AdminCall::Change { request, tries }, None) if tries < TRIES_MAX => {
                self.change(context, request, tries + 1);
            }
            (AdminCall::Must(request), None) => self.must_again(context, request),
            (AdminCall::Must(request), Some(Err(Refusal::RetryAfter { after, .. }))) => {
                self.refused.push_back(request);
                context.runtime.set_timer(Host::Admin, after.0 * 1000, Timer::Again);
            }
            (AdminCall::Change { request, .. } | AdminCall::Must(request), answer) => {
                self.sequences.end(&request);
                if let Some(Ok(Reply::Job(job))) = answer {
                    self.jobs.push(job.job);
                }
            }
        }
    }

    /// Gives a notice, or begins or ends something else with a node, by its address.
    pub(crate) fn notice(&mut self, context: &mut Context<'_>, slot: u8, deadline_millis: u64) {
        let node = NodeSelector(address(slot));
        let deadline_millis = deadline_millis.cast_signed();
        self.must(context, Request::Notice { node, deadline_millis, reason: "spot".to_owned() });
    }
}

impl Admin {
    fn path(&mut self) -> Path {
        let random = &mut self.random;
        let text = match random.below(12) {
            0..=5 => format!("/d{}/f{}", random.below(3), random.below(5)),
            6 => format!("/t/k{}", random.below(3)),
            7 => format!("/m/p{}", random.below(5)),
            8 => format!("/d{}", random.below(4)),
            9 => format!("/d{}/s{}", random.below(3), random.below(2)),
            10 => format!("/j{}", random.below(2)),
            _ => random.pick(&["/t", "/m", "/j0/a", "/d3/x/y"]).to_owned(),
        };
        text.parse().expect("a good path")
    }

    /// Draws what is to become one file: files of the same directories, and now and then what is
    /// none.
    fn joining(&mut self, to: Path) -> Concat {
        let count = self.random.between(1, 4);
        let parts = (0..count).map(|_| {
            if self.random.permille(50) {
                return self.path();
            }
            let (directory, name) = (self.random.below(3), self.random.below(5));
            format!("/d{directory}/f{name}").parse().expect("a good path")
        });
        let parts = parts.collect();
        Concat {
            parts,
            to,
            condition: draw_condition(&mut self.random),
            parents: self.random.permille(500),
            is_listed: self.random.permille(900),
            ttl: self.random.permille(100).then(|| Millis(self.random.between(200, 6000))),
            attributes: draw_attributes(&mut self.random),
            writer: Nonce(self.random.between(1 << 40, 1 << 41)),
        }
    }

    fn draw(&mut self) -> Request {
        let path = self.path();
        match self.random.below(15) {
            12 | 13 => Request::Concat(self.joining(path)),
            14 => {
                let attributes = draw_attributes(&mut self.random);
                let expected =
                    self.random.permille(300).then(|| ObjectId(self.random.between(2, 60)));
                Request::SetAttributes { path, expected, attributes }
            }
            0..=2 => {
                let to = self.path();
                Request::Rename { from: path, to, replace: self.random.permille(600) }
            }
            3 | 4 => {
                let recursive = self.random.permille(300);
                match self.random.below(3) {
                    0 => {
                        let object = ObjectId(self.random.between(2, 60));
                        Request::DeleteObject { path, object, recursive }
                    }
                    _ => Request::Delete { path, recursive },
                }
            }
            5 => {
                let ttl = self.random.permille(800).then(|| Millis(self.random.between(100, 4000)));
                Request::SetTtl { path, ttl }
            }
            6..=8 => {
                let kinds = [ObjectKind::Directory, ObjectKind::Table, ObjectKind::Multifile];
                let kind = self.random.pick(&kinds);
                let parents = self.random.permille(600);
                Request::MakeDirectory { path, kind, parents, is_listed: self.random.permille(900) }
            }
            9 => {
                let quota = self.random.permille(500).then_some(3 << 20);
                let hints = JobHints {
                    keep_after_job: self.random.permille(300),
                    recompute_millis_per_mib: Some(self.random.below(100)),
                    ..JobHints::default()
                };
                let lease = Millis(self.random.between(1000, 5000));
                Request::RegisterJob(RegisterJob { path, lease, quota_bytes: quota, hints })
            }
            number => {
                let last = self.jobs.last().copied().unwrap_or(JobId(1));
                if number == 10 {
                    Request::RenewJob { job: last }
                } else {
                    Request::EndJob { job: last }
                }
            }
        }
    }
}

/// Draws what must be under a name; mostly nothing in particular.
pub(crate) fn draw_condition(random: &mut Random) -> Option<Condition> {
    match random.below(20) {
        0..=2 => Some(Condition::Absent),
        // Ids are given out from 2 on: sometimes it is the one.
        3 => Some(Condition::Is(ObjectId(random.between(2, 60)))),
        _ => None,
    }
}

/// Draws a few attributes; mostly none.
pub(crate) fn draw_attributes(random: &mut Random) -> Attributes {
    let count = random.below(10).saturating_sub(7);
    let name = |index| match index {
        0 => RECOMPUTE_MILLIS.to_owned(),
        _ => format!("a{index}"),
    };
    let attribute = |_| (name(random.below(3)), format!("{}", random.below(100)));
    (0..count).map(attribute).collect()
}
