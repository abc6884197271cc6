//! Staying in the cluster: heartbeats, block reports, and registering again.

use std::time::Duration;

use sanderling_protocol::message::{Heartbeat, Registered};
use sanderling_protocol::{Policy, Refusal, Reply, Request};
use sanderling_transport::CallError;
use tokio::time::{Instant, sleep};

use crate::node::Node;
use crate::register::{is_final, register, report};

/// Why an incarnation ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The namenode gave it up.
    Gone,
    /// The namenode knows this process by another id now, so what is here belongs to nobody.
    Another(Registered),
    /// The namenode will never take this process.
    Refused(Refusal),
}

/// Sends heartbeats for as long as the incarnation lives.
pub(crate) async fn stay(node: &Node, mut heartbeat: Duration) -> End {
    let mut report_at = Instant::now();
    // False after the connection broke: the namenode may be another process by now.
    let mut is_known = true;
    let mut connection = node.namenode_connection().await;
    loop {
        is_known &= connection.as_ref().is_some_and(|connection| !connection.is_broken());
        if is_known && let Err(error) = beat(node).await {
            node.metrics.heartbeats_failed.inc();
            tracing::debug!(node = %node.id(), %error, "heartbeat not answered");
            if let CallError::Refused(Refusal::NodeGone { .. }) = error {
                return End::Gone;
            }
            is_known = is_busy(&error);
        }
        if !is_known {
            match register_again(node).await {
                Ok(Some(registered)) => {
                    is_known = true;
                    connection = node.namenode_connection().await;
                    heartbeat = registered.heartbeat.into();
                    report_at = Instant::now();
                }
                Ok(None) => {}
                Err(end) => return end,
            }
        }
        if is_known && report_at <= Instant::now() {
            report_at = Instant::now() + node.options.report_every;
            if let Err(error) = report(node).await {
                tracing::debug!(node = %node.id(), %error, "block report not taken");
            }
        }
        sleep(pause(node, heartbeat)).await;
    }
}

/// Tells whether the namenode is the same one and only slow.
const fn is_busy(error: &CallError) -> bool {
    matches!(
        error,
        CallError::TimedOut { .. }
            | CallError::TooBusy { .. }
            | CallError::Refused(Refusal::RetryAfter { .. })
    )
}

/// A node that waits for the end of its drain asks more often.
fn pause(node: &Node, heartbeat: Duration) -> Duration {
    if node.store.is_fenced() { heartbeat.min(node.options.draining_heartbeat) } else { heartbeat }
}

async fn beat(node: &Node) -> Result<(), CallError> {
    let fence_orders = node.fence_orders();
    let identity = node.identity();
    let heartbeat = Heartbeat { node: node.id(), nonce: identity.nonce, load: node.load() };
    match node.ask(Request::Heartbeat(heartbeat)).await? {
        Reply::Heartbeat(reply) => {
            node.answered(&reply, fence_orders);
            if reply.policy == Policy::Gone {
                return Err(Refusal::NodeGone { node: node.id() }.into());
            }
            Ok(())
        }
        other => Err(node.bad_reply(&other)),
    }
}

/// Registers again after the connection broke; `None` when that did not succeed yet.
async fn register_again(node: &Node) -> Result<Option<Registered>, End> {
    let fence_orders = node.fence_orders();
    match register(node).await {
        Ok(registered) if registered.node == node.id() => {
            tracing::info!(node = %registered.node, "registered again");
            node.rejoined(&registered, fence_orders);
            Ok(Some(registered))
        }
        Ok(registered) => Err(End::Another(registered)),
        Err(CallError::Refused(Refusal::NodeGone { .. })) => Err(End::Gone),
        Err(error) => match is_final(&error) {
            Some(refusal) => Err(End::Refused(refusal.clone())),
            None => Ok(None),
        },
    }
}
