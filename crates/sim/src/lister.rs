//! Clients that list directories, sum up subtrees and look names up, many at once: frames of reads
//! that take long, with changes among them now and then.
//!
//! Each is a thread of a client's process and sends its frames by that process's connection.

use sanderling_protocol::message::ObjectKind;
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
    /// Directories of its own that it still makes.
    own_left: u32,
    /// Draws which frames make and list them, apart from what else a frame has.
    own_random: Random,
}

/// Frames of one client: as many as keep the namenode's queues full for a second or two.
const FRAMES_MAX: u32 = 40;

/// Most requests of one frame. Twice as many slices as a tenant may wait for one other
/// (`check/tenant_turns.rs`), so that a frame that keeps its turn is found.
const REQUESTS_MAX: u64 = 16;

/// Directories that one client makes. Few: each makes the listing of all of them longer.
const OWN_MAX: u32 = 8;

/// Where they are. Nothing else makes, moves or removes anything there.
const OWN: &str = "/own";

/// Time of one call. As that of callers: shorter than most faults last.
const CALL_MILLIS: u64 = 800;

impl Lister {
    pub(crate) fn new(plan: &RunPlan, host: Host) -> Self {
        let mut random = Random::new(plan.seed, 600 + host.index() as u64);
        let pause_micros_max = random.pick(&[10_000, 50_000, 300_000]);
        let frames_left = if plan.queues.is_small { FRAMES_MAX } else { 0 };
        let own_random = Random::new(plan.seed, 700 + host.index() as u64);
        Self { host, frames_left, pause_micros_max, random, own_left: OWN_MAX, own_random }
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
        let mut requests: Vec<Request> = (0..count).map(|_| self.draw(changes)).collect();
        self.add_own(&mut requests);
        context.runtime.call_frame(self.host, requests, CALL_MILLIS, || Purpose::List);
        self.start(context);
    }

    /// Lets some frames make a directory and list it behind that: the answer shows whether the
    /// namenode keeps the order of a frame's requests (`check/answered.rs`).
    fn add_own(&mut self, requests: &mut Vec<Request>) {
        if self.own_left == 0 || !self.own_random.permille(300) {
            return;
        }
        let [make, list] = make_and_list(own(self.host, self.own_left));
        self.own_left -= 1;
        requests.truncate(REQUESTS_MAX as usize - 2);
        let at = self.own_random.below(requests.len() as u64 + 1) as usize;
        requests.insert(at, make);
        requests.push(list);
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

/// Returns the path of a directory of a client's own.
pub(crate) fn own(host: Host, number: u32) -> Path {
    format!("{OWN}/{}-{number}", host.index()).parse().expect("a good path")
}

/// Returns whether this is a directory of some client's own.
pub(crate) fn is_own(path: &Path) -> bool {
    path.as_str().strip_prefix(OWN).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns requests that make a directory and list it.
pub(crate) fn make_and_list(path: Path) -> [Request; 2] {
    let (kind, after) = (ObjectKind::Directory, String::new());
    let make = Request::MakeDirectory { path: path.clone(), kind, parents: true, is_listed: true };
    [make, Request::List { path, after, limit: 100, with_attributes: false }]
}
