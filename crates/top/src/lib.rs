//! `sanderling top`: nodes, drains, throughput, jobs and events on one screen, which follows the
//! cluster.

mod cells;
mod draw;
mod event_rows;
mod fetch;
mod fields;
mod head;
mod rates;
mod sample;
mod screen;
mod state;
#[cfg(test)]
mod test_nodes;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::Event;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::is_coloured;
use sanderling_command::printable::printable;
use sanderling_command::session::Session;
use sanderling_command::units::Span;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use self::draw::{Theme, draw, text_frame};
use self::event_rows::EventRow;
use self::fetch::{Fetched, Fetcher};
use self::fields::TopView;
use self::rates::NodeTraffic;
use self::screen::{KeyReader, LineModeGuard, Screen};
use self::state::{AfterKey, TopState};

/// `sanderling top`.
#[derive(Debug, Args)]
pub struct Top {
    /// The time between two requests to the namenode
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "2s",
          value_parser = sanderling_command::units::interval)]
    pub(crate) interval: Span,
    /// What is listed first
    #[arg(long, value_enum, value_name = "VIEW", default_value_t = TopView::Nodes)]
    pub(crate) view: TopView,
    /// The column by which that view is sorted
    #[arg(short, long, value_name = "COLUMN")]
    pub(crate) sort: Option<String>,
    /// Sort the other way round
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// List only rows with all of these words
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub(crate) filter: String,
    /// Also list nodes that are gone
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print frames as text, without a terminal; with --json, one object for each
    #[arg(short, long)]
    pub(crate) batch: bool,
    /// End after so many frames
    #[arg(short = 'n', long, value_name = "NUMBER",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
}

/// Columns of a frame in a file or pipe, unless COLUMNS has another number: all columns of the list
/// of nodes fit. Chosen, not measured.
const BATCH_WIDTH: usize = 160;

/// Time between two drawings of a screen that shows how long the namenode is away, in whole
/// seconds.
const CLOCK: Duration = Duration::from_secs(1);

/// Shows the cluster until `q`, Ctrl-C, the end of `--timeout` or the last of `--frames`.
///
/// # Errors
/// Usage (2) without a terminal; unavailable (4) when the namenode cannot be reached at the start.
/// End the command with it.
pub async fn run(session: Session, args: Top) -> Result<(), Failure> {
    let is_batch = args.batch || session.output.is_json;
    let mut state = TopState::new(&printable(&session.namenode), args.interval.0, args.view);
    state.filter.clone_from(&args.filter);
    state.has_gone = args.all;
    state.is_batch = is_batch;
    if args.sort.is_some() || args.reverse {
        let usual = state.order().field.title();
        let column = args.sort.as_deref().unwrap_or(usual);
        state.set_order(column, args.reverse).map_err(Failure::usage)?;
    }
    if is_batch {
        return print_frames(&session, state, args.frames).await;
    }
    if let Some(obstacle) = screen::obstacle() {
        return Err(Failure::usage(format_args!("top draws on a terminal: {obstacle}"))
            .next("sanderling top --batch --frames 1"));
    }
    let mut fetcher = Fetcher::new(session.clone());
    // Before the terminal is taken over: a cluster that is not there is an error like any other.
    state.take(fetcher.sample(state.request()).await.map_err(|failed| failed.failure)?);
    session.goes_on();
    let _line_mode = LineModeGuard;
    // On a thread of its own: writing to a terminal may block, and signals end the command anyway.
    let runtime = tokio::runtime::Handle::current();
    let shown = tokio::task::spawn_blocking(move || {
        runtime.block_on(show(&session, fetcher, state, args.frames))
    });
    match shown.await {
        Ok(result) => result,
        Err(error) => Err(Failure::caused(Exit::Failure, FailureKind::Bug, error)),
    }
}

