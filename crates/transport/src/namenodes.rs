//! Calls to whichever namenode of a group leads.
//!
//! [`GroupView`] and [`MemberAttempts`] decide which member is tried and when it is given up; this
//! connects, sends, waits and reports what came of it. A process has one [`Namenodes`] for all its
//! calls; a datanode has two others, for look-ups that its callers cause and for those of the ends
//! of blocks. With one address and a namenode that is alone it does what a [`Pool`] does.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::group_view::{
    CONNECT_TIMEOUT, FailedAttempt, GroupView, MEMBERS_TIMEOUT, MemberAttempts, MemberFailure,
    MemberFault, NextMember, Repeats, SLOW_AFTER, SlowAttempt, probe_pause, refused_elsewhere,
};
use sanderling_protocol::message::{Hello, HelloReply, Members, Role};
use sanderling_protocol::{ClusterId, Instant as MachineInstant, Millis, Refusal, Reply, Request};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::connection::Connection;
use crate::error::{CallError, CloseCause, ForeignCluster, ReplyFault, WrongPeer};
use crate::pool::{EncodedRequest, Pool};

/// How long the other addresses of a list have to name their cluster once the first has. Chosen,
/// not measured: many round trips within a cluster, and little beside the start of a process, which
/// each start waits for if a member is away.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(200);

type MetaReplies = Vec<Result<Reply, Refusal>>;

/// The namenodes of one cluster, as this process calls them. Clones share everything.
#[derive(Debug, Clone)]
pub struct Namenodes {
    shared: Arc<NamenodesInner>,
}

#[derive(Debug)]
struct NamenodesInner {
    /// The addresses as they were given, separated by commas.
    text: String,
    began: Instant,
    view: Mutex<GroupView>,
    /// Where the next request goes: the view's target, found without its lock.
    target: RwLock<Arc<str>>,
    has_several: AtomicBool,
    /// Whether the target answered as a leader.
    has_leader: AtomicBool,
    /// When the members are requested again, in microseconds since the start.
    refresh_at: AtomicU64,
    /// Counts changes of the target, and of whether it answered as a leader.
    changes: watch::Sender<u64>,
    /// Counts the times that an answer or a list showed which member leads, while calls look for
    /// one.
    found: watch::Sender<u64>,
    /// The one call that looks for a leader often has it.
    prober: Semaphore,
}

