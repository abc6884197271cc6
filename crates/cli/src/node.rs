//! `sanderling node`: the fleet, its drains, and orders about them.

mod drain;
mod list;

use clap::{Args, Subcommand};
use sanderling_protocol::{NodeSelector, Reply, Request};

use crate::failure::Failure;
use crate::fleet::title;
use crate::notice_deadline::NoticeDeadline;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units::{Span, UnitError};
use drain::{DrainOrder, Following};
use list::Ls;
pub(crate) use list::room_line;

/// List nodes, give notices, decommission.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes with their drains
    Ls(Ls),
    /// Give a notice: the node's data leaves before the deadline
    Notice(NoticeArgs),
    /// Announce that a node is likely to get its notice soon: what it holds is copied
    Recommend(Recommend),
    /// Empty a node without a deadline
    Decommission(Decommission),
    /// Withdraw a notice, decommission or recommendation
    Cancel(Cancel),
}

/// `node notice`.
#[derive(Debug, Args)]
pub(crate) struct NoticeArgs {
    /// The node's id, name or address
    pub(crate) node: String,
    /// Time until the node is killed, as the cloud gives it, from the start of the command: blocks
    /// that have not left by then are lost
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) deadline: SignedSpan,
    /// Why, for the events and the loss report
    #[arg(long, value_name = "TEXT", default_value = "operator")]
    pub(crate) reason: String,
    /// What to do beside it.
    #[command(flatten)]
    pub(crate) following: Following,
}

/// `node recommend`.
#[derive(Debug, Args)]
pub(crate) struct Recommend {
    /// The node's id, name or address
    pub(crate) node: String,
    /// Why, for the events
    #[arg(long, value_name = "TEXT", default_value = "operator")]
    pub(crate) reason: String,
}

/// `node decommission`.
#[derive(Debug, Args)]
pub(crate) struct Decommission {
    /// The node's id, name or address
    pub(crate) node: String,
    /// Why, for the events
    #[arg(long, value_name = "TEXT", default_value = "operator")]
    pub(crate) reason: String,
    /// What to do beside it.
    #[command(flatten)]
    pub(crate) following: Following,
}

/// `node cancel`.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The node's id, name or address
    pub(crate) node: String,
}

/// A span that may lie in the past, so that the namenode decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignedSpan {
    /// Milliseconds from now.
    pub(crate) millis: i64,
}

impl std::str::FromStr for SignedSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let millis = rest.parse::<Span>()?.millis().0;
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        Ok(Self { millis: sign * millis })
    }
}

/// Runs `sanderling node ...`.
///
/// # Errors
/// The namenode's refusal; partial (5) when `--wait` saw data lost, or the drain taken back.
pub(crate) async fn run(session: Session, command: NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::Ls(args) => list::run(&session, args).await,
        NodeCommand::Notice(args) => {
            let (node, reason) = (NodeSelector(args.node), args.reason);
            let deadline = Some(NoticeDeadline::from_now(args.deadline.millis));
            drain::run(&session, &DrainOrder { node, reason, deadline }, args.following).await
        }
        NodeCommand::Recommend(args) => {
            let selector = NodeSelector(args.node);
            let (reason, is_withdrawn) = (args.reason, false);
            let request = Request::Recommend { node: selector, reason, is_withdrawn };
            recommend(&session, request).await
        }
        NodeCommand::Decommission(args) => {
            let (node, reason, deadline) = (NodeSelector(args.node), args.reason, None);
            drain::run(&session, &DrainOrder { node, reason, deadline }, args.following).await
        }
        NodeCommand::Cancel(args) => cancel(&session, NodeSelector(args.node)).await,
    }
}

async fn recommend(session: &Session, request: Request) -> Result<(), Failure> {
    let client = session.client().await?;
    let reply = session.call(&client, request).await?;
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
    let reply = session.call(&client, Request::Cancel { node }).await?;
    let Reply::Node(info) = reply else { return Err(unexpected(&reply)) };
    session.output.result(&info, |writer| {
        writeln!(writer, "{} takes blocks again: {}", title(&info), info.policy.name())
    })
}
