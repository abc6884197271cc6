//! Many transfers at once, with their progress.

use std::future::Future;

use sanderling_client::Client;
use sanderling_transport::trace::carried;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lookup::FILES_AT_ONCE_MAX;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::session::Session;
use crate::units;

/// What was transferred.
#[derive(Debug, Default, Serialize)]
pub(super) struct Transferred {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Transferred {
    /// Prints what was done to stderr: stdout is for data.
    pub(super) fn print(&self, session: &Session, verb: &str) -> Result<(), Failure> {
        if session.output.is_json {
            return session.output.document(self);
        }
        let elapsed = std::time::Duration::from_secs_f64(self.seconds);
        session.output.note(format_args!(
            "{verb} {}, {} in {}, {}",
            units::count(self.objects, "object", "objects"),
            units::bytes(self.bytes),
            units::duration(elapsed),
            units::rate(self.bytes, elapsed)
        ));
        Ok(())
    }
}

/// Runs transfers, a few at once, until one fails; prints what was done.
///
/// # Errors
/// The first failure.
pub(super) async fn run_all<J, F>(
    session: &Session,
    client: &Client,
    (doing, done_verb): (&str, &str),
    jobs: Vec<J>,
    total: Option<u64>,
    run: impl Fn(Session, Client, J, mpsc::Sender<u64>) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut progress = Progress::start(session.output, doing, total);
    let mut done = Transferred::default();
    let (sent, mut counts) = mpsc::channel::<u64>(64);
    let mut running: JoinSet<Result<(), Failure>> = JoinSet::new();
    let mut waiting = jobs.into_iter();
    let mut result = Ok(());
    loop {
        while result.is_ok() && running.len() < FILES_AT_ONCE_MAX {
            let Some(job) = waiting.next() else { break };
            running.spawn(carried(run(session.clone(), client.clone(), job, sent.clone())));
        }
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let ended = ended.map_err(|error| panicked(&error)).flatten();
                    done.objects += u64::from(ended.is_ok());
                    result = result.and(ended);
                }
            },
            Some(bytes) = counts.recv() => {
                done.bytes += bytes;
                progress.add(bytes);
            }
        }
    }
    while let Ok(bytes) = counts.try_recv() {
        done.bytes += bytes;
    }
    progress.finish();
    result?;
    done.seconds = progress.elapsed().as_secs_f64();
    done.print(session, done_verb)
}

pub(super) fn panicked(error: &tokio::task::JoinError) -> Failure {
    Failure::new(Exit::Failure, "Bug", format_args!("a transfer ended badly: {error}"))
}
