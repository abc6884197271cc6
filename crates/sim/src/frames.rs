//! Frames: requests of clients that travel to the namenode together.
//!
//! The clients of an application share a connection. What they request within a moment goes into
//! one frame, which the first of them sends, and the answers come back in one frame to it.

use sanderling_protocol::Request;

use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Host, Message, MessageBody, RequestBody};

/// The requests that gather for the next frame.
#[derive(Debug)]
pub(crate) struct Frames {
    random: Random,
    /// Share of the requests, in thousandths, that travel with others.
    permille: u32,
    /// The sender and the call of each request.
    waiting: Vec<(Host, u64, Request)>,
}

/// Longest time that a request waits for others, in microseconds. As long as the longest delay of
/// an ordinary message, so that requests overtake those that wait.
const GATHER_MICROS_MAX: u64 = 20_000;

impl Frames {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        let (random, permille) = (Random::new(plan.seed, 44), plan.frame_permille);
        Self { random, permille, waiting: Vec::new() }
    }

    /// Keeps a request for the next frame, or gives it back: then it travels alone.
    pub(crate) fn gather(
        &mut self,
        from: Host,
        call: u64,
        body: RequestBody,
    ) -> Option<RequestBody> {
        let request = match body {
            RequestBody::Meta(request) if from.is_client() && self.permille > 0 => request,
            body => return Some(body),
        };
        if !self.random.permille(self.permille) {
            return Some(RequestBody::Meta(request));
        }
        self.waiting.push((from, call, request));
        None
    }

    /// Returns in how many microseconds the frame leaves, once its first request is in it.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        (self.waiting.len() == 1).then(|| self.random.below(GATHER_MICROS_MAX))
    }

    /// Takes what has gathered and is still awaited, as one message.
    pub(crate) fn take(&mut self, is_awaited: impl Fn(u64) -> bool) -> Option<Message> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(_, call, _)| is_awaited(*call));
        let &(from, call, _) = waiting.first()?;
        let mut requests = waiting.into_iter().map(|(_, call, request)| (call, request));
        let body = if requests.len() == 1 {
            RequestBody::Meta(requests.next().expect("there is one").1)
        } else {
            RequestBody::Frame(requests.collect())
        };
        Some(Message {
            from,
            to: Host::Namenode,
            call,
            body: MessageBody::Request(body),
            life: None,
        })
    }
}
