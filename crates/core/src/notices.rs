//! What a datanode remembers of its own notices, so that none is forgotten with the namenode's log.
//!
//! A source shows a notice, the namenode receives it and writes it down. If the namenode then
//! loses the end of its log, it takes the node for active again, without any error. So the
//! datanode remembers what its sources show and what the namenode had, compares that with each
//! answer of the namenode, and repeats what is missing there.
//!
//! An operator may take a notice back while its source goes on showing it. A repetition therefore
//! contains when the namenode last had the notice. A namenode that has a later cancellation in its
//! log leaves the node active, and the datanode takes that for the last word on this notice. A
//! notice with an earlier deadline is another one, and one with a later deadline is another one
//! after the one before was taken back.
//!
//! The end of a log that gets lost may hold the earlier of two notices only. So an answer that
//! names a later deadline than one before is no better than one that names none. A deadline that
//! is earlier than all that is shown here, and that no source here ever gave, was given by an
//! operator: a source that shows its own notice no more does not take that one back.

mod by_source;
mod report;
mod shown;
mod source_poll;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, Policy};

use crate::catalog::AFTER_ABSENCE_MAX;

pub use by_source::NoticesBySource;
pub use report::{NoticeReply, NoticeReport};
pub use shown::{NoticeChange, ShownNotice, check_left, is_far};
pub use source_poll::{NextLook, SourceHealth, SourcePoll, UNDONE_PAUSE};

/// Pause between two repetitions of a notice. Two heartbeats of half a second, so that an answer
/// which has the notice arrives first; short beside the 30 s that Google and Azure give at least.
pub const REPEAT_INTERVAL: Millis = Millis(1000);

/// Pause between two repetitions of a recommendation, which heartbeats do not contain. It has no
/// deadline, so a few seconds without it cost little, and each repetition is a request. Chosen, not
/// measured.
pub const RECOMMEND_INTERVAL: Millis = Millis(10_000);

/// How much earlier a deadline must be than the one before to be another notice. As long as a
/// heartbeat's period: by so much the times differ from which a deadline is counted. Chosen, not
/// measured.
pub const EARLIER: Millis = Millis(500);

/// The longest notice: seven days. The namenode refuses a later deadline, which is a mistake or a
/// decommission, so a datanode gives the notice when this time is left.
pub const NOTICE_MAX: Millis = Millis(7 * 24 * 3600 * 1000);

/// The reason of a notice that came from the namenode itself.
const FROM_NAMENODE: &str = "repeated by the datanode: the namenode had it and lost it";

/// The source of notices that an operator gave to the namenode.
const NAMENODE: &str = "namenode";

/// The source of a process that got SIGTERM and ends at its deadline, whatever is cancelled.
pub const SIGTERM: &str = "sigterm";

/// Most deadlines of sources that are remembered, the newest: beyond them a notice of a source that
/// shows it no more may be taken for one of an operator, and the node drains. There are few
/// sources, each with one deadline at a time. Chosen, not measured.
const GIVEN_MAX: usize = 16;

/// The notices of one incarnation of a datanode, by source.
#[derive(Debug, Clone)]
pub struct Notices {
    shown: BTreeMap<String, TrackedNotice>,
    recommended: BTreeMap<String, Recommended>,
    known: Option<KnownNotice>,
    /// The deadline by which the namenode drains the node instead, if it is later than the known
    /// one.
    later: Option<Instant>,
    /// Deadlines that sources here gave since the node was active last, those of sources that show
    /// nothing any more among them: the namenode keeps the earliest until it is taken back.
    given: Vec<Instant>,
    /// Whether the namenode may be another process, by whose clock deadlines lie elsewhere.
    is_anew: bool,
    policy: Policy,
    repeat_at: Instant,
    /// Statements about the sources that were made.
    stated: u64,
}

/// The announced end of a machine. It is made once, where a source reports it, and carried
/// unchanged until what follows from it is sent or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The source that shows it: `aws`, `gcp`, `azure`, a file, `webhook`, `operator`, `sigterm`.
    pub source: String,
    /// When the machine is taken, by a clock of the process that does not step. The wire has the
    /// time that is left instead, since machines' clocks differ.
    pub deadline: Instant,
    /// The source's words, for people.
    pub reason: String,
}

