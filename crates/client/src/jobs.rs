//! Jobs: subtrees that live as long as their application.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sanderling_core::client::RenewalTimer;
use sanderling_protocol::message::{
    JobAccount, JobInfo, JobLimits, RegisterJob, RegisterLimitedJob,
};
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, Refusal, Reply, Request, Token};
use sanderling_transport::CallError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{Client, ClientInner, machine_time};
use crate::error::ClientError;
use crate::namespace::reply_of;

impl Client {
    /// Makes a job. Its subtree goes when it is not renewed for its lease; [`Client::run_job`]
    /// renews.
    ///
    /// # Errors
    /// `WrongKind` when the subtree is not empty or is another job's: choose another path.
    pub async fn register_job(&self, request: RegisterJob) -> Result<JobInfo, ClientError> {
        let reply = self.request(Request::RegisterJob(request)).await?;
        reply_of!(reply, "register job", Reply::Job(job) => job)
    }

    /// Makes a job with limits on its names and on its bytes of attributes, beside the quota for
    /// its bytes. The limits of a job do not change.
    ///
    /// # Errors
    /// As [`Client::register_job`].
    pub async fn register_limited_job(
        &self,
        job: RegisterJob,
        limits: JobLimits,
    ) -> Result<JobInfo, ClientError> {
        let limited = RegisterLimitedJob { job, limits };
        let reply = self.request(Request::RegisterLimitedJob(Box::new(limited))).await?;
        reply_of!(reply, "register job", Reply::Job(job) => job)
    }

    /// Returns how many names and how many bytes of attributes a job holds, and its limits for
    /// both.
    ///
    /// # Errors
    /// `UnknownJob` when it has ended: register another job.
    pub async fn job_account(&self, job: JobId) -> Result<JobAccount, ClientError> {
        let reply = self.request(Request::JobAccount { job }).await?;
        reply_of!(reply, "job account", Reply::JobAccount(account) => account)
    }

    /// Makes a job and renews it until the handle is dropped or ended.
    ///
    /// # Errors
    /// As [`Client::register_job`].
    pub async fn run_job(&self, request: RegisterJob) -> Result<JobHandle, ClientError> {
        let info = self.register_job(request).await?;
        Ok(self.keep_job(info.job, info.lease))
    }

    /// Renews a job that was made with such a lease, in milliseconds, until the handle is dropped
    /// or ended. Two renewals in a row may fail: the first is sent after a third of the lease, and
    /// one that is not answered within a sixth of it is repeated after 50 ms at most, or twice that
    /// if it is the second one. A task of the runtime does that in whose context this is called.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn keep_job(&self, job: JobId, lease: Millis) -> JobHandle {
        let began = Instant::now();
        let timer = RenewalTimer::of_job(machine_time(began.elapsed()), lease);
        let has_ended = Arc::new(AtomicBool::new(false));
        let shared = Arc::downgrade(&self.shared);
        let task = tokio::spawn(renew(shared, job, (began, timer), Arc::clone(&has_ended)));
        JobHandle { client: self.clone(), job, has_ended, task }
    }

    /// Renews a job's lease once, so that the job and its subtree stay for another lease.
    /// [`Client::keep_job`] does this in the background.
    ///
    /// # Errors
    /// `UnknownJob` when it has ended: register another job.
    pub async fn renew_job(&self, job: JobId) -> Result<(), ClientError> {
        let reply = self.request(Request::RenewJob { job }).await?;
        reply_of!(reply, "renew job", Reply::Done => ())
    }

    /// Ends a job; its subtree goes, unless it was to be kept.
    ///
    /// # Errors
    /// `UnknownJob` when it has ended already: nothing is left to do.
    pub async fn end_job(&self, job: JobId) -> Result<(), ClientError> {
        let reply = self.request(Request::EndJob { job }).await?;
        reply_of!(reply, "end job", Reply::Done => ())
    }

    /// Returns a new token that allows less than the client's own, or the same for a shorter time.
    ///
    /// # Errors
    /// `Forbidden` for more than the client's own token allows: request less. `BadRequest` if the
    /// cluster has no tokens: none is needed.
    pub async fn mint_token(&self, wanted: MintToken) -> Result<Token, ClientError> {
        let reply = self.request(Request::MintToken(wanted)).await?;
        reply_of!(reply, "mint a token", Reply::Token(token) => token)
    }

    /// Returns the jobs that have not ended, each with its subtree, lease, quota and bytes in use.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer before the call's deadline: try again.
    pub async fn jobs(&self) -> Result<Vec<JobInfo>, ClientError> {
        let reply = self.request(Request::Jobs).await?;
        reply_of!(reply, "jobs", Reply::Jobs(jobs) => jobs)
    }
}

/// A job that is renewed in the background. Dropped, it ends when its lease does.
#[derive(Debug)]
pub struct JobHandle {
    client: Client,
    job: JobId,
    has_ended: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl JobHandle {
    /// Returns the id of the job that this handle renews.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// Returns whether the namenode has reported the end of the job.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns a token for the job's subtree alone, with some of the rights that this client has:
    /// `read`, `write`. For the job's tasks, which need no more.
    ///
    /// # Errors
    /// `Forbidden` for more than the client's own token allows: request less. `BadRequest` if the
    /// cluster has no tokens: none is needed. `UnknownJob` when the job has ended: register another
    /// job.
    pub async fn token(&self, rights: &[&str], lifetime: Duration) -> Result<Token, ClientError> {
        let jobs = self.client.jobs().await?;
        let own = jobs.into_iter().find(|info| info.job == self.job);
        let info = own.ok_or(ClientError::Refused(Refusal::UnknownJob { job: self.job }))?;
        let wanted = MintToken {
            subject: format!("job {}", self.job),
            subtree: info.path,
            rights: rights.iter().map(|right| (*right).to_owned()).collect(),
            lifetime: lifetime.into(),
        };
        self.client.mint_token(wanted).await
    }

    /// Ends the job now instead of with its lease, and stops its renewal. Its subtree goes, unless
    /// it was to be kept.
    ///
    /// # Errors
    /// As [`Client::end_job`].
    pub async fn end(self) -> Result<(), ClientError> {
        self.client.end_job(self.job).await
    }
}

/// Renews a job by a timer that counts from `began`, until the job has ended or the client is gone.
async fn renew(
    shared: Weak<ClientInner>,
    job: JobId,
    (began, mut timer): (Instant, RenewalTimer),
    has_ended: Arc<AtomicBool>,
) {
    let now = || machine_time(began.elapsed());
    while let Some(due) = timer.deadline() {
        tokio::time::sleep(now().until(due).into()).await;
        let Some(within) = timer.poll(now()) else { continue };
        let Some(shared) = shared.upgrade() else { return };
        let deadline = Instant::now() + shared.config.attempt_deadline.min(within.into());
        match shared.batcher.send(&Request::RenewJob { job }, deadline).await {
            Ok(_) => timer.renewed(),
            Err(CallError::Refused(Refusal::UnknownJob { .. })) => {
                tracing::warn!(%job, "a job has ended although it was renewed");
                return has_ended.store(true, Ordering::Relaxed);
            }
            Err(error) if timer.failed(now()) => {
                tracing::warn!(%job, %error, "a job could not be renewed");
            }
            Err(_) => {}
        }
    }
}
