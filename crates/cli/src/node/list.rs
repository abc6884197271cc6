//! `sanderling node ls`.

use std::io::{self, Write};

use clap::Args;
use sanderling_client::Client;
use sanderling_protocol::message::Room;
use sanderling_protocol::node::{Availability, DrainProgress, NodeInfo};
use sanderling_protocol::{Millis, Policy, Tier};
use serde::Serialize;

use crate::failure::Failure;
use crate::fleet::{forecast, nodes, title};
use crate::output::{Align, Table};
use crate::printable::printable;
use crate::session::Session;
use crate::units::{self, Span};
use crate::watch;

/// `node ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Also list nodes that are gone
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print the list again and again, until Ctrl-C or the end of --timeout [every 2s if no
    /// interval is given]
    #[arg(short, long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s",
          value_parser = units::interval)]
    pub(crate) watch: Option<Span>,
}

#[derive(Serialize)]
struct FleetSummary {
    /// Bytes of homes on the fullest active node over the mean of the active nodes; 1 when all hold
    /// the same.
    imbalance: f64,
    exposure_bytes: u64,
    /// What may still be written, and what is kept for nodes that leave; nothing from a namenode
    /// of the release before.
    room: Option<Room>,
    /// Whether so many nodes as the reserve is for could leave now.
    departures_fit: Option<bool>,
    nodes: Vec<NodeInfo>,
}

pub(super) async fn run(session: &Session, args: Ls) -> Result<(), Failure> {
    let client = session.client().await?;
    if let Some(interval) = args.watch {
        let fetch = async || fleet(session, &client, args.all).await;
        return watch::run(session, interval, fetch, |writer, fleet| write(writer, fleet)).await;
    }
    let fleet = fleet(session, &client, args.all).await?;
    session.output.result(&fleet, |writer| write(writer, &fleet))
}

/// Requests the nodes and the room for more.
async fn fleet(session: &Session, client: &Client, is_all: bool) -> Result<FleetSummary, Failure> {
    let nodes = nodes(session, client, is_all).await?;
    let room = client.room().await;
    let room = room.map_err(|error| crate::refused::client(&error, &session.namenode))?;
    Ok(FleetSummary {
        departures_fit: room.as_ref().map(Room::fits),
        room,
        imbalance: imbalance(&nodes),
        exposure_bytes: nodes.iter().map(|node| node.exposure_bytes).sum(),
        nodes,
    })
}

/// The column of the state, counted from 0.
const STATE: usize = 3;

/// Columns that a narrow terminal has no room for, the least needed first: commands take the name
/// in place of the id and the address.
const LEAST_NEEDED: [&str; 10] = [
    "address",
    "heartbeat",
    "blocks",
    "id",
    "life",
    "budget",
    "object",
    "disk",
    "exposure",
    "dram",
];

/// Writes the table of nodes, a line for each drain, and the sums.
fn write(writer: &mut dyn Write, fleet: &FleetSummary) -> io::Result<()> {
    if fleet.nodes.is_empty() {
        return writeln!(writer, "no nodes");
    }
    let has_store = fleet.nodes.iter().any(|node| has(node, Tier::Object));
    let mut columns = vec![
        ("id", Align::Right),
        ("name", Align::Left),
        ("address", Align::Left),
        ("state", Align::Left),
        ("heartbeat", Align::Right),
        ("blocks", Align::Right),
        ("exposure", Align::Right),
        ("budget", Align::Right),
        ("dram", Align::Left),
        ("disk", Align::Left),
    ];
    columns.extend(has_store.then_some(("object", Align::Left)));
    let has_life = fleet.nodes.iter().any(|node| node.expected_life.is_some());
    columns.extend(has_life.then_some(("life", Align::Right)));
    let mut table = Table::new(&columns);
    for node in &fleet.nodes {
        let mut row = vec![
            node.id.to_string(),
            node.name.clone(),
            node.address.clone(),
            state(node),
            heartbeat_age(node),
            node.blocks.to_string(),
            exposure(node),
            units::bytes(node.budget_bytes),
            tier(node, Tier::Dram),
            tier(node, Tier::Disk),
        ];
        row.extend(has_store.then(|| tier(node, Tier::Object)));
        let life = || node.expected_life.map_or_else(|| "-".to_owned(), units::millis);
        row.extend(has_life.then(life));
        table.row(row);
        if let Some(colour) = colour(node) {
            table.colour(STATE, colour);
        }
    }
    let terminal = watch::terminal_columns();
    let removed = terminal.map_or_else(Vec::new, |width| table.fit(width, &LEAST_NEEDED));
    table.write(writer)?;
    if let Some(width) = terminal.filter(|_| !removed.is_empty()) {
        writeln!(writer, "{width} columns are too few for: {}", removed.join(", "))?;
    }
    for node in &fleet.nodes {
        if let Some(drain) = &node.drain {
            writeln!(writer, "{}", drain_line(node, drain))?;
        }
    }
    let active = fleet.nodes.iter().filter(|node| node.policy == Policy::Active).count();
    writeln!(
        writer,
        "{active} active of {}, {} exposed, imbalance {:.2}",
        fleet.nodes.len(),
        units::bytes(fleet.exposure_bytes),
        fleet.imbalance
    )?;
    let Some(room) = &fleet.room else { return Ok(()) };
    writeln!(writer, "{}", room_line(room))
}

