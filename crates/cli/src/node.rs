//! `sanderling node`: the fleet, its drains, and orders about them.

mod drain;
mod list;
mod plan;

use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeSelector, Reply, Request};

use crate::args::node::Node;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::units;

/// Runs `sanderling node ...`.
///
/// # Errors
/// The namenode's refusal; partial (5) when `--wait` saw data lost.
pub(crate) async fn run(session: Session, command: Node) -> Result<(), Failure> {
    match command {
        Node::Ls(args) => list::run(&session, args).await,
        Node::Notice(args) => {
            let selector = NodeSelector(args.node);
            let request = Request::Notice {
                node: selector.clone(),
                deadline_millis: args.deadline.millis,
                reason: args.reason,
            };
            let deadline = Some(args.deadline.millis);
            drain::run(&session, selector, request, deadline, args.following).await
        }
        Node::Recommend(args) => {
            let selector = NodeSelector(args.node);
            let (reason, is_withdrawn) = (args.reason, false);
            let request = Request::Recommend { node: selector, reason, is_withdrawn };
            recommend(&session, request).await
        }
        Node::Decommission(args) => {
            let selector = NodeSelector(args.node);
            let request =
                Request::Decommission { node: selector.clone(), reason: args.reason.clone() };
            drain::run(&session, selector, request, None, args.following).await
        }
        Node::Cancel(args) => cancel(&session, NodeSelector(args.node)).await,
    }
}

async fn recommend(session: &Session, request: Request) -> Result<(), Failure> {
    let client = session.client().await?;
    let reply = session.ask(&client, request).await?;
    let Reply::Node(info) = reply else { return Err(unexpected(&reply)) };
    session.output.result(&info, |writer| {
        let title = title(&info);
        if info.is_at_risk {
            writeln!(writer, "{title} is at risk: what it holds is copied, new blocks go elsewhere")
        } else {
            writeln!(writer, "{title} is {}: its blocks leave anyway", info.policy.name())
        }
    })
}

async fn cancel(session: &Session, node: NodeSelector) -> Result<(), Failure> {
    let client = session.client().await?;
    let reply = session.ask(&client, Request::Cancel { node }).await?;
    let Reply::Node(info) = reply else { return Err(unexpected(&reply)) };
    session.output.result(&info, |writer| {
        writeln!(writer, "{} takes blocks again: {}", title(&info), info.policy.name())
    })
}

/// Names a node for people: its id and its name.
fn title(info: &NodeInfo) -> String {
    format!("node {} ({})", info.id, info.name)
}

/// Returns the failure of a reply that answers another question.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    let text = format!("{reply:?}");
    let word = text.split([' ', '(', '{']).next().unwrap_or_default();
    Failure::new(Exit::Failure, "BadReply", format_args!("the namenode answered with {word}"))
        .next("sanderling doctor")
}

/// Returns the nodes, with those that are gone if asked for.
pub(crate) async fn nodes(
    session: &Session,
    client: &sanderling_client::Client,
    all: bool,
) -> Result<Vec<NodeInfo>, Failure> {
    match session.ask(client, Request::Nodes { all }).await? {
        Reply::Nodes(nodes) => Ok(nodes),
        reply => Err(unexpected(&reply)),
    }
}

/// Describes what is expected of a drain.
pub(crate) fn forecast(forecast: &Forecast) -> String {
    let mut parts =
        vec![format!("{} to {} nodes", units::bytes(forecast.left_bytes), forecast.targets)];
    if forecast.bytes_per_second > 0 {
        parts.push(format!("{}/s", units::bytes(forecast.bytes_per_second)));
    }
    if let Some(left) = forecast.finish_in {
        parts.push(format!("done in {}", units::millis(left)));
    }
    for (bytes, what) in [
        (forecast.skipped_bytes, "expire by themselves"),
        (forecast.late_bytes, "WILL NOT MAKE IT"),
        (forecast.unplaced_bytes, "HAVE NO ROOM"),
    ] {
        if bytes > 0 {
            parts.push(format!("{} {what}", units::bytes(bytes)));
        }
    }
    parts.join(", ")
}
