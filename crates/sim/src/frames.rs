//! Frames: requests of clients that travel to the namenode together.
//!
//! The clients of an application share a connection. What they request within a moment goes into
//! one frame, which the first of them sends, and the answers come back in one frame to it.

use sanderling_protocol::Request;

use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, Host, Message, MessageBody};

/// The requests that gather for the next frame.
#[derive(Debug)]
pub(crate) struct Frames {
    random: Random,
    /// Share of the requests, in thousandths, that travel with others.
    permille: u32,
    /// The sender and the call of each request.
    waiting: Vec<(Host, u64, Request)>,
}

/// Longest time that a request waits for others, in microseconds.
const GATHER_MICROS_MAX: u64 = 20_000;

impl Frames {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        let (random, permille) = (Random::new(plan.seed, 44), plan.frame_permille);
        Self { random, permille, waiting: Vec::new() }
    }

    /// Keeps a request for the next frame, or gives it back: then it travels alone. Returns in how
    /// many microseconds the frame leaves if this is the first request in it.
    pub(crate) fn gather(&mut self, from: Host, call: u64, ask: Ask) -> Result<Option<u64>, Ask> {
        let request = match ask {
            Ask::Meta(request) if from.is_client() && self.permille > 0 => request,
            ask => return Err(ask),
        };
        if !self.random.permille(self.permille) {
            return Err(Ask::Meta(request));
        }
        self.waiting.push((from, call, request));
        let is_first = self.waiting.len() == 1;
        Ok(is_first.then(|| self.random.below(GATHER_MICROS_MAX)))
    }

    /// Takes what has gathered and is still awaited, as one message.
    pub(crate) fn take(&mut self, is_awaited: impl Fn(u64) -> bool) -> Option<Message> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(_, call, _)| is_awaited(*call));
        let &(from, call, _) = waiting.first()?;
        let mut requests = waiting.into_iter().map(|(_, call, request)| (call, request));
        let ask = if requests.len() == 1 {
            Ask::Meta(requests.next().expect("there is one").1)
        } else {
            Ask::Frame(requests.collect())
        };
        Some(Message { from, to: Host::Namenode, call, body: MessageBody::Ask(ask) })
    }
}