/// Prints in one line what may be written and whether nodes may leave.
pub(crate) fn room_line(room: &Room) -> String {
    let (left, kept) = (units::bytes(room.room_bytes), units::bytes(room.reserve_bytes));
    let nodes = match room.departures {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    };
    if !room.fits() {
        let missing = units::bytes(room.missing_bytes);
        // Without departures the room is short for what leaves already.
        let why = match room.departures {
            0 => "of nodes that leave".to_owned(),
            _ => format!("if {nodes} more left now"),
        };
        return format!("room for {left}; NO ROOM for {missing} {why}");
    }
    match (room.departures, room.reserve_bytes) {
        (0, 0) => format!("room for {left}, none kept: no node can leave for sure"),
        (0, _) => format!("room for {left}, {kept} kept for those that leave"),
        _ => format!("room for {left}, {kept} kept: {nodes} can leave at once"),
    }
}

/// Returns how long ago the last heartbeat was; of a node that is gone none is expected.
fn heartbeat_age(node: &NodeInfo) -> String {
    match node.policy {
        Policy::Gone => "-".to_owned(),
        _ => units::millis(node.heartbeat_age),
    }
}

fn state(node: &NodeInfo) -> String {
    let policy = node.policy.name();
    match node.availability {
        Availability::Suspect => format!("{policy}, suspect"),
        Availability::Down if node.policy != Policy::Gone => format!("{policy}, down"),
        _ if node.is_at_risk => format!("{policy}, at risk"),
        _ => policy.to_owned(),
    }
}

/// Returns the colour of a node's state: red of one that is gone, yellow of one to look at.
fn colour(node: &NodeInfo) -> Option<u8> {
    match node.policy {
        Policy::Gone => Some(31),
        Policy::Active if !node.is_at_risk => None,
        _ => Some(33),
    }
}

/// Marks what a notice would be too short for.
fn exposure(node: &NodeInfo) -> String {
    let bytes = units::bytes(node.exposure_bytes);
    if node.exposure_bytes > node.budget_bytes { format!("{bytes} !") } else { bytes }
}

fn has(node: &NodeInfo, tier: Tier) -> bool {
    node.tiers.iter().any(|usage| usage.tier == tier)
}

fn tier(node: &NodeInfo, tier: Tier) -> String {
    match node.tiers.iter().find(|usage| usage.tier == tier) {
        Some(usage) => {
            format!("{} of {}", units::bytes(usage.used_bytes), units::bytes(usage.capacity_bytes))
        }
        None => "-".to_owned(),
    }
}

/// Describes a drain in one line.
pub(super) fn drain_line(node: &NodeInfo, drain: &DrainProgress) -> String {
    let amount = |bytes, blocks| {
        format!("{} ({})", units::bytes(bytes), units::count(blocks, "block", "blocks"))
    };
    let mut parts = vec![format!("moved {}", amount(drain.moved_bytes, drain.moved_blocks))];
    if drain.promoted_blocks > 0 {
        let promoted = amount(drain.promoted_bytes, drain.promoted_blocks);
        parts.push(format!("copied before {promoted}"));
    }
    parts.push(format!("left {}", amount(drain.left_bytes, drain.left_blocks)));
    parts.push(format!("lost {}", amount(drain.lost_bytes, drain.lost_blocks)));
    if node.policy.is_draining() {
        parts.push(match &drain.forecast {
            Some(expected) => format!("forecast: {}", forecast(expected)),
            None => "no manager has looked yet".to_owned(),
        });
    }
    if let Some(left) = node.deadline_in.filter(|left| *left > Millis(0)) {
        parts.push(format!("deadline in {}", units::millis(left)));
    }
    if !node.reason.is_empty() {
        parts.push(format!("because of: {}", printable(&node.reason)));
    }
    format!("{}: {}", title(node), parts.join(", "))
}

/// Returns what the fullest active node holds over the mean, 1 when all hold the same.
fn imbalance(nodes: &[NodeInfo]) -> f64 {
    let active = || nodes.iter().filter(|node| node.policy == Policy::Active);
    let homes = || active().map(|node| node.home_bytes);
    let (sum, max) = (homes().sum::<u64>(), homes().max().unwrap_or(0));
    if sum == 0 { 1.0 } else { max as f64 * active().count() as f64 / sum as f64 }
}
