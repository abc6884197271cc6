//! Frames: requests of clients that travel to the namenode together.
//!
//! The clients of an application share a connection. What they request within a moment goes into
//! one frame, which the first of them sends, and the answers come back in one frame to it.

use sanderling_protocol::Request;

use crate::event::Event;
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, Host, Message, MessageBody, Response};
use crate::world::World;

/// The requests that gather for the next frame.
#[derive(Debug)]
pub(crate) struct Frames {
    random: Random,
    /// Who has requested it, and by which call.
    waiting: Vec<(Host, u64, Request)>,
}

/// Longest time that a request waits for others, in microseconds.
const GATHER_MICROS_MAX: u64 = 20_000;

impl Frames {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        Self { random: Random::new(plan.seed, 44), waiting: Vec::new() }
    }
}

impl World {
    /// Keeps a request for the next frame, or gives it back: then it travels alone.
    pub(crate) fn gather(&mut self, from: Host, call: u64, ask: Ask) -> Option<Ask> {
        let share = self.plan.frame_permille;
        let request = match ask {
            Ask::Meta(request) if from.is_client() && share > 0 => request,
            ask => return Some(ask),
        };
        if !self.frames.random.permille(share) {
            return Some(Ask::Meta(request));
        }
        self.frames.waiting.push((from, call, request));
        if self.frames.waiting.len() == 1 {
            let micros = self.frames.random.below(GATHER_MICROS_MAX);
            self.after(micros, Event::Frame);
        }
        None
    }

    /// Sends what has gathered. Who has ended meanwhile sends nothing.
    pub(crate) fn send_frame(&mut self) {
        let mut waiting = std::mem::take(&mut self.frames.waiting);
        waiting.retain(|(_, call, _)| self.is_awaited(*call));
        let Some((from, call, _)) = waiting.first() else { return };
        let (from, call) = (*from, *call);
        let mut requests = waiting.into_iter().map(|(_, call, request)| (call, request));
        let ask = if requests.len() == 1 {
            Ask::Meta(requests.next().expect("there is one").1)
        } else {
            self.statistics.frames += 1;
            Ask::Frame(requests.collect())
        };
        self.send(Message { from, to: Host::Namenode, call, body: MessageBody::Ask(ask) });
    }

    /// Answers the requests of one frame.
    pub(crate) fn reply_frame(&mut self, to: Host, mut answers: Vec<(u64, Response)>) {
        let Some((call, _)) = answers.first() else { return };
        let call = *call;
        let answer = if answers.len() == 1 {
            answers.pop().expect("there is one").1
        } else {
            Response::Frame(answers)
        };
        self.reply(Host::Namenode, to, call, answer);
    }
}
