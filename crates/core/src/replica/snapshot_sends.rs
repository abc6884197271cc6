//! Snapshots for members that lag: two are sent at a time, and one that failed is not sent again at
//! once.

use std::collections::{BTreeMap, VecDeque};

use sanderling_protocol::{Instant, MemberId, Millis};

use super::machine::Replica;
use super::message::Envelope;
use super::output::ReplicaRole;
use crate::retry::doubled;

/// Most snapshots that are sent at once. Each is an encoded copy of the catalog in the leader's
/// memory. With a single one, a member that stands still would hold up a spare that a noticed voter
/// waits for.
const AT_ONCE_MAX: usize = 2;

/// Pause after the first snapshot that a member did not take. Each is twice the one before. By then
/// a member that was restarted takes it. Chosen, not measured.
const PAUSE_FIRST: Millis = Millis(1000);

/// The longest of these pauses, as after a snapshot of the namenode itself that failed
/// (`SnapshotSchedule`): a disk that is full stays full for longer, and each attempt encodes the
/// whole catalog.
const PAUSE_MAX: Millis = Millis(10_000);

/// A snapshot that is being sent.
#[derive(Debug)]
struct SnapshotSend {
    to: MemberId,
    term: u64,
    began: Instant,
}

/// Snapshots that a member did not take, since the last one that it took.
#[derive(Debug, Default)]
struct FailedSends {
    count: u32,
    /// When the replica gets the failure of the last one, and its term.
    report: Option<(Instant, u64)>,
}

/// The snapshots that are sent and that wait. The replica puts the next one to a member out when it
/// has the report of the one before: so a failure is reported after a pause.
#[derive(Debug, Default)]
pub struct SnapshotSends {
    waiting: VecDeque<Envelope>,
    under_way: Vec<SnapshotSend>,
    failed: BTreeMap<MemberId, FailedSends>,
}

impl SnapshotSends {
    /// Adds a message with a [`super::Body::Snapshot`], in place of an earlier one to that member
    /// which waits.
    pub fn request(&mut self, envelope: Envelope) {
        self.waiting.retain(|waiting| waiting.to != envelope.to);
        if let Some(failed) = self.failed.get_mut(&envelope.to) {
            failed.report = None;
        }
        self.waiting.push_back(envelope);
    }

    /// Removes and returns the message whose snapshot is to be sent now: the one that waits
    /// longest, if fewer than two are being sent, and none of them to its member. Those of an
    /// earlier leadership are dropped.
    pub fn begin(&mut self, now: Instant, replica: &Replica) -> Option<Envelope> {
        let (is_leader, term) = (replica.role() == ReplicaRole::Leader, replica.term());
        self.waiting.retain(|waiting| is_leader && waiting.term == term);
        if self.under_way.len() >= AT_ONCE_MAX {
            return None;
        }
        let is_free = |waiting: &Envelope| self.under_way.iter().all(|it| it.to != waiting.to);
        let next = self.waiting.iter().position(is_free)?;
        let envelope = self.waiting.remove(next)?;
        self.under_way.push(SnapshotSend { to: envelope.to, term, began: now });
        Some(envelope)
    }

    /// Notes that the snapshot which was being sent to a member has arrived, or that it has failed.
    /// The replica gets a failure later: after 1 s, then after twice as long each time, up to 10 s,
    /// and after as long as the attempt took if that is longer.
    pub fn ended(&mut self, now: Instant, to: MemberId, is_sent: bool, replica: &mut Replica) {
        let Some(place) = self.under_way.iter().position(|it| it.to == to) else { return };
        let ended = self.under_way.swap_remove(place);
        if is_sent {
            self.failed.remove(&to);
            if ended.term == replica.term() {
                replica.snapshot_sent(now, to, true);
            }
            return;
        }
        let failed = self.failed.entry(to).or_default();
        let pause = doubled(PAUSE_FIRST, failed.count, PAUSE_MAX).max(ended.began.until(now));
        failed.count = failed.count.saturating_add(1);
        failed.report = Some((now + pause, ended.term));
    }

    /// Reports to the replica the failures whose pause is over. The caller may call this at any
    /// time.
    pub fn report(&mut self, now: Instant, replica: &mut Replica) {
        if self.failed.is_empty() {
            return;
        }
        self.failed.retain(|id, _| replica.group().member(*id).is_some());
        for (id, failed) in &mut self.failed {
            let due = failed.report.take_if(|(at, _)| *at <= now);
            if due.is_some_and(|(_, term)| term == replica.term()) {
                replica.snapshot_sent(now, *id, false);
            }
        }
    }
}
