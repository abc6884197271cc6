//! `fs ls` and `fs tree`.

use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;

use clap::{ArgAction, Args};
use sanderling_client::Client;
use sanderling_protocol::limits::LIST_PAGE_MAX;
use sanderling_protocol::message::{DurableState, Entry, ObjectKind, ObjectStat};
use sanderling_protocol::{Path, Reply, Request};
use serde::Serialize;

use super::lookup::{existing, joined};
use super::pattern::{self, Paths};
use crate::failure::Failure;
use crate::printable::printable;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units;

/// How sizes are written.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Sizes {
    /// Write sizes in units for people, as without it; a later -h undoes --bytes
    #[arg(short = 'h', long, overrides_with = "bytes")]
    human_readable: bool,
    /// Write sizes as numbers of bytes
    #[arg(long, overrides_with = "human_readable")]
    bytes: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Sizes {
    pub(super) fn size(self, bytes: u64) -> String {
        if self.bytes { bytes.to_string() } else { units::bytes(bytes) }
    }
}

/// `fs ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// What to list; patterns are expanded in the store
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<Paths>,
    /// Show kind, size and time, and in durable directories whether the store has it
    #[arg(short)]
    pub(crate) long: bool,
    /// How sizes are written.
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// List what is inside, too, at any depth
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// `fs tree`.
#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// The subtree
    #[arg(default_value = "/", value_parser = super::pattern::typed)]
    pub(crate) path: Path,
    /// Go at most this deep
    #[arg(long, short = 'L', value_name = "LEVELS")]
    pub(crate) depth: Option<usize>,
}

/// An entry with its whole path.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Located {
    pub(super) path: Path,
    #[serde(flatten)]
    pub(super) entry: Entry,
    /// How far it is copied to the store of its durable directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durability: Option<DurableState>,
}

pub(super) async fn run(session: &Session, args: Ls) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut kept: Vec<Located> = Vec::new();
    let paths = pattern::all(session, &client, &args.paths).await?;
    let has_states = args.long || session.output.is_json;
    let mut print = |page: Vec<Located>| -> Result<(), Failure> {
        if session.output.is_json {
            kept.extend(page);
            return Ok(());
        }
        session.output.result(&(), |writer| {
            page.iter().try_for_each(|located| write_line(writer, &args, located))
        })
    };
    for path in &paths {
        let stat = existing(session, &client, path).await?;
        if !stat.kind.is_container() {
            let found = if has_states { super::durable::of(&client, path).await } else { None };
            print(vec![alone(stat, found.as_ref().map(super::durable::state))])?;
            continue;
        }
        if paths.len() > 1 && !args.recursive && !session.output.is_json {
            let shown = printable(path.as_str()).into_owned();
            session.output.result(&(), |writer| writeln!(writer, "{shown}:"))?;
        }
        let mut waiting = vec![path.clone()];
        while let Some(directory) = waiting.pop() {
            let mut inside = Vec::new();
            pages(session, &client, (&directory, has_states), |page| {
                let containers = page.iter().filter(|located| located.entry.kind.is_container());
                inside.extend(containers.map(|located| located.path.clone()));
                print(page)
            })
            .await?;
            if args.recursive {
                waiting.extend(inside.into_iter().rev());
            }
        }
    }
    if session.output.is_json {
        // With several paths each entry has its own.
        let path = if let [only] = paths.as_slice() { Some(only) } else { None };
        let document = serde_json::json!({ "path": path, "entries": kept });
        session.output.document(&document)?;
    }
    Ok(())
}

/// A file listed by its own name.
fn alone(stat: ObjectStat, durability: Option<DurableState>) -> Located {
    let entry = Entry {
        name: stat.path.name().unwrap_or_default().to_owned(),
        kind: stat.kind,
        object: stat.object,
        bytes: stat.bytes,
        lost_bytes: stat.lost_bytes,
        is_sealed: stat.is_sealed,
        modified_at: stat.modified_at,
        attributes: stat.attributes,
    };
    Located { path: stat.path, entry, durability }
}

