//! The admission of a frame: it is answered at once, made at once, put into a queue, or refused.
//! The server's shell and the simulator both take each step and each bound from here.
//!
//! A frame of changes is made by the receiving thread if that takes a short time, the writer is
//! idle, nothing is due and no frame waits ([`writer_at_once`]). Otherwise it waits in the writer's
//! queue, within [`CHANGES_WAITING`]. Reads get one slice at once. What takes longer, and what is
//! answered part by part ([`LongFrame`]), waits until the connection's long answers before it are
//! sent, within [`LONG_PLACES`]. A part of such a frame takes the same steps, but waits for no turn
//! of its connection: that of its frame has come.

use std::ops::Deref;
use std::sync::Arc;

use sanderling_protocol::{Instant, Millis, Refusal, Request};

use super::Namenode;
use super::group_commit::Answers;
use super::route::{Route, are_changes, is_made_at_once};
use super::sliced_reads::FrameRead;
use crate::access::Claims;
use crate::fair::{Bounds, TaskSize};

/// Frames and bytes of changes that wait for the writer, by default: some hundred clients with a
/// few dozen frames each; sixteen of the longest frames, or a million ordinary requests. One tenant
/// has a quarter, 2,048 frames and 64 MiB: more than one connection has on its way. Chosen, not
/// measured.
pub const CHANGES_WAITING: Bounds = Bounds { pieces_max: 8192, bytes_max: 256 << 20, share: 4 };

/// Pause in milliseconds of a caller whose frame a full queue has no room for. A few batches are
/// made meanwhile: 512 creates take about 3 ms. Chosen, not measured.
const FULL_PAUSE: Millis = Millis(20);

/// Places for frames of one connection that take long, the one being answered among them. A short
/// frame takes a sixteenth of them, one of 16 MiB all: an application's tasks share frames. So 16
/// frames wait, or 16 MiB. Chosen, not measured.
pub const LONG_PLACES: u32 = 64;

/// Places of a frame that is shorter than [`LONG_PLACE_BYTES`].
const SHORT_PLACES: u32 = LONG_PLACES / 16;

/// Bytes of a frame that take one place more: a sixty-fourth of the longest frame, which so takes
/// all places.
const LONG_PLACE_BYTES: u64 = 256 << 10;

/// Pause in milliseconds of a caller whose frame takes long and does not wait. As long as a
/// server's pause for lack of memory (`MEMORY_PAUSE` of the transport), which is one of the
/// reasons. Chosen, not measured.
pub const LONG_PAUSE: Millis = Millis(100);

/// Work that one request counts as where frames are put into batches.
pub const REQUEST_COST: u64 = 1;

/// The first step of a frame, or of a part of one.
#[derive(Debug)]
pub enum FrameStep {
    /// Reads that one slice has answered: their answers are sent.
    Answered(Vec<Request>, Answers),
    /// Changes, and reads among them that are short: [`writer_at_once`] decides whether they are
    /// made at once or wait for the writer.
    Changes(Vec<Request>),
    /// The first event after a sequence, or the end of the wait.
    Events {
        /// The last sequence that the caller has.
        after: u64,
        /// Most events.
        limit: u32,
        /// How long the caller waits.
        wait: Millis,
    },
    /// A whole frame waits for the turn of its connection, a part of one is answered at once.
    Long(LongFrame),
}

/// A frame, or a part of one, that takes long. One of each connection is answered at a time, in the
/// order in which they came.
#[derive(Debug)]
pub enum LongFrame {
    /// A check of the whole catalog.
    Check,
    /// Reads that have had their first slice. They go on in a [`ReadQueue`](super::ReadQueue).
    Slices(Box<FrameRead>),
    /// The parts of the frame, in their order. Each begins with its own [`FrameStep::first`] once
    /// those before it are answered.
    Parts(Vec<Vec<Request>>),
}

impl FrameStep {
    /// Decides the first step of a frame, or of a part of one. `claims` is what the caller of reads
    /// may do, `None` if it may do everything. The first slice of reads visits `entries` entries.
    /// `look` gives the time and the namenode; it is called only if the step depends on what the
    /// catalog contains.
    pub fn first<N: Deref<Target = Namenode>>(
        requests: Vec<Request>,
        claims: Option<&Arc<Claims>>,
        entries: usize,
        look: impl FnOnce() -> (Instant, N),
    ) -> Self {
        if are_changes(&requests) {
            return Self::Changes(requests);
        }
        let (now, guard) = look();
        let namenode: &Namenode = &guard;
        match namenode.route(requests) {
            Route::Changes(requests) => Self::Changes(requests),
            Route::Events { after, limit, wait } => Self::Events { after, limit, wait },
            Route::Check => Self::Long(LongFrame::Check),
            Route::Parts(parts) => Self::Long(LongFrame::Parts(parts)),
            Route::Reads(requests) => {
                let mut reading = FrameRead::new(requests, claims.cloned());
                if !reading.slice(now, namenode, entries) {
                    return Self::Long(LongFrame::Slices(Box::new(reading)));
                }
                let (requests, answers) = reading.finish();
                Self::Answered(requests, answers)
            }
        }
    }
}

