//! What a leader has of its group's machines: which of them will be taken, and which are silent.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sanderling_protocol::{Instant, MemberId, Millis};

use super::group::GroupRole;
use super::machine::Replica;
use super::notices::{GroupPlan, MachineLife, MemberView, PlanContext, plan};
use super::output::MemberProgress;

/// Pause between two repetitions of a member's notice. A new leader gets it within this time. A
/// sixtieth of the 30 s that Google and Azure give.
pub const NOTICE_INTERVAL: Millis = Millis(500);

/// How long the notice of a member that answers counts after it was repeated last. One that was
/// taken back is not repeated. Six repetitions ([`NOTICE_INTERVAL`]), so that lost messages do not
/// end it.
const NOTICE_KEPT: Millis = Millis(3000);

/// The number of members that a leader keeps in its group, and how long it waits before it replaces
/// one.
#[derive(Debug, Clone, Copy)]
pub struct PlannerOptions {
    /// Voters that the group should have.
    pub voters: usize,
    /// Spares that should be ready.
    pub spares: usize,
    /// After how long without an answer a member's machine counts as gone. Shorter than a restart
    /// would make each restart cost the member its place.
    pub gone_after: Millis,
    /// Entries that a member may be behind what is agreed and count as caught up: a few rounds are
    /// always on their way.
    pub behind_max: u64,
    /// How long before its deadline a voter without a successor leaves, if the group could not go
    /// on without it: the others must still answer.
    pub leave_within: Millis,
    /// How long before its deadline the last voter stops, so that its archive gets everything.
    pub close_within: Millis,
    /// How long a leader without a notice leads before a machine that lives longer leads instead:
    /// the members have reported by then, and a group that elects again and again is not kept busy.
    pub leads_at_least: Millis,
}

impl PlannerOptions {
    /// Returns the options of a group with so many voters and spares, with the product's bounds.
    #[must_use]
    pub const fn new(voters: usize, spares: usize) -> Self {
        Self {
            voters,
            spares,
            gone_after: Millis(30_000),
            behind_max: 64,
            // The shortest notices leave 30 s: half of them is for spares that are started then.
            leave_within: Millis(15_000),
            // The 10 s for which the last changes are stored, the 2 s in which connections may end
            // before that, and a second for the writer.
            close_within: Millis(13_000),
            // Six reports (`LIFE_INTERVAL`).
            leads_at_least: Millis(30_000),
        }
    }

    /// Returns whether the machine of a voter without a successor, or of a namenode without a
    /// group, will be taken so soon that it stops, so that its archive gets everything. `deadline`
    /// is that of its notice, if it has one.
    #[must_use]
    pub fn is_closing(&self, now: Instant, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| now.until(deadline) <= self.close_within)
    }
}

#[derive(Debug, Clone, Copy)]
struct MemberNotice {
    deadline: Instant,
    received: Instant,
}

/// The planner of a leader: it keeps what the leader has received of its members' machines, that is
/// notices, silences and expected lives. Times are by the clock of elections.
/// [`GroupPlanner::plan`] decides what follows from them.
#[derive(Debug, Clone)]
pub struct GroupPlanner {
    options: PlannerOptions,
    notices: BTreeMap<MemberId, MemberNotice>,
    silent_since: BTreeMap<MemberId, Instant>,
    /// How long the machines go on, as the members report.
    lives: BTreeMap<MemberId, MachineLife>,
    /// The term in which this member leads; 0 if it does not.
    term: u64,
    /// When that began.
    leads_since: Instant,
}

impl GroupPlanner {
    /// Returns a planner that has received nothing about its group yet.
    #[must_use]
    pub const fn new(options: PlannerOptions) -> Self {
        Self {
            options,
            notices: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            lives: BTreeMap::new(),
            term: 0,
            leads_since: Instant(0),
        }
    }

    /// Takes a member's report of how long its machine goes on without a notice. It counts when
    /// [`GroupPlanner::plan`] and [`GroupPlanner::successors`] choose the voter that leads next.
    pub fn set_expected_life(&mut self, member: MemberId, life: MachineLife) {
        self.lives.insert(member, life);
    }

