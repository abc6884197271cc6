//! What must hold of a group, whatever fails.

use std::collections::BTreeMap;

use sanderling_core::replica::{Group, GroupRole, LogEntry, LogPlace, Payload};
use sanderling_protocol::{Instant, MemberId, Millis};

/// A broken promise: the checker, and what it saw.
pub(super) type Seen = (&'static str, String);

/// By how many thousandths the group's service time may run ahead of real time: clocks run apart by
/// at most 40 here, and the rest is for rounding.
const AHEAD_PERMILLE: u64 = 45;

/// By how much the group's time may lag behind real time: a new leader's lags by what its last
/// message took, at most as long as messages and pauses take.
const LATE_MICROS_MAX: u64 = 4_500_000;

/// What absences are rounded by, and a round may wait.
const AHEAD_MICROS_MAX: u64 = 10_000;

/// What the members have done so far.
#[derive(Debug, Default)]
pub(super) struct GroupChecks {
    leaders: BTreeMap<u64, MemberId>,
    agreed: BTreeMap<u64, LogEntry>,
    /// The rounds that clients have an acknowledgement of, by their numbers, with their places.
    acknowledged: BTreeMap<u64, LogPlace>,
    /// The last entry that a client has an acknowledgement of.
    pub(super) acknowledged_to: u64,
    /// The last round that was agreed: its time, and when it was proposed.
    last_round: Option<(Instant, u64)>,
    /// What the agreed rounds have excused.
    absent: Millis,
    /// The round whose service time was furthest ahead: that, and when it was proposed.
    furthest: Option<(Instant, u64)>,
    pub(super) newest_group: (u64, Group),
    pub(super) violation: Option<Seen>,
    pub(super) checks: u64,
}

pub(super) fn round_of(entry: &LogEntry) -> Option<(u64, Instant)> {
    let Payload::Round { at, .. } = &entry.payload else { return None };
    Some((word(entry, 0)?, *at))
}

/// Returns the absence that a leader's first round excuses.
fn absence_of(entry: &LogEntry) -> Millis {
    Millis(word(entry, 8).unwrap_or(0))
}

fn word(entry: &LogEntry, at: usize) -> Option<u64> {
    let Payload::Round { commands, .. } = &entry.payload else { return None };
    let bytes = <[u8; 8]>::try_from(commands.get(at..at + 8)?).ok()?;
    Some(u64::from_le_bytes(bytes))
}

impl GroupChecks {
    pub(super) fn violate(&mut self, checker: &'static str, message: String) {
        self.violation.get_or_insert((checker, message));
    }

    /// Takes a new leader.
    pub(super) fn leads(&mut self, term: u64, id: MemberId) {
        self.checks += 1;
        let first = *self.leaders.entry(term).or_insert(id);
        if first != id {
            self.violate("one-leader", format!("members {first} and {id} lead in term {term}"));
        }
    }

    /// Takes an entry that a member applies after the entry `applied`. `proposed` returns when a
    /// round was proposed; `is_carried` whether a majority has had the group's time since then.
    pub(super) fn applies(
        &mut self,
        id: MemberId,
        applied: u64,
        entry: &LogEntry,
        proposed: impl Fn(u64) -> u64,
        is_carried: impl Fn(u64) -> bool,
    ) {
        self.checks += 1;
        let index = entry.place.index;
        if index != applied + 1 {
            self.violate("agreed", format!("member {id} applies {index} after {applied}"));
        }
        let newest = self.agreed.keys().next_back().copied().unwrap_or(1);
        match self.agreed.get(&index) {
            Some(first) if first == entry => {}
            Some(first) => {
                let message =
                    format!("member {id} applies {} where {} was agreed", entry.place, first.place);
                self.violate("agreed", message);
            }
            None if index <= newest => {
                self.violate("agreed", format!("entry {index} is new below {newest}"));
            }
            None => {
                self.agreed.insert(index, entry.clone());
                if let Some((round, at)) = round_of(entry) {
                    self.check_service_time(at, absence_of(entry), proposed(round));
                    self.check_time(at, proposed(round), is_carried);
                }
            }
        }
    }

    fn check_time(&mut self, at: Instant, proposed: u64, is_carried: impl Fn(u64) -> bool) {
        let Some((last, before)) = self.last_round.replace((at, proposed)) else { return };
        if at < last {
            self.violate("group-time", format!("the group's time goes back to {at:?}"));
            return;
        }
        let (passed, real) = (at.0 - last.0, proposed.saturating_sub(before));
        if passed + LATE_MICROS_MAX < real && is_carried(before) {
            let message = format!("the group's time passes {passed} us in {real} us");
            self.violate("group-time", message);
        }
    }

    /// Checks that the time by which leases and times to live end is never ahead of real time,
    /// whatever dates the machines have.
    fn check_service_time(&mut self, at: Instant, absence: Millis, proposed: u64) {
        self.absent = Millis(self.absent.0 + absence.0);
        let served = at - self.absent;
        let (best, then) = *self.furthest.get_or_insert((served, proposed));
        let real = proposed.saturating_sub(then);
        if served.0 > best.0 + real + real * AHEAD_PERMILLE / 1000 + AHEAD_MICROS_MAX {
            let passed = served.0 - best.0;
            let message = format!("the group's service time passes {passed} us in {real} us");
            self.violate("group-time", message);
        }
        if served.0 >= best.0 + real {
            self.furthest = Some((served, proposed));
        }
    }

    /// Takes the acknowledgement of a round.
    pub(super) fn acknowledge(&mut self, round: u64, place: LogPlace) {
        self.acknowledged.insert(round, place);
        self.acknowledged_to = self.acknowledged_to.max(place.index);
    }

    /// Takes an acknowledgement that was sent before it could be.
    pub(super) fn acknowledge_early(&mut self, round: u64, place: LogPlace) {
        self.acknowledged.insert(round, place);
    }

    /// Takes an answer of a member that has applied up to `applied`, to a read that arrived when
    /// `must` was acknowledged.
    pub(super) fn reads(&mut self, id: MemberId, applied: u64, must: u64) {
        self.checks += 1;
        if applied < must {
            let message = format!("member {id} reads up to {applied}, {must} was acknowledged");
            self.violate("lease-read", message);
        }
    }

    /// Takes the members as of an entry.
    pub(super) fn changed(&mut self, index: u64, group: &Group) {
        self.checks += 1;
        let mut addresses = BTreeMap::new();
        for (id, member) in group.members().filter(|(_, it)| it.role != GroupRole::Leaving) {
            if let Some(other) = addresses.insert(&member.at.address, id) {
                let message = format!("members {other} and {id} are at {}", member.at.address);
                self.violate("one-address", message);
            }
        }
        if index > self.newest_group.0 {
            self.newest_group = (index, group.clone());
        }
    }

    /// Checks what is there in the end: all that was acknowledged.
    pub(super) fn end(&mut self) {
        let lost = self.acknowledged.iter().find(|(round, place)| {
            let entry = self.agreed.get(&place.index);
            entry.and_then(round_of).is_none_or(|(there, _)| there != **round)
        });
        if let Some((round, place)) = lost {
            let message = format!("round {round} was acknowledged at {place} and is not there");
            self.violate("acknowledged", message);
        }
    }

    /// Returns the rounds that clients have an acknowledgement of.
    pub(super) fn acknowledged(&self) -> impl Iterator<Item = &u64> {
        self.acknowledged.keys()
    }

    pub(super) fn newest(&self) -> u64 {
        self.agreed.keys().next_back().copied().unwrap_or(1)
    }
}
