//! Jobs: owners of subtrees.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::path::Path;
use crate::time::{Instant, Millis};

/// The properties that an application expects of its data. A hint is never a promise. No decision
/// uses the first three yet: they are stored, and shown with the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHints {
    /// Expected bytes at the peak; `None` when unknown. Stored and shown, not used yet.
    pub expected_bytes: Option<u64>,
    /// Expected bytes per second at the peak; `None` when unknown. Stored and shown, not used yet.
    pub throughput_bytes_per_second: Option<u64>,
    /// Whether the application waits for single small reads. Stored and shown, not used yet.
    pub is_latency_sensitive: bool,
    /// Whether its objects are deleted by their first whole read.
    pub delete_after_read: bool,
    /// Whether its subtree stays when it ends.
    pub keep_after_job: bool,
    /// Milliseconds of work per MiB to compute its data again; orders relocation.
    pub recompute_millis_per_mib: Option<u64>,
    /// How often each byte will still be read; orders relocation after the cost to compute again.
    pub expected_reads: Option<u32>,
}

/// A request for a new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterJob {
    /// The root of its subtree: made if it does not exist, refused if it is inside another job's.
    pub path: Path,
    /// It ends when it is not renewed for this long.
    pub lease: Millis,
    /// Most bytes that its subtree may hold; `None` for as many as there is room for.
    pub quota_bytes: Option<u64>,
    /// The hints about its data.
    pub hints: JobHints,
}

/// A job as the namenode lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its id.
    pub job: JobId,
    /// The root of its subtree.
    pub path: Path,
    /// When it began.
    pub created_at: Instant,
    /// The lease's length.
    pub lease: Millis,
    /// Time until the lease ends.
    pub remaining: Millis,
    /// Most bytes that its subtree may hold; `None` without a quota.
    pub quota_bytes: Option<u64>,
    /// Bytes held and reserved.
    pub used_bytes: u64,
    /// The hints about its data.
    pub hints: JobHints,
}

/// The limits of what a job may hold beside bytes; `None` for as many as there is room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// Most names: directories and objects, the root of the subtree and objects that are being
    /// written among them.
    pub names: Option<u64>,
    /// Most bytes of attributes, names and texts.
    pub attribute_bytes: Option<u64>,
}

/// A request for a new job with limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterLimitedJob {
    /// The job as one without limits is requested: its subtree, lease, quota and hints.
    pub job: RegisterJob,
    /// What it may hold beside the bytes that its quota bounds.
    pub limits: JobLimits,
}

/// Reports what a job holds of what its limits bound, beside the bytes of its subtree, which
/// [`JobInfo::used_bytes`] has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAccount {
    /// Its limits.
    pub limits: JobLimits,
    /// The number of directories and objects.
    pub names: u64,
    /// Bytes of attributes.
    pub attribute_bytes: u64,
}
