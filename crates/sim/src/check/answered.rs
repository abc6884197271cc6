//! Frames of requests: the namenode answers each once, or refuses it.

use std::collections::{BTreeMap, VecDeque};

use crate::runtime::{CheckResult, Runtime};
use crate::wire::FrameOrigin;

/// The frames that the present process of the namenode has received and not answered.
#[derive(Debug, Default)]
pub(crate) struct AnsweredFrames {
    open: BTreeMap<u64, OpenCalls>,
    /// Frames whose answers take long, in the order in which they came, by connection.
    long: BTreeMap<FrameOrigin, VecDeque<u64>>,
}

/// The calls of one frame.
#[derive(Debug)]
struct OpenCalls {
    origin: FrameOrigin,
    calls: Vec<u64>,
    /// When it came, in microseconds.
    at: u64,
}

/// Age in microseconds of a frame for which the end of a run waits. Younger ones are heartbeats and
/// the managers' requests, which come for ever and are answered within a few turns.
const WAITING_MICROS: u64 = 1_000_000;

impl AnsweredFrames {
    /// Forgets the frames of a process that has ended: their clients send them again.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Notes a frame of a connection, with its calls in their order.
    pub(crate) fn arrived(&mut self, now: u64, frame: u64, origin: FrameOrigin, calls: &[u64]) {
        let calls = calls.to_vec();
        self.open.insert(frame, OpenCalls { origin, calls, at: now });
    }

    /// Notes that the answers of a frame take long.
    pub(crate) fn waits(&mut self, frame: u64) {
        let origin = self.open.get(&frame).map(|open| open.origin);
        origin.into_iter().for_each(|it| self.long.entry(it).or_default().push_back(frame));
    }

    /// Looks at the calls that a frame is answered with.
    pub(crate) fn answered(&mut self, frame: u64, calls: impl Iterator<Item = u64>) -> CheckResult {
        let Some(OpenCalls { origin, calls: sent, .. }) = self.open.remove(&frame) else {
            return Err(("answered", format!("frame {frame} is answered again")));
        };
        let calls: Vec<u64> = calls.collect();
        if calls != sent {
            return Err(("answered", format!("frame {frame} of {sent:?} is answered {calls:?}")));
        }
        let first = self.long.get(&origin).and_then(VecDeque::front).copied();
        if self.leave(origin, frame) && first != Some(frame) {
            let text = format!("{origin:?} is answered frame {frame} before frame {first:?}");
            return Err(("answered", text));
        }
        Ok(())
    }

    /// Looks at a frame that is dropped without an answer: its process has ended.
    pub(crate) fn dropped(&mut self, runtime: &Runtime, frame: u64) -> CheckResult {
        let Some(OpenCalls { origin, .. }) = self.open.remove(&frame) else {
            return Err(("answered", format!("frame {frame} is dropped and was answered")));
        };
        self.leave(origin, frame);
        match runtime.is_alive(origin) {
            true => Err(("answered", format!("frame {frame} of {origin:?} is dropped"))),
            false => Ok(()),
        }
    }

    /// Takes a frame out of those that take long. Returns whether it was one.
    fn leave(&mut self, origin: FrameOrigin, frame: u64) -> bool {
        let Some(frames) = self.long.get_mut(&origin) else { return false };
        let place = frames.iter().position(|it| *it == frame);
        place.is_some_and(|place| frames.remove(place).is_some())
    }

    /// Looks at a namenode that has nothing to do: no frame of a client that runs may be left.
    pub(crate) fn check_idle(&self, runtime: &Runtime) -> CheckResult {
        self.check_older(runtime, 0)
    }

    /// Looks whether a run may end: no frame may be left but what has just come.
    pub(super) fn check_settled(&self, runtime: &Runtime) -> CheckResult {
        self.check_older(runtime, WAITING_MICROS)
    }

    fn check_older(&self, runtime: &Runtime, micros: u64) -> CheckResult {
        let is_left =
            |open: &OpenCalls| open.at + micros <= runtime.now() && runtime.is_alive(open.origin);
        match self.open.iter().find(|(_, open)| is_left(open)) {
            Some((frame, OpenCalls { origin, calls, at })) => {
                let millis = (runtime.now() - at) / 1000;
                let text =
                    format!("frame {frame} of {origin:?}, {calls:?}, waits since {millis} ms");
                Err(("answered", text))
            }
            None => Ok(()),
        }
    }
}