/// A notice that a source shows, and what the namenode made of it.
#[derive(Debug, Clone)]
struct TrackedNotice {
    notice: Notice,
    delivery: Delivery,
}

impl TrackedNotice {
    const fn deadline(&self) -> Instant {
        self.notice.deadline
    }

    /// Returns when the node is to have left for it, with the deadline that the namenode is known
    /// to have. That is none of a notice that it has not received.
    fn holds_until(&self, known: Option<Instant>) -> Instant {
        match (self.delivery, known) {
            // After an absence the namenode itself may have left the node more time.
            (Delivery::Received, Some(known)) => known.max(self.deadline()),
            _ => self.deadline(),
        }
    }

    /// Returns whether the node is to leave for it.
    const fn is_open(&self) -> bool {
        matches!(self.delivery, Delivery::Pending | Delivery::Received)
    }
}

/// What the namenode made of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Pending,
    Received,
    /// Its source shows it no more, and the namenode is not known to have this.
    Withdrawing,
    /// It was taken back, or it cannot be given: it is not sent again.
    Over,
}

/// A recommendation that a source shows.
#[derive(Debug, Clone)]
struct Recommended {
    reason: String,
    known_at: Option<Instant>,
    is_over: bool,
    repeat_at: Instant,
}

/// The last notice that the namenode is known to have had.
#[derive(Debug, Clone, Copy)]
struct KnownNotice {
    deadline: Instant,
    /// A moment at which it surely had it.
    at: Instant,
    /// The fence was lifted by an order: most likely the notice was taken back.
    is_unfenced: bool,
}

impl Default for Notices {
    fn default() -> Self {
        let (shown, recommended) = (BTreeMap::new(), BTreeMap::new());
        let (known, policy, repeat_at) = (None, Policy::Active, Instant(0));
        let (later, given, is_anew, stated) = (None, Vec::new(), false, 0);
        Self { shown, recommended, known, later, given, is_anew, policy, repeat_at, stated }
    }
}

impl Notices {
    /// Returns whether a source shows a notice, as far as is remembered.
    #[must_use]
    pub fn shows(&self, source: &str) -> bool {
        self.shown.contains_key(source)
    }

    /// Takes what a source shows. Returns whether it is new: another notice than before.
    pub fn show(&mut self, notice: &Notice) -> bool {
        let deadline = notice.deadline;
        let is_same = |before: &TrackedNotice| {
            if before.delivery == Delivery::Withdrawing {
                return false;
            }
            let is_later = deadline > before.deadline() + EARLIER;
            let is_earlier = deadline + EARLIER < before.deadline();
            // Of a source that gives several the earliest counts, until it was taken back.
            let is_new = is_earlier || (is_later && before.delivery == Delivery::Over);
            !is_new
        };
        if self.shown.get(&notice.source).is_some_and(is_same) {
            return false;
        }
        self.shown_as(notice.clone(), Delivery::Pending);
        self.give(deadline);
        self.repeat_at = Instant(0);
        true
    }

    /// Records that a shown notice is sent at `now`: it is not repeated while the call is in
    /// flight, for [`REPEAT_INTERVAL`] at most. Further calls postpone nothing, so a source that
    /// sends often does not hold back the repetition of another one's notice.
    pub fn sent(&mut self, now: Instant) {
        if self.repeat_at == Instant(0) {
            self.repeat_at = now + REPEAT_INTERVAL;
        }
    }

    fn shown_as(&mut self, notice: Notice, delivery: Delivery) {
        self.shown.insert(notice.source.clone(), TrackedNotice { notice, delivery });
    }

    /// Notes that a deadline comes from a source here.
    fn give(&mut self, deadline: Instant) {
        if self.given.len() == GIVEN_MAX {
            self.given.remove(0);
        }
        self.given.push(deadline);
    }

    /// Returns whether a source here gave a deadline, also one that shows nothing any more.
    fn is_given(&self, deadline: Instant) -> bool {
        let is_near =
            |given: &Instant| *given <= deadline + EARLIER && deadline <= *given + EARLIER;
        self.given.iter().any(is_near)
    }

