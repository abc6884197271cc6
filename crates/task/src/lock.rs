//! The lock of a task's name: one runner at a time.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sanderling_command::failure::{Exit, Failure};
use sanderling_command::process::RecordedProcess;
use sanderling_core::checkpoint::{BackendAnswers, LockObserver, LockRecord, LockView};
use sanderling_protocol::Instant as SteadyInstant;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::{CHECK, TaskBackend, hex, number_of};
use crate::seal::drawn;
use crate::task_failure::TaskFailure;

/// Pause between two looks at a lock whose runner may be dead.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Pause before a renewal that failed is tried again, at most.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Digits of the number in a lock's name, at least.
const DIGITS: usize = 10;

/// How many renewals a lock may miss.
const RENEWALS: u32 = 3;

/// The lock, while it is held.
pub(crate) struct TaskLock {
    backend: TaskBackend,
    number: u64,
    record: LockRecord,
    renewed: RenewedAt,
    /// Cancelled when another runner has taken it.
    pub(crate) lost: CancellationToken,
    ended: CancellationToken,
    renewals: JoinHandle<()>,
}

/// When a lock was renewed last, by a clock that goes on while the process is stopped and while the
/// machine is suspended. Clones share it.
#[derive(Clone)]
struct RenewedAt {
    /// Microseconds since the boot, when the last renewal that succeeded began.
    began: Arc<AtomicU64>,
    age: Duration,
}

impl RenewedAt {
    /// Begins with a lock whose record was written from `began` on.
    fn new(began: Duration, age: Duration) -> Self {
        Self { began: Arc::new(AtomicU64::new(micros(began))), age }
    }

    /// Notes a renewal. One that ended late protects nothing, and no later one does: another runner
    /// may have seen the record before it for so long that it takes the lock at any time.
    fn renew(&self, began: Duration, ended: Duration) {
        if self.protects(ended) {
            self.began.store(micros(began), Ordering::Relaxed);
        }
    }

    /// Returns whether no other runner can take the lock for a third of its age: each has to see
    /// the last renewal, and then none for the whole age.
    fn protects(&self, now: Duration) -> bool {
        let began = Duration::from_micros(self.began.load(Ordering::Relaxed));
        now.saturating_sub(began) < self.age / RENEWALS * 2
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the time since the boot, suspensions included.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// What was seen of a task's lock, from one look to the next.
pub(crate) struct LockWatch {
    own: LockRecord,
    observer: LockObserver,
}

impl LockWatch {
    pub(crate) fn new() -> Self {
        Self { own: own_record(), observer: LockObserver::new(steady_now()) }
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
        let looked = newest(backend).await;
        let (number, newest) = looked.inspect_err(|_| self.observer.failed())?;
        let own = &self.own;
        let is_alive = |record: &LockRecord| is_alive(record, own);
        Ok(self.observer.observe(steady_now(), age.into(), number, newest, is_alive))
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
                LockView::Held => return Err(held(task, watch.observer.newest())),
                LockView::Unknown => sleep(LOOK_EVERY).await,
                LockView::Free => {
                    let next = backend.number_after("locks", watch.observer.highest_number())?;
                    let record = LockRecord { age: Some(age.into()), ..watch.own.clone() };
                    let renewed = RenewedAt::new(since_boot(), age);
                    if claimed(backend, next, &record).await? {
                        return Ok(Self::renewed(backend, next, record, renewed));
                    }
                }
            }
        }
    }

    fn renewed(backend: &TaskBackend, number: u64, record: LockRecord, renewed: RenewedAt) -> Self {
        let (lost, ended) = (CancellationToken::new(), CancellationToken::new());
        let cleaned = backend.clone();
        // Below a durable directory a removal waits for the store: renewals do not wait for it.
        tokio::spawn(async move {
            // Those before count no longer.
            for before in numbers(&cleaned).await.unwrap_or_default() {
                if before < number {
                    let _ = cleaned.remove(&lock_name(before)).await;
                }
            }
        });
        let renewer = Renewer {
            backend: backend.clone(),
            number,
            record: record.clone(),
            renewed: renewed.clone(),
            every: renewed.age / RENEWALS,
            lost: lost.clone(),
            ended: ended.clone(),
        };
        let renewals = tokio::spawn(renewer.renew());
        Self { backend: backend.clone(), number, record, renewed, lost, ended, renewals }
    }

