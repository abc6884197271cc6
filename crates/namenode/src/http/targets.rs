//! The servers to scrape, in the format of Prometheus's `http_sd_config`.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use sanderling_protocol::{NodeInfo, Policy, Reply, Request};
use sanderling_transport::is_loopback;
use serde_json::{Value, json};

use super::api::{HttpApi, HttpResult};
use super::refusal::HttpRefusal;

/// Lists the namenodes of a group, or the one that is alone at the address by which it was called,
/// and the datanodes that serve HTTP.
/// Prometheus's format has no place for the version of the schema.
pub(super) async fn list(State(api): State<HttpApi>, headers: HeaderMap) -> HttpResult {
    let Reply::Nodes(nodes) = api.requests.one(Request::Nodes { all: false }).await? else {
        return Err(HttpRefusal::unexpected());
    };
    // Servers of one cluster have certificates together, or none has.
    let scheme = if api.security.tls.is_some() { "https" } else { "http" };
    let cluster = format!("{:016x}", api.requests.state.cluster.0);
    let members = api.requests.state.group.status().rows.into_iter().map(|row| row.http);
    let mut namenodes: Vec<String> = members.filter(|address| !address.is_empty()).collect();
    if namenodes.is_empty() {
        let own = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        namenodes.extend(own.map(str::to_owned));
    }
    let namenodes = namenodes.iter().map(|address| {
        let labels = json!({ "__scheme__": scheme, "cluster": cluster, "role": "namenode" });
        json!({ "targets": [address], "labels": labels })
    });
    let datanodes = nodes.iter().filter(|node| is_reachable(node)).map(|node| {
        let labels = json!({
            "__scheme__": scheme,
            "cluster": cluster,
            "role": "datanode",
            "node": node.name,
            "host": node.host,
        });
        json!({ "targets": [node.http_address], "labels": labels })
    });
    let targets: Vec<Value> = namenodes.chain(datanodes).collect();
    Ok(axum::Json(targets).into_response())
}

/// Returns whether a scraper may reach a node: it serves HTTP, and not to its own machine alone
/// while its blocks are served to others.
fn is_reachable(node: &NodeInfo) -> bool {
    let is_served = !node.http_address.is_empty() && node.policy != Policy::Gone;
    is_served && (!is_loopback(&node.http_address) || is_loopback(&node.address))
}
