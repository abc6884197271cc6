//! `fs rm`.

use clap::Args;
use sanderling_protocol::{Path, Reply, Request};
use serde::Serialize;

use super::lookup::existing;
use super::pattern::{self, Paths};
use crate::failure::{Exit, Failure, RefusalKind};
use crate::refused::shell_word;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units;

/// `fs rm`.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The objects, or patterns of them
    #[arg(required = true)]
    pub(crate) paths: Vec<Paths>,
    /// Delete directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Accept that an object does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print what would be deleted and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Confirm deleting everything: needed for / and /*
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Default, Serialize)]
struct Removed {
    objects: u64,
    freed_bytes: u64,
    is_dry_run: bool,
}

pub(super) async fn run(session: &Session, args: Rm) -> Result<(), Failure> {
    if args.paths.iter().any(Paths::is_everything) && !args.yes && !args.dry_run {
        return Err(Failure::usage("this deletes everything in the store")
            .next("the same with --dry-run, or the same with --yes"));
    }
    let client = session.client().await?;
    let paths = match pattern::all(session, &client, &args.paths).await {
        Err(failure) if args.force && failure.exit == Exit::NotFound => Vec::new(),
        found => found?,
    };
    let mut removed = Removed { is_dry_run: args.dry_run, ..Removed::default() };
    for path in &paths {
        let outcome = if args.dry_run {
            planned(session, &client, path, args.recursive).await
        } else {
            delete(session, &client, path, args.recursive).await
        };
        match outcome {
            Ok((objects, bytes)) => {
                removed.objects += objects;
                removed.freed_bytes += bytes;
            }
            Err(failure) if args.force && failure.exit == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    if session.output.is_json {
        return session.output.document(&removed);
    }
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    let freed = units::bytes(removed.freed_bytes);
    session.output.note(format_args!(
        "{verb} {}, {freed}",
        units::count(removed.objects, "object", "objects")
    ));
    Ok(())
}

async fn delete(
    session: &Session,
    client: &sanderling_client::Client,
    path: &Path,
    recursive: bool,
) -> Result<(u64, u64), Failure> {
    if path.is_root() {
        return empty_root(session, client, recursive).await;
    }
    delete_counted(session, client, path.clone(), recursive).await
}

/// Deletes, and counts what that was. Of a large subtree the reply has only what was freed at once,
/// so it is counted before.
async fn delete_counted(
    session: &Session,
    client: &sanderling_client::Client,
    path: Path,
    recursive: bool,
) -> Result<(u64, u64), Failure> {
    let usage = Request::Usage { path: path.clone() };
    let (mut most, mut bytes) = (0, 0);
    if recursive && let Ok(Reply::Usage(usage)) = session.call(client, usage).await {
        (most, bytes) = (usage.files + usage.directories, usage.bytes);
    }
    match session.call(client, Request::Delete { path, recursive }).await? {
        Reply::Deleted { objects, freed_bytes } => Ok((objects.max(most), freed_bytes.max(bytes))),
        reply => Err(unexpected(&reply)),
    }
}

/// The root directory itself stays: what is in it goes.
async fn empty_root(
    session: &Session,
    client: &sanderling_client::Client,
    recursive: bool,
) -> Result<(u64, u64), Failure> {
    let mut inside = Vec::new();
    super::list::each_page(session, client, &Path::root(), |page| {
        inside.extend(page.into_iter().map(|located| located.path));
        Ok(())
    })
    .await?;
    let mut sum = (0, 0);
    for path in inside {
        let (objects, freed_bytes) = delete_counted(session, client, path, recursive).await?;
        sum = (sum.0 + objects, sum.1 + freed_bytes);
    }
    Ok(sum)
}

async fn planned(
    session: &Session,
    client: &sanderling_client::Client,
    path: &Path,
    recursive: bool,
) -> Result<(u64, u64), Failure> {
    let stat = existing(session, client, path).await?;
    if stat.kind.is_container() && stat.entries > 0 && !recursive {
        let cause = format!("{path} is not empty");
        return Err(Failure::new(Exit::Failure, RefusalKind::NotEmpty, cause)
            .next(format_args!("sanderling fs rm -r {}", shell_word(path.as_str()))));
    }
    match session.call(client, Request::Usage { path: path.clone() }).await? {
        Reply::Usage(usage) => Ok((usage.files + usage.directories, usage.bytes)),
        reply => Err(unexpected(&reply)),
    }
}