impl Namenodes {
    /// Returns the namenodes at these addresses, which are separated by commas.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let addresses = text.split(',').map(|address| address.trim().to_owned());
        let view = GroupView::new(addresses, MachineInstant(0));
        let target = Arc::from(view.target(MachineInstant(0)));
        Self {
            shared: Arc::new(NamenodesInner {
                text: text.to_owned(),
                began: Instant::now(),
                has_leader: AtomicBool::new(false),
                has_several: AtomicBool::new(view.has_several(MachineInstant(0))),
                refresh_at: AtomicU64::new(view.refresh_at().0),
                view: Mutex::new(view),
                target: RwLock::new(target),
                changes: watch::Sender::new(0),
                found: watch::Sender::new(0),
                prober: Semaphore::new(1),
            }),
        }
    }

    /// Returns the namenode's address, or the addresses of a group, as the text that was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.shared.text
    }

    /// Returns the address, `HOST:PORT`, of the namenode to which the next request goes.
    #[must_use]
    pub fn target(&self) -> Arc<str> {
        Arc::clone(&self.shared.target.read())
    }

    /// Returns all addresses that are known by now, the given ones first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.shared.view.lock().addresses().map(str::to_owned).collect()
    }

    /// Greets the namenodes and returns their cluster. Of several addresses the first that answers
    /// suffices. One that a later generation of the group has left behind counts as one of another
    /// cluster.
    ///
    /// # Errors
    /// [`CallError`]: none answered; try again, or correct the addresses.
    /// [`CallError::OtherCluster`]: two of them are of different clusters, or of two groups that
    /// two recoveries have begun; leave one out.
    pub async fn greet(&self, pool: &Pool, deadline: Instant) -> Result<ClusterId, CallError> {
        let addresses: Vec<String> = self.shared.text.split(',').map(str::to_owned).collect();
        let mut greetings = JoinSet::new();
        for (place, address) in addresses.iter().cloned().enumerate() {
            let pool = pool.clone();
            greetings.spawn(async move { (place, greeting(&pool, &address, deadline).await) });
        }
        let mut first: Option<(usize, ClusterId)> = None;
        let mut named: Vec<(usize, GroupGeneration)> = Vec::new();
        let mut failures: Vec<Option<CallError>> = vec![None; addresses.len()];
        let mut compare_by = deadline;
        while let Ok(Some(Ok((place, greeted)))) =
            timeout_at(compare_by, greetings.join_next()).await
        {
            let address = &addresses[place];
            match (greeted, first) {
                (Ok((cluster, generation)), None) => {
                    first = Some((place, cluster));
                    named.push((place, generation));
                    compare_by = deadline.min(Instant::now() + COMPARE_TIMEOUT);
                }
                (Ok((cluster, _)), Some((other, known))) if cluster != known => {
                    return Err(two_clusters((address, cluster), (&addresses[other], known)));
                }
                (Ok((_, generation)), Some(_)) => named.push((place, generation)),
                (Err(error), _) => {
                    self.note_failure(address, &error);
                    failures[place] = Some(error);
                }
            }
        }
        self.compare(&addresses, &named)?;
        match first {
            Some((_, cluster)) => Ok(cluster),
            None => Err(self.joined(failures.into_iter().flatten().collect())),
        }
    }

    /// Leaves out namenodes of older generations of the group, of those that were greeted.
    ///
    /// # Errors
    /// [`CallError::OtherCluster`]: two recoveries have begun the group.
    fn compare(
        &self,
        addresses: &[String],
        named: &[(usize, GroupGeneration)],
    ) -> Result<(), CallError> {
        for (place, own) in named {
            for (other, theirs) in named {
                let Err(refusal) = theirs.meets(*own) else { continue };
                if !theirs.is_after(*own) {
                    let (other, refusal) = (addresses[*other].clone(), Box::new(refusal));
                    return Err(CallError::OtherCluster {
                        address: addresses[*place].clone(),
                        found: ForeignCluster::OtherGroup { other, refusal },
                    });
                }
                self.note(&addresses[*place], MemberFailure::Foreign);
            }
        }
        Ok(())
    }

    /// Makes the pool's later connections those of the namenodes' cluster, if it is not known yet.
    /// With one address it does so only if the process makes tokens, which name it.
    ///
    /// # Errors
    /// As [`Self::greet`].
    pub async fn learn_cluster(&self, pool: &Pool, deadline: Instant) -> Result<(), CallError> {
        if pool.cluster().is_some() {
            return Ok(());
        }
        if !self.shared.text.contains(',') {
            return pool.learn_cluster(&self.target(), deadline).await;
        }
        pool.set_cluster(Some(self.greet(pool, deadline).await?));
        Ok(())
    }

    /// Sends requests in one frame to the member that leads. The answers are in the order of the
    /// requests. Members are tried until the deadline; a request that may have been done is sent to
    /// another one only if `repeats` allows it.
    ///
    /// # Errors
    /// [`CallError`] when there is no answer at all: its `recovery` names the next step.
    pub async fn meta(
        &self,
        pool: &Pool,
        requests: &[EncodedRequest],
        repeats: Repeats,
        deadline: Instant,
    ) -> Result<MetaReplies, CallError> {
        let target = self.target();
        self.refresh_if_due(pool);
        let answer = self.attempt(pool, &target, requests, deadline, CONNECT_TIMEOUT).await;
        let failed = match answer {
            Ok(replies) => match elsewhere(&replies) {
                None => {
                    self.note_success(pool, &target);
                    return Ok(replies);
                }
                Some(failed) => failed,
            },
            Err(failed) => failed,
        };
        // Rare: the future of a call that succeeds at once stays small.
        Box::pin(self.meta_elsewhere(pool, requests, repeats, deadline, (target, failed))).await
    }

    /// Goes on after the first attempt at a call has failed.
    async fn meta_elsewhere(
        &self,
        pool: &Pool,
        requests: &[EncodedRequest],
        repeats: Repeats,
        deadline: Instant,
        (mut address, mut failed): (Arc<str>, Attempted),
    ) -> Result<MetaReplies, CallError> {
        let mut attempts = MemberAttempts::new(&address, repeats, self.machine_time(deadline));
        let mut failures = Vec::new();
        let mut found = self.shared.found.subscribe();
        let mut prober = None;
        loop {
            if prober.is_none() {
                prober = self.shared.prober.try_acquire().ok();
                if prober.is_some() {
                    attempts.probe();
                }
            }
            let attempt = failed.attempt(&address);
            if !self.change(|view, now| attempts.failed(view, now, &attempt)) {
                return Err(failed.error);
            }
            failures.push(failed.error);
            let connect_within = loop {
                match self.next(&mut attempts) {
                    NextMember::Try { address: next, connect_within } => {
                        address = Arc::from(next);
                        break connect_within;
                    }
                    NextMember::Wait { pause } => {
                        // None of them leads: there may be others.
                        self.refresh_if_due(pool);
                        wait_for_leader(&mut attempts, pause, &mut found).await;
                        failures.clear();
                    }
                    NextMember::TooLate => return Err(self.joined(failures)),
                }
            };
            failed = match self.attempt(pool, &address, requests, deadline, connect_within).await {
                Ok(replies) => match elsewhere(&replies) {
                    None => {
                        self.note_success(pool, &address);
                        return Ok(replies);
                    }
                    Some(failed) => failed,
                },
                Err(failed) => failed,
            };
        }
    }

    /// Makes one attempt at one member.
    async fn attempt(
        &self,
        pool: &Pool,
        address: &Arc<str>,
        requests: &[EncodedRequest],
        deadline: Instant,
        connect_within: Millis,
    ) -> Result<MetaReplies, Attempted> {
        if !self.shared.has_several.load(Ordering::Relaxed) {
            let answer = pool.meta_encoded(address, requests, deadline).await;
            return answer.map_err(Attempted::sent);
        }
        if pool.ready(address, None).is_none() {
            let within = deadline.min(Instant::now() + Duration::from(connect_within));
            // Rare: the future of a call over an open connection stays small.
            let connected = Box::pin(self.connect(pool, address, within)).await;
            connected.map_err(|error| Attempted { error, was_sent: false })?;
        }
        let call = pool.meta_encoded(address, requests, deadline);
        tokio::pin!(call);
        if let Ok(answer) = timeout(SLOW_AFTER.into(), &mut call).await {
            return answer.map_err(Attempted::sent);
        }
        let mut changes = self.shared.changes.subscribe();
        let slow_since = Instant::now();
        loop {
            match self.change(|view, now| view.slow(now, address)) {
                SlowAttempt::Wait { members_from: Some(from) } => self.request_members(pool, from),
                SlowAttempt::Wait { members_from: None } => {}
                SlowAttempt::GiveUp => {
                    let (address, cause) = (address.to_string(), CloseCause::OtherLeader);
                    return Err(Attempted::sent(CallError::Closed { address, cause }));
                }
            }
            tokio::select! {
                answer = &mut call => return answer.map_err(Attempted::sent),
                _ = changes.changed() => {}
                () = sleep(probe_pause(slow_since.elapsed().into()).into()) => {}
            }
        }
    }

    /// Connects to one member, unless another one leads meanwhile.
    async fn connect(
        &self,
        pool: &Pool,
        address: &Arc<str>,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let mut changes = self.shared.changes.subscribe();
        let connecting = pool.connection(address, None, deadline);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                connected = &mut connecting => return connected.map(drop),
                _ = changes.changed() => {}
            }
            let has_leader = self.shared.has_leader.load(Ordering::Relaxed);
            if has_leader && self.target() != *address {
                let (address, cause) = (address.to_string(), CloseCause::OtherLeader);
                return Err(CallError::Closed { address, cause });
            }
        }
    }

    /// Requests the members if that is due.
    fn refresh_if_due(&self, pool: &Pool) {
        if self.now().0 < self.shared.refresh_at.load(Ordering::Relaxed) {
            return;
        }
        if let Some(from) = self.change(|view, now| view.refresh(now, None)) {
            self.request_members(pool, from);
        }
    }

    /// Requests the members from one of them, in a task of its own: no call waits for it.
    fn request_members(&self, pool: &Pool, from: String) {
        let (namenodes, pool) = (self.clone(), pool.clone());
        let ended = RefreshGuard(self.clone());
        tokio::spawn(async move {
            let _ended = ended;
            let deadline = Instant::now() + Duration::from(MEMBERS_TIMEOUT);
            match members_of(&pool, &from, deadline).await {
                Ok(members) => namenodes.learn(&from, &members),
                // A namenode of the release before reports no members.
                Err(CallError::Refused(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "a namenode did not report the members");
                }
            }
        });
    }

    fn next(&self, attempts: &mut MemberAttempts) -> NextMember {
        attempts.next(&self.shared.view.lock(), self.now(), draw())
    }

    /// Notes that the leader answered.
    fn note_success(&self, pool: &Pool, address: &Arc<str>) {
        pool.confirm_generation(address);
        let is_target = Arc::ptr_eq(&self.shared.target.read(), address);
        if !is_target || !self.shared.has_leader.load(Ordering::Relaxed) {
            self.change(|view, _| view.answered(address));
        }
        // Without a call that looks for a leader this is one look at a number.
        if self.shared.found.receiver_count() > 0 {
            self.note_found();
        }
    }

    /// Takes a list of the members. A leader that it shows ends the pauses of calls.
    fn learn(&self, from: &str, members: &Members) {
        let is_found = self.change(|view, now| {
            let before = view.has_leader().then(|| view.target(now).to_owned());
            view.learned(now, from, members);
            view.has_leader() && before.as_deref() != Some(view.target(now))
        });
        if is_found {
            self.note_found();
        }
    }

    /// Wakes the calls that pause until a member leads.
    fn note_found(&self) {
        self.shared.found.send_modify(|found| *found += 1);
    }

    /// Notes how a member has failed.
    fn note(&self, address: &str, failure: MemberFailure) {
        self.change(|view, now| view.failed(now, address, failure));
    }

    fn note_failure(&self, address: &str, error: &CallError) {
        if let Some(failure) = fault(error).of_member() {
            self.note(address, failure);
        }
    }

    /// Changes the view, shows where it leads, and returns what the change did.
    fn change<T>(&self, change: impl FnOnce(&mut GroupView, MachineInstant) -> T) -> T {
        let shared = &self.shared;
        let mut view = shared.view.lock();
        let now = self.now();
        let changed = change(&mut view, now);
        shared.has_several.store(view.has_several(now), Ordering::Relaxed);
        let has_leader = view.has_leader();
        let mut is_shown = shared.has_leader.swap(has_leader, Ordering::Relaxed) == has_leader;
        shared.refresh_at.store(view.refresh_at().0, Ordering::Relaxed);
        let mut target = shared.target.write();
        let next = view.target(now);
        if **target != *next {
            tracing::debug!(from = %target, to = next, "another namenode is called");
            *target = Arc::from(next);
            is_shown = false;
        }
        drop(target);
        if !is_shown {
            shared.changes.send_modify(|changes| *changes += 1);
        }
        changed
    }

    fn now(&self) -> MachineInstant {
        self.machine_time(Instant::now())
    }

    /// Returns a time by the clock of the view, which began with this process's calls.
    fn machine_time(&self, at: Instant) -> MachineInstant {
        let micros = at.saturating_duration_since(self.shared.began).as_micros();
        MachineInstant(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns one error for a call that none of the members answered.
    fn joined(&self, mut failures: Vec<CallError>) -> CallError {
        let all = self.shared.text.clone();
        let is_one = failures.len() < 2;
        let Some(last) = failures.pop() else {
            let waited = self.shared.began.elapsed();
            return CallError::TimedOut { address: all, waited };
        };
        match last {
            CallError::Unreachable { cause, .. } if !is_one => {
                CallError::Unreachable { address: all, cause }
            }
            CallError::TimedOut { waited, .. } if !is_one => {
                CallError::TimedOut { address: all, waited }
            }
            last => last,
        }
    }
}

/// A request for the members under way. However it ends, the next one may follow.
struct RefreshGuard(Namenodes);

impl Drop for RefreshGuard {
    fn drop(&mut self) {
        self.0.change(|view, now| view.refreshed(now, draw()));
    }
}

/// Waits until a pause is over, or until a leader was found since the pause before, if that ends
/// this one.
async fn wait_for_leader(
    attempts: &mut MemberAttempts,
    pause: Millis,
    found: &mut watch::Receiver<u64>,
) {
    let until = Instant::now() + Duration::from(pause);
    let is_found = timeout_at(until, found.changed()).await.is_ok();
    if is_found && !attempts.ends_pause() {
        sleep_until(until).await;
    }
    found.mark_unchanged();
}

/// How one attempt failed.
struct Attempted {
    error: CallError,
    was_sent: bool,
}

impl Attempted {
    /// The requests may have been sent.
    const fn sent(error: CallError) -> Self {
        Self { error, was_sent: true }
    }

    /// Returns what the machine of the call's attempts takes of it.
    fn attempt<'a>(&'a self, address: &'a str) -> FailedAttempt<'a> {
        FailedAttempt { address, fault: fault(&self.error), was_sent: self.was_sent }
    }
}

/// Returns what an error shows of the member that was called.
fn fault(error: &CallError) -> MemberFault<'_> {
    match error {
        CallError::Refused(refusal) => MemberFault::Refused(refusal),
        CallError::OtherCluster { .. } | CallError::WrongAddress { .. } => MemberFault::Foreign,
        CallError::Unreachable { .. } | CallError::Credentials { .. } => MemberFault::Unreachable,
        CallError::Closed { .. } => MemberFault::Broken,
        CallError::TimedOut { waited, .. } => MemberFault::Silent { waited: (*waited).into() },
        CallError::TooBusy { .. } => MemberFault::TooBusy,
        CallError::BadReply { .. } => MemberFault::BadReply,
    }
}

