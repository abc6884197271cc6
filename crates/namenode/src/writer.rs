//! The writer: it prepares changes, writes them to the journal, and only then applies them. One
//! thread has it; while it is idle, the receiving thread commits a small frame itself and saves
//! two context switches.
//!
//! What a batch takes together and in which order is decided by [`GroupCommit`]: one lock to
//! prepare, one write, one lock to apply (group commit).

mod events;
mod group_events;
mod quorum;
mod snapshots;
mod unwritten;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLockWriteGuard};
use sanderling_core::access::Claims;
use sanderling_core::catalog::{Action, Command, DatanodeOrder};
use sanderling_core::namenode::{
    Answers, CommitBatch, CommitWork, GroupCommit, Unwritten, WriterLoad,
};
use sanderling_core::replica::{GroupEvents, GroupPlan};
use sanderling_protocol::limits::EVENTS_KEPT_MAX;
use sanderling_protocol::{Instant, NodeId, Request, Term};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::error::NamenodeFailure;
use crate::group::log::LogError;
use crate::group::{EndedAs, GroupSeat, GroupSetup, ServingState};
use crate::journal::{AppendError, Journal};
use crate::next_task::release_next_task;
use crate::server::MemberStart;
use crate::state::NamenodeState;
use crate::writer_queue::{OwnWork, WaitingFrame, WorkBatch, WorkQueue};
use events::log;
pub(crate) use snapshots::{SnapshotUnderWay, Snapshots};

/// An outbound effect: something for the part that calls datanodes.
#[derive(Debug)]
pub(crate) enum Effect {
    /// An order that was decided in a term.
    Order {
        term: u64,
        order: DatanodeOrder,
    },
    Probe {
        node: NodeId,
        address: String,
    },
}

/// Ends the namenode when a change panics on a thread that would outlive it: what is half
/// changed may not be read or written.
struct PoisonGuard {
    state: Arc<NamenodeState>,
}

impl Drop for PoisonGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.fail(NamenodeFailure::Ended { part: "writer" });
        }
    }
}

/// Whichever thread holds the lock writes.
pub(crate) struct CatalogWriter {
    pub(crate) state: Arc<NamenodeState>,
    pub(crate) journal: Journal,
    pub(crate) snapshots: Snapshots,
    pub(crate) effects: mpsc::Sender<Effect>,
    pub(crate) group_commit: GroupCommit,
    /// This process as a member of a group; `None` while it is the only namenode.
    pub(crate) member: Option<GroupSeat>,
    pub(crate) group_options: GroupSetup,
    pub(crate) work: Arc<WorkQueue>,
    /// When the group was last looked after; `None` if it is to be at once.
    arranged_at: Option<std::time::Instant>,
    /// What this leader found to do for its group then.
    group_plan: Option<GroupPlan>,
    /// When this machine will be taken, while it is the only namenode.
    own_notice: Option<Instant>,
    group_events: GroupEvents,
    /// Commands that the catalog had at the start, or in the snapshot that it was replaced by: the
    /// group's log may have them once more.
    restored: u64,
}

impl WriterLoad for CatalogWriter {
    fn waits_for_quorum(&self) -> bool {
        self.member.is_some()
    }

    fn is_due(&self) -> bool {
        let now = self.state.now();
        self.state.namenode.read().deadline().is_some_and(|due| due <= now)
    }

    fn has_waiting(&self) -> bool {
        self.work.has_frames()
    }
}

impl CatalogWriter {
    /// Time between two looks at what the group needs, and at how far its members are. Half of the
    /// 400 ms without a leader after which a follower stands for election, and less than the 500 ms
    /// between repetitions of a notice: a plan is at most that late. A notice of its own is
    /// attended to at once.
    const ARRANGE_INTERVAL: Duration = Duration::from_millis(200);

    /// [`GroupCommit::SLEEP_MIN`].
    const SLEEP_MIN: Duration = Duration::from_millis(GroupCommit::SLEEP_MIN.0);

    /// [`GroupCommit::SLEEP_MAX`].
    const SLEEP_MAX: Duration = Duration::from_millis(GroupCommit::SLEEP_MAX.0);

