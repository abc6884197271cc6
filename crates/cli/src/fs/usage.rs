//! `fs du` and `fs df`.

use clap::Args;
use sanderling_protocol::message::Usage;
use sanderling_protocol::{Path, Policy, Reply, Request, Tier};
use serde::Serialize;

use super::list::Sizes;
use super::pattern::{self, Paths};
use crate::failure::Failure;
use crate::fleet::nodes;
use crate::node::room_line;
use crate::output::{Align, Table};
use crate::refused::unexpected;
use crate::session::Session;

/// `fs du`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Du {
    /// The subtrees
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<Paths>,
    /// How sizes are written.
    #[command(flatten)]
    pub(crate) sizes: Sizes,
}

/// `fs df`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Df {
    /// How sizes are written.
    #[command(flatten)]
    pub(crate) sizes: Sizes,
}

#[derive(Serialize)]
struct Subtree {
    path: Path,
    #[serde(flatten)]
    usage: Usage,
}

pub(super) async fn of_subtrees(session: &Session, args: Du) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut subtrees = Vec::new();
    for path in pattern::all(session, &client, &args.paths).await? {
        match session.call(&client, Request::Usage { path: path.clone() }).await? {
            Reply::Usage(usage) => subtrees.push(Subtree { path, usage }),
            reply => return Err(unexpected(&reply)),
        }
    }
    let document = serde_json::json!({ "subtrees": subtrees });
    session.output.result(&document, |writer| {
        let mut table = Table::new(&[
            ("bytes", Align::Right),
            ("files", Align::Right),
            ("directories", Align::Right),
            ("lost", Align::Right),
            ("path", Align::Left),
        ]);
        for Subtree { path, usage } in &subtrees {
            table.row([
                args.sizes.size(usage.bytes),
                usage.files.to_string(),
                usage.directories.to_string(),
                args.sizes.size(usage.lost_bytes),
                path.to_string(),
            ]);
        }
        table.write(writer)
    })
}

/// One tier of one node.
#[derive(Serialize)]
struct TierUsage {
    node: String,
    tier: Tier,
    state: &'static str,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
}

pub(super) async fn of_nodes(session: &Session, args: &Df) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut rooms = Vec::new();
    let (mut capacity, mut used, mut free) = (0, 0, 0);
    for node in nodes(session, &client, false).await? {
        for tier in &node.tiers {
            let left = tier.capacity_bytes.saturating_sub(tier.used_bytes);
            capacity += tier.capacity_bytes;
            used += tier.used_bytes;
            free += if node.policy == Policy::Active { left } else { 0 };
            rooms.push(TierUsage {
                node: node.name.clone(),
                tier: tier.tier,
                state: node.policy.name(),
                capacity_bytes: tier.capacity_bytes,
                used_bytes: tier.used_bytes,
                free_bytes: left,
            });
        }
    }
    let room = client.room().await;
    let room = room.map_err(|error| crate::refused::client(&error, &session.namenode))?;
    let document = serde_json::json!({
        "room_bytes": room.as_ref().map(|room| room.room_bytes),
        "capacity_bytes": capacity, "used_bytes": used, "free_bytes": free, "tiers": rooms,
    });
    session.output.result(&document, |writer| {
        let mut table = Table::new(&[
            ("node", Align::Left),
            ("tier", Align::Left),
            ("state", Align::Left),
            ("size", Align::Right),
            ("used", Align::Right),
            ("free", Align::Right),
        ]);
        let row = |name: &str, tier: String, state: &str, sizes: [u64; 3]| {
            let [size, used, free] = sizes.map(|bytes| args.sizes.size(bytes));
            [name.to_owned(), tier, state.to_owned(), size, used, free]
        };
        for room in &rooms {
            let sizes = [room.capacity_bytes, room.used_bytes, room.free_bytes];
            table.row(row(&room.node, room.tier.to_string(), room.state, sizes));
        }
        table.row(row("total", String::new(), "", [capacity, used, free]));
        table.write(writer)?;
        // What is free is not all for writers: some is kept so that nodes can leave.
        room.as_ref().map_or(Ok(()), |room| writeln!(writer, "{}", room_line(room)))
    })
}
