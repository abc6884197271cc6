//! The lock of a task's name: one runner at a time.

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sanderling_command::failure::{Exit, Failure};
use sanderling_command::output::Output;
use sanderling_command::process::RecordedProcess;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    BackendAnswers, LockClaim, LockHolder, LockLook, LockObserver, LockProtection, LockRecord,
    LockView, LockWrite, LockWritten, SeenLock,
};
use sanderling_protocol::Instant as SteadyInstant;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::{TaskBackend, hex, is_check, number_of};
use crate::boot_clock::since_boot;
use crate::encryption::drawn;
use crate::lease::{LeaseEnd, LeaseMover};
use crate::task_failure::TaskFailure;

/// Pause between two looks at a lock whose runner may be dead.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Digits of the number in a lock's name, at least.
const DIGITS: usize = 10;

/// The lock, while it is held.
pub(crate) struct TaskLock {
    backend: TaskBackend,
    holder: SharedHolder,
    /// The number of generations where it is not that of the lock.
    rank: OnceLock<u64>,
    /// Until when it lets the task's command run.
    lease: LeaseEnd,
    /// Cancelled when another runner has taken it.
    pub(crate) lost: CancellationToken,
    ended: CancellationToken,
    renewals: JoinHandle<()>,
}

/// The decisions about a lock that is held. Clones share them.
#[derive(Clone)]
struct SharedHolder(Arc<Mutex<LockHolder>>);

impl SharedHolder {
    fn get(&self) -> MutexGuard<'_, LockHolder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.get().number()
    }

    fn numbers(&self) -> RangeInclusive<u64> {
        self.get().numbers()
    }
}

/// What was seen of a task's lock, from one look to the next.
pub(crate) struct LockWatch {
    own: LockRecord,
    observer: LockObserver,
    /// Where it is printed, once, that a lock is waited for.
    output: Option<Output>,
}

impl LockWatch {
    pub(crate) fn new() -> Self {
        Self { own: own_record(), observer: LockObserver::new(steady_now()), output: None }
    }

    /// Returns one that prints for how long [`TaskLock::take`] may wait for a lock.
    pub(crate) fn noting(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Takes over since when the backend answers, from one that has called it meanwhile.
    pub(crate) const fn take_over(&mut self, answers: BackendAnswers) {
        self.observer.take_over(answers);
    }

    /// Looks at the lock.
    pub(crate) async fn look(
        &mut self,
        backend: &TaskBackend,
        age: Duration,
    ) -> Result<LockView, Failure> {
        let began = steady_now();
        let looked = seen(backend).await;
        let look = looked.inspect_err(|_| self.observer.failed())?;
        let own = &self.own;
        let is_alive = |record: &LockRecord| is_alive(record, own);
        Ok(self.observer.observe(began, steady_now(), age.into(), look, is_alive))
    }

    /// Prints once how long a lock is waited for that may be of a dead runner.
    fn note_wait(&mut self, age: Duration) {
        let Some(output) = self.output.take() else { return };
        let within = units::millis(self.observer.free_within(age.into()));
        let whose = match self.observer.newest() {
            None => "that cannot be read".to_owned(),
            Some(record) => {
                let is_here = record.machine == self.own.machine;
                let place = if is_here { "this machine" } else { "another machine" };
                format!("of process {} on {place}", record.pid)
            }
        };
        output.note(format_args!("waits up to {within} for the lock {whose}"));
    }
}

/// Returns the time of a clock that never steps, since this process first called it.
pub(crate) fn steady_now() -> SteadyInstant {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed();
    SteadyInstant(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX))
}