/// Draws frames until a key or the session ends it.
async fn show(
    session: &Session,
    fetcher: Fetcher,
    mut state: TopState,
    frames: Option<u64>,
) -> Result<(), Failure> {
    let (began, interval) = (Instant::now().checked_sub(fetcher.now()), state.interval);
    let (requests, requested) = watch::channel(state.request());
    let (sender, mut samples) = mpsc::channel(1);
    let theme = Theme { is_coloured: is_coloured() };
    let mut screen = Screen::open()?;
    let mut reader = KeyReader::start()?;
    let mut clock = tokio::time::interval(CLOCK);
    let fetching = tokio::spawn(fetcher.run(interval, requested, sender));
    let mut samples_left = frames;
    let result = loop {
        state.now = began.map_or(state.now, |began| began.elapsed());
        if let Err(error) =
            screen.terminal.draw(|frame| draw(frame.buffer_mut(), &mut state, theme))
        {
            break Err(error.into());
        }
        tokio::select! {
            key = reader.keys.recv() => match keys(&mut state, key, &mut reader.keys) {
                Ok(AfterKey::GoOn) => {}
                Ok(AfterKey::Quit) => break Ok(()),
                Ok(AfterKey::Interrupt) => break Err(Failure::silent(Exit::Interrupted)),
                Err(error) => break Err(error.into()),
            },
            Some(fetched) = samples.recv() => {
                take(&mut state, fetched);
                samples_left = samples_left.map(|left| left.saturating_sub(1));
            }
            _ = clock.tick(), if state.is_timed() => {}
            () = session.ended.cancelled() => break Err(Failure::silent(Exit::Interrupted)),
        }
        if samples_left == Some(0) {
            break Ok(());
        }
        let request = state.request();
        requests.send_if_modified(|sent| std::mem::replace(sent, request) != request);
    };
    fetching.abort();
    let _ = fetching.await;
    result
}

/// Takes a key, and all that wait behind it.
fn keys(
    state: &mut TopState,
    first: Option<io::Result<Event>>,
    waiting: &mut mpsc::Receiver<io::Result<Event>>,
) -> io::Result<AfterKey> {
    let mut next = first.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    loop {
        // Another size needs another frame, and nothing else.
        if let Event::Key(key) = next? {
            let after = state.key(key);
            if after != AfterKey::GoOn {
                return Ok(after);
            }
        }
        match waiting.try_recv() {
            Ok(event) => next = event,
            Err(_) => return Ok(AfterKey::GoOn),
        }
    }
}

fn take(state: &mut TopState, fetched: Fetched) {
    match fetched {
        Ok(sample) => state.take(sample),
        Err(failed) => state.lose(failed.at, &printable(&failed.failure.cause)),
    }
}

/// A frame as `--json` prints it.
#[derive(Serialize)]
struct FrameView<'a> {
    /// Microseconds since 1970, by this machine's clock.
    at: sanderling_protocol::Instant,
    lost_bytes: u64,
    room: &'a Option<sanderling_protocol::message::Room>,
    nodes: Vec<NodeView<'a>>,
    jobs: Vec<JobView<'a>>,
    /// The latest events.
    events: Vec<&'a EventRow>,
}

#[derive(Serialize)]
struct NodeView<'a> {
    #[serde(flatten)]
    node: &'a sanderling_protocol::node::NodeInfo,
    /// Nothing before the second heartbeat.
    traffic: Option<NodeTraffic>,
}

#[derive(Serialize)]
struct JobView<'a> {
    #[serde(flatten)]
    job: &'a sanderling_protocol::message::JobInfo,
    growth_bytes_per_second: Option<i64>,
}

/// Prints frames as text. The first comes after two samples: rates need two.
async fn print_frames(
    session: &Session,
    mut state: TopState,
    frames: Option<u64>,
) -> Result<(), Failure> {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = width.unwrap_or(BATCH_WIDTH);
    let mut fetcher = Fetcher::new(session.clone());
    let mut request = state.request();
    request.has_jobs |= session.output.is_json;
    state.take(fetcher.sample(request).await.map_err(|failed| failed.failure)?);
    session.goes_on();
    let mut printed = 0;
    while frames.is_none_or(|frames| printed < frames) {
        let fetched = tokio::select! {
            fetched = async {
                tokio::time::sleep(state.interval).await;
                fetcher.sample(request).await
            } => fetched,
            () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        };
        take(&mut state, fetched);
        if session.output.is_json {
            session.output.document(&view(&state))?;
        } else {
            let text = text_frame(&state, width);
            let gap = if printed == 0 { "" } else { "\n" };
            let mut stdout = io::stdout().lock();
            stdout.write_all(format!("{gap}{text}").as_bytes())?;
            stdout.flush()?;
        }
        printed += 1;
    }
    Ok(())
}

fn view(state: &TopState) -> Option<FrameView<'_>> {
    let sample = state.sample.as_ref()?;
    let nodes = sample.nodes.iter();
    let jobs = sample.jobs.iter().flatten();
    let growth = |job: &sanderling_protocol::message::JobInfo| state.rates.job(job.job);
    Some(FrameView {
        at: sample.wall,
        lost_bytes: sample.lost_bytes,
        room: &sample.room,
        nodes: nodes.map(|node| NodeView { node, traffic: state.rates.node(node.id) }).collect(),
        jobs: jobs.map(|job| JobView { job, growth_bytes_per_second: growth(job) }).collect(),
        events: state.events.iter().collect(),
    })
}