    /// How long another thread has the lock before its disk is taken to hang. The longest frame
    /// that is made on the thread of a connection has 256 small changes, some milliseconds of work.
    /// Chosen, not measured.
    const HELD_MAX: Duration = Duration::from_millis(100);

    /// Commands that are applied before readers that wait get the lock: some 100 us of work.
    const APPLIED_MAX: usize = 32;

    /// How often readers get the lock in one round: a large one waits for no more of them. A round
    /// of 2,048 commands without this bound gave the lock away 64 times. Eight turns of readers
    /// leave less than 2 ms of a round of creates (12 ms) between two. Chosen, not measured.
    const LOCK_TURNS: usize = 8;

    pub(crate) fn new(
        state: Arc<NamenodeState>,
        journal: Journal,
        snapshots: Snapshots,
        effects: mpsc::Sender<Effect>,
        (work, group_options): (Arc<WorkQueue>, GroupSetup),
    ) -> Self {
        let (group_commit, member) = (GroupCommit::new(state.now()), None);
        let (arranged_at, group_plan, own_notice) = (None, None, None);
        let restored = state.namenode.read().catalog().index();
        Self {
            state,
            journal,
            snapshots,
            effects,
            group_commit,
            member,
            group_options,
            work,
            arranged_at,
            group_plan,
            own_notice,
            group_events: GroupEvents::default(),
            restored,
        }
    }

    /// The writer's thread: works until it is stopped and nothing waits. Returns the snapshot that
    /// is under way then. `runtime` has the threads of the connections.
    pub(crate) fn run(
        writer: &Mutex<Self>,
        work: &WorkQueue,
        runtime: &Handle,
    ) -> Option<SnapshotUnderWay> {
        let mut is_running = true;
        while is_running {
            let sleep = Self::locked(writer, runtime).sleep();
            work.wait(sleep);
            let mut writer = Self::locked(writer, runtime);
            writer.attend();
            writer.take_over();
            let serves = writer.state.group.serving_state().serves();
            if serves {
                writer.grant_grace();
            }
            let taken = work.take(writer.member.is_some());
            is_running = !taken.is_last;
            match serves {
                true => writer.do_work(taken),
                false => writer.refuse_work(taken),
            }
            writer.maintain();
        }
        let writer = &mut *Self::locked(writer, runtime);
        writer.close_group();
        if let Err(cause) = writer.snapshots.finish(&mut writer.journal) {
            error!(why = %cause, "the journal could not be synced at the end");
            writer.state.fail(NamenodeFailure::Journal { cause });
        }
        writer.snapshots.take_under_way()
    }

