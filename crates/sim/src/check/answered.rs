//! Frames of requests: the namenode answers each once, or refuses it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanderling_protocol::{Path, Refusal, Reply, Request};

use crate::lister;
use crate::runtime::{CheckResult, Runtime};
use crate::wire::{FrameOrigin, Response};

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
    calls: Vec<(u64, SentRequest)>,
    /// When it came, in microseconds.
    at: u64,
}

/// What the checker compares of a request with its answer.
#[derive(Debug)]
enum SentRequest {
    /// Makes a lister's own directory, which nothing removes.
    MakeOwn(Path),
    List(Path),
    Usage,
    Lookup,
    Stat,
    Other,
}

impl SentRequest {
    fn of(request: &Request) -> Self {
        match request.inner() {
            Request::MakeDirectory { path, .. } if lister::is_own(path) => {
                Self::MakeOwn(path.clone())
            }
            Request::List { path, .. } => Self::List(path.clone()),
            Request::Usage { .. } => Self::Usage,
            Request::Lookup { .. } => Self::Lookup,
            Request::Stat { .. } => Self::Stat,
            _ => Self::Other,
        }
    }

    /// Returns whether the reply is one to such a request.
    const fn fits(&self, reply: &Reply) -> bool {
        match self {
            Self::List(_) => matches!(reply, Reply::Entries { .. }),
            Self::Usage => matches!(reply, Reply::Usage(_)),
            Self::Lookup => matches!(reply, Reply::Layout(_)),
            Self::MakeOwn(_) | Self::Stat => matches!(reply, Reply::Stat(_)),
            Self::Other => true,
        }
    }
}

/// Age in microseconds of a frame for which the end of a run waits. Younger ones are heartbeats and
/// the managers' requests, which come for ever and are answered within a few turns.
const WAITING_MICROS: u64 = 1_000_000;

impl AnsweredFrames {
    /// Forgets the frames of a process that has ended: their clients send them again.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Notes a frame of a connection, with its requests in their order, each with its call.
    pub(crate) fn arrived(
        &mut self,
        now: u64,
        frame: u64,
        origin: FrameOrigin,
        requests: &[(u64, Request)],
    ) {
        let calls = requests.iter().map(|(call, request)| (*call, SentRequest::of(request)));
        self.open.insert(frame, OpenCalls { origin, calls: calls.collect(), at: now });
    }

    /// Notes that the answers of a frame take long.
    pub(crate) fn waits(&mut self, frame: u64) {
        let origin = self.open.get(&frame).map(|open| open.origin);
        origin.into_iter().for_each(|it| self.long.entry(it).or_default().push_back(frame));
    }

    /// Checks that a frame has one answer: any is one too many for a frame that was answered
    /// before, or dropped.
    pub(crate) fn answered(&mut self, frame: u64, replies: &[(u64, Response)]) -> CheckResult {
        let Some(OpenCalls { origin, calls: sent, .. }) = self.open.remove(&frame) else {
            return Err(("answered", format!("frame {frame} is answered again")));
        };
        if !sent.iter().map(|(call, _)| call).eq(replies.iter().map(|(call, _)| call)) {
            let calls: Vec<u64> = replies.iter().map(|(call, _)| *call).collect();
            let text = format!("frame {frame} of {sent:?} is answered {calls:?}");
            return Err(("answered", text));
        }
        check_fit(frame, &sent, replies)?;
        let first = self.long.get(&origin).and_then(VecDeque::front).copied();
        if self.leave(origin, frame) && first != Some(frame) {
            let text = format!("{origin:?} is answered frame {frame} before frame {first:?}");
            return Err(("answered", text));
        }
        Ok(())
    }

    /// Checks that a frame is dropped without an answer only if its process has ended.
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

    /// Checks that a namenode that has nothing to do has no frame left of a client that runs.
    pub(crate) fn check_idle(&self, runtime: &Runtime) -> CheckResult {
        self.check_older(runtime, 0)
    }

    /// Checks that no frame is left at the end of a run but what has just come.
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

/// Checks that each answer is one to its request, and that a list has the directory that its frame
/// has made before.
fn check_fit(frame: u64, sent: &[(u64, SentRequest)], replies: &[(u64, Response)]) -> CheckResult {
    let mut made = BTreeSet::new();
    for ((call, request), (_, response)) in sent.iter().zip(replies) {
        let Response::Meta(answer) = response else { continue };
        let is_right = match (request, answer) {
            (SentRequest::List(path), Err(Refusal::NotFound { .. })) => !made.contains(path),
            (request, Ok(reply)) => request.fits(reply),
            (_, Err(_)) => true,
        };
        if !is_right {
            let text = format!("call {call} of frame {frame}, {request:?}, is answered {answer:?}");
            return Err(("answered", text));
        }
        if let (SentRequest::MakeOwn(path), Ok(_)) = (request, answer) {
            made.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sanderling_core::catalog::Catalog;
    use sanderling_protocol::{ClusterId, Instant, Millis};

    use super::*;
    use crate::wire::Host;

    type Answer = Result<Reply, Refusal>;

    const ORIGIN: FrameOrigin = FrameOrigin { host: Host::Admin, life: 1 };

    fn made() -> Answer {
        let catalog = Catalog::new(ClusterId(1), Millis(1000));
        catalog.stat(&Path::root(), Instant(0)).map(Reply::Stat)
    }

    fn listed() -> Answer {
        Ok(Reply::Entries { entries: Vec::new(), is_more: false })
    }

    fn none() -> Answer {
        Err(Refusal::NotFound { path: lister::own(Host::Admin, 1) })
    }

    fn refused() -> Answer {
        Err(Refusal::RetryAfter { after: Millis(1), why: String::new() })
    }

    /// Answers a frame that makes a directory and lists it.
    fn answer(frames: &mut AnsweredFrames, answers: [Answer; 2]) -> CheckResult {
        let [make, list] = answers.map(Response::Meta);
        frames.answered(1, &[(7, make), (8, list)])
    }

    fn frames() -> AnsweredFrames {
        let mut frames = AnsweredFrames::default();
        let [make, list] = lister::make_and_list(lister::own(Host::Admin, 1));
        frames.arrived(0, 1, ORIGIN, &[(7, make), (8, list)]);
        frames
    }

    #[test]
    fn second_answer_is_found() {
        let mut frames = frames();
        assert_eq!(answer(&mut frames, [made(), listed()]), Ok(()));
        assert!(answer(&mut frames, [made(), listed()]).is_err());
        assert!(frames.answered(1, &[]).is_err());
    }

    #[test]
    fn answer_to_another_request_is_found() {
        assert!(answer(&mut frames(), [listed(), made()]).is_err());
        assert!(answer(&mut frames(), [made(), made()]).is_err());
        assert!(frames().answered(1, &[(8, Response::Meta(listed()))]).is_err());
    }

    #[test]
    fn list_that_goes_before_the_change_before_it_is_found() {
        assert!(answer(&mut frames(), [made(), none()]).is_err());
        assert_eq!(answer(&mut frames(), [refused(), none()]), Ok(()));
        assert_eq!(answer(&mut frames(), [made(), refused()]), Ok(()));
    }
}