/// Returns the failure of a frame that its member answers nothing of, because it does not lead.
fn elsewhere(replies: &MetaReplies) -> Option<Attempted> {
    refused_elsewhere(replies).map(|refusal| Attempted::sent(CallError::Refused(refusal.clone())))
}

/// Greets one namenode.
async fn greeting(
    pool: &Pool,
    address: &str,
    deadline: Instant,
) -> Result<(ClusterId, GroupGeneration), CallError> {
    let hello = Hello { role: pool.role(), cluster: None, node: None, token: None };
    let options = pool.connection_options();
    let (connection, reply) = Connection::connect_with(address, hello, deadline, options).await?;
    match reply {
        HelloReply { role: Role::Namenode, cluster: Some(cluster), .. } => {
            Ok((cluster, connection.generation()))
        }
        HelloReply { role: Role::Namenode, .. } => {
            let fault = ReplyFault::NoCluster;
            Err(CallError::BadReply { address: address.to_owned(), fault })
        }
        HelloReply { role, .. } => Err(not_namenode(address, role)),
    }
}

/// Requests the members from one of them.
async fn members_of(pool: &Pool, address: &str, deadline: Instant) -> Result<Members, CallError> {
    let requests = [EncodedRequest::new(&Request::Members)];
    match pool.meta_encoded(address, &requests, deadline).await?.pop() {
        Some(Ok(Reply::Members(members))) => Ok(members),
        Some(Err(refusal)) => Err(CallError::Refused(refusal)),
        Some(Ok(other)) => {
            let (address, fault) = (address.to_owned(), ReplyFault::NoMembers(Box::new(other)));
            Err(CallError::BadReply { address, fault })
        }
        None => unreachable!("the pool returns one reply to each request"),
    }
}