impl TaskLock {
    /// Takes the lock, and renews it from now on. Where its last runner ran elsewhere and left it,
    /// this waits until the lock was watched for `age` to see whether it is renewed.
    ///
    /// # Errors
    /// Another runner has it.
    pub(crate) async fn take(
        backend: &TaskBackend,
        task: &str,
        age: Duration,
        mut watch: LockWatch,
    ) -> Result<Self, Failure> {
        loop {
            match watch.look(backend, age).await? {
                LockView::Held => {
                    return Err(held(Exit::Unavailable, task, watch.observer.newest()));
                }
                LockView::Unknown => {
                    watch.note_wait(age);
                    sleep(POLL_INTERVAL).await;
                }
                LockView::Free => {
                    let next = backend.number_after("locks", watch.observer.highest_number())?;
                    let own = watch.own.clone();
                    let holder = LockHolder::new(since_boot(), next, own, age.into());
                    if claimed(backend, &holder).await? {
                        return Ok(Self::renewed(backend, holder));
                    }
                }
            }
        }
    }

    fn renewed(backend: &TaskBackend, holder: LockHolder) -> Self {
        let (lost, ended) = (CancellationToken::new(), CancellationToken::new());
        let (number, every) = (holder.number(), holder.renew_every().into());
        let (leases, lease) = LeaseEnd::new(holder.runs_until());
        let holder = SharedHolder(Arc::new(Mutex::new(holder)));
        let renewer = Renewer {
            backend: backend.clone(),
            holder: holder.clone(),
            every,
            leases,
            removal: remove_before(backend, number),
            lost: lost.clone(),
            ended: ended.clone(),
        };
        let renewals = tokio::spawn(renewer.renew());
        let rank = OnceLock::new();
        Self { backend: backend.clone(), holder, rank, lease, lost, ended, renewals }
    }

    /// Returns until when it lets the task's command run, as that changes.
    pub(crate) fn lease(&self) -> LeaseEnd {
        self.lease.clone()
    }

    /// Waits until it lets the task's command run, and prints that it waits.
    ///
    /// # Errors
    /// [`TaskFailure::Taken`]: another runner has taken it.
    pub(crate) async fn expect_lease(&self, task: &str, output: Output) -> Result<(), Failure> {
        if self.lease.is_over() {
            output.note("the lock is not confirmed: the command starts when it is");
        }
        while self.lease.is_over() {
            tokio::select! {
                () = self.lost.cancelled() => return Err(held(Exit::Failure, task, None)),
                () = sleep(POLL_INTERVAL) => {}
            }
        }
        Ok(())
    }

    /// Returns its number: the next runner that takes the lock has a higher one.
    pub(crate) fn number(&self) -> u64 {
        self.holder.number()
    }

    /// Takes note of the highest lock under which generations were written. Locks may have been
    /// removed, so that their numbers began anew: what is written from now on is newer
    /// all the same.
    pub(crate) fn follow(&self, shown: u64) {
        if shown >= self.number() {
            // Once for each lock: before its first generation.
            let _ = self.rank.set(shown.saturating_add(1));
        }
    }

    /// Returns the number under which generations are written.
    pub(crate) fn rank(&self) -> u64 {
        self.rank.get().copied().unwrap_or_else(|| self.number())
    }

