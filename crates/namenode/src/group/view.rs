//! What the other parts of the server see of the group: whether this member answers, and which
//! one leads.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::access::Claims;
use sanderling_core::replica::{
    self, GroupGeneration, GroupRisk, LeadState, LeaseView, MachineLife, ReadPermission,
    TAKE_OVER_TIMEOUT,
};
use sanderling_protocol::message::MemberRole;
use sanderling_protocol::{Instant, MemberId, Millis, Refusal};
use sanderling_transport::KnownGeneration;
use tokio::sync::watch;
use tokio::time::timeout;

use super::clock::boot_time;
use super::wire::{GroupPage, MemberPage};

/// How long the writer of a leader without a lease looks at nothing before it counts as hung: that
/// of the core, which has the reason ([`replica::HUNG_AFTER`]).
pub(crate) const HUNG_AFTER: Duration = Duration::from_millis(replica::HUNG_AFTER.0);

/// How long a caller waits before it calls a member again that no leader has reached for a while.
/// A new leader is there within twice the shortest time of an election (400 ms), as a rule.
const UNLED_PAUSE: Millis = Millis(200);

/// The state of a namenode: it is alone, leads its group, or follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ServingState {
    /// It is the only namenode: there is no group.
    #[default]
    Alone = 0,
    /// Another member leads, or none.
    Follower = 1,
    /// It was elected and has not yet applied what was on its way.
    Elected = 2,
    /// It leads and answers.
    Leader = 3,
}

impl ServingState {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Alone,
            2 => Self::Elected,
            3 => Self::Leader,
            _ => Self::Follower,
        }
    }

    /// Returns whether the member answers clients and gives orders: it is alone, or it leads.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Alone | Self::Leader)
    }

    /// Returns how far it leads its group; `None` without one.
    const fn lead(self) -> Option<LeadState> {
        match self {
            Self::Alone => None,
            Self::Follower => Some(LeadState::Follows),
            Self::Elected => Some(LeadState::Elected),
            Self::Leader => Some(LeadState::Serves),
        }
    }

    /// Returns its word on pages, where its key is `state`, and `standing` for older programs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Follower => "follower",
            Self::Elected => "elected",
            Self::Leader => "leader",
        }
    }
}

/// What a member was when its writer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedAs {
    /// The only namenode, or the only voter: no other goes on.
    Last,
    /// The leader. Another one will lead.
    Leader,
    /// Another one led, or none.
    Follower,
}

/// One member of the group, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRow {
    pub(crate) member: MemberId,
    pub(crate) address: String,
    pub(crate) http: String,
    pub(crate) is_voter: bool,
    pub(crate) is_leader: bool,
    /// Entries that it is behind the leader, if this member leads.
    pub(crate) behind: Option<u64>,
    /// Whether it answered the leader lately, if this member leads.
    pub(crate) is_active: Option<bool>,
    /// When its machine will be taken, by [`boot_time`], if this member leads or it is this one.
    pub(crate) notice: Option<Instant>,
    /// How long its machine goes on without one.
    pub(crate) life: MachineLife,
}

/// The group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupStatus {
    pub(crate) member: MemberId,
    pub(crate) term: u64,
    pub(crate) committed: u64,
    pub(crate) applied: u64,
    pub(crate) rows: Vec<MemberRow>,
    /// Messages that were dropped because a member took none.
    pub(crate) dropped: u64,
    /// Why the group would not survive the loss of one more member, if so.
    pub(crate) at_risk: Option<GroupRisk>,
    /// Spares that should be started, if this member leads.
    pub(crate) spares_missing: Option<usize>,
}

impl Default for GroupStatus {
    fn default() -> Self {
        let (term, committed, applied) = (0, 0, 0);
        let (member, rows, at_risk) = (MemberId(0), Vec::new(), None);
        let spares_missing = None;
        Self { member, term, committed, applied, rows, dropped: 0, at_risk, spares_missing }
    }
}

impl GroupStatus {
    /// Returns whether a member is taken for the leader.
    pub(crate) fn has_leader(&self) -> bool {
        self.leader().is_some()
    }

