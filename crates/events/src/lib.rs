//! `sanderling events`: what happened to the cluster, and what happens. `sanderling top` shows the
//! same events with the same words.

mod filter;
mod kind;
mod names;
mod text;

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::PossibleValuesParser;
use sanderling_client::Client;
use sanderling_command::failure::{Exit, Failure, RefusalKind};
use sanderling_command::output::is_coloured;
use sanderling_command::printable::printable;
use sanderling_command::refused;
use sanderling_command::session::Session;
use sanderling_command::units::{self, Span};
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::{Event, Instant, Millis, NodeId};
use serde::Serialize;

use filter::EventFilter;
use kind::{KINDS, nodes_of};
pub use kind::{Severity, kind_name, severity};
pub use names::NodeNames;
pub use text::text;

/// `sanderling events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on and wait for more, until Ctrl-C or the end of --timeout
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Start after this event
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    pub(crate) after: u64,
    /// Only events of so long ago at most, by this machine's clock
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<Span>,
    /// Only events about this node: its id, name or address; may be repeated
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Vec<String>,
    /// Only events of this kind; may be repeated, or several with commas
    #[arg(long, value_name = "KIND", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(KINDS))]
    pub(crate) kind: Vec<String>,
    /// Only events that are at least so severe
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = Severity::Info)]
    pub(crate) severity: Severity,
}

/// How long one request waits for an event. Half of the default deadline of a call (10 s), so that
/// an answer comes before it; each wait costs one request.
const WAIT: Millis = Millis(5000);

/// How long the namenode may be away before a command that follows events ends: a restart with
/// millions of objects takes seconds, and an election about one. Chosen, not measured.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// Pause before the next request to a namenode that did not answer: half of the 400 ms without a
/// leader after which an election begins at the earliest, as for other callers.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// An event as `--json` prints it.
#[derive(Serialize)]
struct EventView<'a> {
    #[serde(flatten)]
    event: &'a Event,
    severity: Severity,
    /// The nodes that it concerns.
    nodes: Vec<NodeTitle<'a>>,
}

#[derive(Serialize)]
struct NodeTitle<'a> {
    id: NodeId,
    name: Option<&'a str>,
}

/// Prints what happened, and with `--follow` what happens.
///
/// # Errors
/// Unavailable (4) when the namenode cannot be reached; not found (3) when no node is that of
/// `--node`: end the command with it. The failure has the next command.
pub async fn run(session: Session, args: Events) -> Result<(), Failure> {
    let client = session.client().await?;
    let filter = EventFilter {
        since: args.since.map(before_now),
        nodes: args.node,
        kinds: args.kind,
        severity: args.severity,
    };
    let mut names = NodeNames::default();
    names.learn_nodes(&sanderling_command::fleet::nodes(&session, &client, true).await?);
    if args.follow {
        session.goes_on();
    }
    let mut after = args.after;
    loop {
        let wait = if args.follow { WAIT } else { Millis(0) };
        let events = tokio::select! {
            events = next(&session, &client, after, wait) => events?,
            () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        };
        learn(&session, &client, &mut names, &events).await?;
        for event in &events {
            after = event.sequence;
            if filter.admits(event, &names) {
                print(&session, event, &names)?;
            }
        }
        if events.is_empty() && !args.follow {
            return known(&filter, &names);
        }
    }
}

/// Returns the events after a sequence. Waits for the first, also while the namenode is away.
async fn next(
    session: &Session,
    client: &Client,
    after: u64,
    wait: Millis,
) -> Result<Vec<Event>, Failure> {
    let mut failed_since = None;
    loop {
        let error = match client.events(after, EVENTS_PER_REPLY_MAX, wait).await {
            Ok(events) => return Ok(events),
            Err(error) => error,
        };
        let failure = refused::client(&error, &session.namenode);
        let since = *failed_since.get_or_insert_with(tokio::time::Instant::now);
        let is_passing = matches!(failure.exit, Exit::Unavailable | Exit::Deadline);
        if wait.0 == 0 || !is_passing || since.elapsed() > AWAY_MAX {
            return Err(failure);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Returns when a span of time began that ends now.
fn before_now(span: Span) -> Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant(u64::try_from(now.saturating_sub(span.0).as_micros()).unwrap_or(u64::MAX))
}

/// Adds the names of the nodes in a page of events; requests them if an event has none.
async fn learn(
    session: &Session,
    client: &Client,
    names: &mut NodeNames,
    events: &[Event],
) -> Result<(), Failure> {
    names.learn_events(events);
    if names.is_missing(events) {
        names.learn_nodes(&sanderling_command::fleet::nodes(session, client, true).await?);
        names.give_up(events);
    }
    Ok(())
}

/// Refuses a node of the command line that neither the catalog nor any event has.
fn known(filter: &EventFilter, names: &NodeNames) -> Result<(), Failure> {
    match filter.nodes.iter().find(|node| !names.contains(node)) {
        Some(node) => Err(Failure::new(
            Exit::NotFound,
            RefusalKind::UnknownNode,
            format_args!("no node has the id, name or address {node}"),
        )
        .next("sanderling node ls --all")),
        None => Ok(()),
    }
}

fn print(session: &Session, event: &Event, names: &NodeNames) -> Result<(), Failure> {
    let severity = severity(&event.kind);
    let title = |id| NodeTitle { id, name: names.name(id) };
    let nodes = nodes_of(&event.kind).into_iter().map(title).collect();
    let view = EventView { event, severity, nodes };
    session.output.result(&view, |writer| write(writer, event, severity, names))
}

/// Writes an event for people.
fn write(
    writer: &mut dyn Write,
    event: &Event,
    severity: Severity,
    names: &NodeNames,
) -> io::Result<()> {
    let (at, text) = (units::instant(event.at), text(&event.kind, names));
    let line = format!("{:>6}  {at}  {text}", event.sequence);
    let line = printable(&line);
    let line = match severity.colour().filter(|_| is_coloured()) {
        Some(colour) => format!("\u{1b}[{colour}m{line}\u{1b}[0m\n"),
        None => format!("{line}\n"),
    };
    // In one piece: the writer lets only whole colours pass.
    writer.write_all(line.as_bytes())
}
