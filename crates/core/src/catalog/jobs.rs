//! Jobs: owners of subtrees with a lifetime.

use sanderling_protocol::limits::TEXT_BYTES_MAX;
use sanderling_protocol::message::{
    BlockLength, JobAccount, JobInfo, ObjectKind, RegisterJob, RegisterLimitedJob,
};
use sanderling_protocol::{EventKind, Instant, JobId, Millis, ObjectId, Refusal, Reply};

use super::Catalog;
use super::job_table::Job;
use super::object::Object;
use super::orders::Orders;
use super::reap_queue::EndedJob;
use super::timers::Timer;

/// The shortest lease of a job: below it a pause of the application would delete its data. Pauses
/// of a second are common: of a garbage collector, a busy machine, a packet that is sent again.
const JOB_LEASE_MIN: Millis = Millis(1000);

impl Catalog {
    pub(super) fn register_job(&mut self, request: RegisterJob) -> Result<Reply, Refusal> {
        let RegisterJob { path, lease, quota_bytes, hints } = request;
        if lease < JOB_LEASE_MIN {
            let why = format!("a job's lease is at least {JOB_LEASE_MIN}, {lease} requested");
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
        let id = self.ids.next_job();
        let until = self.served() + lease;
        let job =
            Job { root, created_at: self.now, lease, until, quota_bytes, used_bytes: 0, hints };
        self.jobs.insert(id, job);
        self.accounts.open(id);
        self.accounts.add(Some(id), 1, self.attributes.bytes_of(root).cast_signed());
        self.objects.get_mut(&root).expect("just resolved").job = Some(id);
        self.service.schedule(until, Timer::Job(id));
        self.emit(EventKind::JobRegistered { job: id, path });
        Ok(Reply::Job(self.job_info(id, self.now).expect("just made")))
    }

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
            self.accounts.limit(info.job, *limits);
        }
        Ok(reply)
    }

    /// Returns a job whose subtree is there.
    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id).filter(|job| !self.is_deleted(job.root))
    }

    pub(super) fn renew_job(&mut self, id: JobId) -> Result<Reply, Refusal> {
        self.job(id).ok_or(Refusal::UnknownJob { job: id })?;
        self.jobs.renew(id, self.served());
        Ok(Reply::Done)
    }

    /// Ends a job whose owner ends it.
    pub(super) fn close_job(&mut self, id: JobId, orders: &mut Orders) -> Result<Reply, Refusal> {
        let root = self.job(id).ok_or(Refusal::UnknownJob { job: id })?.root;
        self.check_may_go(root, orders)?;
        self.end_job(id, false, orders);
        Ok(Reply::Done)
    }

    /// Ends a job; its subtree goes unless it was to be kept.
    pub(super) fn end_job(&mut self, id: JobId, is_expired: bool, orders: &mut Orders) {
        let Some(job) = self.jobs.get(id) else { return };
        let (root, keep) = (job.root, job.hints.keep_after_job);
        let path = self.path_of(root).unwrap_or_else(sanderling_protocol::Path::root);
        let freed_bytes = if keep {
            self.disown(root);
            0
        } else {
            // Freeing the root ends the job, so that `rm -r` of it does the same.
            self.delete_tree(root, orders).bytes
        };
        self.jobs.remove(id);
        self.accounts.close(id);
        self.report_job_ended(root, freed_bytes, EndedJob { job: id, path, is_expired });
    }

    /// Takes a subtree out of its job.
    fn disown(&mut self, root: ObjectId) {
        for id in self.subtree(root) {
            self.move_to_job(id, None);
        }
    }

    /// Puts an object, with what it takes, on another job's account or on none. Its container's
    /// job can change while it is written: it counts where its name is.
    pub(super) fn move_to_job(&mut self, id: ObjectId, job: Option<JobId>) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.job != job) else {
            return;
        };
        let from = std::mem::replace(&mut object.job, job);
        let attribute_bytes = self.attributes.bytes_of(id).cast_signed();
        self.accounts.add(from, -1, -attribute_bytes);
        self.accounts.add(job, 1, attribute_bytes);
        let Some(data) = self.objects[&id].data() else { return };
        let mut bytes = data.inline_bytes().cast_signed();
        for block in data.blocks.clone().iter() {
            bytes += i64::from(self.blocks.set_job(*block, job));
        }
        self.jobs.charge(from, -bytes);
        self.jobs.charge(job, bytes);
    }

    /// Refuses what would pass the quota of a job.
    pub(super) fn check_quota(&self, job: Option<JobId>, asked: u64) -> Result<(), Refusal> {
        self.jobs.check_quota(job, asked).map_err(|refusal| match refusal {
            Refusal::QuotaPassed { job, quota, .. } if asked <= quota => {
                self.unless_freed(job, refusal)
            }
            // What is too large for the whole quota does not fit later either.
            refusal => refusal,
        })
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
        let checked = self.accounts.check_limits(job, names, after.saturating_sub(before));
        checked.map_err(|refusal| self.unless_freed(job, refusal))
    }

    /// Returns the job of each object, with the bytes of the object's attributes.
    pub(super) fn owned(&self) -> impl Iterator<Item = (JobId, u64)> {
        let owner =
            |(id, object): (ObjectId, &Object)| Some((object.job?, self.attributes.bytes_of(id)));
        self.objects.iter().filter_map(owner)
    }

    /// Returns how many more whole blocks an object may have within the quota of its job, once its
    /// blocks have ended with these lengths and given back what they do not use.
    pub(crate) fn blocks_within_quota(&self, id: ObjectId, ended: &[BlockLength]) -> u64 {
        let job = self.objects.get(&id).and_then(|object| object.job);
        let unused = || ended.iter().map(|it| self.unused_bytes(it)).fold(0, u64::saturating_add);
        self.jobs.blocks_within_quota(job, unused)
    }

    /// Returns what a job holds beside bytes.
    pub(crate) fn job_account(&self, id: JobId) -> Result<JobAccount, Refusal> {
        let account = self.job(id).and_then(|_| self.accounts.get(id));
        account.ok_or(Refusal::UnknownJob { job: id })
    }

    pub(super) fn job_info(&self, id: JobId, now: Instant) -> Option<JobInfo> {
        let job = self.jobs.get(id)?;
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