/// Gives every page of a directory to `take`, so that a directory of any size takes little memory.
pub(super) async fn each_page(
    session: &Session,
    client: &Client,
    directory: &Path,
    take: impl FnMut(Vec<Located>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    pages(session, client, (directory, false), take).await
}

/// The same, with how far each entry is copied to its store if that is requested.
async fn pages(
    session: &Session,
    client: &Client,
    (directory, mut has_states): (&Path, bool),
    mut take: impl FnMut(Vec<Located>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after = String::new();
    loop {
        let limit = LIST_PAGE_MAX as u32;
        let request =
            Request::List { path: directory.clone(), after, limit, with_attributes: false };
        let reply = session.call(client, request).await?;
        let Reply::Entries { entries, is_more } = reply else { return Err(unexpected(&reply)) };
        after = entries.last().map_or_else(String::new, |entry| entry.name.clone());
        let is_last = !is_more || entries.is_empty();
        let states = match has_states {
            true => {
                let names = entries.iter().map(|entry| entry.name.clone()).collect();
                // A namenode of an earlier release does not have it.
                client.durable_states(directory, names).await.ok().flatten()
            }
            false => None,
        };
        has_states = states.is_some();
        let mut states = states.unwrap_or_default().into_iter();
        let page: Result<Vec<_>, _> = entries
            .into_iter()
            .map(|entry| {
                let (path, durability) = (joined(directory, &entry.name)?, states.next());
                Ok::<_, Failure>(Located { path, entry, durability })
            })
            .collect();
        take(page?)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Returns everything in a subtree, parents before what is in them.
pub(super) async fn everything(
    session: &Session,
    client: &Client,
    root: &Path,
) -> Result<Vec<Located>, Failure> {
    let mut all = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        each_page(session, client, &directory, |page| {
            let containers = page.iter().filter(|located| located.entry.kind.is_container());
            waiting.extend(containers.map(|located| located.path.clone()));
            all.extend(page);
            Ok(())
        })
        .await?;
    }
    Ok(all)
}

fn write_line(writer: &mut dyn Write, args: &Ls, located: &Located) -> io::Result<()> {
    let entry = &located.entry;
    let slash = if entry.kind.is_container() { "/" } else { "" };
    let name = if args.recursive { located.path.as_str() } else { entry.name.as_str() };
    let name = printable(name);
    if !args.long {
        return writeln!(writer, "{name}{slash}");
    }
    let size = if entry.kind == ObjectKind::Directory {
        "-".to_owned()
    } else {
        args.sizes.size(entry.bytes)
    };
    let modified = units::instant(entry.modified_at);
    let notes = notes(entry);
    let state = located.durability.map_or_else(String::new, |it| format!("  {:8}", it.name()));
    let kind = entry.kind.name();
    writeln!(writer, "{kind:9}  {size:>9}  {modified}{state}  {name}{slash}{notes}")
}

fn notes(entry: &Entry) -> String {
    let mut notes = String::new();
    if !entry.is_sealed {
        notes.push_str("  (being written)");
    }
    if entry.lost_bytes > 0 {
        notes.push_str(&format!("  (LOST {})", units::bytes(entry.lost_bytes)));
    }
    notes
}

#[derive(Serialize)]
struct Branch {
    #[serde(flatten)]
    located: Located,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<Self>,
}

pub(super) async fn tree(session: &Session, args: Tree) -> Result<(), Failure> {
    let client = session.client().await?;
    let stat = existing(session, &client, &args.path).await?;
    let levels = args.depth.unwrap_or(usize::MAX);
    let entries = if stat.kind.is_container() {
        branches(session, &client, stat.path.clone(), levels).await?
    } else {
        Vec::new()
    };
    let document = serde_json::json!({ "path": stat.path, "entries": entries });
    session.output.result(&document, |writer| {
        writeln!(writer, "{}", printable(stat.path.as_str()))?;
        draw(writer, &entries, "")
    })
}

type Grown<'a> = Pin<Box<dyn Future<Output = Result<Vec<Branch>, Failure>> + Send + 'a>>;

fn branches<'a>(
    session: &'a Session,
    client: &'a Client,
    directory: Path,
    levels: usize,
) -> Grown<'a> {
    Box::pin(async move {
        let mut found = Vec::new();
        each_page(session, client, &directory, |page| {
            found.extend(page.into_iter().map(|located| Branch { located, entries: Vec::new() }));
            Ok(())
        })
        .await?;
        if levels > 1 {
            for branch in found.iter_mut().filter(|it| it.located.entry.kind.is_container()) {
                let path = branch.located.path.clone();
                branch.entries = branches(session, client, path, levels - 1).await?;
            }
        }
        Ok(found)
    })
}

fn draw(writer: &mut dyn Write, branches: &[Branch], indent: &str) -> io::Result<()> {
    for (at, branch) in branches.iter().enumerate() {
        let is_last = at + 1 == branches.len();
        let entry = &branch.located.entry;
        let size = match entry.kind {
            ObjectKind::Directory => "/".to_owned(),
            _ if entry.kind.is_container() => format!("/  {}", units::bytes(entry.bytes)),
            _ => format!("  {}", units::bytes(entry.bytes)),
        };
        let joint = if is_last { "└── " } else { "├── " };
        let name = printable(&entry.name);
        writeln!(writer, "{indent}{joint}{name}{size}{}", notes(entry))?;
        let deeper = format!("{indent}{}", if is_last { "    " } else { "│   " });
        draw(writer, &branch.entries, &deeper)?;
    }
    Ok(())
}
