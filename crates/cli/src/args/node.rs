//! `sanderling node`.

use clap::{Args, Subcommand};

use crate::units::Span;

/// Look at nodes, give notices, decommission.
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// List the nodes with their drains
    Ls(Ls),
    /// Give a notice: the node's data leaves before the deadline
    Notice(Notice),
    /// Say that a node is likely to get its notice soon: what it holds is copied
    Recommend(Recommend),
    /// Empty a node without a deadline
    Decommission(Decommission),
    /// Take a notice, decommission or recommendation back
    Cancel(Cancel),
}

/// `node ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Also list nodes that are gone
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// What to do beside the request itself.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Following {
    /// Say what would move, to where and how long it would take, and move nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait until the node is empty or gone; exit code 5 when data was lost
    #[arg(long)]
    pub(crate) wait: bool,
}

/// `node notice`.
#[derive(Debug, Args)]
pub(crate) struct Notice {
    /// The node's id, name or address
    pub(crate) node: String,
    /// Time until the node is killed
    #[arg(long, value_name = "DURATION", default_value = "30s", allow_hyphen_values = true)]
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

/// A span that may lie in the past, so that the namenode says what it thinks of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignedSpan {
    /// Milliseconds from now.
    pub(crate) millis: i64,
}

impl std::str::FromStr for SignedSpan {
    type Err = crate::units::UnitError;

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
