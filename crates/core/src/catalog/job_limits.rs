//! What jobs hold beside bytes: names and attributes, and how much of them they may hold.
//!
//! The accounts follow from the objects and are made anew when a snapshot is read. Only a job that
//! was registered with limits is refused anything by them.

use std::collections::BTreeMap;

use sanderling_protocol::message::{Attributes, JobAccount, JobLimits};
use sanderling_protocol::{JobId, Refusal};
use serde::{Deserialize, Serialize};

/// What one job holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    /// Directories and objects, bound to a name or not.
    names: u64,
    attribute_bytes: u64,
}

impl Account {
    const fn add(&mut self, names: i64, attribute_bytes: i64) {
        self.names = self.names.saturating_add_signed(names);
        self.attribute_bytes = self.attribute_bytes.saturating_add_signed(attribute_bytes);
    }
}

/// What all jobs hold and may hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accounts {
    /// Of the jobs that have any.
    limits: BTreeMap<JobId, JobLimits>,
    /// Of every job.
    #[serde(skip)]
    held: BTreeMap<JobId, Account>,
}

/// Returns the bytes of an object's attributes.
pub(super) fn attribute_bytes(attributes: &Attributes) -> u64 {
    attributes.iter().map(|(name, text)| (name.len() + text.len()) as u64).sum()
}

impl Accounts {
    /// Begins to count the names and the bytes of attributes of a job, which has no limits before
    /// [`Self::limit`].
    pub(super) fn open(&mut self, job: JobId) {
        self.held.insert(job, Account::default());
    }

    /// Limits what a job may hold.
    pub(super) fn limit(&mut self, job: JobId, limits: JobLimits) {
        self.limits.insert(job, limits);
    }

    /// Closes the account of a job that ends.
    pub(super) fn close(&mut self, job: JobId) {
        self.held.remove(&job);
        self.limits.remove(&job);
    }

    /// Adds to what a job holds, or takes from it.
    pub(super) fn add(&mut self, job: Option<JobId>, names: i64, attribute_bytes: i64) {
        if let Some(account) = job.and_then(|job| self.held.get_mut(&job)) {
            account.add(names, attribute_bytes);
        }
    }

    /// Returns the names and the bytes of attributes that a job has, and its limits; `None` if it
    /// has ended.
    pub(super) fn get(&self, job: JobId) -> Option<JobAccount> {
        let Account { names, attribute_bytes } = *self.held.get(&job)?;
        let limits = self.limits.get(&job).copied().unwrap_or_default();
        Some(JobAccount { limits, names, attribute_bytes })
    }

    /// Refuses what would pass a limit of a job: so many more names and bytes of attributes.
    pub(super) fn check_limits(&self, job: JobId, names: u64, bytes: u64) -> Result<(), Refusal> {
        let (Some(limits), Some(account)) = (self.limits.get(&job), self.held.get(&job)) else {
            return Ok(());
        };
        for (what, limit, used, asked) in [
            ("names", limits.names, account.names, names),
            ("bytes of attributes", limits.attribute_bytes, account.attribute_bytes, bytes),
        ] {
            if let Some(limit) = limit
                && asked > 0
                && used.saturating_add(asked) > limit
            {
                let what = what.to_owned();
                return Err(Refusal::JobLimitPassed { job, what, limit, used, asked });
            }
        }
        Ok(())
    }

    /// Returns what a snapshot holds: the limits.
    pub(super) fn image(&self) -> Self {
        Self { limits: self.limits.clone(), ..Self::default() }
    }

    /// Returns the accounts as they follow from the jobs, and from the job of each object with the
    /// bytes of its attributes. Cost: linear in the objects, if there are jobs.
    pub(super) fn derived(
        &self,
        jobs: impl Iterator<Item = JobId>,
        owned: impl Iterator<Item = (JobId, u64)>,
    ) -> Self {
        let mut accounts = self.image();
        jobs.for_each(|job| accounts.open(job));
        if !accounts.held.is_empty() {
            owned.for_each(|(job, bytes)| accounts.add(Some(job), 1, bytes.cast_signed()));
        }
        accounts
    }

    /// Adds where the accounts are not what follows from the jobs and the objects: see
    /// [`Self::derived`].
    pub(super) fn check(
        &self,
        jobs: impl Iterator<Item = JobId>,
        owned: impl Iterator<Item = (JobId, u64)>,
        problems: &mut Vec<String>,
    ) {
        if *self != self.derived(jobs, owned) {
            problems.push("the accounts of jobs are not what their objects hold".to_owned());
        }
    }
}