/// The work that the writer has when changes arrive. The methods are called in this order, each
/// only if those before it have returned false.
pub trait WriterLoad {
    /// Returns whether changes wait for the quorum of a group: no receiving thread waits for that.
    fn waits_for_quorum(&self) -> bool;

    /// Returns whether time has made something necessary: that comes first, on the writer's thread.
    fn is_due(&self) -> bool;

    /// Returns whether frames wait for the writer. The namenode's own work may wait.
    fn has_waiting(&self) -> bool;
}

/// Returns the writer by which the receiving thread makes changes at once; `None` if they wait in
/// the writer's queue. `idle` takes the writer unless it is busy; it is called only if the changes
/// take a short time whatever the catalog contains.
pub fn writer_at_once<W: Deref<Target: WriterLoad>>(
    requests: &[Request],
    idle: impl FnOnce() -> Option<W>,
) -> Option<W> {
    if !is_made_at_once(requests) {
        return None;
    }
    let writer = idle()?;
    let is_busy = writer.waits_for_quorum() || writer.is_due() || writer.has_waiting();
    (!is_busy).then_some(writer)
}

/// Returns the size of changes that wait for the writer. A part of a frame counts with the bytes of
/// the whole frame, `frame_bytes`: it has no length of its own. Each request is work of
/// `request_cost`: [`REQUEST_COST`] at a server.
#[must_use]
pub const fn changes_size(frame_bytes: u64, requests: usize, request_cost: u64) -> TaskSize {
    TaskSize { bytes: frame_bytes, cost: requests as u64 * request_cost }
}

/// Returns the places that a frame of so many bytes takes among those of its connection that take
/// long, at most all of `places`. It is refused ([`LongRefusal::Places`]) if fewer are free.
#[must_use]
pub const fn long_places(body_bytes: u64, places: u32) -> u32 {
    assert!(places >= SHORT_PLACES, "a connection has places for one frame");
    let needed = SHORT_PLACES as u64 + body_bytes / LONG_PLACE_BYTES;
    if needed < places as u64 { needed as u32 } else { places }
}

/// The lack for which a frame that takes long is refused where it would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongRefusal {
    /// Places among the frames of its connection.
    Places,
    /// Memory of the namenode for its requests.
    Memory,
}

impl LongRefusal {
    /// Returns the answer to each request of the frame: the caller requests less at once, or again
    /// after the pause.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let what = match self {
            Self::Places => "this connection waits",
            Self::Memory => "the namenode's memory is used up",
        };
        let why = format!("{what} for reads that take long: request less at once");
        Refusal::RetryAfter { after: LONG_PAUSE, why }
    }
}