    /// Returns whether no other runner has taken the lock.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn is_held(&self) -> Result<bool, Failure> {
        Ok(!is_taken(&self.backend, self.number, &self.record).await?)
    }

    /// Returns whether no other runner has taken the lock, nor can take it for as long as a removal
    /// takes that begins now. If the lock was not renewed for two thirds of its age before, as in a
    /// pause, the backend is looked at.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn may_remove(&self) -> Result<bool, Failure> {
        if self.lost.is_cancelled() {
            return Ok(false);
        }
        if self.renewed.protects(since_boot()) {
            return Ok(true);
        }
        self.is_held().await
    }

    /// Gives the lock up.
    pub(crate) async fn release(mut self) {
        self.ended.cancel();
        // A renewal that is on its way would take the release back.
        let _ = (&mut self.renewals).await;
        self.record.is_released = true;
        let (backend, name) = (self.backend.clone(), lock_name(self.number));
        if self.lost.is_cancelled() {
            return;
        }
        let (number, owner) = (self.number, self.record.owner.clone());
        let record = encoded(&self.record);
        let release = async move || match read(&backend, number).await {
            Ok(Some(found)) if found.owner == owner => {
                backend.replace(&name, record.clone()).await.is_ok()
            }
            // All that was stored of the task was removed, and another runner may have begun.
            Ok(_) => true,
            Err(_) => false,
        };
        if release().await {
            return;
        }
        // The next runner waits until the lock is old, or until this process has ended. One that
        // goes on gives it up as soon as the backend is there.
        tokio::spawn(async move {
            while !release().await {
                sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Refuses to go on when the newest record is not this runner's: another runner has taken the
    /// lock, or all that was stored of the task was removed meanwhile.
    ///
    /// # Errors
    /// [`TaskFailure::Taken`]; the backend cannot be read.
    pub(crate) async fn check_own(&self, task: &str) -> Result<(), Failure> {
        match newest(&self.backend).await? {
            (number, Some(found)) if number == self.number && found.owner == self.record.owner => {
                Ok(())
            }
            (_, found) => Err(held(task, found.as_ref())),
        }
    }
}

/// Renews a lock until it is given up or taken.
struct Renewer {
    backend: TaskBackend,
    number: u64,
    record: LockRecord,
    renewed: RenewedAt,
    every: Duration,
    lost: CancellationToken,
    ended: CancellationToken,
}

impl Renewer {
    async fn renew(mut self) {
        let mut pause = self.every;
        loop {
            tokio::select! {
                () = self.ended.cancelled() => return,
                () = sleep(pause) => {}
            }
            if self.is_taken().await {
                return self.lost.cancel();
            }
            if self.ended.is_cancelled() {
                continue;
            }
            self.record.renewals += 1;
            let began = since_boot();
            let (backend, name) = (&self.backend, lock_name(self.number));
            let mut renewal = pin!(backend.replace(&name, encoded(&self.record)));
            // Below a durable directory whose store is away a renewal takes as long as a call may:
            // another runner that has the lock is found meanwhile.
            let mut is_late = false;
            let is_renewed = loop {
                match timeout(self.every, &mut renewal).await {
                    Ok(renewed) => break renewed.is_ok(),
                    Err(_) if self.is_taken().await => return self.lost.cancel(),
                    // It waits between its attempts, and the bucket may be there before.
                    Err(_) if is_late && matches!(backend, TaskBackend::Bucket(_)) => break false,
                    Err(_) => is_late = true,
                }
            };
            if is_renewed {
                self.renewed.renew(began, since_boot());
            }
            // A backend that is away now may be there at once: others watch the lock from then on.
            pause = if is_renewed { self.every } else { self.every.min(AGAIN_AFTER) };
        }
    }

    /// Returns whether another runner has the lock, as far as that can be read soon.
    async fn is_taken(&self) -> bool {
        let looked = timeout(self.every, is_taken(&self.backend, self.number, &self.record)).await;
        matches!(looked, Ok(Ok(true)))
    }
}

impl Drop for TaskLock {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Writes a lock that a look has found free. Returns whether it is this runner's: another may have
/// taken it, or a later one. That happens where the machine paused after the look for so long that
/// locks with this number came and went.
async fn claimed(backend: &TaskBackend, number: u64, record: &LockRecord) -> Result<bool, Failure> {
    if !backend.put_absent(&lock_name(number), encoded(record)).await? {
        return Ok(false);
    }
    let looked = is_taken(backend, number, record).await;
    if looked.is_err() {
        let (backend, released) =
            (backend.clone(), LockRecord { is_released: true, ..record.clone() });
        tokio::spawn(async move { backend.replace(&lock_name(number), encoded(&released)).await });
    }
    let is_late = looked?;
    if is_late {
        let backend = backend.clone();
        // Below a durable directory a removal waits for the store.
        tokio::spawn(async move { backend.remove(&lock_name(number)).await });
    }
    Ok(!is_late)
}

fn held(task: &str, record: Option<&LockRecord>) -> Failure {
    let owner = record.map_or_else(String::new, |it| format!(", process {}", it.pid));
    let cause = format!("another runner has the task {task}{owner}");
    let next = "sanderling task ls, or the same with another --name";
    TaskFailure::Taken.failure(Exit::Unavailable, cause).next(next)
}

/// Returns whether a record's process runs, if it is one of this machine.
fn is_alive(record: &LockRecord, own: &LockRecord) -> Option<bool> {
    if record.machine != own.machine || record.machine.is_empty() {
        return None;
    }
    let process = RecordedProcess { pid: record.pid, start_time: record.start_time };
    Some(process.is_running())
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

/// Returns whether another runner has a higher number, or that number: all that was stored of a
/// task may have been removed, and another runner have begun with the first one.
async fn is_taken(
    backend: &TaskBackend,
    number: u64,
    record: &LockRecord,
) -> Result<bool, Failure> {
    match highest(backend).await? {
        Some(highest) if highest > number => Ok(true),
        Some(highest) if highest == number => {
            Ok(read(backend, number).await?.is_some_and(|it| it.owner != record.owner))
        }
        _ => Ok(false),
    }
}

/// Returns the names of objects among the locks that no runner has written.
///
/// # Errors
/// The backend cannot be read.
pub(crate) async fn strange(backend: &TaskBackend) -> Result<Vec<String>, Failure> {
    let names = backend.list("locks").await?.into_iter().map(|(name, _)| name);
    // Another runner that starts looks whether it can write.
    let names = names.filter(|it| number_of(it, DIGITS).is_none() && !it.starts_with(CHECK));
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
    format!("locks/{number:0DIGITS$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_protects_for_two_thirds_of_the_age() {
        let second = Duration::from_secs(1);
        let renewed = RenewedAt::new(100 * second, 30 * second);
        assert!(renewed.protects(119 * second) && !renewed.protects(120 * second));
        renewed.clone().renew(110 * second, 111 * second);
        assert!(renewed.protects(129 * second) && !renewed.protects(130 * second));
        // Another runner may have seen the last one for the whole age.
        renewed.renew(129 * second, 140 * second);
        renewed.renew(141 * second, 142 * second);
        assert!(!renewed.protects(130 * second) && !renewed.protects(143 * second));
        let now = since_boot();
        assert!(now > Duration::ZERO && since_boot() >= now);
    }

    #[tokio::test]
    async fn age_of_a_dead_runners_lock_passes_once_for_who_has_watched_it() {
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
        assert_eq!(lock.number, 2);
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
            sleep(LOOK_EVERY / 4).await;
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
        assert!(!claimed(&backend, 2, &own_record()).await.expect("read"));
        let is_gone = async {
            while numbers(&backend).await.expect("listed").contains(&2) {
                sleep(LOOK_EVERY / 4).await;
            }
        };
        timeout(Duration::from_secs(60), is_gone).await.expect("it is removed");
        assert!(claimed(&backend, 4, &own_record()).await.expect("read"));
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
        let put = backend.put_absent(&lock_name(lock.number + 1), encoded(&own_record())).await;
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
        backend.replace(&lock_name(lock.number), encoded(&other)).await.expect("written");
        assert!(!lock.is_held().await.expect("read"));
        let refused = lock.check_own("t").await.expect_err("the record is of another one");
        assert!(TaskFailure::Taken.is(&refused), "{refused:?}");
        let number = lock.number;
        lock.release().await;
        assert_eq!(read(&backend, number).await.expect("read"), Some(other));
    }
}
