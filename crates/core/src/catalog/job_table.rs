//! Jobs: their lifetimes, and the bytes that each may take and takes.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::JobHints;
use sanderling_protocol::{Instant, JobId, Millis, ObjectId, Refusal};
use serde::{Deserialize, Serialize};

use super::object::{Object, Objects};

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) root: ObjectId,
    pub(super) created_at: Instant,
    pub(super) lease: Millis,
    pub(super) until: Instant,
    pub(super) quota_bytes: Option<u64>,
    pub(super) used_bytes: u64,
    pub(super) hints: JobHints,
}

/// All jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Jobs(BTreeMap<JobId, Job>);

impl Jobs {
    pub(super) fn insert(&mut self, id: JobId, job: Job) {
        self.0.insert(id, job);
    }

    pub(super) fn remove(&mut self, id: JobId) {
        self.0.remove(&id);
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.0.get(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.0.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether an object is the root of a job's subtree.
    pub(super) fn is_root(&self, id: JobId, object: ObjectId) -> bool {
        self.get(id).is_some_and(|job| job.root == object)
    }

    /// Returns the hints for an object of a job; `None` if it has no job.
    pub(super) fn hints(&self, job: Option<JobId>) -> Option<&JobHints> {
        Some(&self.get(job?)?.hints)
    }

    /// Renews a job's lease at a service time.
    pub(super) fn renew(&mut self, id: JobId, served: Instant) {
        if let Some(job) = self.0.get_mut(&id) {
            job.until = served + job.lease;
        }
    }

    /// Adds to the bytes that a job takes.
    pub(super) fn charge(&mut self, job: Option<JobId>, change: i64) {
        if let Some(job) = job.and_then(|job| self.0.get_mut(&job)) {
            job.used_bytes = job.used_bytes.saturating_add_signed(change);
        }
    }

    /// Refuses what would pass the quota of a job.
    pub(super) fn check_quota(&self, job: Option<JobId>, asked: u64) -> Result<(), Refusal> {
        let Some((id, job)) = job.and_then(|id| Some((id, self.get(id)?))) else { return Ok(()) };
        let used = job.used_bytes;
        match job.quota_bytes {
            Some(quota) if used.saturating_add(asked) > quota => {
                Err(Refusal::QuotaPassed { job: id, quota, used, asked })
            }
            _ => Ok(()),
        }
    }

    /// Returns how many more whole blocks an object may have within the quota of its job, once
    /// `unused` bytes have been given back.
    pub(super) fn blocks_within_quota(
        &self,
        job: Option<JobId>,
        unused: impl FnOnce() -> u64,
    ) -> u64 {
        let Some(job) = job.and_then(|job| self.get(job)) else { return u64::MAX };
        let Some(quota) = job.quota_bytes else { return u64::MAX };
        let used = job.used_bytes.saturating_sub(unused());
        quota.saturating_sub(used) / u64::from(BLOCK_BYTES_MAX)
    }

    /// Adds that an object and its container belong to different jobs, unless it is a job's root.
    pub(super) fn check_owner(
        &self,
        objects: &Objects,
        (id, object): (ObjectId, &Object),
        problems: &mut Vec<String>,
    ) {
        let of_parent = objects.get(&object.parent).and_then(|parent| parent.job);
        let is_root = |job: JobId| self.is_root(job, id);
        if object.is_bound && object.job != of_parent && !object.job.is_some_and(is_root) {
            problems.push(format!("object {id} and its container belong to different jobs"));
        }
    }

    /// Compares the accounts with what the jobs take.
    pub(super) fn check(&self, taken: &BTreeMap<JobId, u64>, problems: &mut Vec<String>) {
        for (id, job) in &self.0 {
            let sum = taken.get(id).copied().unwrap_or(0);
            if sum != job.used_bytes {
                problems.push(format!("job {id} accounts {} bytes, holds {sum}", job.used_bytes));
            }
        }
    }
}