/// Returns the answer to each request of a frame, or of a part of one, for which a queue has no
/// room: in all, or of the caller's share. The caller tries again after the pause.
#[must_use]
pub fn queue_full() -> Refusal {
    let why = "too many requests of this caller, or of all, wait".to_owned();
    Refusal::RetryAfter { after: FULL_PAUSE, why }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
    use sanderling_protocol::message::ObjectKind;
    use sanderling_protocol::{ClusterId, Path};

    use super::*;
    use crate::namenode::NamenodeConfig;

    fn change() -> Request {
        let path = "/d".parse().unwrap();
        let (kind, parents, is_listed) = (ObjectKind::Directory, true, true);
        Request::MakeDirectory { path, kind, parents, is_listed }
    }

    fn small() -> Request {
        Request::RenewLeases { leases: vec![] }
    }

    fn stat() -> Request {
        Request::Stat { path: Path::root() }
    }

    fn usage() -> Request {
        Request::Usage { path: Path::root() }
    }

    fn first(requests: Vec<Request>, entries: usize) -> FrameStep {
        let namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
        FrameStep::first(requests, None, entries, || (namenode.catalog().now(), &namenode))
    }

    /// A writer, and how often each of its methods was called.
    #[derive(Default)]
    struct Writer {
        is_in_group: bool,
        is_due: bool,
        has_waiting: bool,
        calls: [Cell<u32>; 3],
    }

    impl WriterLoad for Writer {
        fn waits_for_quorum(&self) -> bool {
            self.calls[0].update(|calls| calls + 1);
            self.is_in_group
        }

        fn is_due(&self) -> bool {
            self.calls[1].update(|calls| calls + 1);
            self.is_due
        }

        fn has_waiting(&self) -> bool {
            self.calls[2].update(|calls| calls + 1);
            self.has_waiting
        }
    }

    impl Writer {
        fn makes(&self, requests: &[Request]) -> bool {
            writer_at_once(requests, || Some(self)).is_some()
        }
    }

    #[test]
    fn changes_begin_without_a_look_at_the_catalog() {
        let look = || -> (Instant, &'static Namenode) { panic!("the catalog is not needed") };
        let step = FrameStep::first(vec![change(), change()], None, 1, look);
        assert!(matches!(step, FrameStep::Changes(requests) if requests.len() == 2));
    }

    #[test]
    fn short_reads_among_changes_are_made_with_them() {
        let step = first(vec![change(), stat()], 1);
        assert!(matches!(step, FrameStep::Changes(requests) if requests.len() == 2));
    }

    #[test]
    fn reads_that_one_slice_answers_are_answered_at_once() {
        let FrameStep::Answered(requests, answers) = first(vec![stat(), stat()], 2) else {
            panic!("not answered")
        };
        assert_eq!((requests, answers.len()), (vec![stat(), stat()], 2));
    }

    #[test]
    fn reads_that_take_more_than_one_slice_are_long() {
        let FrameStep::Long(LongFrame::Slices(reading)) = first(vec![stat(), stat()], 1) else {
            panic!("not long")
        };
        assert_eq!(reading.requests(), [stat(), stat()]);
    }

    #[test]
    fn check_and_long_reads_among_changes_are_long() {
        let step = first(vec![Request::Fsck], 1);
        assert!(matches!(step, FrameStep::Long(LongFrame::Check)), "{step:?}");
        let FrameStep::Long(LongFrame::Parts(parts)) = first(vec![change(), usage()], 9) else {
            panic!("not split")
        };
        assert_eq!(parts, [vec![change()], vec![usage()]]);
    }

    #[test]
    fn wait_for_events_is_no_long_frame() {
        let wait = Millis(10);
        let step = first(vec![Request::Events { after: 3, limit: 7, wait }], 1);
        let FrameStep::Events { after, limit, wait: within } = step else { panic!("{step:?}") };
        assert_eq!((after, limit, within), (3, 7, wait));
    }

    #[test]
    fn small_changes_are_made_at_once_only_by_an_idle_writer_with_nothing_due() {
        assert!(Writer::default().makes(&[small()]));
        assert!(!Writer { is_in_group: true, ..Writer::default() }.makes(&[small()]));
        assert!(!Writer { is_due: true, ..Writer::default() }.makes(&[small()]));
        assert!(!Writer { has_waiting: true, ..Writer::default() }.makes(&[small()]));
        let busy: Option<&Writer> = writer_at_once(&[small()], || None);
        assert!(busy.is_none());
    }

    #[test]
    fn changes_that_may_take_long_do_not_touch_the_writer() {
        let look = || -> Option<&'static Writer> { panic!("the writer is not needed") };
        let delete = Request::Delete { path: Path::root(), recursive: true };
        assert!(writer_at_once(&[small(), delete], look).is_none());
    }

    #[test]
    fn writer_is_looked_at_no_longer_than_until_it_is_busy() {
        let writer = Writer { is_in_group: true, ..Writer::default() };
        assert!(!writer.makes(&[small()]));
        assert_eq!(writer.calls.each_ref().map(Cell::get), [1, 0, 0]);
        let writer = Writer { is_due: true, ..Writer::default() };
        assert!(!writer.makes(&[small()]));
        assert_eq!(writer.calls.each_ref().map(Cell::get), [1, 1, 0]);
    }

    #[test]
    fn part_of_a_frame_counts_with_the_bytes_of_the_whole_and_its_own_requests() {
        assert_eq!(changes_size(9000, 3, REQUEST_COST), TaskSize { bytes: 9000, cost: 3 });
        assert_eq!(changes_size(9000, 3, 64).cost, 192);
    }

    #[test]
    fn sixteen_short_frames_or_one_of_the_longest_take_all_places() {
        let places = |bytes| long_places(bytes, LONG_PLACES);
        assert_eq!(places(0) * 16, LONG_PLACES);
        assert_eq!(places(LONG_PLACE_BYTES - 1), SHORT_PLACES);
        assert_eq!(places(LONG_PLACE_BYTES), SHORT_PLACES + 1);
        assert_eq!(places(u64::from(FRAME_BODY_BYTES_MAX)), LONG_PLACES);
        assert_eq!(places(u64::MAX), LONG_PLACES);
        assert_eq!(long_places(LONG_PLACE_BYTES, SHORT_PLACES), SHORT_PLACES);
    }

    #[test]
    fn refused_callers_try_again_after_the_pause_of_what_is_full() {
        let pause = |refusal| match refusal {
            Refusal::RetryAfter { after, why } => (after, why),
            other => panic!("{other}"),
        };
        let why = "too many requests of this caller, or of all, wait".to_owned();
        assert_eq!(pause(queue_full()), (Millis(20), why));
        let why = "this connection waits for reads that take long: request less at once";
        assert_eq!(pause(LongRefusal::Places.refusal()), (Millis(100), why.to_owned()));
        let why = "the namenode's memory is used up for reads that take long: request less at once";
        assert_eq!(pause(LongRefusal::Memory.refusal()), (Millis(100), why.to_owned()));
    }
}
