//! Notices that this namenode's own machine will be taken, from clouds, HTTP and operators. The
//! member of the group reports them to its leader, which decides what follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::notices::{NOTICE_MAX, NoticeChange, ShownNotice, check_left};
use sanderling_notices::{NoticeOptions, SourceError, SourceReader};
use sanderling_protocol::{Instant, Millis, Refusal};
use tokio::time::{Instant as Moment, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::group::{GroupInput, boot_time};
use crate::work::WorkQueue;

/// The name of what is posted over HTTP among the sources.
pub(crate) const POSTED: &str = "webhook";

/// The name of an operator's order among the sources.
pub(crate) const OPERATOR: &str = "operator";

/// What each source shows, by the clock of elections.
#[derive(Debug)]
pub(crate) struct OwnNotices {
    shown: Mutex<BTreeMap<String, Instant>>,
    work: Arc<WorkQueue>,
    /// Time left after a notice that has no deadline.
    left_default: Millis,
}

impl OwnNotices {
    pub(crate) fn new(work: Arc<WorkQueue>, left_default: Millis) -> Arc<Self> {
        Arc::new(Self { shown: Mutex::new(BTreeMap::new()), work, left_default })
    }

    /// Takes a notice of a source: the earliest of all sources counts.
    ///
    /// # Errors
    /// Those of [`check_left`].
    pub(crate) fn show(&self, source: &str, left: Millis, reason: &str) -> Result<(), Refusal> {
        check_left(left)?;
        let deadline = boot_time() + left;
        let is_new = self.shown.lock().insert(source.to_owned(), deadline).is_none();
        if is_new {
            let left_millis = left.0;
            warn!(source, reason, left_millis, "this namenode's machine will be taken");
        }
        self.report();
        Ok(())
    }

    /// Notes that a source shows no notice any more.
    pub(crate) fn withdraw(&self, source: &str) {
        if self.shown.lock().remove(source).is_some() {
            info!(source, "the notice was taken back");
            self.report();
        }
    }

    /// Returns the time left after a notice that has no deadline.
    pub(crate) const fn left_default(&self) -> Millis {
        self.left_default
    }

    /// Returns the earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.shown.lock().values().min().copied()
    }

    fn report(&self) {
        // A namenode that stops takes nothing.
        let _ = self.work.push_group(GroupInput::OwnNotice(self.deadline()));
    }
}

/// Polls a source until `stop` is cancelled.
pub(crate) async fn watch(
    notices: Arc<OwnNotices>,
    options: NoticeOptions,
    stop: CancellationToken,
) {
    let since = Moment::now();
    let name = options.source.to_string();
    let source = match SourceReader::new(&options, since) {
        Ok(source) => source,
        Err(error) => {
            error!(source = name, %error, "notices of this source are not seen");
            return;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = poll(&notices, source, &name, &options, since) => {}
    }
}

async fn poll(
    notices: &OwnNotices,
    mut source: SourceReader,
    name: &str,
    options: &NoticeOptions,
    since: Moment,
) {
    let (mut is_good, mut is_far) = (None, false);
    let mut shown = ShownNotice::default();
    loop {
        match source.look().await {
            Ok(seen) => {
                note(name, &mut is_good, None);
                let now = Instant(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
                let change = shown.look(now, seen.notice.as_ref().map(|notice| notice.deadline));
                let was_far = std::mem::replace(&mut is_far, change == NoticeChange::Far);
                match (change, seen.notice) {
                    (NoticeChange::Given(deadline), Some(notice)) => {
                        let left = Duration::from_micros(deadline.0.saturating_sub(now.0));
                        if let Err(refusal) = notices.show(name, Millis::from(left), &notice.reason)
                        {
                            warn!(source = name, %refusal, "a notice is not taken");
                        }
                    }
                    (NoticeChange::Withdrawn, _) => notices.withdraw(name),
                    (NoticeChange::Far, _) if !was_far => {
                        let (source, longest) = (name, NOTICE_MAX);
                        info!(source, %longest, "the notice is given when so much time is left");
                    }
                    _ => {}
                }
            }
            // What it showed before may still hold.
            Err(error) => note(name, &mut is_good, Some(&error)),
        }
        if !source.has_waited() {
            sleep(options.poll()).await;
        }
    }
}

/// Logs once when a source turns bad, and once when it is good again.
fn note(source: &str, was_good: &mut Option<bool>, error: Option<&SourceError>) {
    if was_good.replace(error.is_none()) == Some(error.is_none()) {
        return;
    }
    match error {
        Some(error) => warn!(source, %error, "the source of notices fails"),
        None => info!(source, "the source of notices answers"),
    }
}