    /// Returns whether no other runner has taken the lock.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn is_held(&self) -> Result<bool, Failure> {
        let (highest, found) = look_at_own(&self.backend, self.holder.numbers()).await?;
        Ok(!self.holder.get().is_taken(highest, found.as_ref()))
    }

    /// Returns whether no other runner has taken the lock, nor can take it for as long as a removal
    /// takes that begins now. If its last renewals do not show that, as after a pause, the backend
    /// is looked at.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn may_remove(&self) -> Result<bool, Failure> {
        let protection = self.holder.get().protection(since_boot());
        match protection {
            LockProtection::Lost => Ok(false),
            LockProtection::Protected => Ok(true),
            LockProtection::Unclear => self.is_held().await,
        }
    }

    /// Gives the lock up.
    pub(crate) async fn release(mut self) {
        self.ended.cancel();
        // A renewal that is on its way would take the release back.
        let _ = (&mut self.renewals).await;
        let (backend, numbers) = (self.backend.clone(), self.holder.numbers());
        let Some(record) = self.holder.get().release() else { return };
        let bytes = encoded(&record);
        let release = async move || {
            // What became of the last number may not be known.
            for number in numbers.clone() {
                match read(&backend, number).await {
                    Ok(Some(found)) if found.owner == record.owner => {
                        let name = lock_name(number);
                        if backend.replace(&name, bytes.clone()).await.is_err() {
                            return false;
                        }
                    }
                    // All that was stored of the task was removed, and another runner may have
                    // begun.
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
            true
        };
        if release().await {
            return;
        }
        // The next runner waits until the lock is old, or until this process has ended. One that
        // goes on gives it up as soon as the backend is there.
        tokio::spawn(async move {
            while !release().await {
                sleep(POLL_INTERVAL).await;
            }
        });
    }

    /// Refuses to go on when the newest record is not this runner's: another runner has taken the
    /// lock, or all that was stored of the task was removed meanwhile.
    ///
    /// # Errors
    /// [`TaskFailure::Taken`]; the backend cannot be read.
    pub(crate) async fn check_own(&self, task: &str) -> Result<(), Failure> {
        let (number, found) = newest(&self.backend).await?;
        let is_own = self.holder.get().is_newest(number, found.as_ref());
        if is_own { Ok(()) } else { Err(held(Exit::Failure, task, found.as_ref())) }
    }
}

/// Renews a lock until it is given up or taken, and takes it anew when it was not renewed in time.
struct Renewer {
    backend: TaskBackend,
    holder: SharedHolder,
    every: Duration,
    leases: LeaseMover,
    /// The last removal of the locks before.
    removal: JoinHandle<()>,
    lost: CancellationToken,
    ended: CancellationToken,
}

impl Renewer {
    async fn renew(mut self) {
        let mut pause = self.every;
        loop {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                () = sleep(pause) => {}
            }
            pause = match self.look().await {
                Some(LockLook::Taken) => return self.lose(),
                Some(LockLook::Retaken) => self.retaken(),
                Some(LockLook::Held) | None if self.ended.is_cancelled() => continue,
                Some(LockLook::Held) | None => match self.write().await {
                    Some(pause) => pause,
                    None => return self.lose(),
                },
            };
            self.leases.move_to(self.holder.get().runs_until());
        }
    }

    /// Renews the lock once, or takes it anew. Returns the pause before the next look and write;
    /// none if another runner has the lock.
    async fn write(&self) -> Option<Duration> {
        let write = self.holder.get().write(since_boot());
        let Some(LockWrite { number, record, is_new }) = write else {
            return Some(self.holder.get().pause_after_failure().into());
        };
        let (backend, name, bytes) = (&self.backend, lock_name(number), encoded(&record));
        let repeats = matches!(backend, TaskBackend::Bucket(_));
        let mut stored = pin!(async {
            match is_new {
                true => backend.put_absent(&name, bytes).await,
                false => backend.replace(&name, bytes).await.map(|()| true),
            }
        });
        // Below a durable directory whose store is away a renewal takes as long as a call may:
        // another runner that has the lock is found meanwhile.
        let written = loop {
            if let Ok(stored) = timeout(self.every, &mut stored).await {
                let is_stored = matches!(stored, Ok(true));
                if let Err(failure) = stored {
                    self.leases.failed(failure.cause);
                }
                break if is_stored { LockWritten::Stored } else { LockWritten::Failed };
            }
            let look = self.look().await;
            if look == Some(LockLook::Taken) {
                return None;
            }
            if look.is_some() {
                self.leases.failed(format!("{backend} does not take the record of the lock"));
            }
            if self.holder.get().gives_up(since_boot(), repeats, look.is_some()) {
                break LockWritten::GivenUp;
            }
        };
        Some(self.holder.get().written(since_boot(), written).into())
    }

    /// Looks whether another runner has the lock; none if that cannot be read soon.
    async fn look(&self) -> Option<LockLook> {
        let (began, numbers) = (since_boot(), self.holder.numbers());
        let looked = timeout(self.every, look_at_own(&self.backend, numbers)).await;
        let cause = match looked {
            Ok(Ok((highest, found))) => {
                return Some(self.holder.get().looked(began, highest, found.as_ref()));
            }
            Ok(Err(failure)) => failure.cause,
            Err(_) => format!("{} does not answer", self.backend),
        };
        self.leases.failed(cause);
        None
    }

    /// Takes that the lock has another number now. Returns the pause before the next look.
    fn retaken(&mut self) -> Duration {
        // One that waits for the store of a durable directory leaves it to a later one.
        if self.removal.is_finished() {
            self.removal = remove_before(&self.backend, self.holder.number());
        }
        self.holder.get().pause(since_boot()).into()
    }

    fn lose(&self) {
        self.holder.get().lose();
        self.lost.cancel();
    }
}

