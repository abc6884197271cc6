//! Clients that list directories, sum up subtrees and look names up, many at once: frames of reads
//! that take long, with changes among them now and then.
//!
//! Each is a thread of a client's process and sends its frames by that process's connection.

use sanderling_protocol::{Path, Request};

use crate::context::Context;
use crate::event::{Purpose, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::Host;

/// What one client lists.
#[derive(Debug)]
pub(crate) struct Lister {
    host: Host,
    /// Frames that it still sends; none where the namenode's queues are as large as a server's.
    frames_left: u32,
    pause_micros_max: u64,
    random: Random,
}

/// Frames of one client: as many as keep the namenode's queues full for a second or two.
const FRAMES_MAX: u32 = 40;

/// Most requests of one frame. Twice as many slices as a tenant may wait for one other
/// (`check/turns.rs`), so that a frame that keeps its turn is found.
const REQUESTS_MAX: u64 = 16;

/// Time of one call. As that of callers: shorter than most faults last.
const CALL_MILLIS: u64 = 800;

impl Lister {
    pub(crate) fn new(plan: &RunPlan, host: Host) -> Self {
        let mut random = Random::new(plan.seed, 600 + host.index() as u64);
        let pause_micros_max = random.pick(&[10_000, 50_000, 300_000]);
        let frames_left = if plan.queues.is_small { FRAMES_MAX } else { 0 };
        Self { host, frames_left, pause_micros_max, random }
    }

    pub(crate) const fn host(&self) -> Host {
        self.host
    }

    /// Sets the timer of the next frame, if one is left.
    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        if self.frames_left > 0 {
            let micros = self.random.below(self.pause_micros_max);
            context.runtime.set_timer(self.host, micros, Timer::List);
        }
    }

    /// Sends the next frame, whether or not the last one is answered.
    pub(crate) fn send(&mut self, context: &mut Context<'_>) {
        if self.frames_left == 0 || context.runtime.is_calm() {
            return;
        }
        self.frames_left -= 1;
        let count = self.random.between(1, REQUESTS_MAX);
        let changes = self.random.pick(&[0, 0, 100, 1000]);
        let requests = (0..count).map(|_| self.draw(changes)).collect();
        context.runtime.call_frame(self.host, requests, CALL_MILLIS, || Purpose::List);
        self.start(context);
    }

    /// Draws a request; that share of them, in thousandths, changes something.
    fn draw(&mut self, changes: u32) -> Request {
        let random = &mut self.random;
        if random.permille(changes) {
            return Request::RenewLeases { leases: Vec::new() };
        }
        let path: Path = match random.below(4) {
            0 => Path::root(),
            1 => format!("/d{}", random.below(3)).parse().expect("a good path"),
            2 => format!("/h{}", random.below(2)).parse().expect("a good path"),
            _ => {
                format!("/d{}/f{}", random.below(3), random.below(5)).parse().expect("a good path")
            }
        };
        match random.below(4) {
            0 => {
                let (after, limit) = (String::new(), random.between(1, 100) as u32);
                Request::List { path, after, limit, with_attributes: random.permille(500) }
            }
            1 => Request::Usage { path },
            2 => Request::Lookup { path, offset: 0, bytes: u64::MAX },
            _ => Request::Stat { path },
        }
    }
}
