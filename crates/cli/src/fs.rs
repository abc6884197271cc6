//! `sanderling fs`: work with objects.

mod attributes;
mod get;
mod list;
mod put;
mod remove;
mod usage;

use std::io::Write;

use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::{CreateMode, ObjectKind, ObjectStat};
use sanderling_protocol::{Path, Reply, Request};

use crate::args::fs::{Concat, ContainerKind, Fs, Mkdir, Mv, Paths};
use crate::failure::{Exit, Failure};
use crate::node::unexpected;
use crate::printable::printable;
use crate::refused;
use crate::session::Session;
use crate::units;

/// Files transferred at once by a recursive put or get: enough to hide a round trip to the
/// namenode, few enough to keep memory small.
const FILES_AT_ONCE_MAX: usize = 8;

/// Bytes read from or written to a local file at once.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `sanderling fs ...`.
///
/// # Errors
/// The refusal of the namenode or a datanode, or of the local file system.
pub(crate) async fn run(session: Session, command: Fs) -> Result<(), Failure> {
    match command {
        Fs::Ls(args) => list::run(&session, args).await,
        Fs::Tree(args) => list::tree(&session, args).await,
        Fs::Put(args) => put::run(&session, args).await,
        Fs::Get(args) => get::run(&session, args).await,
        Fs::Cat(args) => get::cat(&session, args).await,
        Fs::Rm(args) => remove::run(&session, args).await,
        Fs::Mkdir(args) => make(&session, args).await,
        Fs::Mv(args) => rename(&session, args).await,
        Fs::Stat(args) => stat(&session, args).await,
        Fs::Attr(args) => attributes::run(&session, args).await,
        Fs::Concat(args) => concat(&session, args).await,
        Fs::Du(args) => usage::of_subtrees(&session, args).await,
        Fs::Df => usage::of_nodes(&session).await,
    }
}

async fn make(session: &Session, args: Mkdir) -> Result<(), Failure> {
    let client = session.client().await?;
    let kind = match args.kind {
        ContainerKind::Directory => ObjectKind::Directory,
        ContainerKind::Multifile => ObjectKind::Multifile,
        ContainerKind::Table => ObjectKind::Table,
    };
    let mut made = Vec::new();
    for path in args.paths {
        let request = Request::MakeDirectory { path, kind, parents: args.parents, is_listed: true };
        match session.ask(&client, request).await? {
            Reply::Stat(stat) => made.push(stat),
            reply => return Err(unexpected(&reply)),
        }
    }
    session.output.result(&serde_json::json!({ "objects": made }), |_| Ok(()))
}

async fn rename(session: &Session, args: Mv) -> Result<(), Failure> {
    let client = session.client().await?;
    let to = into_directory(session, &client, &args.to, args.from.name()).await?;
    let request = Request::Rename { from: args.from.clone(), to: to.clone(), replace: args.force };
    session.ask(&client, request).await?;
    session.output.result(&serde_json::json!({ "from": args.from, "to": to }), |_| Ok(()))
}

async fn concat(session: &Session, args: Concat) -> Result<(), Failure> {
    let client = session.client().await?;
    let mode = if args.force { CreateMode::Replace } else { CreateMode::New };
    let options = PutOptions { mode, parents: args.parents, ..PutOptions::default() };
    let made = client.concat(&args.parts, &args.to, &options).await;
    let stat = made.map_err(|error| refused::client(&error, &session.namenode))?;
    session.output.result(&serde_json::json!({ "object": stat }), |_| Ok(()))
}

/// Returns `to/name` when `to` is a directory, else `to`.
async fn into_directory(
    session: &Session,
    client: &Client,
    to: &Path,
    name: Option<&str>,
) -> Result<Path, Failure> {
    let kind = stat_of(session, client, to).await?.map(|stat| stat.kind);
    match (kind, name) {
        (Some(kind), Some(name)) if kind.is_container() => joined(to, name),
        _ => Ok(to.clone()),
    }
}

fn joined(directory: &Path, name: &str) -> Result<Path, Failure> {
    directory.join(name).map_err(|refusal| refused::refusal_failure(&refusal))
}

/// Returns the facts about an object; `None` when it does not exist.
async fn stat_of(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<Option<ObjectStat>, Failure> {
    match session.ask(client, Request::Stat { path: path.clone() }).await {
        Ok(Reply::Stat(stat)) => Ok(Some(stat)),
        Ok(reply) => Err(unexpected(&reply)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn existing(session: &Session, client: &Client, path: &Path) -> Result<ObjectStat, Failure> {
    match session.ask(client, Request::Stat { path: path.clone() }).await? {
        Reply::Stat(stat) => Ok(stat),
        reply => Err(unexpected(&reply)),
    }
}

async fn stat(session: &Session, args: Paths) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut stats = Vec::new();
    for path in &args.paths {
        stats.push(existing(session, &client, path).await?);
    }
    session.output.result(&serde_json::json!({ "objects": stats }), |writer| {
        stats.iter().try_for_each(|stat| write_stat(writer, stat))
    })
}

fn write_stat(writer: &mut dyn Write, stat: &ObjectStat) -> std::io::Result<()> {
    writeln!(writer, "{}", printable(stat.path.as_str()))?;
    let state = if stat.is_sealed { "sealed" } else { "being written" };
    writeln!(writer, "  kind      {}, {state}, object {}", stat.kind.name(), stat.object)?;
    writeln!(writer, "  bytes     {} ({})", stat.bytes, units::bytes(stat.bytes))?;
    if stat.lost_bytes > 0 {
        writeln!(writer, "  LOST      {} ({})", stat.lost_bytes, units::bytes(stat.lost_bytes))?;
    }
    if stat.kind.is_container() {
        writeln!(writer, "  entries   {}", stat.entries)?;
    } else {
        writeln!(writer, "  blocks    {}", stat.blocks)?;
        writeln!(writer, "  class     {}", stat.class)?;
    }
    if let Some(left) = stat.expires_in {
        writeln!(writer, "  expires   in {}", units::millis(left))?;
    }
    if let Some(job) = stat.job {
        writeln!(writer, "  job       {job}")?;
    }
    attributes::write(writer, &stat.attributes)?;
    writeln!(writer, "  created   {}", units::instant(stat.created_at))?;
    writeln!(writer, "  modified  {}", units::instant(stat.modified_at))
}
