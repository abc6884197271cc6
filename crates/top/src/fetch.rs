//! Requests the samples. A connection that failed is made anew with the next one.

use std::time::{Duration, Instant as Clock, SystemTime};

use sanderling_client::Client;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::fleet::nodes;
use sanderling_command::refused;
use sanderling_command::refused::unexpected;
use sanderling_command::session::Session;
use sanderling_events::NodeNames;
use sanderling_protocol::event::{Event, EventKind};
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::{ClusterId, Instant, Millis, Reply, Request};
use tokio::sync::{mpsc, watch};

use super::event_rows::{EVENT_ROWS_MAX, EventRow};
use super::sample::{SampleRequest, TopSample};

/// How long the answers of one sample may take. The namenode is reported as absent then: half of
/// the default deadline of a call, because a person waits. Chosen, not measured.
const SAMPLE_TIME_MAX: Duration = Duration::from_secs(5);

/// What a sample, or the failed request for it, brings to the screen.
pub(super) type Fetched = Result<TopSample, FetchFailure>;

/// A sample that could not be had.
#[derive(Debug)]
pub(super) struct FetchFailure {
    /// When it was requested, since the command began.
    pub(super) at: Duration,
    /// What failed.
    pub(super) failure: Failure,
}

/// The connection, and what was received before.
#[derive(Debug)]
pub(super) struct Fetcher {
    session: Session,
    began: Clock,
    client: Option<Client>,
    cluster: Option<ClusterId>,
    names: NodeNames,
    /// The last event that was received.
    after: u64,
    lost_bytes: Option<u64>,
}

impl Fetcher {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            began: Clock::now(),
            client: None,
            cluster: None,
            names: NodeNames::default(),
            after: 0,
            lost_bytes: None,
        }
    }

    /// Returns the time since the command began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Requests one sample.
    ///
    /// # Errors
    /// Unavailable (4) or the deadline (124) when the namenode does not answer; a refusal.
    pub(super) async fn sample(&mut self, request: SampleRequest) -> Fetched {
        let at = self.now();
        let answered = tokio::time::timeout(SAMPLE_TIME_MAX, self.answers(request)).await;
        let late = |_| {
            let cause = format_args!("no answer within {}", SAMPLE_TIME_MAX.as_secs());
            Err(Failure::new(
                Exit::Unavailable,
                FailureKind::Unreachable,
                format_args!("{cause} s"),
            ))
        };
        answered.unwrap_or_else(late).map_err(|failure| {
            self.client = None;
            FetchFailure { at, failure }
        })
    }

    async fn answers(&mut self, request: SampleRequest) -> Result<TopSample, Failure> {
        let (client, is_other_cluster) = self.connected().await?;
        let session = &self.session;
        let failed = |error| refused::client(&error, &session.namenode);
        let jobs = async {
            match request.has_jobs {
                true => client.jobs().await.map(Some).map_err(failed),
                false => Ok(None),
            }
        };
        let (nodes, room, jobs, events) = tokio::try_join!(
            nodes(session, &client, request.has_gone),
            async { client.room().await.map_err(failed) },
            jobs,
            events(session, &client, self.after),
        )?;
        let at = self.now();
        self.names.learn_nodes(&nodes);
        self.names.learn_events(&events);
        if self.names.is_missing(&events) {
            self.names
                .learn_nodes(&sanderling_command::fleet::nodes(session, &client, true).await?);
            self.names.give_up(&events);
        }
        if self.lost_bytes.is_none() || events.iter().any(|event| is_loss(&event.kind)) {
            let report = client.report().await.map_err(failed)?;
            self.lost_bytes = Some(report.bytes);
        }
        // Only when nothing can fail any more: else the same events are requested again.
        self.after = events.last().map_or(self.after, |last| last.sequence);
        let first = events.len().saturating_sub(EVENT_ROWS_MAX);
        let events = events[first..].iter().map(|event| EventRow::new(event, &self.names));
        Ok(TopSample {
            at,
            wall: wall_clock(),
            nodes,
            room,
            jobs,
            lost_bytes: self.lost_bytes.unwrap_or(0),
            events: events.collect(),
            is_other_cluster,
        })
    }

    /// Returns the connection, and whether another cluster answers than before.
    async fn connected(&mut self) -> Result<(Client, bool), Failure> {
        if let Some(client) = &self.client {
            return Ok((client.clone(), false));
        }
        let client = self.session.client().await?;
        let is_other = self.cluster.is_some_and(|cluster| cluster != client.cluster());
        if is_other {
            (self.after, self.lost_bytes, self.names) = (0, None, NodeNames::default());
        }
        self.cluster = Some(client.cluster());
        self.client = Some(client.clone());
        Ok((client, is_other))
    }

    /// Sends samples until the receiver is gone; at once when another view has other requests.
    pub(super) async fn run(
        mut self,
        interval: Duration,
        mut requests: watch::Receiver<SampleRequest>,
        samples: mpsc::Sender<Fetched>,
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                changed = requests.changed() => if changed.is_err() { return },
            }
            let request = *requests.borrow_and_update();
            if request.is_paused {
                if requests.wait_for(|request| !request.is_paused).await.is_err() {
                    return;
                }
                continue;
            }
            let sample = tokio::select! {
                sample = self.sample(request) => sample,
                () = samples.closed() => return,
            };
            if samples.send(sample).await.is_err() {
                return;
            }
        }
    }
}

/// Requests the events after a sequence; of more than are kept on the screen, the latest.
async fn events(session: &Session, client: &Client, after: u64) -> Result<Vec<Event>, Failure> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(after, |last| last.sequence);
        let request = Request::Events { after, limit: EVENTS_PER_REPLY_MAX, wait: Millis(0) };
        match session.call(client, request).await? {
            Reply::Events(page) if page.is_empty() => return Ok(events),
            Reply::Events(page) => {
                events.extend(page);
                events.drain(..events.len().saturating_sub(EVENT_ROWS_MAX));
            }
            reply => return Err(unexpected(&reply)),
        }
    }
}

const fn is_loss(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::BlocksLost { .. }
            | EventKind::BlocksOrphaned { .. }
            | EventKind::JournalCut { .. }
            | EventKind::NamenodeStarted { .. }
    )
}

fn wall_clock() -> Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}
