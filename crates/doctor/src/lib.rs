//! `sanderling doctor`: is this machine fit, is the cluster well, and what is to be done next?

mod certificates;
mod check;
mod cluster;
mod data;
mod durable;
mod fleet;
mod gather;
mod group;
mod machine;
mod metrics_page;
mod namenode;
mod observations;
#[cfg(test)]
mod tests;
mod trust;
mod unanswered;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::pages;
use sanderling_command::session::Session;
use sanderling_command::units::Size;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::check::{Check, CheckLevel};
use self::observations::ClusterLook;

/// How long the looks at this machine may take together: a disk may hang. At 32 MiB in a second
/// (slower is a warning) they take a few seconds. Chosen, not measured.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(20);

/// `sanderling doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when a line shows fail.")]
pub struct Doctor {
    /// Also connect to the cloud's metadata service, from which notices come
    #[arg(long)]
    pub(crate) cloud: bool,
    /// The directory whose disk is measured [default: that of `local`]
    #[arg(long = "dir", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
    /// Where the namenode serves HTTP [default: the port after that of --namenode]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    /// Memory that datanodes on this machine shall have
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) dram: Size,
    /// A server's certificate, to check when it ends and whether --tls-ca trusts it
    #[arg(long, value_name = "PEM", env = "SANDERLING_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
}

/// Checks, prints a line for each check, and fails when one of them does.
///
/// # Errors
/// Failure (1) when a check fails: end the command with it. The report has the mend of each.
pub async fn run(session: Session, args: Doctor) -> Result<(), Failure> {
    let place = sanderling_local::ClusterDirectory { directory: args.directory.clone() };
    let directory = sanderling_local::directory(&place)?;
    let cluster = async {
        let mut checks = cluster::ports(&session.namenode).await;
        checks.extend(of_cluster(&session, args.http.as_deref()).await);
        checks.extend(certificates::all(&session, args.tls_cert.as_deref()).await);
        if args.cloud {
            checks.push(cluster::metadata_service().await);
        }
        checks
    };
    let (mut checks, of_cluster) = tokio::join!(of_machine(&directory, args.dram.0), cluster);
    checks.extend(of_cluster);
    for mend in checks.iter_mut().filter_map(|check| check.mend.as_mut()) {
        *mend = pages::cited(mend);
    }
    session.output.result(&serde_json::json!({ "checks": checks }), |writer| {
        checks.iter().try_for_each(|check| write(writer, check))
    })?;
    match checks.iter().filter(|check| check.verdict == CheckLevel::Fail).count() {
        0 => Ok(()),
        failed => {
            let verb = if failed == 1 { "fails" } else { "fail" };
            let cause = format!("{failed} of {} checks {verb}", checks.len());
            let failure = Failure::new(Exit::Failure, FailureKind::Unfit, cause).tried(
                format_args!("checked this machine and the cluster at {}", session.namenode),
            );
            Err(match next(&checks) {
                Some(next) => failure.next(next),
                None => failure,
            })
        }
    }
}

/// Returns the next step after the checks that fail: the first command of theirs, else the first
/// mend.
fn next(checks: &[Check]) -> Option<&str> {
    let failed = || checks.iter().filter(|check| check.verdict == CheckLevel::Fail);
    let command = failed().find_map(|check| check.next.as_deref());
    command.or_else(|| failed().find_map(|check| check.mend.as_deref()))
}

/// Looks at this machine, on a thread that may block.
async fn of_machine(directory: &Path, dram: u64) -> Vec<Check> {
    let place = directory.to_owned();
    let looks = spawn_blocking(move || {
        let mut checks = vec![machine::open_files(), machine::memory(dram), machine::memfd()];
        checks.extend([machine::clock(), machine::disk(&place), machine::task_drivers()]);
        checks.push(cluster::python());
        checks
    });
    match timeout(MACHINE_TIMEOUT, looks).await {
        Ok(Ok(checks)) => checks,
        Ok(Err(error)) => vec![Check::fail("machine.unseen", error.to_string(), "report a bug")],
        Err(_) => {
            let found = format!("a look at {} hangs", directory.display());
            vec![Check::fail("machine.hangs", found, "another --dir; check that disk")]
        }
    }
}

/// Looks at the cluster: the namenode first, and the rest if that answers.
async fn of_cluster(session: &Session, http: Option<&str>) -> Vec<Check> {
    let mut members = cluster::namenodes(session).await;
    let namenode = members.swap_remove(0);
    let look = gather::look(session, http).await;
    let mut checks = vec![cluster::with_datanodes(namenode, &look)];
    let is_served = checks[0].verdict == CheckLevel::Ok || look.nodes.is_ok();
    checks.extend(members);
    if is_served {
        checks.extend(judged(&look));
    } else {
        checks.extend(namenode::state(&look));
        checks.extend(trust::token(&look));
    }
    checks
}

/// Judges what was seen of a cluster: what loses data first.
fn judged(look: &ClusterLook) -> Vec<Check> {
    let of_data = [data::losses, data::notices, fleet::nodes, data::reserve, data::exposure];
    let others = [
        data::fullness,
        namenode::all,
        fleet::versions,
        fleet::clocks,
        fleet::addresses,
        trust::all,
    ];
    let mut checks: Vec<Check> = of_data.iter().flat_map(|judge| judge(look)).collect();
    checks.extend(durable::all(look));
    checks.extend(group::all(look));
    checks.extend(others.iter().flat_map(|judge| judge(look)));
    checks
}

fn write(writer: &mut dyn Write, check: &Check) -> std::io::Result<()> {
    let word = match check.verdict {
        CheckLevel::Ok => "ok",
        CheckLevel::Warn => "warn",
        CheckLevel::Fail => "FAIL",
    };
    let found = sanderling_command::printable::printable(&check.found);
    writeln!(writer, "{word:<5} {:<9} {found}", check.name)?;
    match &check.mend {
        Some(mend) => writeln!(writer, "{:<15} mend: {mend}", ""),
        None => Ok(()),
    }
}
