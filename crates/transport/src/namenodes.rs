//! Calls to whichever namenode of a group leads.
//!
//! [`GroupView`] decides which member is tried; this connects, waits and reports. A process has one
//! [`Namenodes`] for all its calls. With one address and a namenode that is alone it does what a
//! [`Pool`] does.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::group_view::{GroupView, MemberAttempts, MemberFailure, NextMember};
use sanderling_protocol::message::{Hello, HelloReply, Members, Role};
use sanderling_protocol::{ClusterId, Instant as MachineInstant, Millis, Refusal, Reply, Request};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::connection::Connection;
use crate::error::{CallError, CloseCause, ForeignCluster, ReplyFault, WrongPeer};
use crate::pool::{EncodedRequest, Pool};

/// How long one of several members may take to accept a connection and to answer the greeting: it
/// runs, or another one is tried.
const CONNECT_WITHIN: Duration = Duration::from_millis(1000);

/// How long a call to one of several members waits until the others get a request for the member
/// that leads.
const SLOW_AFTER: Duration = Duration::from_millis(250);

/// How often a call that still waits sends them that request again.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// How long a member may take to report the members.
const MEMBERS_WITHIN: Duration = Duration::from_secs(1);

/// How long the other addresses of a list have to name their cluster once the first has.
const COMPARE_WITHIN: Duration = Duration::from_millis(200);

type MetaReplies = Vec<Result<Reply, Refusal>>;

