//! `fs cp`: from the store to the store.

use clap::Args;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::{CreateKind, CreateMode, ObjectKind, ObjectStat};
use sanderling_protocol::{Path, Refusal, Request, StorageClass};
use tokio::sync::mpsc;

use super::list::everything;
use super::lookup::{PIECE_BYTES, check_distinct, existing, joined, target};
use super::pattern::{self, Destination, Paths};
use super::transfer::{AfterFailure, run_all};
use crate::failure::{Exit, Failure, FailureKind};
use crate::refused;
use crate::session::Session;
use crate::units::Span;

/// `fs cp`.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// The objects, or patterns of them
    #[arg(required = true, value_name = "FROM")]
    pub(crate) sources: Vec<Paths>,
    /// The copy; with several sources, or when it is a directory, they go into it
    #[arg(value_name = "TO")]
    pub(crate) to: Destination,
    /// Copy directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Replace what has the name; readers see the old object until the new one is complete
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Make missing directories above it
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// The storage class of the copies [default: that of each object]
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<StorageClass>,
    /// Delete the copies after this long [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<Span>,
}

/// One object and its copy.
#[derive(Debug, Clone)]
struct ObjectCopy {
    from: Path,
    to: Path,
    bytes: u64,
    options: PutOptions,
}

pub(super) async fn run(session: &Session, args: Cp) -> Result<(), Failure> {
    let client = session.client().await?;
    let sources = pattern::all(session, &client, &args.sources).await?;
    let (mut jobs, mut pairs) = (Vec::new(), Vec::new());
    for source in &sources {
        let to = target(session, &client, &args.to, source.name(), sources.len() > 1).await?;
        pairs.push((source, to));
    }
    check_distinct(&pairs)?;
    for (source, to) in pairs {
        jobs.extend(planned(session, &client, &args, source, to).await?);
    }
    let total = jobs.iter().map(|job| job.bytes).sum();
    let verbs = ("copying", "copied");
    let after = AfterFailure::GoOnWithOthers;
    run_all(session, &client, verbs, after, jobs, Some(total), copy).await
}

/// Lists what a source consists of, and makes the directories that its copies go into.
async fn planned(
    session: &Session,
    client: &Client,
    args: &Cp,
    source: &Path,
    to: Path,
) -> Result<Vec<ObjectCopy>, Failure> {
    let stat = existing(session, client, source).await?;
    if to == *source {
        let cause = format!("{source} and its copy are the same object");
        return Err(Failure::new(Exit::Failure, FailureKind::SameObject, cause)
            .tried("nothing: the object is as it was")
            .next(format_args!("sanderling fs stat {}", refused::shell_word(source.as_str()))));
    }
    if !stat.kind.is_container() {
        return Ok(vec![job(args, &stat, to)]);
    }
    if !args.recursive {
        let refusal = Refusal::IsADirectory { path: source.clone() };
        return Err(refused::refusal_failure(&refusal).instead("the same with --recursive"));
    }
    if stat.path.contains(&to) {
        return Err(refused::refusal_failure(&Refusal::IntoItself { from: source.clone() }));
    }
    let inside = everything(session, client, source).await?;
    make(session, client, stat.kind, to.clone()).await?;
    let mut jobs = Vec::new();
    for located in inside {
        let below = located.path.as_str().strip_prefix(source.as_str()).unwrap_or_default();
        let mut copy = to.clone();
        for name in below.split('/').filter(|name| !name.is_empty()) {
            copy = joined(&copy, name)?;
        }
        if located.entry.kind.is_container() {
            make(session, client, located.entry.kind, copy).await?;
        } else {
            // It may have been deleted since it was listed.
            let stat = existing(session, client, &located.path).await?;
            jobs.push(job(args, &stat, copy));
        }
    }
    Ok(jobs)
}

async fn make(
    session: &Session,
    client: &Client,
    kind: ObjectKind,
    path: Path,
) -> Result<(), Failure> {
    let request = Request::MakeDirectory { path, kind, parents: true, is_listed: true };
    session.call(client, request).await.map(|_| ())
}

fn job(args: &Cp, stat: &ObjectStat, to: Path) -> ObjectCopy {
    let is_key_value = stat.kind == ObjectKind::KeyValue;
    let options = PutOptions {
        kind: if is_key_value { CreateKind::KeyValue } else { CreateKind::File },
        mode: if args.force { CreateMode::Replace } else { CreateMode::New },
        parents: args.parents,
        class: args.class.unwrap_or(stat.class),
        ttl: args.ttl.map(Span::millis),
        expected_bytes: Some(stat.bytes),
        attributes: stat.attributes.clone(),
        ..PutOptions::default()
    };
    ObjectCopy { from: stat.path.clone(), to, bytes: stat.bytes, options }
}

/// Copies one object. An interrupted or failed copy is given up, so that its name is free at once.
async fn copy(
    session: Session,
    client: Client,
    job: ObjectCopy,
    sent: mpsc::Sender<u64>,
) -> Result<(), Failure> {
    let failed = |error| {
        refused::client(&error, &session.namenode)
            .tried(format_args!("copying {} to {}", job.from, job.to))
    };
    let reader = client.open(&job.from).await.map_err(failed)?;
    // What is read may be another object than the one that was listed: its attributes describe it.
    let stat = reader.stat();
    let options = PutOptions {
        expected_bytes: Some(stat.bytes),
        attributes: stat.attributes.clone(),
        ..job.options.clone()
    };
    if stat.bytes <= PIECE_BYTES as u64 {
        let count = stat.bytes;
        let bytes = reader.read_range(0, count).await.map_err(failed)?;
        client.put(&job.to, bytes, &options).await.map_err(failed)?;
        let _ = sent.send(count).await;
        return Ok(());
    }
    let mut stream = reader.stream(4 * PIECE_BYTES as u64);
    let mut writer = client.create(&job.to, &options).await.map_err(failed)?;
    let copying = async {
        while let Some(piece) = stream.next().await.transpose().map_err(failed)? {
            let bytes = piece.len() as u64;
            writer.write_bytes(piece).await.map_err(failed)?;
            // Progress is optional: the receiver is gone when the command ends early.
            let _ = sent.send(bytes).await;
        }
        Ok(())
    };
    let copied = tokio::select! {
        copied = copying => copied,
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    };
    match copied {
        Ok(()) => writer.close().await.map(|_| ()).map_err(failed),
        Err(failure) => {
            // The failure itself is what the user needs to see; the lease ends by itself.
            let _ = writer.abort().await;
            Err(failure)
        }
    }
}
