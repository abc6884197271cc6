//! `sanderling fs`: work with objects.

mod attributes;
mod copy;
mod durable;
mod get;
mod list;
mod lookup;
mod mistake;
mod pattern;
mod put;
mod remove;
mod transfer;
mod usage;

use std::io::Write;

use clap::{Args, Subcommand};
use sanderling_client::PutOptions;
use sanderling_protocol::message::{
    CreateMode, Durability, DurableRequest, MakeDurable, ObjectKind, ObjectStat,
};
use sanderling_protocol::{Path, Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::printable::printable;
use crate::refused;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units;
use crate::units::Size;
use attributes::Attr;
use copy::Cp;
use durable::SyncArgs;
use get::{Cat, Get};
use list::{Ls, Tree};
use lookup::{check_distinct, existing, target};
use mistake::Mistake;
use pattern::{Destination, Paths};
use put::Put;
use remove::Rm;
use usage::{Df, Du};

/// Work with objects.
#[derive(Debug, Subcommand)]
pub(crate) enum Fs {
    /// List a directory, multifile or table
    Ls(Ls),
    /// Store a local file, a directory (-r) or stdin (-)
    Put(Put),
    /// Fetch an object into a local file or to stdout (-)
    Get(Get),
    /// Write objects to stdout, one after the other
    Cat(Cat),
    /// Delete objects
    Rm(Rm),
    /// Make a directory, multifile or table
    Mkdir(Mkdir),
    /// Copy objects, or directories with what is in them (-r), within the store
    Cp(Cp),
    /// Rename objects, or directories with everything in them, at once
    Mv(Mv),
    /// Show an object's metadata
    Stat(ObjectPaths),
    /// Show or change an object's attributes
    Attr(Attr),
    /// Join files into one without moving a byte; the parts are gone then
    Concat(Concat),
    /// Show how much subtrees hold
    Du(Du),
    /// Show the room left on the nodes
    Df(Df),
    /// Wait until the stores of durable directories have everything that was sealed below paths
    Sync(SyncArgs),
    /// Draw a subtree
    Tree(Tree),
}

/// `fs mkdir`.
#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// The directories
    #[arg(required = true, value_parser = pattern::typed)]
    pub(crate) paths: Vec<Path>,
    /// Make missing directories above, and accept that it exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// What to make
    #[arg(long, value_enum, default_value_t = ContainerKind::Directory)]
    pub(crate) kind: ContainerKind,
    /// Copy what is sealed in the directory to this store, which datanodes were started with by
    /// `--durable STORE=URL`
    #[arg(long, value_name = "STORE", conflicts_with = "kind")]
    pub(crate) durable: Option<String>,
    /// Bytes that may wait for the store: while more do, writers in the directory wait [default:
    /// 16GiB; with -p, of a directory that is durable already, what it has]
    #[arg(long, value_name = "SIZE", requires = "durable")]
    pub(crate) backlog_max: Option<Size>,
    /// Take the store over with what an earlier cluster left in it, and wait until its objects are
    /// there; their bytes are read from the store when they are read first
    #[arg(long, requires = "durable")]
    pub(crate) adopt: bool,
}

/// What `fs mkdir` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ContainerKind {
    /// Holds objects of any kind
    Directory,
    /// Holds parts, read as one stream
    Multifile,
    /// Holds key-values
    Table,
}