/// Returns the error of a peer that is another server of the cluster.
#[must_use]
pub fn not_namenode(address: &str, role: Role) -> CallError {
    CallError::WrongAddress { address: address.to_owned(), found: WrongPeer::Server(role) }
}

fn two_clusters(
    (address, cluster): (&str, ClusterId),
    (other, known): (&str, ClusterId),
) -> CallError {
    let found = ForeignCluster::Other { cluster, other: other.to_owned(), known };
    CallError::OtherCluster { address: address.to_owned(), found }
}

/// Draws a number that differs from call to call and from process to process.
fn draw() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::MemberId;
    use sanderling_protocol::message::{Member, MemberRole};

    use super::*;
    use crate::pool::PoolOptions;

    /// What is to happen happens within this time, on any machine.
    const WITHIN: Duration = Duration::from_secs(60);

    /// A pause that no test waits for.
    const PAUSE: Millis = Millis(24 * 3600 * 1000);

    fn members(leader: u64) -> Members {
        let member = |id| Member {
            id: MemberId(id),
            address: format!("127.0.0.1:{id}"),
            http_address: String::new(),
            role: if id == leader { MemberRole::Leader } else { MemberRole::Voter },
        };
        Members { term: 5, here: MemberId(1), members: (1..=3).map(member).collect() }
    }

    /// Returns whether a call that pauses goes on when something else happens.
    async fn goes_on(namenodes: &Namenodes, happens: impl FnOnce()) -> bool {
        let mut attempts =
            MemberAttempts::new("127.0.0.1:1", Repeats::Always, MachineInstant(u64::MAX));
        let mut found = namenodes.shared.found.subscribe();
        let pause = timeout(WITHIN, wait_for_leader(&mut attempts, PAUSE, &mut found));
        let (paused, ()) = tokio::join!(pause, async { happens() });
        paused.is_ok()
    }

    #[tokio::test]
    async fn answer_to_another_call_ends_a_pause() {
        let namenodes = Namenodes::new("127.0.0.1:1,127.0.0.1:2");
        let pool = Pool::new(PoolOptions::default());
        let leader: Arc<str> = Arc::from("127.0.0.1:2");
        assert!(goes_on(&namenodes, || namenodes.note_success(&pool, &leader)).await);
        // The leader is the one that was known: it may have refused the call before it led.
        let leader = namenodes.target();
        assert!(goes_on(&namenodes, || namenodes.note_success(&pool, &leader)).await);
    }

    #[tokio::test]
    async fn list_that_shows_another_leader_ends_a_pause() {
        let namenodes = Namenodes::new("127.0.0.1:1,127.0.0.1:2");
        assert!(goes_on(&namenodes, || namenodes.learn("127.0.0.1:1", &members(2))).await);
        assert!(goes_on(&namenodes, || namenodes.learn("127.0.0.1:1", &members(3))).await);
        let found = namenodes.shared.found.subscribe();
        namenodes.learn("127.0.0.1:1", &members(3));
        assert!(!found.has_changed().unwrap(), "it shows the same leader");
    }

    #[tokio::test]
    async fn leader_that_was_found_before_the_pause_ends_it() {
        let namenodes = Namenodes::new("127.0.0.1:1,127.0.0.1:2");
        let mut attempts =
            MemberAttempts::new("127.0.0.1:1", Repeats::Always, MachineInstant(u64::MAX));
        let mut found = namenodes.shared.found.subscribe();
        // Between the attempt that it refuses and the pause the member begins to lead.
        namenodes.learn("127.0.0.1:1", &members(2));
        let pause = timeout(WITHIN, wait_for_leader(&mut attempts, PAUSE, &mut found));
        pause.await.unwrap();
        // Another pause is not ended: the leader may refuse this call each time.
        namenodes.note_found();
        let began = Instant::now();
        wait_for_leader(&mut attempts, Millis(20), &mut found).await;
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
