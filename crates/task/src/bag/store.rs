//! The objects of a bag.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use futures_util::future::join_all;
use sanderling_command::failure::{Exit, Failure};
use sanderling_core::checkpoint::{
    AgentStatus, BAG_TASKS_MAX, BagPresence, BagSight, BagTerms, READS_AT_ONCE, TaskProgress,
};
use sanderling_protocol::{Instant, Millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::market::MarketArg;
use crate::backend::{TaskBackend, is_check, number_of};
use crate::lock::steady_now;
use crate::task_failure::TaskFailure;

/// What all tasks of a bag have in common. It is written once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BagRecord {
    /// Drawn for each bag: another one may get the name of one that was removed. Records of
    /// earlier versions have none.
    #[serde(default)]
    pub(super) id: String,
    /// How many tasks; they are numbered from 1 on.
    pub(super) tasks: u32,
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// How long one is expected to run.
    pub(super) time: Millis,
    /// What one uses.
    pub(super) memory_bytes: u64,
    /// When all have to be done.
    pub(super) deadline: Instant,
}

impl BagRecord {
    /// Returns what the decisions about its tasks follow from.
    pub(super) fn terms(&self) -> BagTerms {
        let Self { tasks, time, memory_bytes, deadline, .. } = *self;
        BagTerms { tasks, time, memory_bytes, deadline }
    }
}

/// How a task ended. The first one that is written counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    /// When.
    pub(super) at: Instant,
    /// The agent that ran it.
    pub(super) agent: String,
    /// How that one's machine is paid.
    pub(super) market: MarketArg,
    /// Why it failed; absent when it succeeded.
    pub(super) failed: Option<String>,
}

/// Why the record of a task that has ended cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum EndedError {
    /// What has its name is no record, such as a directory.
    #[error("{name} in {backend} is no record")]
    NoRecord {
        /// Its name.
        name: String,
        /// The bag's place.
        backend: String,
    },
    /// It is not what an agent writes.
    #[error("{}", .failure.cause)]
    Damaged {
        /// That of reading it.
        #[source]
        failure: Failure,
    },
}

/// An agent, as it writes itself down every few seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentRecord {
    /// How its machine is paid.
    pub(super) market: MarketArg,
    /// Dollars per hour.
    pub(super) price: f64,
    /// When it began.
    pub(super) since: Instant,
    /// When it wrote this.
    pub(super) seen: Instant,
    /// The tasks that it runs, by number.
    pub(super) running: Vec<u32>,
    /// Whether it has room for one more. Records of earlier versions do not show it.
    #[serde(default)]
    pub(super) has_room: bool,
    /// How long it ran, by a clock that does not step. Records of earlier versions have none.
    #[serde(default)]
    pub(super) ran: Option<Millis>,
}

/// Looks again and again whether a bag is there.
#[derive(Debug, Default)]
pub(super) struct BagWatch(BagPresence);

impl BagWatch {
    /// Returns whether the bag is there; until the next look nothing is done if not.
    ///
    /// # Errors
    /// [`TaskFailure::BagGone`]: it was removed, or submitted anew. The backend cannot be read.
    pub(super) async fn look(
        &mut self,
        store: &BagStore,
        bag: &BagRecord,
    ) -> Result<bool, Failure> {
        let is_there = store.has(bag).await?;
        match self.0.seen(steady_now(), is_there) {
            BagSight::There => Ok(true),
            BagSight::Absent => Ok(false),
            BagSight::Removed => Err(store.removed()),
        }
    }
}

impl AgentRecord {
    /// Returns how long it ran until it wrote this.
    pub(super) fn ran(&self) -> Millis {
        self.ran.unwrap_or_else(|| self.seen.since(self.since))
    }

    /// Returns what its machine has cost for the bag.
    pub(super) fn dollars(&self) -> f64 {
        self.price * self.ran().0 as f64 / 3_600_000.0
    }

    /// Returns what the decisions of other agents follow from.
    pub(super) fn status(&self) -> AgentStatus {
        AgentStatus { market: self.market.into(), has_room: self.has_room, seen: self.seen }
    }
}

/// Digits of a task's number in a name, at least, so that the names of a million tasks are in the
/// order of the numbers.
const DIGITS: usize = 6;

/// The directories of a bag.
const DIRECTORIES: [&str; 3] = ["ended", "progress", "agents"];