/// Removes the locks before one, which count no longer. Below a durable directory a removal waits
/// for the store: renewals do not wait for it.
fn remove_before(backend: &TaskBackend, number: u64) -> JoinHandle<()> {
    let backend = backend.clone();
    tokio::spawn(async move {
        for before in numbers(&backend).await.unwrap_or_default() {
            if before < number {
                let _ = backend.remove(&lock_name(before)).await;
            }
        }
    })
}

impl Drop for TaskLock {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Writes a lock that a look has found free. Returns whether it is this runner's: another may have
/// taken it, or a later one.
async fn claimed(backend: &TaskBackend, holder: &LockHolder) -> Result<bool, Failure> {
    let (number, name) = (holder.number(), lock_name(holder.number()));
    if !backend.put_absent(&name, encoded(holder.record())).await? {
        return Ok(false);
    }
    let looked = look_at_own(backend, number..=number).await;
    let looked = looked.map(|(highest, found)| holder.is_taken(highest, found.as_ref()));
    let (claim, backend) = (holder.claim(looked.as_ref().ok().copied()), backend.clone());
    match &claim {
        LockClaim::Held => {}
        LockClaim::Late => {
            // Below a durable directory a removal waits for the store.
            tokio::spawn(async move { backend.remove(&name).await });
        }
        LockClaim::Unseen(released) => {
            let bytes = encoded(released);
            tokio::spawn(async move { backend.replace(&name, bytes).await });
        }
    }
    looked.map(|_| claim == LockClaim::Held)
}

fn held(exit: Exit, task: &str, record: Option<&LockRecord>) -> Failure {
    let owner = record.map_or_else(String::new, |it| format!(", process {}", it.pid));
    let cause = format!("another runner has the task {task}{owner}");
    let next = "sanderling task ls, or the same with another --name";
    TaskFailure::Taken.failure(exit, cause).next(next)
}

/// Returns whether a record's process runs, if it is one of this machine that can be seen.
fn is_alive(record: &LockRecord, own: &LockRecord) -> Option<bool> {
    if record.machine != own.machine || record.machine.is_empty() {
        return None;
    }
    RecordedProcess { pid: record.pid, start_time: record.start_time }.runs()
}

fn own_record() -> LockRecord {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let process = RecordedProcess::of(std::process::id());
    // Without all three nothing is known about the processes of another record.
    let machine = match process {
        Some(_) if !boot.trim().is_empty() => format!("{} {}", boot.trim(), namespace.display()),
        _ => String::new(),
    };
    LockRecord {
        owner: hex(&drawn::<16>()),
        renewals: 0,
        is_released: false,
        machine,
        pid: std::process::id(),
        start_time: process.map_or(0, |it| it.start_time),
        age: None,
    }
}

async fn numbers(backend: &TaskBackend) -> Result<Vec<u64>, Failure> {
    let listed = backend.list("locks").await?;
    Ok(listed.iter().filter_map(|(name, _)| number_of(name, DIGITS)).collect())
}

async fn highest(backend: &TaskBackend) -> Result<Option<u64>, Failure> {
    Ok(numbers(backend).await?.into_iter().max())
}

/// Returns the highest number, 0 if there is none, and its record.
async fn newest(backend: &TaskBackend) -> Result<(u64, Option<LockRecord>), Failure> {
    match highest(backend).await? {
        Some(number) => Ok((number, read(backend, number).await?)),
        None => Ok((0, None)),
    }
}

/// Looks at the highest record, and whether it can be renewed.
async fn seen(backend: &TaskBackend) -> Result<SeenLock, Failure> {
    let (number, record) = newest(backend).await?;
    let waits = match number {
        0 => false,
        number => backend.durable("locks", vec![file_name(number)]).await? == Some(vec![false]),
    };
    Ok(SeenLock { number, record, waits })
}

/// Returns the highest number, 0 if there is none, and its record if it is one of these numbers.
async fn look_at_own(
    backend: &TaskBackend,
    own: RangeInclusive<u64>,
) -> Result<(u64, Option<LockRecord>), Failure> {
    match highest(backend).await?.unwrap_or_default() {
        highest if own.contains(&highest) => Ok((highest, read(backend, highest).await?)),
        highest => Ok((highest, None)),
    }
}

/// Returns the names of objects among the locks that no runner has written.
///
/// # Errors
/// The backend cannot be read.
pub(crate) async fn strange(backend: &TaskBackend) -> Result<Vec<String>, Failure> {
    let names = backend.list("locks").await?.into_iter().map(|(name, _)| name);
    // Another runner that starts looks whether it can write.
    let names = names.filter(|it| number_of(it, DIGITS).is_none() && !is_check(it));
    Ok(names.map(|name| format!("locks/{name}")).collect())
}

/// Reads a record; `None` if there is none, or if what is there is none.
async fn read(backend: &TaskBackend, number: u64) -> Result<Option<LockRecord>, Failure> {
    let bytes = match backend.get(&lock_name(number)).await {
        Err(failure) if TaskFailure::TooLong.is(&failure) => None,
        read => read?,
    };
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn encoded(record: &LockRecord) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record can be encoded")
}

/// Returns the name of a lock's object.
pub(crate) fn lock_name(number: u64) -> String {
    format!("locks/{}", file_name(number))
}

/// Returns its name among the locks.
fn file_name(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Millis;

    use super::*;

    #[tokio::test]
    async fn age_of_a_dead_runners_lock_passes_once_for_a_runner_that_watched_it() {
        let place = tempfile::tempdir().expect("a directory");
        let backend = TaskBackend::Directory(place.path().join("task"));
        backend.make(&["locks"]).await.expect("made");
        let elsewhere = LockRecord { machine: "elsewhere".to_owned(), ..own_record() };
        let put = backend.put_absent(&lock_name(1), encoded(&elsewhere)).await;
        assert!(put.expect("put"));
        let (age, mut watch) = (Duration::from_secs(3), LockWatch::new());
        until_free(&mut watch, &backend, age).await;
        let began = Instant::now();
        let lock = TaskLock::take(&backend, "t", age, watch).await.expect("it is free");
        assert!(began.elapsed() < age, "it waited {:?} again", began.elapsed());
        assert_eq!(lock.holder.number(), 2);
    }

    /// Looks at a lock again and again until it is free; returns how long that took.
    async fn until_free(watch: &mut LockWatch, backend: &TaskBackend, age: Duration) -> Duration {
        let began = Instant::now();
        loop {
            match watch.look(backend, age).await.expect("read") {
                LockView::Free => return began.elapsed(),
                view => assert_eq!(view, LockView::Unknown),
            }
            assert!(began.elapsed() < 100 * age, "it stays");
            sleep(POLL_INTERVAL / 4).await;
        }
    }

    /// A backend with a lock of a runner elsewhere.
    async fn place_with_lock(record: &LockRecord) -> (tempfile::TempDir, TaskBackend) {
        let place = tempfile::tempdir().expect("a directory");
        let backend = TaskBackend::Directory(place.path().join("task"));
        backend.make(&["locks"]).await.expect("made");
        assert!(backend.put_absent(&lock_name(1), encoded(record)).await.expect("put"));
        (place, backend)
    }

    #[tokio::test]
    async fn lock_whose_successor_is_there_is_not_taken_after_a_pause() {
        let elsewhere = LockRecord { machine: "elsewhere".to_owned(), ..own_record() };
        let (_place, backend) = place_with_lock(&elsewhere).await;
        // After the look the second lock came and went, and the third one is held.
        assert!(backend.put_absent(&lock_name(3), encoded(&elsewhere)).await.expect("put"));
        let holder = |number| LockHolder::new(since_boot(), number, own_record(), Millis(1000));
        assert!(!claimed(&backend, &holder(2)).await.expect("read"));
        let is_gone = async {
            while numbers(&backend).await.expect("listed").contains(&2) {
                sleep(POLL_INTERVAL / 4).await;
            }
        };
        timeout(Duration::from_secs(60), is_gone).await.expect("it is removed");
        assert!(claimed(&backend, &holder(4)).await.expect("read"));
    }

    #[tokio::test]
    async fn outage_of_the_backend_does_not_make_a_lock_old() {
        let elsewhere = LockRecord { machine: "elsewhere".to_owned(), ..own_record() };
        let (place, backend) = place_with_lock(&elsewhere).await;
        let (age, mut watch) = (Duration::from_secs(1), LockWatch::new());
        assert_eq!(watch.look(&backend, age).await.expect("read"), LockView::Unknown);
        let (here, away) = (place.path().join("task/locks"), place.path().join("away"));
        std::fs::rename(&here, &away).expect("away");
        std::fs::write(&here, "no directory").expect("written");
        watch.look(&backend, age).await.expect_err("the backend is away");
        sleep(age).await;
        std::fs::remove_file(&here).expect("removed");
        std::fs::rename(&away, &here).expect("back");
        assert!(until_free(&mut watch, &backend, age).await >= age);
    }

    #[tokio::test]
    async fn lock_is_not_old_before_the_age_of_its_runner() {
        let age = Duration::from_millis(500);
        let (machine, longer) = ("elsewhere".to_owned(), Some((4 * age).into()));
        let elsewhere = LockRecord { machine, age: longer, ..own_record() };
        let (_place, backend) = place_with_lock(&elsewhere).await;
        let mut watch = LockWatch::new();
        let took = until_free(&mut watch, &backend, age).await;
        assert!(took >= 4 * age, "its runner renews it later: {took:?}");
    }

    #[tokio::test]
    async fn runner_whose_lock_another_one_has_taken_is_refused_before_it_finds_that() {
        let (_place, backend) = place_with_lock(&own_record()).await;
        let age = Duration::from_secs(3600);
        backend.remove(&lock_name(1)).await.expect("removed");
        let lock = TaskLock::take(&backend, "t", age, LockWatch::new()).await.expect("it is free");
        lock.check_own("t").await.expect("it has the lock");
        let next = lock_name(lock.holder.number() + 1);
        let put = backend.put_absent(&next, encoded(&own_record())).await;
        assert!(put.expect("put"));
        let refused = lock.check_own("t").await.expect_err("another one has it");
        assert!(TaskFailure::Taken.is(&refused), "{refused:?}");
        assert!(!lock.lost.is_cancelled(), "it looks after an hour");
    }

    #[tokio::test]
    async fn runner_loses_a_lock_whose_number_another_one_has_written_anew() {
        let (place, backend) = place_with_lock(&own_record()).await;
        std::fs::remove_file(place.path().join("task").join(lock_name(1))).expect("removed");
        let age = Duration::from_secs(3600);
        let lock = TaskLock::take(&backend, "t", age, LockWatch::new()).await.expect("it is free");
        assert!(lock.is_held().await.expect("read"));
        let other = own_record();
        let number = lock.holder.number();
        backend.replace(&lock_name(number), encoded(&other)).await.expect("written");
        assert!(!lock.is_held().await.expect("read"));
        let refused = lock.check_own("t").await.expect_err("the record is of another one");
        assert!(TaskFailure::Taken.is(&refused), "{refused:?}");
        lock.release().await;
        assert_eq!(read(&backend, number).await.expect("read"), Some(other));
    }
}