    /// Takes that a source shows its notice no more, and that the namenode had this at `asked_at`.
    pub fn hide(&mut self, source: &str, asked_at: Instant) {
        let left = self.left_without(source);
        self.shown.remove(source);
        let known = self.known.take();
        if let Some(left) = left {
            // One of an operator is the namenode's own, and stays as it is.
            let of_operator = known.filter(|known| !self.is_given(known.deadline));
            let (deadline, at) = (left.deadline, asked_at);
            self.known = of_operator.or(Some(KnownNotice { deadline, at, is_unfenced: false }));
        }
        self.later = None;
        debug_assert!(self.is_consistent(), "what no source shows is not repeated");
    }

    /// Takes that a source shows its notice no more: from now on it is sent no more, and is none
    /// that another source leaves. [`Self::hide`] ends it, when the namenode has this.
    pub fn withdraw_notice(&mut self, source: &str) {
        if let Some(shown) = self.shown.get_mut(source) {
            shown.delivery = Delivery::Withdrawing;
        }
    }

    /// Returns the notice that holds when a source withdraws its own: the earliest of the others.
    #[must_use]
    pub fn left_without(&self, source: &str) -> Option<Notice> {
        let others = self.shown.iter().filter(|(other, _)| *other != source);
        let open = others.map(|(_, shown)| shown).filter(|shown| shown.is_open());
        let known = self.known.map(|known| known.deadline);
        let left = open.min_by_key(|shown| shown.holds_until(known))?;
        Some(Notice { deadline: left.holds_until(known), ..left.notice.clone() })
    }

    /// Returns the number of the next statement about the sources.
    pub const fn next_number(&mut self) -> u64 {
        self.stated += 1;
        self.stated
    }

    /// Returns the report of a notice that the namenode never had.
    pub fn report_of(&mut self, notice: &Notice) -> NoticeReport {
        let (deadline, reason) = (Some(notice.deadline), notice.reason.clone());
        NoticeReport { deadline, reason, known_at: None, number: self.next_number() }
    }

    /// Goes on as another incarnation, of which the namenode has nothing: what it received from
    /// the one before and is still to come is sent again.
    pub fn begin_again(&mut self, now: Instant) {
        let known = self.known.take().filter(|known| known.deadline > now);
        // What a source gave is sent again for as long as the source shows it.
        if let Some(known) = known.filter(|known| !self.is_given(known.deadline)) {
            let notice = from_namenode(known.deadline);
            let shown = TrackedNotice { notice, delivery: Delivery::Pending };
            self.shown.entry(NAMENODE.to_owned()).or_insert(shown);
        }
        self.shown.retain(|_, shown| shown.deadline() > now && shown.is_open());
        for shown in self.shown.values_mut() {
            shown.delivery = Delivery::Pending;
        }
        let is_to_come =
            |it: &TrackedNotice| it.delivery == Delivery::Pending && it.deadline() > now;
        debug_assert!(self.shown.values().all(is_to_come), "a new incarnation sends all of it");
        debug_assert!(self.known.is_none(), "the namenode has nothing of it");
        self.recommended.clear();
        self.later = None;
        self.policy = Policy::Active;
        self.repeat_at = Instant(0);
    }

    /// Takes what a source recommends, after the namenode received it at `known_at`.
    pub fn recommend(&mut self, source: &str, reason: &str, known_at: Option<Instant>) {
        let repeat_at = known_at.map_or(Instant(0), |at| at + RECOMMEND_INTERVAL);
        let reason = reason.to_owned();
        let recommended = Recommended { reason, known_at, is_over: false, repeat_at };
        self.recommended.insert(source.to_owned(), recommended);
    }

    /// Removes a source's recommendation to leave the node, which it no longer gives.
    pub fn withdraw(&mut self, source: &str) {
        self.recommended.remove(source);
    }