/// What happens to requests that may have been done although no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// The call fails, and its caller decides.
    Undone,
    /// They are sent to the next member: done twice they do the same as once.
    Always,
}

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
    /// Counts changes of the target.
    changes: watch::Sender<u64>,
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
            }),
        }
    }

    /// Returns the namenode's address, or the addresses of a group, as the text that was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.shared.text
    }

    /// Returns the address to which the next request goes.
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
    /// [`CallError`]: none answered. [`CallError::OtherCluster`]: two of them are of different
    /// clusters, or of two groups that two recoveries have begun.
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
                    compare_by = deadline.min(Instant::now() + COMPARE_WITHIN);
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
    /// [`CallError`] when there is no answer at all.
    pub async fn meta(
        &self,
        pool: &Pool,
        requests: &[EncodedRequest],
        repeats: Repeats,
        deadline: Instant,
    ) -> Result<MetaReplies, CallError> {
        let target = self.target();
        self.refresh_if_due(pool, None);
        let failed = match self.attempt(pool, &target, requests, deadline, true).await {
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
        let mut attempts = MemberAttempts::default();
        // It counts the first attempt, too.
        let _ = self.next(&mut attempts);
        let mut failures = Vec::new();
        loop {
            let Some(failure) = member_failure(&failed.error) else { return Err(failed.error) };
            let is_alone = !self.note(&address, failure) && !is_elsewhere(&failed.error);
            let is_in_doubt = failed.may_be_done && repeats == Repeats::Undone;
            if is_alone || is_in_doubt || Instant::now() >= deadline {
                return Err(failed.error);
            }
            failures.push(failed.error);
            let has_others = loop {
                match self.next(&mut attempts) {
                    NextMember::Try { address: next, has_others } => {
                        address = Arc::from(next);
                        break has_others;
                    }
                    NextMember::Wait { pause } => {
                        let pause = Duration::from(pause);
                        if Instant::now() + pause >= deadline {
                            return Err(self.joined(failures));
                        }
                        // None of them leads: there may be others.
                        self.refresh_if_due(pool, None);
                        sleep(pause).await;
                        failures.clear();
                    }
                }
            };
            failed = match self.attempt(pool, &address, requests, deadline, has_others).await {
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
        has_others: bool,
    ) -> Result<MetaReplies, Attempted> {
        if !self.shared.has_several.load(Ordering::Relaxed) {
            let answer = pool.meta_encoded(address, requests, deadline).await;
            return answer.map_err(|error| {
                let may_be_done = !is_undone(&error);
                Attempted { error, may_be_done }
            });
        }
        let within = match has_others {
            true => deadline.min(Instant::now() + CONNECT_WITHIN),
            false => deadline,
        };
        if let Err(error) = pool.connection(address, None, within).await {
            return Err(Attempted::failed(error));
        }
        let call = pool.meta_encoded(address, requests, deadline);
        tokio::pin!(call);
        let attempted = |error: CallError| Attempted { may_be_done: !is_undone(&error), error };
        if let Ok(answer) = timeout(SLOW_AFTER, &mut call).await {
            return answer.map_err(attempted);
        }
        let mut changes = self.shared.changes.subscribe();
        loop {
            if *self.target() != **address {
                let (address, cause) = (address.to_string(), CloseCause::OtherLeader);
                return Err(attempted(CallError::Closed { address, cause }));
            }
            self.refresh_if_due(pool, Some(address));
            tokio::select! {
                answer = &mut call => return answer.map_err(attempted),
                _ = changes.changed() => {}
                () = sleep(PROBE_EVERY) => self.shared.view.lock().refresh_soon(self.now()),
            }
        }
    }

    /// Requests the members if that is due, in a task of its own: no call waits for it.
    fn refresh_if_due(&self, pool: &Pool, silent: Option<&str>) {
        let now = self.now();
        if silent.is_none() && now.0 < self.shared.refresh_at.load(Ordering::Relaxed) {
            return;
        }
        let asked = {
            let mut view = self.shared.view.lock();
            if silent.is_some() {
                view.refresh_soon(now - Millis(u64::MAX));
            }
            let asked = view.refresh(now, silent);
            // None until this one has ended.
            self.shared.refresh_at.store(u64::MAX, Ordering::Relaxed);
            asked
        };
        let Some(asked) = asked else { return };
        let (namenodes, pool) = (self.clone(), pool.clone());
        let ended = RefreshGuard(self.clone());
        tokio::spawn(async move {
            let _ended = ended;
            let deadline = Instant::now() + MEMBERS_WITHIN;
            match members_of(&pool, &asked, deadline).await {
                Ok(members) => namenodes.change(|view, now| view.learned(now, &asked, &members)),
                // A namenode of the release before reports no members.
                Err(CallError::Refused(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "a namenode did not report the members");
                }
            }
        });
    }

    fn next(&self, attempts: &mut MemberAttempts) -> NextMember {
        self.shared.view.lock().next(attempts, self.now(), draw())
    }

    /// Notes that the leader answered.
    fn note_success(&self, pool: &Pool, address: &Arc<str>) {
        pool.confirm_generation(address);
        let is_target = Arc::ptr_eq(&self.shared.target.read(), address);
        if !is_target || !self.shared.has_leader.load(Ordering::Relaxed) {
            self.change(|view, _| view.answered(address));
        }
    }

    /// Notes a failure; returns whether there are other members to turn to.
    fn note(&self, address: &str, failure: MemberFailure) -> bool {
        self.change(|view, now| view.failed(now, address, failure));
        self.shared.has_several.load(Ordering::Relaxed)
    }

    fn note_failure(&self, address: &str, error: &CallError) {
        if let Some(failure) = member_failure(error) {
            self.note(address, failure);
        }
    }

    /// Changes the view, and shows where it leads.
    fn change(&self, change: impl FnOnce(&mut GroupView, MachineInstant)) {
        let shared = &self.shared;
        let mut view = shared.view.lock();
        let now = self.now();
        change(&mut view, now);
        shared.has_several.store(view.has_several(now), Ordering::Relaxed);
        shared.has_leader.store(view.has_leader(), Ordering::Relaxed);
        shared.refresh_at.store(view.refresh_at().0, Ordering::Relaxed);
        let mut target = shared.target.write();
        let next = view.target(now);
        if **target != *next {
            tracing::debug!(from = %target, to = next, "another namenode is called");
            *target = Arc::from(next);
            shared.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn now(&self) -> MachineInstant {
        let micros = self.shared.began.elapsed().as_micros();
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

/// How one attempt failed.
struct Attempted {
    error: CallError,
    may_be_done: bool,
}

impl Attempted {
    /// The requests were not done.
    const fn failed(error: CallError) -> Self {
        Self { error, may_be_done: false }
    }
}

/// Returns whether requests that ended so were certainly not done.
const fn is_undone(error: &CallError) -> bool {
    !matches!(
        error,
        CallError::Closed { .. } | CallError::TimedOut { .. } | CallError::BadReply { .. }
    )
}

/// Returns what a failed attempt shows of the member; `None` if another one would answer alike.
fn member_failure(error: &CallError) -> Option<MemberFailure> {
    match error {
        CallError::Refused(Refusal::NotLeader { leader }) => {
            Some(MemberFailure::NotLeader { leader: leader.clone() })
        }
        CallError::Refused(Refusal::Undecided { .. }) => {
            Some(MemberFailure::NotLeader { leader: None })
        }
        CallError::Refused(Refusal::WrongCluster { .. } | Refusal::OtherGeneration { .. })
        | CallError::OtherCluster { .. }
        | CallError::WrongAddress { .. } => Some(MemberFailure::Foreign),
        // The caller had no more time: that is not the member's failure.
        CallError::TimedOut { waited, .. } if *waited < SLOW_AFTER => None,
        CallError::Unreachable { .. }
        | CallError::Closed { .. }
        | CallError::TimedOut { .. }
        | CallError::Credentials { .. } => Some(MemberFailure::Unreachable),
        CallError::Refused(_) | CallError::TooBusy { .. } | CallError::BadReply { .. } => None,
    }
}

const fn is_elsewhere(error: &CallError) -> bool {
    matches!(error, CallError::Refused(Refusal::NotLeader { .. } | Refusal::Undecided { .. }))
}

/// Returns the failure of a frame that its member answers nothing of, because it does not lead.
/// Another member may have what was undecided when this one ceased to lead.
fn elsewhere(replies: &MetaReplies) -> Option<Attempted> {
    let mut failed = None;
    for reply in replies {
        match reply {
            Err(refusal @ Refusal::Undecided { .. }) => {
                let error = CallError::Refused(refusal.clone());
                failed = Some(Attempted { error, may_be_done: true });
            }
            Err(refusal @ Refusal::NotLeader { .. }) => {
                let error = CallError::Refused(refusal.clone());
                failed.get_or_insert(Attempted::failed(error));
            }
            _ => return None,
        }
    }
    failed
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