    fn leader(&self) -> Option<&MemberRow> {
        self.rows.iter().find(|row| row.is_leader)
    }
}

/// How a frame is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Here and now.
    Here,
    /// By the writer, once the quorum has confirmed that this member leads.
    Confirmed,
    /// Not here.
    Refused(Refusal),
}

/// Written by the writer's thread alone.
#[derive(Debug, Default)]
pub(crate) struct MemberState {
    serving: AtomicU8,
    /// Until when the leader may answer reads by itself, by [`boot_time`] in microseconds.
    lease_until: AtomicU64,
    /// Until when this member may rely on its list of revoked tokens without a lease, by
    /// [`boot_time`] in microseconds.
    fresh_until: AtomicU64,
    /// When the writer looked last, by [`boot_time`] in microseconds.
    seen_at: AtomicU64,
    term: AtomicU64,
    generation: KnownGeneration,
    /// What the member was when its writer ended.
    ended: Mutex<Option<EndedAs>>,
    status: Mutex<GroupStatus>,
    changes: watch::Sender<ServingState>,
    /// Where the leader serves HTTP, if it is another member that does.
    leader_http: watch::Sender<Option<String>>,
}

impl MemberState {
    /// Returns what the member is. A leader whose writer hangs counts as a follower: the others
    /// follow another one by then, and it takes no note of that.
    pub(crate) fn serving_state(&self) -> ServingState {
        match self.shown() {
            ServingState::Leader if self.hangs() => ServingState::Follower,
            shown => shown,
        }
    }

    /// Returns what the writer has shown the member to be.
    fn shown(&self) -> ServingState {
        ServingState::of(self.serving.load(Ordering::Acquire))
    }

    /// Returns whether a leader has no lease, and its writer has looked at nothing for long.
    fn hangs(&self) -> bool {
        let now = boot_time();
        self.lease_view(LeadState::Serves).hangs(now)
    }

    /// Returns what the writer has shown of a member that leads so far.
    fn lease_view(&self, lead: LeadState) -> LeaseView {
        let lease_until = Instant(self.lease_until.load(Ordering::Acquire));
        let seen_at = Instant(self.seen_at.load(Ordering::Acquire));
        LeaseView { lead, lease_until, seen_at }
    }

    /// Returns whether the member may answer reads now, by the rule of `core`. One that is alone
    /// always may.
    fn permission(&self) -> ReadPermission {
        let Some(lead) = self.shown().lead() else { return ReadPermission::Yes };
        // Before the lease is read, which the writer may give up at any moment.
        let now = boot_time();
        ReadPermission::of(&self.lease_view(lead), now)
    }

    /// Notes that the writer looks at what has come.
    pub(crate) fn set_seen(&self) {
        self.seen_at.store(boot_time().0, Ordering::Release);
    }

    /// Returns whether this is to be shown: it differs from what is shown, whether or not the
    /// writer has hung since.
    pub(crate) fn is_to_show(&self, serving: ServingState) -> bool {
        match self.shown() {
            // A group that is being founded: its first entry is agreed in a moment.
            ServingState::Alone => serving == ServingState::Leader,
            shown => shown != serving,
        }
    }

    pub(crate) fn set_serving_state(&self, serving: ServingState) {
        self.serving.store(serving as u8, Ordering::Release);
        self.changes.send_if_modified(|kept| std::mem::replace(kept, serving) != serving);
    }

    /// Follows what the member is.
    pub(crate) fn changes(&self) -> watch::Receiver<ServingState> {
        self.changes.subscribe()
    }

    /// Returns once this member is not about to take the lead over: it answers as the leader, or
    /// another member may lead. Waits for 200 ms at most.
    pub(crate) async fn taken_over(&self) {
        let mut changes = self.changes();
        let is_over = |_: &ServingState| self.serving_state() != ServingState::Elected;
        // Too late is no error: callers are refused then, and turn to the others.
        let _ = timeout(TAKE_OVER_TIMEOUT.into(), changes.wait_for(is_over)).await;
    }

