//! `print-locationclass`: what a placement preference can name here.

use sanderling_client::Client;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::refused;
use crate::session::Session;

#[derive(Serialize)]
struct NodeLocations {
    r#type: &'static str,
    host: String,
    nodes: Vec<NodeLocation>,
}

#[derive(Serialize)]
struct NodeLocation {
    name: String,
    host: String,
    /// Whether this process runs on that host.
    is_here: bool,
    tiers: Vec<String>,
}

pub(super) async fn print(
    session: &Session,
    name: &'static str,
    client: &Client,
) -> Result<(), Failure> {
    let nodes = client.nodes(false).await;
    let nodes = nodes.map_err(|error| refused::client(&error, &session.namenode))?;
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let here = here.trim();
    let place = |node: sanderling_protocol::NodeInfo| NodeLocation {
        is_here: node.host == here,
        name: node.name,
        host: node.host,
        tiers: node.tiers.iter().map(|usage| usage.tier.to_string()).collect(),
    };
    let nodes: Vec<NodeLocation> = nodes.into_iter().map(place).collect();
    let places = NodeLocations { r#type: name, host: here.to_owned(), nodes };
    session.output.result(&places, |writer| {
        writeln!(writer, "this host: {}", places.host)?;
        let columns = [("name", Align::Left), ("host", Align::Left), ("tiers", Align::Left)];
        let mut table = Table::new(&columns);
        for node in &places.nodes {
            table.row([node.name.clone(), node.host.clone(), node.tiers.join(", ")]);
        }
        table.write(writer)
    })
}
