//! `sanderling doctor`: is this machine fit, and is the namenode there?

mod certificates;
mod cluster;
mod machine;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::units::Size;

/// `sanderling doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when a line shows fail.")]
pub(crate) struct Doctor {
    /// Also connect to the cloud's metadata service, from which notices come
    #[arg(long)]
    pub(crate) cloud: bool,
    /// The directory whose disk is measured [default: that of `local`]
    #[arg(long = "dir", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
    /// Memory that datanodes on this machine shall have
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) dram: Size,
    /// A server's certificate, to check when it ends and whether --tls-ca trusts it
    #[arg(long, value_name = "PEM", env = "SANDERLING_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckLevel {
    Ok,
    /// It works, less well than it could.
    Warn,
    /// It will not work.
    Fail,
}

/// One line of the doctor's.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: CheckLevel,
    found: String,
    /// How to mend it.
    mend: Option<String>,
    /// The command that mends it, if one does.
    #[serde(skip)]
    next: Option<String>,
    #[serde(flatten)]
    dates: Option<Dates>,
}

/// When a certificate ends.
#[derive(Debug, Clone, Copy, Serialize)]
struct Dates {
    /// Seconds since 1970.
    ends_unix_seconds: i64,
    /// Whole days, negative once it has ended.
    days_left: i64,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: CheckLevel::Ok,
            found: found.into(),
            mend: None,
            next: None,
            dates: None,
        }
    }

    fn warn(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        let (found, mend) = (found.into(), Some(mend.into()));
        Self { name, verdict: CheckLevel::Warn, found, mend, next: None, dates: None }
    }

    fn fail(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: CheckLevel::Fail, ..Self::warn(name, found, mend) }
    }

    fn with_next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

/// Checks, prints a line for each check, and fails when one of them does.
///
/// # Errors
/// Failure (1) when a check fails.
pub(crate) async fn run(session: Session, args: Doctor) -> Result<(), Failure> {
    let place = crate::local::ClusterDirectory { directory: args.directory.clone() };
    let directory = crate::local::directory(&place)?;
    let mut checks = vec![machine::open_files(), machine::memory(args.dram.0), machine::memfd()];
    checks.push(machine::clock());
    checks.push(machine::disk(&directory));
    checks.extend(cluster::ports(&session.namenode).await);
    checks.push(cluster::namenode(&session).await);
    checks.extend(certificates::all(&session, args.tls_cert.as_deref()).await);
    if args.cloud {
        checks.push(cluster::metadata_service().await);
    }
    checks.push(cluster::python());
    session.output.result(&serde_json::json!({ "checks": checks }), |writer| {
        checks.iter().try_for_each(|check| write(writer, check))
    })?;
    match checks.iter().filter(|check| check.verdict == CheckLevel::Fail).count() {
        0 => Ok(()),
        failed => {
            let verb = if failed == 1 { "fails" } else { "fail" };
            let cause = format!("{failed} of {} checks {verb}", checks.len());
            let failed = checks.iter().filter(|check| check.verdict == CheckLevel::Fail);
            let next = failed.filter_map(|check| check.next.clone()).next();
            let next = next.unwrap_or_else(|| "sanderling doctor --help".to_owned());
            Err(Failure::new(Exit::Failure, "Unfit", cause).next(next))
        }
    }
}

fn write(writer: &mut dyn Write, check: &Check) -> std::io::Result<()> {
    let word = match check.verdict {
        CheckLevel::Ok => "ok",
        CheckLevel::Warn => "warn",
        CheckLevel::Fail => "FAIL",
    };
    writeln!(writer, "{word:<5} {:<9} {}", check.name, check.found)?;
    match &check.mend {
        Some(mend) => writeln!(writer, "{:<15} mend: {mend}", ""),
        None => Ok(()),
    }
}