/// The place of a bag.
#[derive(Debug, Clone)]
pub(super) struct BagStore {
    backend: TaskBackend,
}

impl BagStore {
    /// Returns the place of a bag in a backend.
    pub(super) fn of(backend: &TaskBackend, bag: &str) -> Result<Self, Failure> {
        Ok(Self { backend: backend.of_task(&format!("@{bag}"))? })
    }

    /// Returns the bag's record, if there is such a bag.
    ///
    /// # Errors
    /// [`TaskFailure::BagDamaged`]: `task submit` has not written it. The backend cannot be read.
    pub(super) async fn record(&self) -> Result<Option<BagRecord>, Failure> {
        let record: Option<BagRecord> = self.get("bag").await?;
        match record {
            Some(record) if !record.terms().has_fitting_count() => {
                let (backend, tasks) = (&self.backend, record.tasks);
                Err(damaged(format_args!(
                    "the record bag in {backend} is damaged: it has {tasks} tasks, and a bag has 1 \
                     to {BAG_TASKS_MAX}"
                )))
            }
            record => Ok(record),
        }
    }

    /// Returns whether a bag is there: one that is absent may be in a backend that is away.
    ///
    /// # Errors
    /// [`TaskFailure::BagGone`]: another bag has its name by now. The backend cannot be read.
    pub(super) async fn has(&self, bag: &BagRecord) -> Result<bool, Failure> {
        match self.record().await? {
            Some(found) if found == *bag => Ok(true),
            Some(_) => {
                let cause = format!("the bag in {} was submitted anew", self.backend);
                let next = "the same again, for the bag that is there now";
                Err(TaskFailure::BagGone.failure(Exit::NotFound, cause).next(next))
            }
            None => Ok(false),
        }
    }

    /// Returns the failure of a bag that is absent.
    pub(super) fn removed(&self) -> Failure {
        let cause = format!("there is no bag in {} any more", self.backend);
        let next = "sanderling task submit, or the same with another --bag";
        TaskFailure::BagGone.failure(Exit::NotFound, cause).next(next)
    }

    /// Makes the directories of the bag that are missing: they may have been removed by hand.
    pub(super) async fn make_directories(&self) -> Result<(), Failure> {
        self.backend.make(&DIRECTORIES).await
    }

    /// Makes the directories again after a write that has failed as its directory is missing, if
    /// the bag is there. Returns whether the write may succeed now.
    async fn are_made_again(
        &self,
        bag: &BagRecord,
        failure: Option<&Failure>,
    ) -> Result<bool, Failure> {
        let is_missing = failure.is_some_and(|failure| failure.exit == Exit::NotFound);
        if !is_missing || !self.has(bag).await? {
            return Ok(false);
        }
        self.make_directories().await?;
        Ok(true)
    }

    /// Writes a record, whatever has its name.
    async fn replace(&self, bag: &BagRecord, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let written = self.backend.replace(name, bytes.clone()).await;
        if self.are_made_again(bag, written.as_ref().err()).await? {
            return self.backend.replace(name, bytes).await;
        }
        written
    }

    /// Writes the bag's record; returns whether there was none.
    pub(super) async fn create(&self, record: &BagRecord) -> Result<bool, Failure> {
        self.make_directories().await?;
        self.backend.put_absent("bag", encoded(record)).await
    }

    /// Deletes what killed processes did not finish writing, if it is older than `age`.
    pub(super) fn clear_unfinished(&self, age: Duration) {
        self.backend.clear_drafts(&[&[""], &DIRECTORIES[..]].concat(), age);
    }

    /// Reports objects as [`Self::name_strange`] does, and deletes what killed submissions left, if
    /// it is old.
    pub(super) async fn report_strange(
        &self,
        tasks: u32,
        report: impl FnMut(&str),
    ) -> Result<(), Failure> {
        self.backend.clear_old_checks("agents").await;
        self.name_strange(tasks, report).await
    }

    /// Reports the objects that no agent of a bag of so many tasks has written. Everything goes on
    /// without them.
    pub(super) async fn name_strange(
        &self,
        tasks: u32,
        mut report: impl FnMut(&str),
    ) -> Result<(), Failure> {
        for directory in DIRECTORIES {
            for (name, _) in self.backend.list(directory).await? {
                let is_known = match directory {
                    "agents" => is_agent(&name) || is_check(&name),
                    _ => task_of(&name, tasks).is_some(),
                };
                if !is_known {
                    let place = format!("{directory}/{name}");
                    let backend = &self.backend;
                    report(&format!("{backend}: no agent writes {place}, and it is passed over"));
                }
            }
        }
        Ok(())
    }

