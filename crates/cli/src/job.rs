//! `sanderling job`.

use std::fmt::Display;
use std::num::ParseIntError;
use std::str::FromStr;

use clap::{Args, Subcommand};
use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::{JobAccount, JobHints, JobInfo, JobLimits, RegisterJob};
use sanderling_protocol::{JobId, Millis, Path, Refusal};
use serde::Serialize;
use thiserror::Error;

use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::refused;
use crate::session::Session;
use crate::units::{self, Size, Span};

/// List, make, renew and end jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// List the jobs, with their use and limits
    Ls,
    /// Make a job: a subtree that is deleted when it is not renewed within its lease
    New(New),
    /// Renew a job's lease
    Renew(One),
    /// End a job: its subtree is deleted, unless it was made with --keep
    End(One),
}

/// `job new`.
#[derive(Debug, Args)]
pub(crate) struct New {
    /// The root of its subtree, which must be empty or not there
    pub(crate) path: Path,
    /// How long it lives without being renewed
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(crate) lease: Span,
    /// Most bytes [default: as many as there is room for]
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<Size>,
    /// Most directories and objects, the root among them [default: as many as there is room for]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) names: Option<u64>,
    /// Most bytes of attributes, names and texts [default: as many as there is room for]
    #[arg(long, value_name = "SIZE")]
    pub(crate) attribute_bytes: Option<Size>,
    /// Keep the subtree when the job ends
    #[arg(long)]
    pub(crate) keep: bool,
}

/// One job.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The job's id, or the root of its subtree
    #[arg(value_name = "JOB")]
    pub(crate) job: Selector,
}

/// Names a job.
#[derive(Debug, Clone)]
pub(crate) enum Selector {
    Id(JobId),
    Root(Path),
}

/// Why a text names no job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum SelectorError {
    /// It is no path.
    #[error("{0}")]
    Root(#[from] Refusal),
    /// It is no number, and begins with no slash.
    #[error("a number, or a path from the root on")]
    Id {
        /// What was given.
        text: String,
        source: ParseIntError,
    },
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.starts_with('/') {
            return Ok(Self::Root(text.parse()?));
        }
        match text.parse() {
            Ok(id) => Ok(Self::Id(JobId(id))),
            Err(source) => Err(SelectorError::Id { text: text.to_owned(), source }),
        }
    }
}

/// A job, and what it holds beside bytes.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    info: JobInfo,
    #[serde(flatten)]
    account: AccountRow,
}

#[derive(Serialize)]
struct AccountRow {
    names: u64,
    names_max: Option<u64>,
    attribute_bytes: u64,
    attribute_bytes_max: Option<u64>,
}

impl From<JobAccount> for AccountRow {
    fn from(account: JobAccount) -> Self {
        let JobAccount { limits, names, attribute_bytes } = account;
        let (names_max, attribute_bytes_max) = (limits.names, limits.attribute_bytes);
        Self { names, names_max, attribute_bytes, attribute_bytes_max }
    }
}

/// Runs `sanderling job ...`.
///
/// # Errors
/// The namenode's refusal; unavailable (4) when it cannot be reached.
pub(crate) async fn run(session: Session, command: Job) -> Result<(), Failure> {
    let client = session.client().await?;
    let refused = |error: ClientError| refused::client(&error, &session.namenode);
    match command {
        Job::Ls => {
            let rows = rows(&client).await.map_err(refused)?;
            session
                .output
                .result(&serde_json::json!({ "jobs": rows }), |writer| table(&rows).write(writer))
        }
        Job::New(args) => {
            let info = begin(&client, args).await.map_err(refused)?;
            session.output.result(&info, |writer| writeln!(writer, "{}", info.job))
        }
        Job::Renew(one) => {
            let job = id_of(&client, one.job).await.map_err(refused)?;
            client.renew_job(job).await.map_err(refused)?;
            session.output.result(&serde_json::json!({ "job": job }), |_| Ok(()))
        }
        Job::End(one) => {
            let job = id_of(&client, one.job).await.map_err(refused)?;
            client.end_job(job).await.map_err(refused)?;
            session.output.result(&serde_json::json!({ "job": job }), |_| Ok(()))
        }
    }
}

async fn id_of(client: &Client, selector: Selector) -> Result<JobId, ClientError> {
    let root = match selector {
        Selector::Id(job) => return Ok(job),
        Selector::Root(root) => root,
    };
    let jobs = client.jobs().await?;
    let found = jobs.iter().find(|info| info.path == root).map(|info| info.job);
    found.ok_or(ClientError::Refused(Refusal::NotFound { path: root }))
}

async fn begin(client: &Client, args: New) -> Result<JobInfo, ClientError> {
    let hints = JobHints { keep_after_job: args.keep, ..JobHints::default() };
    let quota_bytes = args.quota.map(|quota| quota.0);
    let lease = Millis::from(args.lease.0);
    let job = RegisterJob { path: args.path, lease, quota_bytes, hints };
    let attribute_bytes = args.attribute_bytes.map(|bytes| bytes.0);
    let limits = JobLimits { names: args.names, attribute_bytes };
    // A namenode of the previous release supports only jobs without limits.
    if limits == JobLimits::default() {
        return client.register_job(job).await;
    }
    client.register_limited_job(job, limits).await
}

/// Requests the jobs and what each of them holds; a job that ends meanwhile is left out.
async fn rows(client: &Client) -> Result<Vec<Row>, ClientError> {
    let mut rows = Vec::new();
    for info in client.jobs().await? {
        match client.job_account(info.job).await {
            Ok(account) => rows.push(Row { info, account: account.into() }),
            Err(ClientError::Refused(Refusal::UnknownJob { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("bytes", Align::Right),
        ("names", Align::Right),
        ("attributes", Align::Right),
        ("lease", Align::Right),
        ("path", Align::Left),
    ]);
    for Row { info, account } in rows {
        let bytes = |bytes: Option<u64>| bytes.map(units::bytes);
        table.row([
            info.job.to_string(),
            of(units::bytes(info.used_bytes), bytes(info.quota_bytes)),
            of(account.names, account.names_max),
            of(units::bytes(account.attribute_bytes), bytes(account.attribute_bytes_max)),
            units::millis(info.remaining),
            info.path.to_string(),
        ]);
    }
    table
}

/// Writes what is held, of what may be.
fn of<T: Display>(used: T, limit: Option<T>) -> String {
    match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => used.to_string(),
    }
}
