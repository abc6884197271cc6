//! Notices that are posted, and waiting for the end of the drains that they begin.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Extension, Query, State};
use sanderling_core::notices::Notice;
use sanderling_notices::{Posted, read_posted};
use sanderling_protocol::{Instant, Millis, NodeInfo, Policy, Refusal, Reply, Request};
use sanderling_transport::{CallError, HttpConnection};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout_at};

use super::{HttpRefusal, Page, page};
use crate::node::Node;
use crate::notices::is_final;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoticeQuery {
    /// Answer when the node is empty, or at the deadline.
    #[serde(default)]
    wait: bool,
}

/// Pause before the namenode is called again for a node that it does not have as drained. As often
/// as a draining node sends heartbeats by default, by whose answers it learns that it is drained.
const CONFIRM_AFTER: Duration = Duration::from_millis(200);

/// How a wait for the end of a drain ended.
enum WaitEnd {
    Drained,
    /// The namenode gave the node up at an earlier deadline than the one that was posted.
    Gone,
    /// The notice was taken back.
    Cancelled,
    DeadlinePassed,
}

pub(super) async fn post(
    State(node): State<Arc<Node>>,
    Extension(connection): Extension<HttpConnection>,
    query: Result<Query<NoticeQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Page, HttpRefusal> {
    let Query(NoticeQuery { wait }) = query?;
    let info = match read_posted(&body?)? {
        Posted::Notice { left_millis, reason } => {
            let notice = notice(&node, left_millis, reason)?;
            if wait {
                // Before the notice: a caller that has to come again has given none.
                connection.follow()?;
            }
            node.counters.count_notice("webhook");
            let given = node.membership.give_notice(&notice).await;
            if wait {
                return wait_for_end(&node, notice.deadline, given).await;
            }
            given?
        }
        Posted::Recommendation { .. } if wait => {
            let why = "wait=true is for a notice: a recommendation has no end".to_owned();
            return Err(Refusal::BadRequest { why }.into());
        }
        Posted::Recommendation { reason } => {
            node.membership.give_recommendation("webhook", &reason).await?
        }
        Posted::Nothing { what } => return Ok(page(json!({ "passed_over": what }))),
    };
    Ok(page(json!(info)))
}

fn notice(node: &Node, left_millis: Option<i64>, reason: String) -> Result<Notice, Refusal> {
    let default = Millis::from(node.options.posted_notice);
    let left = match left_millis.map(u64::try_from) {
        Some(Ok(millis)) if millis > 0 => Millis(millis),
        None => default,
        Some(_) => {
            let ago = Millis(left_millis.unwrap_or_default().unsigned_abs());
            return Err(Refusal::DeadlinePassed { ago });
        }
    };
    let deadline = node.membership.posted_deadline(left)?;
    Ok(Notice { source: "webhook".to_owned(), deadline, reason })
}

/// Waits until the node is empty, until the deadline at most. A namenode that is away meanwhile
/// gets the notice from the node as soon as it is back.
async fn wait_for_end(
    node: &Node,
    deadline: Instant,
    given: Result<NodeInfo, CallError>,
) -> Result<Page, HttpRefusal> {
    let is_drained = match &given {
        Err(CallError::Refused(refusal)) if is_final(refusal) => {
            return Err(refusal.clone().into());
        }
        Err(_) => false,
        Ok(info) => info.policy == Policy::Drained,
    };
    let (end, found) = match is_drained {
        true => (WaitEnd::Drained, node_info(node, deadline).await),
        false => confirmed_end(node, deadline).await,
    };
    match end {
        WaitEnd::Drained => Ok(page(drained(node, found.or(given.ok())))),
        WaitEnd::Cancelled => {
            let why = "the notice was taken back before the node was empty";
            Err(HttpRefusal::not_drained(why))
        }
        WaitEnd::Gone | WaitEnd::DeadlinePassed => Err(HttpRefusal::not_drained(&late(node))),
    }
}

/// Waits for the end and has it confirmed: until its next heartbeat a node that was opened for
/// writes again has its former policy, which may be that it is drained.
async fn confirmed_end(node: &Node, deadline: Instant) -> (WaitEnd, Option<NodeInfo>) {
    loop {
        let end = drain_end(node, deadline).await;
        if !matches!(end, WaitEnd::Drained) {
            return (end, None);
        }
        let found = node_info(node, deadline).await;
        if found.as_ref().is_none_or(|info| info.policy == Policy::Drained) {
            return (end, found);
        }
        if node.membership.clock().now() >= deadline {
            return (WaitEnd::DeadlinePassed, None);
        }
        sleep(CONFIRM_AFTER).await;
    }
}

async fn drain_end(node: &Node, deadline: Instant) -> WaitEnd {
    let until = node.membership.clock().moment(deadline);
    let mut registration = node.membership.registration();
    let mut was_draining = false;
    let watched = async {
        loop {
            match registration.borrow_and_update().policy {
                Policy::Drained => return WaitEnd::Drained,
                Policy::Gone => return WaitEnd::Gone,
                // Until the next heartbeat the node may not have its new policy.
                Policy::Active if was_draining => return WaitEnd::Cancelled,
                Policy::Active => {}
                Policy::Draining | Policy::Decommissioning => was_draining = true,
            }
            if registration.changed().await.is_err() {
                return WaitEnd::Gone;
            }
        }
    };
    timeout_at(until, watched).await.unwrap_or(WaitEnd::DeadlinePassed)
}

/// Returns the node as the namenode has it.
async fn node_info(node: &Node, deadline: Instant) -> Option<NodeInfo> {
    let until = node.membership.clock().moment(deadline);
    let call = node.membership.namenode().call(Request::Nodes { all: true });
    match timeout_at(until, call).await {
        Ok(Ok(Reply::Nodes(nodes))) => nodes.into_iter().find(|it| it.id == node.membership.id()),
        _ => None,
    }
}

/// Returns the page of a node that is empty.
fn drained(node: &Node, found: Option<NodeInfo>) -> serde_json::Value {
    let mut info = json!(found);
    if info.is_null() {
        info = json!({ "id": node.membership.id() });
    }
    info["policy"] = json!(Policy::Drained);
    info
}

/// Describes what did not leave in time.
fn late(node: &Node) -> String {
    let registration = *node.membership.registration().borrow();
    let name = node.membership.id();
    if !node.membership.contact().is_namenode_up() {
        return format!("the namenode did not take the notice of node {name} within the deadline");
    }
    match registration.home_blocks {
        Some(0) | None => {
            format!("the namenode did not confirm by the deadline that node {name} is empty")
        }
        Some(1) => format!("1 block was still on node {name} at the deadline"),
        Some(blocks) => format!("{blocks} blocks were still on node {name} at the deadline"),
    }
}
