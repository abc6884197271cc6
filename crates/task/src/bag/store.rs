//! The objects of a bag.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_cli_common::failure::{Exit, Failure};
use sanderling_protocol::{Instant, Millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::MarketArg;
use crate::backend::TaskBackend;

/// The kind of the failure where a record is not what an agent writes.
const DAMAGED: &str = "BagDamaged";

/// What all tasks of a bag have in common. It is written once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BagRecord {
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

/// How far a task is; its newest runner writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Work that the newest checkpoint has.
    pub(super) worked: Millis,
    /// How often its command failed.
    pub(super) failures: u32,
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
}

impl AgentRecord {
    /// Returns what its machine has cost for the bag.
    pub(super) fn dollars(&self) -> f64 {
        self.price * self.seen.since(self.since).0 as f64 / 3_600_000.0
    }
}

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
    pub(super) async fn record(&self) -> Result<Option<BagRecord>, Failure> {
        self.get("bag").await
    }

    /// Writes the bag's record; returns whether there was none.
    pub(super) async fn create(&self, record: &BagRecord) -> Result<bool, Failure> {
        self.backend.make(&["ended", "progress", "agents"]).await?;
        self.backend.put_absent("bag", encoded(record)).await
    }

    /// Returns how far a task is.
    pub(super) async fn progress(&self, number: u32) -> Result<Progress, Failure> {
        Ok(self.get(&named("progress", number)).await?.unwrap_or_default())
    }

    /// Returns how far a task is; none where its record is damaged.
    pub(super) async fn progress_or_none(&self, number: u32) -> Result<Progress, Failure> {
        match self.progress(number).await {
            Err(failure) if failure.kind == DAMAGED => Ok(Progress::default()),
            progress => progress,
        }
    }

    /// Returns how far each task is that has begun and is none of `without`. A record that is
    /// damaged is reported, and counts as none.
    pub(super) async fn all_progress(
        &self,
        without: &BTreeSet<u32>,
        mut report: impl FnMut(&Failure),
    ) -> Result<BTreeMap<u32, Progress>, Failure> {
        let mut found = BTreeMap::new();
        for (name, _) in self.backend.list("progress").await? {
            let Ok(number) = name.parse() else { continue };
            if without.contains(&number) {
                continue;
            }
            match self.progress(number).await {
                Ok(progress) => _ = found.insert(number, progress),
                Err(failure) if failure.kind == DAMAGED => report(&failure),
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    /// Writes how far a task is.
    pub(super) async fn put_progress(
        &self,
        number: u32,
        progress: Progress,
    ) -> Result<(), Failure> {
        self.backend.replace(&named("progress", number), encoded(&progress)).await
    }

    /// Returns the numbers of the tasks that have ended.
    pub(super) async fn ended(&self) -> Result<Vec<u32>, Failure> {
        let listed = self.backend.list("ended").await?;
        Ok(listed.iter().filter_map(|(name, _)| name.parse().ok()).collect())
    }

    /// Returns whether a task has ended.
    pub(super) async fn has_ended(&self, number: u32) -> Result<bool, Failure> {
        Ok(self.backend.get(&named("ended", number)).await?.is_some())
    }

    /// Returns how each task ended.
    pub(super) async fn all_ended(&self) -> Result<BTreeMap<u32, Ended>, Failure> {
        self.all("ended").await
    }

    /// Writes how a task ended; an earlier result stays.
    pub(super) async fn put_ended(&self, number: u32, ended: &Ended) -> Result<(), Failure> {
        self.backend.put_absent(&named("ended", number), encoded(ended)).await.map(|_| ())
    }

    /// Returns the agents by their ids.
    pub(super) async fn agents(&self) -> Result<BTreeMap<String, AgentRecord>, Failure> {
        let mut found = BTreeMap::new();
        for (name, _) in self.backend.list("agents").await? {
            if let Some(record) = self.get(&format!("agents/{name}")).await? {
                found.insert(name, record);
            }
        }
        Ok(found)
    }

    /// Writes an agent down.
    pub(super) async fn put_agent(&self, id: &str, record: &AgentRecord) -> Result<(), Failure> {
        self.backend.replace(&format!("agents/{id}"), encoded(record)).await
    }

    async fn all<T: DeserializeOwned>(&self, directory: &str) -> Result<BTreeMap<u32, T>, Failure> {
        let mut found = BTreeMap::new();
        for (name, _) in self.backend.list(directory).await? {
            let Ok(number) = name.parse() else { continue };
            if let Some(value) = self.get(&named(directory, number)).await? {
                found.insert(number, value);
            }
        }
        Ok(found)
    }

    async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(bytes) = self.backend.get(name).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let cause = format!("{name} in {} is not what an agent writes: {error}", self.backend);
            Failure::new(Exit::Failure, DAMAGED, cause)
                .next("sanderling task submit with another --bag")
        })
    }
}

fn named(directory: &str, number: u32) -> String {
    format!("{directory}/{number:06}")
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("a record can be encoded")
}