    /// Returns the leader's term, which orders to datanodes carry; 0 without a group.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    pub(crate) fn set_term(&self, term: u64) {
        self.term.store(term, Ordering::Release);
    }

    /// Returns which founding of the group this member is of.
    pub(crate) fn generation(&self) -> GroupGeneration {
        self.generation.get()
    }

    /// Returns where this member's greetings find its generation.
    pub(crate) const fn known_generation(&self) -> &KnownGeneration {
        &self.generation
    }

    pub(crate) fn set_generation(&self, generation: GroupGeneration) {
        self.generation.set(generation);
    }

    /// Returns what the member was when its writer ended.
    pub(crate) fn ended(&self) -> Option<EndedAs> {
        *self.ended.lock()
    }

    pub(crate) fn end(&self, ended: EndedAs) {
        *self.ended.lock() = Some(ended);
    }

    /// Returns whether the archive is this member's to write.
    pub(crate) fn archives(&self) -> bool {
        self.may_show()
    }

    /// Returns whether the catalog is the group's newest at this moment, without a round trip.
    pub(crate) fn may_show(&self) -> bool {
        self.permission() == ReadPermission::Yes
    }

    pub(crate) fn set_lease(&self, until: u64) {
        self.lease_until.store(until, Ordering::Release);
    }

    pub(crate) fn set_fresh(&self, until: Instant) {
        self.fresh_until.store(until.0, Ordering::Release);
    }

    /// Checks that a token with these claims cannot have been revoked while no leader reached this
    /// member, for what each member answers by itself.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: no leader has reached this member for a while, nor since it
    /// started.
    pub(crate) fn check_fresh(&self, claims: &Claims) -> Result<(), Refusal> {
        let is_fresh = || boot_time().0 < self.fresh_until.load(Ordering::Acquire);
        if !claims.is_revocable() || self.may_show() || is_fresh() {
            return Ok(());
        }
        let why = "no leader has reached this namenode for some seconds, so the token may have \
                   been revoked: call another namenode of the group";
        Err(Refusal::RetryAfter { after: UNLED_PAUSE, why: why.to_owned() })
    }

    pub(crate) fn set_status(&self, status: GroupStatus) {
        let leader = status.leader().filter(|row| row.member != status.member);
        let http = leader.map(|row| row.http.clone()).filter(|address| !address.is_empty());
        *self.status.lock() = status;
        self.leader_http.send_if_modified(|kept| {
            let is_new = *kept != http;
            *kept = http;
            is_new
        });
    }

    pub(crate) fn status(&self) -> GroupStatus {
        self.status.lock().clone()
    }

    /// Returns the group for operators.
    pub(crate) fn page(&self) -> GroupPage {
        let (status, now) = (self.status(), boot_time());
        let row = |row: MemberRow| MemberPage {
            id: row.member,
            address: row.address,
            http_address: row.http,
            role: match (row.is_leader, row.is_voter) {
                (true, _) => MemberRole::Leader,
                (false, true) => MemberRole::Voter,
                (false, false) => MemberRole::Learner,
            },
            is_active: row.is_active,
            behind_entries: row.behind,
            notice_left: row.notice.map(|at| now.until(at)),
            expected_life: row.life,
        };
        let GroupStatus { member: here, term, rows, at_risk, spares_missing, .. } = status;
        let members = rows.into_iter().map(row).collect();
        let at_risk = at_risk.map(|risk| risk.to_string());
        let generation = self.generation().number();
        let generation_name = self.generation().to_string();
        GroupPage { here, term, generation, generation_name, members, at_risk, spares_missing }
    }

    /// Follows where the leader serves HTTP, if it is another member that does.
    pub(crate) fn leader_http(&self) -> watch::Receiver<Option<String>> {
        self.leader_http.subscribe()
    }

    /// Returns how a frame is answered. One that may wait until an elected member serves has waited
    /// before ([`Self::taken_over`]).
    pub(crate) fn admit(&self) -> Admission {
        match self.permission() {
            ReadPermission::Yes => Admission::Here,
            ReadPermission::NeedsQuorum => Admission::Confirmed,
            ReadPermission::TakesOver | ReadPermission::NotLeader => {
                Admission::Refused(self.refusal())
            }
        }
    }

    /// Returns the refusal of a member that does not lead.
    pub(crate) fn refusal(&self) -> Refusal {
        let status = self.status.lock();
        let leader = status.leader().filter(|row| row.member != status.member);
        Refusal::NotLeader { leader: leader.map(|row| row.address.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::access::{Lineage, Rights, TokenRole};
    use sanderling_protocol::{Path, TokenId};

    use super::*;

    fn claims(role: TokenRole, id: Option<u64>) -> Claims {
        let lineage = Lineage { id: id.map(TokenId), ..Lineage::default() };
        let (subject, subtree) = (role.word().to_owned(), Path::root());
        Claims { subject, role, subtree, rights: Rights::ALL, expires_at: 0, lineage }
    }

    #[test]
    fn leader_whose_writer_hangs_refuses_callers_once_it_has_no_lease() {
        let state = MemberState::default();
        state.set_serving_state(ServingState::Leader);
        state.seen_at.store(u64::MAX, Ordering::Release);
        assert_eq!(state.admit(), Admission::Confirmed);
        assert_eq!(state.serving_state(), ServingState::Leader);
        // As if it had looked last when the machine was booted.
        state.seen_at.store(0, Ordering::Release);
        let long_ago = Instant(0) + Millis::from(HUNG_AFTER);
        assert!(boot_time() > long_ago, "the machine was booted a moment ago");
        let refused = Refusal::NotLeader { leader: None };
        assert_eq!(state.admit(), Admission::Refused(refused));
        assert_eq!(state.serving_state(), ServingState::Follower);
        state.set_lease(u64::MAX);
        assert_eq!(state.admit(), Admission::Here);
        assert_eq!(state.serving_state(), ServingState::Leader);
        // A lease counts only at a member that serves.
        for serving in [ServingState::Elected, ServingState::Follower] {
            state.set_serving_state(serving);
            let refused = Refusal::NotLeader { leader: None };
            assert_eq!(state.admit(), Admission::Refused(refused), "{serving:?}");
            assert!(!state.may_show(), "{serving:?}");
        }
        // One that is alone waits for its disk.
        state.set_lease(0);
        state.set_serving_state(ServingState::Alone);
        assert_eq!(state.admit(), Admission::Here);
    }

    #[test]
    fn leader_that_fails_after_it_hung_is_shown_as_a_follower() {
        let state = MemberState::default();
        assert!(!state.is_to_show(ServingState::Follower), "its group is being founded");
        assert!(state.is_to_show(ServingState::Leader));
        state.set_serving_state(ServingState::Leader);
        // As if it had looked last when the machine was booted.
        state.seen_at.store(0, Ordering::Release);
        assert_eq!(state.serving_state(), ServingState::Follower);
        assert!(state.is_to_show(ServingState::Follower));
        assert!(!state.is_to_show(ServingState::Leader));
        state.set_serving_state(ServingState::Follower);
        state.set_seen();
        assert_eq!(state.serving_state(), ServingState::Follower);
    }

    #[test]
    fn member_that_no_leader_reaches_accepts_the_tokens_of_servers_alone() {
        let state = MemberState::default();
        let (server, operator) =
            (claims(TokenRole::Namenode, None), claims(TokenRole::Admin, Some(7)));
        let is_refused = || matches!(state.check_fresh(&operator), Err(Refusal::RetryAfter { .. }));
        assert!(!is_refused(), "a namenode alone makes the list itself");
        state.set_serving_state(ServingState::Follower);
        assert!(is_refused());
        assert_eq!(state.check_fresh(&server), Ok(()));
        state.set_fresh(boot_time() + Millis(3_600_000));
        assert!(!is_refused());
        state.set_fresh(boot_time());
        assert!(is_refused());
        state.set_serving_state(ServingState::Leader);
        assert!(is_refused(), "another one may lead");
        state.set_lease(u64::MAX);
        assert!(!is_refused());
    }
}