    /// Returns how long a member's machine goes on by its last report; [`MachineLife::Unknown`] if
    /// this leader has received none.
    #[must_use]
    pub fn life(&self, member: MemberId) -> MachineLife {
        self.lives.get(&member).copied().unwrap_or_default()
    }

    /// Takes a member's notice with its deadline, or that it has none any more. Members repeat
    /// theirs: one that is not repeated for 3 s ends while the member answers.
    pub fn notice(&mut self, now: Instant, member: MemberId, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => {
                self.notices.insert(member, MemberNotice { deadline, received: now });
            }
            None => drop(self.notices.remove(&member)),
        }
    }

    /// Returns when a member's machine will be taken by its last notice; `None` if it has none, or
    /// this leader has received none.
    #[must_use]
    pub fn deadline(&self, member: MemberId) -> Option<Instant> {
        self.notices.get(&member).map(|notice| notice.deadline)
    }

    /// Returns what the leader does next; `None` if this member does not serve as the leader. While
    /// a change of the members is under way, there is no step.
    pub fn plan(&mut self, now: Instant, replica: &Replica) -> Option<GroupPlan> {
        if !replica.is_serving() {
            self.term = 0;
            return None;
        }
        if self.term != replica.term() {
            // Whoever was silent to another leader may answer this one, and a notice of an earlier
            // term may have been taken back since: members repeat theirs.
            self.silent_since.clear();
            self.notices.clear();
            (self.term, self.leads_since) = (replica.term(), now);
        }
        let views = self.views(now, replica);
        let leader = replica.leader()?;
        let (led_for, options) = (self.leads_since.until(now), &self.options);
        let mut next = plan(&PlanContext { now, leader, led_for, members: &views, options });
        if replica.group().is_changing() {
            next.step = None;
        }
        Some(next)
    }

    /// Returns the voters to which this leader gives the leadership when it ends, the best first:
    /// of those that answer and are caught up, the one without a notice whose machine lives
    /// longest, and of equal ones the one that has most of the log. Only if none is caught up they
    /// are the others that answer.
    #[must_use]
    pub fn successors(&self, replica: &Replica) -> Vec<MemberId> {
        let Some(leader) = replica.leader() else { return Vec::new() };
        let (_, agreed) = replica.ends();
        let is_caught_up = |it: &MemberProgress| it.matched + self.options.behind_max >= agreed;
        let mut voters = replica.progress();
        voters.retain(|it| it.role == GroupRole::Voter && it.is_active && it.id != leader);
        if voters.iter().any(is_caught_up) {
            voters.retain(is_caught_up);
        }
        voters.sort_by_key(|it| {
            let stays = self.deadline(it.id).is_none();
            Reverse((stays, self.life(it.id), it.matched, Reverse(it.id)))
        });
        voters.into_iter().map(|it| it.id).collect()
    }

    fn views(&mut self, now: Instant, replica: &Replica) -> Vec<MemberView> {
        let (progress, (_, agreed)) = (replica.progress(), replica.ends());
        self.notices.retain(|id, _| progress.iter().any(|member| member.id == *id));
        self.silent_since.retain(|id, _| progress.iter().any(|member| member.id == *id));
        self.lives.retain(|id, _| progress.iter().any(|member| member.id == *id));
        let mut views = Vec::new();
        for member in progress {
            let silent_for = if member.is_active {
                self.silent_since.remove(&member.id);
                Millis(0)
            } else {
                self.silent_since.entry(member.id).or_insert(now).until(now)
            };
            let ends = |notice: &mut MemberNotice| {
                member.is_active && notice.received.until(now) > NOTICE_KEPT
            };
            if self.notices.get_mut(&member.id).is_some_and(ends) {
                self.notices.remove(&member.id);
            }
            let deadline = self.deadline(member.id);
            let is_taken = silent_for > Millis(0) && deadline.is_some_and(|it| it <= now);
            let is_behind = member.matched + self.options.behind_max < agreed;
            views.push(MemberView {
                id: member.id,
                role: member.role,
                is_active: silent_for < self.options.gone_after && !is_taken,
                is_caught_up: member.is_active && member.matched > 0 && !is_behind,
                deadline,
                expected_life: self.life(member.id),
            });
        }
        views
    }
}
