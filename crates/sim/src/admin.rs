//! The simulated operator and the application's changes of names.

use sanderling_protocol::message::{JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::{JobId, Millis, Path, Reply, Request};

use crate::event::{AdminCall, Purpose, Timer};
use crate::plan::Plan;
use crate::random::Random;
use crate::wire::{Answer, Ask, Place, address, meta};
use crate::world::World;

/// Somebody who makes, renames and deletes things.
#[derive(Debug)]
pub(crate) struct Admin {
    steps_left: u32,
    jobs: Vec<JobId>,
    random: Random,
}

/// Time of one call.
const CALL_MILLIS: u64 = 1000;

impl Admin {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { steps_left: plan.steps, jobs: Vec::new(), random: Random::new(plan.seed, 400) }
    }
}

impl World {
    pub(crate) fn admin_start(&mut self) {
        for (path, kind) in [
            ("/d0", ObjectKind::Directory),
            ("/d1", ObjectKind::Directory),
            ("/d2", ObjectKind::Directory),
            ("/t", ObjectKind::Table),
            ("/m", ObjectKind::Multifile),
        ] {
            let path: Path = path.parse().expect("a good path");
            self.admin_must(Request::MakeDirectory { path, kind, parents: true, is_listed: true });
        }
        self.set_timer(Place::Admin, 300_000, Timer::Begin);
    }

    pub(crate) fn admin_timer(&mut self, timer: Timer) {
        if timer == Timer::Begin && !self.is_calm && self.admin.steps_left > 0 {
            self.admin.steps_left -= 1;
            let request = self.admin.draw();
            let purpose = Purpose::Admin(AdminCall::Change);
            self.call(Place::Admin, Place::Namenode, Ask::Meta(request), CALL_MILLIS, purpose);
            let micros = self.admin.random.between(20_000, 600_000);
            self.set_timer(Place::Admin, micros, Timer::Begin);
        }
    }

    /// Asks until there is an answer.
    pub(crate) fn admin_must(&mut self, request: Request) {
        let purpose = Purpose::Admin(AdminCall::Must(request.clone()));
        self.call(Place::Admin, Place::Namenode, Ask::Meta(request), CALL_MILLIS, purpose);
    }

    pub(crate) fn admin_answered(&mut self, call: AdminCall, answer: Option<Answer>) {
        match (call, meta(answer)) {
            (AdminCall::Change, Some(Ok(Reply::Job(job)))) => self.admin.jobs.push(job.job),
            (AdminCall::Must(request), None) => self.admin_must(request),
            _ => {}
        }
    }

    /// Gives a notice, or begins or ends something else with a node, by its address.
    pub(crate) fn admin_notice(&mut self, slot: u8, deadline_millis: u64) {
        let node = NodeSelector(address(slot));
        let deadline_millis = deadline_millis.cast_signed();
        self.admin_must(Request::Notice { node, deadline_millis, reason: "spot".to_owned() });
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

    fn draw(&mut self) -> Request {
        let path = self.path();
        match self.random.below(12) {
            0..=2 => {
                let to = self.path();
                Request::Rename { from: path, to, replace: self.random.permille(600) }
            }
            3 | 4 => Request::Delete { path, recursive: self.random.permille(300) },
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
