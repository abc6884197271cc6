//! Many transfers at once, with their progress.

use std::future::Future;

use sanderling_client::Client;
use sanderling_transport::trace::carried;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lookup::FILES_AT_ONCE_MAX;
use crate::failure::{Exit, Failure, FailureKind};
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

/// What follows a transfer that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// No further transfer begins. What was done is not printed.
    Stop,
    /// The others go on if it failed because bytes are lost, or because of its own local file. Each
    /// failure is named, and what was done is printed.
    GoOnWithOthers,
}

impl AfterFailure {
    fn goes_on(self, failure: &Failure) -> bool {
        self == Self::GoOnWithOthers && gravity(failure) < GRAVE
    }
}

/// The gravity of a failure after which nothing goes on.
const GRAVE: u8 = 2;

/// Returns how grave a failure is: 0 for bytes that are lost, after which the rest is done; 1 for a
/// local file. The command ends with the gravest, of those alike with the first.
fn gravity(failure: &Failure) -> u8 {
    match failure.exit {
        Exit::Partial => 0,
        _ if failure.is_of_one_file => 1,
        _ => GRAVE,
    }
}

/// Adds a failure to what a command ends with. Returns the one that is named before the end.
pub(super) fn ended_by(result: &mut Result<(), Failure>, further: Failure) -> Option<Failure> {
    let is_graver = result.as_ref().err().is_none_or(|first| gravity(&further) > gravity(first));
    if is_graver { std::mem::replace(result, Err(further)).err() } else { Some(further) }
}

/// Runs transfers, a few at once, and prints what was done.
///
/// # Errors
/// The first failure.
pub(super) async fn run_all<J, F>(
    session: &Session,
    client: &Client,
    (doing, done_verb): (&str, &str),
    after: AfterFailure,
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
    let mut result: Result<(), Failure> = Ok(());
    loop {
        let goes_on = |failure: &Failure| after.goes_on(failure);
        while result.as_ref().err().is_none_or(goes_on) && running.len() < FILES_AT_ONCE_MAX {
            let Some(job) = waiting.next() else { break };
            running.spawn(carried(run(session.clone(), client.clone(), job, sent.clone())));
        }
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let ended = ended.map_err(|error| panicked(&error)).flatten();
                    done.objects += u64::from(ended.is_ok());
                    let named = ended.err().and_then(|it| ended_by(&mut result, it));
                    if let (AfterFailure::GoOnWithOthers, Some(named)) = (after, named) {
                        session.output.further(&named);
                    }
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
    done.seconds = progress.elapsed().as_secs_f64();
    if result.is_ok() || after == AfterFailure::GoOnWithOthers && done.objects > 0 {
        done.print(session, done_verb)?;
    }
    result
}

fn panicked(error: &tokio::task::JoinError) -> Failure {
    Failure::new(Exit::Failure, FailureKind::Bug, format_args!("a transfer ended badly: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::RefusalKind;

    #[test]
    fn command_ends_with_the_gravest_failure_and_names_the_others() {
        let lost = || Failure::new(Exit::Partial, RefusalKind::DataUnavailable, "lost");
        let file = || Failure::new(Exit::Failure, FailureKind::LocalFile, "exists").of_one_file();
        let dead =
            || Failure::new(Exit::Unavailable, FailureKind::Unreachable, "no namenode answers");
        let mut result = Ok(());
        assert_eq!(ended_by(&mut result, lost()), None, "the first is named at the end");
        assert_eq!(
            ended_by(&mut result, file()),
            Some(lost()),
            "5 would mean that the rest is done"
        );
        assert_eq!(ended_by(&mut result, lost()), Some(lost()));
        assert_eq!(ended_by(&mut result, dead()), Some(file()));
        assert_eq!(result, Err(dead()));
        for failure in [lost(), file()] {
            assert!(AfterFailure::GoOnWithOthers.goes_on(&failure));
            assert!(!AfterFailure::Stop.goes_on(&failure));
        }
        assert!(!AfterFailure::GoOnWithOthers.goes_on(&dead()));
    }
}