    /// Returns how far a task is.
    ///
    /// # Errors
    /// [`TaskFailure::BagDamaged`]: the record is of no use. The backend cannot be read.
    pub(super) async fn progress(&self, number: u32) -> Result<TaskProgress, Failure> {
        Ok(self.get_of("progress", &digits(number)).await?.unwrap_or_default())
    }

    /// Returns which of so many tasks have begun, as far as that was recorded.
    pub(super) async fn begun(&self, tasks: u32) -> Result<Vec<u32>, Failure> {
        let listed = self.backend.list("progress").await?;
        Ok(listed.iter().filter_map(|(name, _)| task_of(name, tasks)).collect())
    }

    /// Returns how far each of these tasks is, and calls `each` after each read. A record that is
    /// damaged is reported, and counts as none.
    pub(super) async fn progress_of(
        &self,
        tasks: &[u32],
        mut each: impl FnMut(Result<(), &Failure>),
    ) -> Result<BTreeMap<u32, TaskProgress>, Failure> {
        let mut found = BTreeMap::new();
        for some in tasks.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|task| self.progress(*task));
            for (task, read) in some.iter().zip(join_all(reads).await) {
                match read {
                    Ok(progress) => {
                        each(Ok(()));
                        found.insert(*task, progress);
                    }
                    Err(failure) if TaskFailure::BagDamaged.is(&failure) => each(Err(&failure)),
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(found)
    }

    /// Writes how far a task is. Only for the holder of its lock.
    pub(super) async fn put_progress(
        &self,
        bag: &BagRecord,
        number: u32,
        progress: TaskProgress,
    ) -> Result<(), Failure> {
        self.replace(bag, &named("progress", number), encoded(&progress)).await
    }

    /// Returns which of so many tasks have ended.
    pub(super) async fn ended(&self, tasks: u32) -> Result<Vec<u32>, Failure> {
        let listed = self.backend.list("ended").await?;
        Ok(listed.iter().filter_map(|(name, _)| task_of(name, tasks)).collect())
    }

    /// Returns whether a task has ended.
    pub(super) async fn has_ended(&self, number: u32) -> Result<bool, Failure> {
        match self.backend.get(&named("ended", number)).await {
            Err(failure) if TaskFailure::TooLong.is(&failure) => Ok(true),
            // It is no other one's record, if it is there.
            Err(failure) if is_of_one(&failure) => Ok(self.ended(number).await?.contains(&number)),
            found => Ok(found?.is_some()),
        }
    }

    /// Returns how those of so many tasks ended that have ended. Of one whose record cannot be read
    /// that is noted: it has ended, and no agent runs it again.
    pub(super) async fn ends(
        &self,
        tasks: u32,
    ) -> Result<BTreeMap<u32, Result<Ended, EndedError>>, Failure> {
        let mut found = BTreeMap::new();
        for some in self.ended(tasks).await?.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|task| self.end_of(*task));
            for (task, read) in some.iter().zip(join_all(reads).await) {
                found.insert(*task, read?);
            }
        }
        Ok(found)
    }

    /// Returns how a task ended whose record is listed.
    async fn end_of(&self, number: u32) -> Result<Result<Ended, EndedError>, Failure> {
        match self.get_of("ended", &digits(number)).await {
            Ok(Some(ended)) => Ok(Ok(ended)),
            Ok(None) => {
                let (name, backend) = (named("ended", number), self.backend.to_string());
                Ok(Err(EndedError::NoRecord { name, backend }))
            }
            Err(failure) if TaskFailure::BagDamaged.is(&failure) => {
                Ok(Err(EndedError::Damaged { failure }))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Writes how a task ended; an earlier result stays.
    pub(super) async fn put_ended(
        &self,
        bag: &BagRecord,
        number: u32,
        ended: &Ended,
    ) -> Result<(), Failure> {
        let (name, bytes) = (named("ended", number), encoded(ended));
        let mut written = self.backend.put_absent(&name, bytes.clone()).await;
        if self.are_made_again(bag, written.as_ref().err()).await? {
            written = self.backend.put_absent(&name, bytes).await;
        }
        written.map(|_| ())
    }

    /// Returns the agents by their ids. A record that is damaged is reported, and left out.
    pub(super) async fn agents(
        &self,
        mut report: impl FnMut(&Failure),
    ) -> Result<BTreeMap<String, AgentRecord>, Failure> {
        let listed = self.backend.list("agents").await?.into_iter().map(|(name, _)| name);
        let names: Vec<String> = listed.filter(|name| is_agent(name)).collect();
        let mut found = BTreeMap::new();
        for some in names.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|name| self.get_of::<AgentRecord>("agents", name));
            for (name, read) in some.iter().zip(join_all(reads).await) {
                match read {
                    Ok(Some(record)) => _ = found.insert(name.clone(), record),
                    Ok(None) => {}
                    Err(failure) if TaskFailure::BagDamaged.is(&failure) => report(&failure),
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(found)
    }

    /// Writes an agent down.
    pub(super) async fn put_agent(
        &self,
        bag: &BagRecord,
        id: &str,
        record: &AgentRecord,
    ) -> Result<(), Failure> {
        self.replace(bag, &format!("agents/{id}"), encoded(record)).await
    }

    /// Reads a record of a directory. One that cannot be read, while its directory can, is damaged:
    /// the others are of use without it.
    async fn get_of<T: DeserializeOwned>(
        &self,
        directory: &str,
        name: &str,
    ) -> Result<Option<T>, Failure> {
        let name = format!("{directory}/{name}");
        match self.get(&name).await {
            Err(failure) if is_of_one(&failure) => {
                self.backend.list(directory).await?;
                let (backend, why) = (&self.backend, &failure.cause);
                Err(damaged(format_args!("{name} in {backend} cannot be read: {why}")))
            }
            read => read,
        }
    }

    async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let damaged = |why: &dyn Display| {
            let backend = &self.backend;
            damaged(format_args!("{name} in {backend} is not what an agent writes: {why}"))
        };
        let bytes = match self.backend.get(name).await {
            Err(failure) if TaskFailure::TooLong.is(&failure) => {
                return Err(damaged(&failure.cause));
            }
            read => read?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(&error))
    }
}

/// Returns the failure of a record that is of no use.
fn damaged(cause: impl Display) -> Failure {
    let next = "sanderling task submit with another --bag";
    TaskFailure::BagDamaged.failure(Exit::Failure, cause).next(next)
}

/// Returns whether a failure may concern the one object that was read.
fn is_of_one(failure: &Failure) -> bool {
    TaskFailure::LocalFile.is(failure) || TaskFailure::DataLost.is(failure)
}

/// Returns the name of a task of a bag.
pub(super) fn task_name(bag: &str, number: u32) -> String {
    format!("{bag}.{number:06}")
}

fn digits(number: u32) -> String {
    format!("{number:0DIGITS$}")
}

fn named(directory: &str, number: u32) -> String {
    format!("{directory}/{}", digits(number))
}

/// Returns the number of a task from the name of its record, if the bag has it among so many.
fn task_of(name: &str, tasks: u32) -> Option<u32> {
    let number = u32::try_from(number_of(name, DIGITS)?).ok()?;
    (1..=tasks).contains(&number).then_some(number)
}

/// Returns whether a name is that of an agent's record: 8 bytes that were drawn.
fn is_agent(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() == 16 && name.bytes().all(is_digit)
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("a record can be encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn record() -> AgentRecord {
        AgentRecord {
            market: MarketArg::OnDemand,
            price: 3.6,
            since: Instant(1000 * SECOND),
            seen: Instant(1010 * SECOND),
            running: Vec::new(),
            has_room: true,
            ran: Some(Millis(10_000)),
        }
    }

    #[test]
    fn cost_of_an_agent_follows_from_a_clock_that_does_not_step() {
        let day = AgentRecord { seen: Instant(90_000 * SECOND), ..record() };
        assert_eq!(day.ran(), Millis(10_000));
        assert!((day.dollars() - 0.01).abs() < 1e-9, "{day:?}");
        // One of an earlier version has its dates alone.
        let before = r#"{"market":"spot","price":1,"since":1000000,"seen":3000000,"running":[1]}"#;
        let before: AgentRecord = serde_json::from_str(before).expect("readable");
        assert_eq!((before.ran(), before.has_room), (Millis(2000), false));
    }
}