    /// Takes the lock for the writer's thread. While a thread of the runtime has it for long, the
    /// others get a task: that thread may be the one that last waited for sockets and timers, and
    /// without anything to do none of the others takes its place.
    fn locked<'a>(writer: &'a Mutex<Self>, runtime: &Handle) -> MutexGuard<'a, Self> {
        loop {
            if let Some(writer) = writer.try_lock_for(Self::HELD_MAX) {
                return writer;
            }
            runtime.spawn(async {});
        }
    }

    /// Makes the changes of one frame, on the caller's thread.
    pub(crate) fn change(
        &mut self,
        requests: Vec<Request>,
        claims: Option<Arc<Claims>>,
    ) -> Option<Answers> {
        let _guard = PoisonGuard { state: Arc::clone(&self.state) };
        self.work_off(CommitBatch::asked(requests, claims)).pop()
    }

    /// Attends to what came for the member of the group, on the caller's thread.
    pub(crate) fn attend_here(&mut self) {
        let _guard = PoisonGuard { state: Arc::clone(&self.state) };
        self.attend();
    }

    /// Does not count time without service against nodes, leases and notices.
    fn grant_grace(&mut self) {
        let now = self.state.now();
        let excused = self.group_commit.grant_grace(now, &mut *self.state.namenode.write());
        if let Some(batch) = excused {
            self.work_off(batch);
        }
    }

    fn sleep(&self) -> Duration {
        if let Some(member) = &self.member
            && !self.state.group.serving_state().serves()
        {
            return member.sleep().max(Self::SLEEP_MIN);
        }
        let now = self.state.now();
        let due = self.group_commit.due(&*self.state.namenode.read());
        let sleep = due.map_or(Self::SLEEP_MAX, |due| Duration::from(now.until(due)));
        let sleep = self.member.as_ref().map_or(sleep, |member| sleep.min(member.sleep()));
        sleep.clamp(Self::SLEEP_MIN, Self::SLEEP_MAX)
    }

    /// Does the work that was taken, and what time has made necessary.
    fn do_work(&mut self, waiting: WorkBatch) {
        let own = waiting.own.into_iter().map(|work| match work {
            OwnWork::Ordered { order, reply } => CommitWork::Ordered(order, reply),
            OwnWork::Probed { node, outcome } => CommitWork::Probed(node, outcome),
        });
        let mut taken: Vec<CommitWork> = own.collect();
        let mut replies = Vec::with_capacity(waiting.frames.len());
        for WaitingFrame { requests, claims, reply } in waiting.frames {
            replies.push(reply);
            taken.push(CommitWork::Frame(requests, claims));
        }
        let now = self.state.now();
        let mut batch = self.group_commit.take(now, &mut *self.state.namenode.write(), taken);
        for (node, address) in std::mem::take(&mut batch.probes) {
            self.send(Effect::Probe { node, address });
        }
        let answers = self.work_off(batch);
        for (reply, answers) in replies.into_iter().zip(answers) {
            // A caller that is gone does not want them.
            let _ = reply.send(answers);
        }
    }

    /// Writes and applies the rounds of a batch; returns the answers of its frames.
    fn work_off(&mut self, mut batch: CommitBatch) -> Vec<Answers> {
        loop {
            if batch.must_prepare() {
                batch.prepare(self.state.now(), &mut *self.state.namenode.write());
            }
            if batch.commands().len() == 0 {
                return batch.finish();
            }
            self.commit(&mut batch);
        }
    }

    /// Writes a round, then applies it. Commands that were not written change nothing. In a group
    /// the quorum has the round before it is written here.
    fn commit(&mut self, batch: &mut CommitBatch) {
        if self.group_commit.is_late(batch) {
            self.group_commit.grace_after(batch, &mut *self.state.namenode.write());
        }
        let is_start = self.group_commit.lead(batch);
        let began = self.state.now();
        let mut written = match self.member {
            None => {
                release_next_task();
                self.journal.append(batch.commands())
            }
            Some(_) => {
                if let Err(why) = self.agree(batch) {
                    self.state.namenode.write().refused();
                    self.group_commit.refuse(batch, self.state.now(), &why);
                    return;
                }
                self.store_agreed(batch.commands().collect()).map_err(AppendError::from)
            }
        };
        if is_start {
            // A crash of the machine must not take the record of this start: the next process
            // would give out the same numbers.
            written = written.and_then(|()| Ok(self.journal.sync()?));
        }
        if let Err(error) = written {
            match self.member {
                None => self.refuse(batch, error),
                Some(_) => self.end_agreed(batch, error),
            }
            return;
        }
        self.group_commit.has_begun();
        self.state.metrics.batches.inc();
        if self.state.refusal.lock().take().is_some() {
            info!("the journal takes changes again");
        }
        let mut namenode = self.state.namenode.write();
        let (mut applied, every) = (0, Self::lock_turn(batch.commands().len()));
        let orders = batch.apply(|command, _| {
            if applied == every {
                applied = 0;
                // Readers see what is applied so far, as after a shorter round. No other writer
                // comes between: each of them holds the lock on this writer.
                self.state.show_revocations(namenode.catalog());
                RwLockWriteGuard::bump(&mut namenode);
            }
            applied += 1;
            namenode.apply(command)
        });
        self.state.show_revocations(namenode.catalog());
        namenode.committed(began, self.state.now());
        let sent = *self.state.event_last.borrow();
        let events = namenode.events_after(sent, EVENTS_KEPT_MAX);
        drop(namenode);
        // A new leader decides before it shows its term.
        let own = self.member.as_ref().map(|member| member.replica.term());
        let term = own.unwrap_or_else(|| self.state.group.term());
        for order in orders {
            self.send(Effect::Order { term, order });
        }
        if let Some(last) = events.last() {
            self.state.event_last.send_replace(last.sequence);
        }
        events.iter().for_each(log);
    }

    /// Returns after how many commands of a round readers get the lock.
    const fn lock_turn(commands: usize) -> usize {
        let even = commands.div_ceil(Self::LOCK_TURNS);
        if even > Self::APPLIED_MAX { even } else { Self::APPLIED_MAX }
    }

    /// Refuses a round that the journal of the only namenode did not take.
    fn refuse(&mut self, batch: &mut CommitBatch, error: AppendError) {
        let is_first = self.state.failure.borrow().is_none();
        if let AppendError::Failed(failure) = &error
            && is_first
        {
            error!(why = %failure, "the journal has failed: no change is taken any more");
            self.state.fail(NamenodeFailure::Journal { cause: failure.clone() });
        }
        if self.state.refusal.lock().replace(error.to_string()).is_none() {
            warn!(why = %error, "the journal refuses changes; reads go on");
        }
        self.state.namenode.write().refused();
        self.group_commit.refuse(batch, self.state.now(), &Unwritten::from(error));
    }

    fn send(&self, effect: Effect) {
        if self.effects.try_send(effect).is_err() {
            // Block reports, heartbeats and the next probe repeat it.
            self.state.metrics.orders_dropped.inc();
        }
    }

    /// Answers what waits for a namenode that does not lead its group.
    fn refuse_work(&self, taken: WorkBatch) {
        for WaitingFrame { requests, reply, .. } in taken.frames {
            let refusal = self.state.group.refusal();
            let _ = reply.send(vec![Err(refusal); requests.len()]);
        }
    }

    /// Ends as a member in order: the disk has everything.
    fn close_group(&mut self) {
        let Some(mut member) = self.member.take() else {
            self.state.group.end(EndedAs::Last);
            return;
        };
        self.state.group.end(match (member.is_last(), member.is_serving()) {
            (true, _) => EndedAs::Last,
            (false, true) => EndedAs::Leader,
            (false, false) => EndedAs::Follower,
        });
        self.state.group.set_serving_state(ServingState::Follower);
        self.state.group.set_lease(0);
        if self.journal.sync().is_ok()
            && let Err(error) = member.close()
        {
            self.fail_group(error, member.may_have_forgotten());
        }
    }

    fn maintain(&mut self) {
        let is_recent = self.arranged_at.is_some_and(|at| at.elapsed() < Self::ARRANGE_INTERVAL);
        if self.member.is_some() && !is_recent {
            self.arranged_at = Some(std::time::Instant::now());
            self.arrange();
            self.show_group();
            self.write_group_events();
            if let Some(Err(error)) = self.member.as_mut().map(GroupSeat::compact) {
                self.end_member(error);
            }
        }
        self.close_alone();
        self.state.metrics.set_journal_bytes(self.journal.bytes());
        if let Err(cause) = self.snapshots.keep(&self.state, &mut self.journal) {
            match self.member {
                None => self.state.fail(NamenodeFailure::Journal { cause }),
                // What is agreed next could not be applied.
                Some(_) => self.end_unapplied(cause.into()),
            }
        }
    }

    /// Begins as what the namenode starts as.
    ///
    /// # Errors
    /// [`LogError`]: the files of a group's member cannot be used, and the namenode does not start.
    pub(crate) fn start(
        &mut self,
        start: MemberStart,
        (commands, cut_bytes): (u64, u64),
        found: Vec<Action>,
    ) -> Result<(), LogError> {
        match start {
            MemberStart::Alone(generation) => {
                self.state.group.set_generation(generation);
                self.state.group.set_term(generation.first_term());
                self.begin(commands, cut_bytes, found);
            }
            start => self.begin_as_member(start)?,
        }
        Ok(())
    }

    /// Writes and applies the records of where this process began and what it found.
    pub(crate) fn begin(&mut self, commands: u64, cut_bytes: u64, found: Vec<Action>) {
        let at = self.state.now();
        let term = Term(rand::random());
        let commands = self.state.namenode.write().begin(at, term, commands, cut_bytes);
        let found = found.into_iter().map(|action| Command { at, action });
        let batch = self.group_commit.begin(commands.into_iter().chain(found).collect());
        self.work_off(batch);
    }
}
