//! What jobs hold beside bytes: names and attributes, and how much of them they may hold.
//!
//! The accounts follow from the objects and are made anew when a snapshot is read. Only a job that
//! was registered with limits is refused anything by them.

use std::collections::BTreeMap;

use sanderling_protocol::message::{Attributes, JobAccount, RegisterLimitedJob};
use sanderling_protocol::{JobId, ObjectId, Refusal, Reply};

use super::Catalog;

/// What one job holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
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

/// Returns the bytes of an object's attributes.
pub(super) fn attribute_bytes(attributes: &Attributes) -> u64 {
    attributes.iter().map(|(name, text)| (name.len() + text.len()) as u64).sum()
}

impl Catalog {
    pub(super) fn register_limited_job(
        &mut self,
        limited: &RegisterLimitedJob,
    ) -> Result<Reply, Refusal> {
        let RegisterLimitedJob { job, limits } = limited;
        if limits.names == Some(0) {
            let why = "a job has at least one name, that of its subtree's root".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        let reply = self.register_job(job.clone())?;
        if let Reply::Job(info) = &reply {
            self.job_limits.insert(info.job, *limits);
        }
        Ok(reply)
    }

    /// Returns what a job holds beside bytes.
    pub(crate) fn job_account(&self, job: JobId) -> Result<JobAccount, Refusal> {
        let account = self.job(job).and_then(|_| self.accounts.get(&job));
        let account = account.ok_or(Refusal::UnknownJob { job })?;
        let Account { names, attribute_bytes } = *account;
        let limits = self.job_limits.get(&job).copied().unwrap_or_default();
        Ok(JobAccount { limits, names, attribute_bytes })
    }

    /// Refuses what would pass a limit of a job: so many names more, and attributes of `after`
    /// bytes in place of some of `before`.
    pub(super) fn check_limits(
        &self,
        job: Option<JobId>,
        names: u64,
        before: u64,
        after: u64,
    ) -> Result<(), Refusal> {
        let Some(job) = job else { return Ok(()) };
        let (Some(limits), Some(account)) = (self.job_limits.get(&job), self.accounts.get(&job))
        else {
            return Ok(());
        };
        let bytes = after.saturating_sub(before);
        for (what, limit, used, asked) in [
            ("names", limits.names, account.names, names),
            ("bytes of attributes", limits.attribute_bytes, account.attribute_bytes, bytes),
        ] {
            if let Some(limit) = limit
                && asked > 0
                && used.saturating_add(asked) > limit
            {
                let what = what.to_owned();
                let refusal = Refusal::JobLimitPassed { job, what, limit, used, asked };
                return Err(self.unless_freed(job, refusal));
            }
        }
        Ok(())
    }

    /// Returns the bytes of the attributes of an object.
    pub(super) fn attribute_bytes_of(&self, id: ObjectId) -> u64 {
        self.attributes.get(&id).map_or(0, attribute_bytes)
    }

    /// Opens the account of a job that begins.
    pub(super) fn open_account(&mut self, job: JobId) {
        self.accounts.insert(job, Account::default());
    }

    /// Closes the account of a job that ends.
    pub(super) fn close_account(&mut self, job: JobId) {
        self.accounts.remove(&job);
        self.job_limits.remove(&job);
    }

    /// Adds to what a job holds, or takes from it.
    pub(super) fn account(&mut self, job: Option<JobId>, names: i64, attribute_bytes: i64) {
        if let Some(account) = job.and_then(|job| self.accounts.get_mut(&job)) {
            account.add(names, attribute_bytes);
        }
    }

    /// Returns the accounts as they follow from the objects. Cost: linear in the objects, if there
    /// are jobs.
    pub(super) fn derived_accounts(&self) -> BTreeMap<JobId, Account> {
        let mut accounts: BTreeMap<JobId, Account> =
            self.jobs.keys().map(|job| (*job, Account::default())).collect();
        if accounts.is_empty() {
            return accounts;
        }
        for (id, object) in self.objects.iter() {
            if let Some(account) = object.job.and_then(|job| accounts.get_mut(&job)) {
                account.add(1, self.attribute_bytes_of(id).cast_signed());
            }
        }
        accounts
    }
}