/// `fs mv`.
#[derive(Debug, Args)]
pub(crate) struct Mv {
    /// The old names, or patterns of them
    #[arg(required = true, value_name = "FROM")]
    pub(crate) sources: Vec<Paths>,
    /// The new name; with several sources, or when it is a directory, they go into it
    #[arg(value_name = "TO")]
    pub(crate) to: Destination,
    /// Replace a file of that name
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `fs concat`.
#[derive(Debug, Args)]
pub(crate) struct Concat {
    /// The parts, in their order: sealed files longer than 512 bytes, but for the first
    #[arg(required = true, value_name = "PART", value_parser = pattern::typed)]
    pub(crate) parts: Vec<Path>,
    /// The new file
    #[arg(value_name = "PATH", value_parser = pattern::typed)]
    pub(crate) to: Path,
    /// Replace what has the name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Make missing directories above it
    #[arg(short, long)]
    pub(crate) parents: bool,
}

/// Some objects.
#[derive(Debug, Args)]
pub(crate) struct ObjectPaths {
    /// The objects, or patterns of them
    #[arg(required = true)]
    pub(crate) paths: Vec<Paths>,
}

/// Runs `sanderling fs ...`.
///
/// # Errors
/// The refusal of the namenode or a datanode, or of the local file system.
pub(crate) async fn run(session: Session, command: Fs) -> Result<(), Failure> {
    let mistake = Mistake::of(&command);
    let result = dispatch(&session, command).await;
    match result {
        Err(failure) => Err(mistake.explained(&session, failure).await),
        Ok(()) => Ok(()),
    }
}

async fn dispatch(session: &Session, command: Fs) -> Result<(), Failure> {
    match command {
        Fs::Ls(args) => list::run(session, args).await,
        Fs::Tree(args) => list::tree(session, args).await,
        Fs::Put(args) => put::run(session, args).await,
        Fs::Get(args) => get::run(session, args).await,
        Fs::Cat(args) => get::cat(session, args).await,
        Fs::Rm(args) => remove::run(session, args).await,
        Fs::Mkdir(args) => make(session, args).await,
        Fs::Cp(args) => copy::run(session, args).await,
        Fs::Mv(args) => rename(session, args).await,
        Fs::Stat(args) => stat(session, args).await,
        Fs::Attr(args) => attributes::run(session, args).await,
        Fs::Concat(args) => concat(session, args).await,
        Fs::Du(args) => usage::of_subtrees(session, args).await,
        Fs::Sync(args) => durable::wait(session, args).await,
        Fs::Df(args) => usage::of_nodes(session, &args).await,
    }
}

async fn make(session: &Session, args: Mkdir) -> Result<(), Failure> {
    let client = session.client().await?;
    let kind = match args.kind {
        ContainerKind::Directory => ObjectKind::Directory,
        ContainerKind::Multifile => ObjectKind::Multifile,
        ContainerKind::Table => ObjectKind::Table,
    };
    let (mut made, mut adopted) = (Vec::new(), Vec::new());
    for path in args.paths {
        let parents = args.parents;
        let at = path.clone();
        let request = match args.durable.clone() {
            Some(store) => {
                let backlog_bytes_max = match args.backlog_max {
                    Some(size) => size.0,
                    None => durable::backlog_max(session, &client, &path, parents).await?,
                };
                let adopt = args.adopt;
                let made = MakeDurable { path, store, parents, backlog_bytes_max, adopt };
                Request::Durable(Box::new(DurableRequest::Make(made)))
            }
            None => Request::MakeDirectory { path, kind, parents, is_listed: true },
        };
        match session.call(&client, request).await? {
            Reply::Stat(stat) => made.push(stat),
            reply => return Err(unexpected(&reply)),
        }
        if args.adopt {
            adopted.push(durable::wait_adopted(session, &client, &at).await?);
        }
    }
    if args.adopt {
        let json = serde_json::json!({ "objects": made, "adopted": adopted });
        let lines = made.iter().zip(&adopted);
        return session.output.result(&json, |writer| {
            lines.clone().try_for_each(|(stat, it)| durable::write_adopted(writer, &stat.path, it))
        });
    }
    session.output.result(&serde_json::json!({ "objects": made }), |_| Ok(()))
}

async fn rename(session: &Session, args: Mv) -> Result<(), Failure> {
    let client = session.client().await?;
    let sources = pattern::all(session, &client, &args.sources).await?;
    let (mut renamed, mut pairs) = (Vec::new(), Vec::new());
    for from in &sources {
        let to = target(session, &client, &args.to, from.name(), sources.len() > 1).await?;
        pairs.push((from, to));
    }
    check_distinct(&pairs)?;
    for (from, to) in pairs {
        let request = Request::Rename { from: from.clone(), to: to.clone(), replace: args.force };
        session.call(&client, request).await?;
        renamed.push((from, to));
    }
    match renamed.as_slice() {
        [(from, to)] => {
            session.output.result(&serde_json::json!({ "from": from, "to": to }), |_| Ok(()))
        }
        _ => {
            let list = renamed.iter().map(|(from, to)| serde_json::json!({"from": from, "to": to}));
            let list: Vec<_> = list.collect();
            session.output.result(&serde_json::json!({ "renamed": list }), |_| Ok(()))
        }
    }
}

async fn concat(session: &Session, args: Concat) -> Result<(), Failure> {
    let client = session.client().await?;
    let mode = if args.force { CreateMode::Replace } else { CreateMode::New };
    let options = PutOptions { mode, parents: args.parents, ..PutOptions::default() };
    let made = client.concat(&args.parts, &args.to, &options).await;
    let stat = made.map_err(|error| refused::client(&error, &session.namenode))?;
    session.output.result(&serde_json::json!({ "object": stat }), |_| Ok(()))
}

async fn stat(session: &Session, args: ObjectPaths) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut stats = Vec::new();
    for path in pattern::all(session, &client, &args.paths).await? {
        let object = existing(session, &client, &path).await?;
        let durability = durable::of(&client, &path).await;
        stats.push(StatRow { object, durability });
    }
    session.output.result(&serde_json::json!({ "objects": stats }), |writer| {
        stats.iter().try_for_each(|row| {
            write_stat(writer, &row.object)?;
            row.durability.iter().try_for_each(|found| durable::write(writer, found))
        })
    })
}

/// One object of `fs stat`.
#[derive(Debug, Serialize)]
struct StatRow {
    #[serde(flatten)]
    object: ObjectStat,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<Durability>,
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