    /// Takes the node's policy and deadline from an answer of the namenode. `asked_at`: when the
    /// request for the answer was made.
    pub fn stands(&mut self, asked_at: Instant, policy: Policy, deadline: Option<Instant>) {
        self.policy = policy;
        self.later = None;
        if policy == Policy::Active {
            let shown = self.shown.values().filter(|shown| shown.is_open());
            self.given = shown.map(TrackedNotice::deadline).collect();
        }
        // The reply to a registration has no deadline: the node may drain for another notice.
        let Some(deadline) = deadline.filter(|_| policy != Policy::Active) else { return };
        let is_lost =
            |known: &KnownNotice| known.deadline > asked_at && known.deadline + EARLIER < deadline;
        if self.known.as_ref().is_some_and(is_lost) {
            self.later = Some(deadline);
        } else {
            self.know(asked_at, deadline);
        }
        for shown in self.shown.values_mut() {
            // One that was taken back stays so.
            let is_pending = shown.delivery == Delivery::Pending;
            if shown.deadline() + EARLIER >= deadline && is_pending {
                shown.delivery = Delivery::Received;
            }
        }
        debug_assert!(self.is_consistent(), "a lost notice is earlier than what is there");
    }

    /// Returns whether a later deadline of the namenode is noted only beside an earlier one that is
    /// known.
    fn is_consistent(&self) -> bool {
        let is_earlier =
            |later: Instant| self.known.is_some_and(|known| known.deadline + EARLIER < later);
        self.later.is_none_or(is_earlier)
    }

    /// Notes the deadline of the namenode.
    fn know(&mut self, at: Instant, deadline: Instant) {
        let before = self.known.replace(KnownNotice { deadline, at, is_unfenced: false });
        if std::mem::take(&mut self.is_anew)
            && before.is_some_and(|known| self.is_given(known.deadline))
        {
            // The same notice by another clock.
            self.give(deadline);
        }
        let is_other = |it: &KnownNotice| it.deadline > deadline + EARLIER;
        if before.is_some_and(|it| it.is_unfenced && is_other(&it)) {
            // The namenode ended the drain, whatever it was for, before this one was given.
            self.shown.remove(NAMENODE);
            self.received_are_over();
        }
        if self.is_given(deadline) {
            return;
        }
        // What is estimated from an answer errs to the later side.
        let mut mine = self.shown.values().filter(|shown| shown.is_open());
        if mine.all(|shown| deadline + EARLIER < shown.deadline()) {
            self.shown_as(from_namenode(deadline), Delivery::Received);
        }
    }

    /// Handles a registration: the namenode may be another process than before, so every notice and
    /// recommendation is compared with it at once.
    pub fn registered(&mut self) {
        self.is_anew = true;
        self.repeat_at = Instant(0);
        for recommended in self.recommended.values_mut() {
            recommended.repeat_at = Instant(0);
        }
    }

    /// Takes an order that lifted the fence. The namenode's answer to the next repetition shows
    /// whether the notice was taken back.
    pub fn unfenced(&mut self) {
        if let Some(known) = &mut self.known {
            known.is_unfenced = true;
        }
        self.end_is_given_again();
        self.repeat_at = Instant(0);
    }

    /// Lets the notice of a process that ends be given as another one: a cancellation does not keep
    /// the process.
    fn end_is_given_again(&mut self) {
        let end = self.shown.get_mut(SIGTERM);
        if let Some(end) = end.filter(|it| it.delivery != Delivery::Withdrawing) {
            end.delivery = Delivery::Pending;
        }
    }

    /// Returns whether writes are to be refused though the namenode takes the node for active: the
    /// machine ends whether or not the namenode has the notice.
    #[must_use]
    pub fn must_fence(&self, now: Instant) -> bool {
        let is_pending =
            |shown: &TrackedNotice| shown.delivery == Delivery::Pending && shown.deadline() > now;
        let is_lost = |known: &KnownNotice| known.deadline > now && !known.is_unfenced;
        self.shown.values().any(is_pending) || self.known.as_ref().is_some_and(is_lost)
    }

    /// Returns what to send now, if anything; nothing is sent twice within a second.
    pub fn next_report(&mut self, now: Instant) -> Option<NoticeReport> {
        if let Some(report) = self.notice_report(now) {
            if now < self.repeat_at {
                return None;
            }
            self.repeat_at = now + REPEAT_INTERVAL;
            let is_new = report.known_at.is_none();
            return Some(NoticeReport {
                number: if is_new { self.next_number() } else { 0 },
                ..report
            });
        }
        if self.policy != Policy::Active {
            return None;
        }
        let is_due = |it: &&mut Recommended| !it.is_over && it.repeat_at <= now;
        let due = self.recommended.values_mut().find(is_due)?;
        due.repeat_at = now + RECOMMEND_INTERVAL;
        let (reason, known_at) = (due.reason.clone(), due.known_at);
        Some(NoticeReport { deadline: None, reason, known_at, number: 0 })
    }

