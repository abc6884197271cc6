//! How a frame is answered: at once, in slices, part by part, or by the writer.

use sanderling_protocol::message::Repetition;
use sanderling_protocol::{Millis, Request};

use super::Namenode;

/// Most small changes that are made by whoever brings them: together they take as long as a few
/// wake-ups.
const MADE_AT_ONCE_MAX: usize = 256;

/// The part of the namenode that answers a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The first event after a sequence, or the end of the wait. Only a request that is alone in
    /// its frame waits: among others it would hold up their answers.
    Events {
        /// The last sequence that the caller has.
        after: u64,
        /// Most events.
        limit: u32,
        /// How long the caller waits.
        wait: Millis,
    },
    /// A check of the whole catalog.
    Check,
    /// Requests that change nothing: a [`FrameRead`](super::FrameRead).
    Reads(Vec<Request>),
    /// Changes, and reads among them that are short.
    Changes(Vec<Request>),
    /// The parts of the frame, each of which is routed by itself when those before it are answered.
    Parts(Vec<Vec<Request>>),
}

impl Namenode {
    /// Decides how a frame is answered. Long reads are never answered among changes, under the
    /// writer's lock: such a frame is split, and so is one with a check of the catalog. Parts keep
    /// the order of their requests; one of a frame with a check may be split once more.
    pub(super) fn route(&self, requests: Vec<Request>) -> Route {
        match requests.as_slice() {
            [Request::Events { after, limit, wait }] if wait.0 > 0 => {
                return Route::Events { after: *after, limit: *limit, wait: *wait };
            }
            [Request::Fsck] => return Route::Check,
            _ => {}
        }
        if requests.iter().any(is_check) {
            return Route::Parts(parts(requests, is_check));
        }
        if requests.iter().all(|request| self.is_read(request)) {
            return Route::Reads(requests);
        }
        let is_long = |request: &Request| self.is_long(request);
        if requests.len() > 1 && requests.iter().any(is_long) {
            return Route::Parts(parts(requests, is_long));
        }
        Route::Changes(requests)
    }
}

/// Returns whether all requests of a frame are changes whatever the catalog holds: the caller then
/// need not wait for the catalog.
#[must_use]
pub fn are_changes(requests: &[Request]) -> bool {
    let is_change = |request: &Request| request.inner().repeat() == Repetition::Once;
    !requests.is_empty() && requests.iter().all(is_change)
}

/// Returns whether a frame of changes takes the same short time whatever the catalog holds, so that
/// the receiving thread may make them if the writer is idle.
pub(super) fn is_made_at_once(requests: &[Request]) -> bool {
    requests.len() <= MADE_AT_ONCE_MAX && requests.iter().all(is_small)
}

const fn is_check(request: &Request) -> bool {
    matches!(request, Request::Fsck)
}

/// Splits requests into parts in which all or none are of a kind, in their order.
fn parts(requests: Vec<Request>, is_apart: impl Fn(&Request) -> bool) -> Vec<Vec<Request>> {
    let mut parts: Vec<(bool, Vec<Request>)> = Vec::new();
    for request in requests {
        let apart = is_apart(&request);
        match parts.last_mut() {
            // A check has a part of its own.
            Some((last, part)) if *last == apart && !is_check(&request) => part.push(request),
            _ => parts.push((apart, vec![request])),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

const fn is_small(request: &Request) -> bool {
    matches!(
        request.inner(),
        Request::Create(_)
            | Request::Append { .. }
            | Request::AddBlocks { .. }
            | Request::Publish { .. }
            | Request::Seal { .. }
            | Request::RenewLeases { .. }
            | Request::RenewJob { .. }
            | Request::OpenClient { .. }
            | Request::Heartbeat(_)
            | Request::Beat(_)
            | Request::Lookup { .. }
            | Request::LookupObject { .. }
            | Request::Stat { .. }
    )
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::ObjectKind;
    use sanderling_protocol::{ClusterId, Path};

    use super::*;
    use crate::namenode::NamenodeConfig;

    fn root() -> Path {
        Path::root()
    }

    fn change() -> Request {
        let path = "/d".parse().unwrap();
        let (kind, parents, is_listed) = (ObjectKind::Directory, true, true);
        Request::MakeDirectory { path, kind, parents, is_listed }
    }

    fn short() -> Request {
        Request::Stat { path: root() }
    }

    fn long() -> Request {
        Request::Usage { path: root() }
    }

    fn events(millis: u64) -> Request {
        Request::Events { after: 3, limit: 7, wait: Millis(millis) }
    }

    fn route(requests: Vec<Request>) -> Route {
        Namenode::new(NamenodeConfig::default(), ClusterId(1)).route(requests)
    }

    #[test]
    fn only_a_wait_that_is_alone_waits() {
        let wait = Millis(10);
        assert_eq!(route(vec![events(10)]), Route::Events { after: 3, limit: 7, wait });
        assert_eq!(route(vec![events(0)]), Route::Reads(vec![events(0)]));
        let both = vec![events(10), short()];
        assert_eq!(route(both.clone()), Route::Reads(both));
    }

    #[test]
    fn reads_are_not_split_and_changes_only_from_long_reads() {
        for frame in [vec![], vec![long(), short(), long()]] {
            assert_eq!(route(frame.clone()), Route::Reads(frame));
        }
        for frame in [vec![change()], vec![change(), short(), change()]] {
            assert_eq!(route(frame.clone()), Route::Changes(frame));
        }
        let frame = vec![short(), change(), long(), long(), change(), long(), short()];
        let split = vec![
            vec![short(), change()],
            vec![long(), long()],
            vec![change()],
            vec![long()],
            vec![short()],
        ];
        assert_eq!(route(frame), Route::Parts(split));
    }

    #[test]
    fn frame_of_changes_alone_is_routed_without_the_catalog() {
        let frame = vec![change(); 3];
        assert!(are_changes(&frame));
        assert_eq!(route(frame.clone()), Route::Changes(frame));
        for other in [short(), long(), events(0), Request::RenewLeases { leases: vec![] }] {
            assert!(!are_changes(&[change(), other]));
        }
        assert!(!are_changes(&[]));
    }

    #[test]
    fn check_has_a_part_of_its_own() {
        assert_eq!(route(vec![Request::Fsck]), Route::Check);
        let frame = vec![Request::Fsck, Request::Fsck, change(), long(), Request::Fsck];
        let Route::Parts(split) = route(frame) else { panic!("not split") };
        let checks = split.iter().filter(|part| part[..] == [Request::Fsck]).count();
        assert_eq!((split.len(), checks), (4, 3));
        // Changes with long reads: one more step, and then none.
        let Route::Parts(split) = route(split[2].clone()) else { panic!("not split") };
        assert_eq!(split, [vec![change()], vec![long()]]);
        for part in split {
            assert!(!matches!(route(part), Route::Parts(_)));
        }
    }

    #[test]
    fn frame_is_made_at_once_if_it_is_short_whatever_the_catalog_holds() {
        let renew = || Request::RenewLeases { leases: vec![] };
        assert!(is_made_at_once(&vec![renew(); MADE_AT_ONCE_MAX]));
        assert!(!is_made_at_once(&vec![renew(); MADE_AT_ONCE_MAX + 1]));
        let delete = Request::Delete { path: root(), recursive: true };
        assert!(!is_made_at_once(&[renew(), delete]));
    }
}
