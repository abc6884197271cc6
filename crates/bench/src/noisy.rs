//! `sanderling bench noisy`: what a tenant's small operations take while another one takes all
//! that it can get.
//!
//! The tenant runs on a thread of its own with a client of its own. It is measured alone, beside
//! each hog, and alone again. The hogs' threads have a lower priority than everything else: on
//! machines of their own they would not take the servers' cores.

mod fill;
mod hogs;
mod report;
mod sample;
mod setting;
mod stage;
mod tenant;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Exit, Failure, FailureKind};
use crate::session::Session;

use hogs::Hog;
use report::{Beside, NoisyReport};
use sample::Sample;
use setting::{HogKind, Setting};
use stage::NotRun;

pub(crate) use setting::Noisy;
use tenant::TenantThread;

/// Time in which a hog prepares what it needs, and in which it deletes what it made. The largest
/// ones make some hundred thousand names in frames of 256. Chosen, not measured: a hog that needs
/// longer is reported as not run.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(120);

/// Measures every phase and prints the table.
///
/// # Errors
/// The first step of the preparation that failed; failure (1) after the table when the tenant got
/// errors.
pub(super) async fn run(session: Session, args: Noisy) -> Result<(), Failure> {
    raise_open_files();
    let setting = Arc::new(Setting::new(&session, args)?);
    let tenant =
        TenantThread::start(&setting).await.map_err(|error| error.failure(&setting.namenode))?;
    let report = measure(&session, &setting, &tenant).await;
    let cleaned =
        [(&setting.hog_dir, setting.clean().await), (&setting.own_dir, tenant.end().await)];
    for (directory, cleaned) in cleaned {
        if let Err(left) = cleaned {
            session.output.note(format_args!("{directory} is left behind: {left}"));
        }
    }
    let Some(report) = report? else { return Err(Failure::silent(Exit::Interrupted)) };
    report.print(session.output)?;
    match report.errors() {
        0 => Ok(()),
        errors => Err(Failure::new(
            Exit::Failure,
            FailureKind::TenantErrors,
            format_args!("the tenant got {errors} errors"),
        )),
    }
}

/// Measures all phases; `None` when the user had enough.
async fn measure(
    session: &Session,
    setting: &Arc<Setting>,
    tenant: &TenantThread,
) -> Result<Option<NoisyReport>, Failure> {
    let kinds = setting.kinds();
    if kinds.iter().any(|kind| kind.lists()) {
        session.output.note(format_args!("fill {}", setting.big));
        fill::big(setting).await.map_err(|NotRun(why)| {
            Failure::new(
                Exit::Failure,
                FailureKind::NotPrepared,
                format_args!("fill {}: {why}", setting.big),
            )
        })?;
    }
    tenant.settle().await;
    session.output.note("alone");
    let alone = tenant.measure(setting.seconds).await;
    let mut beside = Vec::with_capacity(kinds.len());
    for kind in kinds {
        if setting.ended.is_cancelled() {
            return Ok(None);
        }
        session.output.note(kind.name());
        let mut measured = phase(setting, tenant, kind, &alone).await;
        measured.remark(tenant.settle().await);
        beside.push(measured);
    }
    session.output.note("alone again");
    let alone_again = tenant.measure(setting.seconds).await;
    if setting.ended.is_cancelled() {
        return Ok(None);
    }
    Ok(Some(NoisyReport::new(setting, tenant.object_bytes(), &alone, beside, &alone_again)))
}

/// Measures the tenant beside one hog.
async fn phase(
    setting: &Arc<Setting>,
    tenant: &TenantThread,
    kind: HogKind,
    alone: &Sample,
) -> Beside {
    let mut hog = Hog::start(setting, kind);
    if let Err(NotRun(why)) = hog.begun(PREPARE_TIMEOUT).await {
        return Beside::skipped(kind, why);
    }
    let sample = tenant.measure(setting.seconds).await;
    let done = hog.tally();
    let notes = hog.end(PREPARE_TIMEOUT).await;
    Beside::new(kind, &sample, alone, done, notes)
}

/// Lets this process open as many files as it may: hogs have thousands of connections.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // A limit that stays bounds the hogs; they report how many connections they made.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