    fn notice_report(&self, now: Instant) -> Option<NoticeReport> {
        let left = || self.shown.values().filter(|shown| shown.deadline() > now);
        let earliest = |delivery: Delivery| {
            let of_kind = left().filter(move |shown| shown.delivery == delivery);
            of_kind.min_by_key(|shown| shown.deadline())
        };
        if let Some(shown) = earliest(Delivery::Pending) {
            let (deadline, reason) = (Some(shown.deadline()), shown.notice.reason.clone());
            return Some(NoticeReport { deadline, reason, known_at: None, number: 0 });
        }
        let soonest = match (self.policy, self.later) {
            (Policy::Active, _) => now,
            // After an absence the namenode itself leaves nodes more time, but never so much.
            (_, Some(_)) => now + AFTER_ABSENCE_MAX,
            (_, None) => return None,
        };
        let known = self.known.filter(|known| known.deadline > soonest)?;
        let shown = earliest(Delivery::Received);
        let reason = shown.map_or(FROM_NAMENODE, |shown| shown.notice.reason.as_str()).to_owned();
        let (deadline, known_at) = (Some(known.deadline), Some(known.at));
        Some(NoticeReport { deadline, reason, known_at, number: 0 })
    }

    /// Takes the answer to what was sent at `asked_at`.
    pub fn answered(&mut self, asked_at: Instant, report: &NoticeReport, reply: NoticeReply) {
        match (reply, report.deadline) {
            (NoticeReply::Unanswered, _) => {}
            (NoticeReply::Stands { policy, deadline, .. }, Some(_)) => {
                let was_known = report.known_at.is_some();
                self.stands(asked_at, policy, deadline);
                if policy == Policy::Active && was_known {
                    self.notice_is_over();
                } else if let Some(later) = self.later.filter(|_| was_known) {
                    self.earlier_is_over(asked_at, later);
                }
            }
            (NoticeReply::Refused, Some(_)) if report.known_at.is_some() => {
                self.notice_is_over();
            }
            (NoticeReply::Refused, Some(deadline)) => {
                // What another source shows may be taken.
                let pending = self.shown.values_mut().filter(|it| it.delivery == Delivery::Pending);
                for refused in pending.filter(|shown| shown.deadline() == deadline) {
                    refused.delivery = Delivery::Over;
                }
            }
            (NoticeReply::Stands { policy, is_at_risk, .. }, None) => {
                let is_known = is_at_risk || policy != Policy::Active;
                for recommended in self.recommended_as(&report.reason) {
                    recommended.is_over = !is_known;
                    recommended.known_at = is_known.then_some(asked_at);
                }
            }
            (NoticeReply::Refused, None) => {
                self.recommended_as(&report.reason).for_each(|it| it.is_over = true);
            }
        }
    }

    fn recommended_as(&mut self, reason: &str) -> impl Iterator<Item = &mut Recommended> {
        self.recommended.values_mut().filter(move |it| it.reason == reason)
    }

    /// Takes that the namenode leaves the node its later deadline: the earlier notice was taken
    /// back before the later one was given.
    fn earlier_is_over(&mut self, asked_at: Instant, later: Instant) {
        for shown in self.shown.values_mut() {
            if shown.delivery == Delivery::Received && shown.deadline() + EARLIER < later {
                shown.delivery = Delivery::Over;
            }
        }
        self.later = None;
        self.know(asked_at, later);
        debug_assert!(self.known.is_some_and(|known| known.deadline == later), "it holds now");
    }

    fn notice_is_over(&mut self) {
        (self.known, self.later) = (None, None);
        self.received_are_over();
    }

    /// Takes what the namenode had received for taken back.
    fn received_are_over(&mut self) {
        let received = self.shown.values_mut().filter(|it| it.delivery == Delivery::Received);
        received.for_each(|it| it.delivery = Delivery::Over);
        self.end_is_given_again();
    }
}

/// Returns a notice of which only the namenode's deadline is known.
fn from_namenode(deadline: Instant) -> Notice {
    Notice { source: NAMENODE.to_owned(), deadline, reason: FROM_NAMENODE.to_owned() }
}
