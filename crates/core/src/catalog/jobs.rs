//! Jobs: owners of subtrees with a lifetime.

use sanderling_protocol::limits::{BLOCK_BYTES_MAX, TEXT_BYTES_MAX};
use sanderling_protocol::message::{BlockLength, JobHints, JobInfo, ObjectKind, RegisterJob};
use sanderling_protocol::{EventKind, Instant, JobId, Millis, ObjectId, Refusal, Reply};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::orders::Orders;
use super::reap::EndedJob;
use super::timers::Timer;

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

/// The shortest lease of a job: below it a pause of the application would delete its data.
const JOB_LEASE_MIN: Millis = Millis(1000);

impl Catalog {
    pub(super) fn register_job(&mut self, request: RegisterJob) -> Result<Reply, Refusal> {
        let RegisterJob { path, lease, quota_bytes, hints } = request;
        if lease < JOB_LEASE_MIN {
            let why = format!("a job's lease is at least {JOB_LEASE_MIN}, {lease} asked");
            return Err(Refusal::BadRequest { why });
        }
        if path.is_root() {
            let why = "the root directory cannot belong to a job".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        if path.as_str().len() > TEXT_BYTES_MAX {
            let value = path.as_str().len() as u64;
            let limit = TEXT_BYTES_MAX as u64;
            return Err(Refusal::TooLarge { what: "a job's path".to_owned(), value, limit });
        }
        self.make_directory(&path, ObjectKind::Directory, true, true)?;
        let root = self.resolve(&path)?;
        let object = &self.objects[&root];
        let is_empty = object.container().is_some() && self.names.count(root) == 0;
        if object.job.is_some() || !is_empty {
            let why = "a job's subtree starts empty and outside other jobs' subtrees".to_owned();
            return Err(Refusal::WrongKind { path, why });
        }
        let id = JobId(self.next_job);
        self.next_job += 1;
        let until = self.served() + lease;
        let job =
            Job { root, created_at: self.now, lease, until, quota_bytes, used_bytes: 0, hints };
        self.jobs.insert(id, job);
        self.open_account(id);
        self.account(Some(id), 1, self.attribute_bytes_of(root).cast_signed());
        self.objects.get_mut(&root).expect("just resolved").job = Some(id);
        self.service.schedule(until, Timer::Job(id));
        self.emit(EventKind::JobRegistered { job: id, path });
        Ok(Reply::Job(self.job_info(id, self.now).expect("just made")))
    }

    /// Returns a job whose subtree is there.
    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).filter(|job| !self.is_deleted(job.root))
    }

    pub(super) fn renew_job(&mut self, id: JobId) -> Result<Reply, Refusal> {
        let served = self.served();
        let is_there = self.job(id).is_some();
        let job = self.jobs.get_mut(&id).filter(|_| is_there);
        let job = job.ok_or(Refusal::UnknownJob { job: id })?;
        job.until = served + job.lease;
        Ok(Reply::Done)
    }

    /// Ends a job whose owner says that it is over.
    pub(super) fn close_job(&mut self, id: JobId, orders: &mut Orders) -> Result<Reply, Refusal> {
        if self.job(id).is_none() {
            return Err(Refusal::UnknownJob { job: id });
        }
        self.end_job(id, false, orders);
        Ok(Reply::Done)
    }

    /// Ends a job; its subtree goes unless it was to be kept.
    pub(super) fn end_job(&mut self, id: JobId, is_expired: bool, orders: &mut Orders) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (root, keep) = (job.root, job.hints.keep_after_job);
        let path = self.path_of(root).unwrap_or_else(sanderling_protocol::Path::root);
        let freed_bytes = if keep {
            self.disown(root);
            0
        } else {
            // Freeing the root ends the job, so that `rm -r` of it does the same.
            self.delete_tree(root, orders).bytes
        };
        self.jobs.remove(&id);
        self.close_account(id);
        self.tell_job_ended(root, freed_bytes, EndedJob { job: id, path, is_expired });
    }

    /// Takes a subtree out of its job.
    fn disown(&mut self, root: ObjectId) {
        for id in self.subtree(root) {
            self.move_to_job(id, None);
        }
    }

    /// Puts an object, with what it takes, on another job's account or on nobody's. Its container's
    /// job can change while it is written: it counts where its name is.
    pub(super) fn move_to_job(&mut self, id: ObjectId, job: Option<JobId>) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.job != job) else {
            return;
        };
        let from = std::mem::replace(&mut object.job, job);
        let attribute_bytes = self.attribute_bytes_of(id).cast_signed();
        self.account(from, -1, -attribute_bytes);
        self.account(job, 1, attribute_bytes);
        let Some(data) = self.objects[&id].data() else { return };
        let mut bytes = data.inline.as_ref().map_or(0, |inline| inline.len() as i64);
        for block in data.blocks.clone().iter() {
            if let Some(block) = self.blocks.get_mut(block) {
                block.job = job;
                bytes += i64::from(block.reserved);
            }
        }
        self.charge(from, -bytes);
        self.charge(job, bytes);
    }

    /// Refuses what would pass the quota of a job.
    pub(super) fn check_quota(&self, job: Option<JobId>, asked: u64) -> Result<(), Refusal> {
        let Some((id, job)) = job.and_then(|id| self.jobs.get(&id).map(|job| (id, job))) else {
            return Ok(());
        };
        match job.quota_bytes {
            Some(quota) if job.used_bytes.saturating_add(asked) > quota => {
                let used = job.used_bytes;
                let refusal = Refusal::QuotaPassed { job: id, quota, used, asked };
                // What is too large for the whole quota does not fit later either.
                Err(if asked > quota { refusal } else { self.unless_freed(id, refusal) })
            }
            _ => Ok(()),
        }
    }

    /// Returns how many more whole blocks an object may have within the quota of its job, once its
    /// blocks have ended with these lengths and given back what they do not use.
    pub(crate) fn blocks_within_quota(&self, id: ObjectId, ended: &[BlockLength]) -> u64 {
        let job = self.objects.get(&id).and_then(|object| object.job);
        let Some(job) = job.and_then(|job| self.jobs.get(&job)) else { return u64::MAX };
        let Some(quota) = job.quota_bytes else { return u64::MAX };
        let unused = ended.iter().map(|it| self.unused_bytes(it)).fold(0, u64::saturating_add);
        let used = job.used_bytes.saturating_sub(unused);
        quota.saturating_sub(used) / u64::from(BLOCK_BYTES_MAX)
    }

    pub(super) fn job_info(&self, id: JobId, now: Instant) -> Option<JobInfo> {
        let job = self.jobs.get(&id)?;
        Some(JobInfo {
            job: id,
            path: self.path_of(job.root)?,
            created_at: job.created_at,
            lease: job.lease,
            remaining: self.service.at(now).until(self.service.lease_end(job.until, job.lease)),
            quota_bytes: job.quota_bytes,
            used_bytes: job.used_bytes,
            hints: job.hints.clone(),
        })
    }
}
