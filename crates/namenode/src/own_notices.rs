//! Notices that this namenode's own machine will be taken, from clouds, HTTP and operators. The
//! member of the group reports them to its leader, which decides what follows.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::{
    NOTICE_MAX, Notice, NoticeChange, NoticesBySource, SourceHealth, check_left,
};
use sanderling_notices::{NoticeOptions, SourceLook, SourcePoller};
use sanderling_protocol::{Instant, Millis, Refusal};
use tokio::time::Instant as Moment;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::group::{GroupInput, boot_time};
use crate::writer_queue::WorkQueue;

/// The name of what is posted over HTTP among the sources.
pub(crate) const POSTED: &str = "webhook";

/// The name of an operator's order among the sources.
pub(crate) const OPERATOR: &str = "operator";

/// What each source shows, by the clock of elections. [`NoticesBySource`] decides what counts.
#[derive(Debug)]
pub(crate) struct OwnNotices {
    shown: Mutex<NoticesBySource>,
    work: Arc<WorkQueue>,
    /// Time left after a notice that has no deadline.
    left_default: Millis,
}

impl OwnNotices {
    pub(crate) fn new(work: Arc<WorkQueue>, left_default: Millis) -> Arc<Self> {
        Arc::new(Self { shown: Mutex::default(), work, left_default })
    }

    /// Takes a notice that is posted or ordered ([`NoticesBySource::give`]).
    ///
    /// # Errors
    /// Those of [`check_left`].
    pub(crate) fn give(&self, source: &str, left: Millis, reason: &str) -> Result<(), Refusal> {
        self.note((source, reason), left, NoticesBySource::give)
    }

    /// Takes the notice that a polled source shows ([`NoticesBySource::show`]).
    ///
    /// # Errors
    /// Those of [`check_left`].
    fn show(&self, source: &str, left: Millis, reason: &str) -> Result<(), Refusal> {
        self.note((source, reason), left, NoticesBySource::show)
    }

    /// Notes a notice of a source, as `take` does.
    fn note(
        &self,
        (source, reason): (&str, &str),
        left: Millis,
        take: fn(&mut NoticesBySource, Notice) -> bool,
    ) -> Result<(), Refusal> {
        check_left(left)?;
        let (deadline, words) = (boot_time() + left, reason.to_owned());
        let notice = Notice { source: source.to_owned(), deadline, reason: words };
        let mut shown = self.shown.lock();
        let is_first = take(&mut shown, notice);
        self.report(&shown);
        drop(shown);
        if is_first {
            let left_millis = left.0;
            warn!(source, reason, left_millis, "this namenode's machine will be taken");
        }
        Ok(())
    }

    /// Notes that a source shows no notice any more.
    pub(crate) fn withdraw(&self, source: &str) {
        let mut shown = self.shown.lock();
        let is_shown = shown.withdraw(source);
        if is_shown {
            self.report(&shown);
        }
        drop(shown);
        if is_shown {
            info!(source, "the notice was taken back");
        }
    }

    /// Returns the time left after a notice that has no deadline.
    pub(crate) const fn left_default(&self) -> Millis {
        self.left_default
    }

    /// Returns the earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.shown.lock().earliest()
    }

    /// Reports the earliest deadline of what the sources show. The caller has them locked: of two
    /// sources that change at once, the report that is made last contains both changes.
    fn report(&self, shown: &NoticesBySource) {
        // A namenode that stops takes nothing.
        let _ = self.work.push_group(GroupInput::OwnNotice(shown.earliest()));
    }

    /// Takes what a source shows, for ever.
    async fn follow(&self, source: &str, mut poller: SourcePoller) {
        loop {
            let look = poller.look().await;
            log(source, &look);
            match (look.change, look.seen) {
                (NoticeChange::Given(deadline), Ok(SourceReading { notice: Some(notice), .. })) => {
                    let left = deadline.since(look.at);
                    if let Err(refusal) = self.show(source, left, &notice.reason) {
                        warn!(source, %refusal, "a notice is not taken");
                    }
                }
                (NoticeChange::Withdrawn, _) => self.withdraw(source),
                _ => {}
            }
        }
    }
}

/// Polls a source until `stop` is cancelled.
pub(crate) async fn watch(
    notices: Arc<OwnNotices>,
    options: NoticeOptions,
    stop: CancellationToken,
) {
    let source = options.source.name();
    let poller = match SourcePoller::open(&options, Moment::now()) {
        Ok(poller) => poller,
        Err(error) => {
            error!(source, %error, "notices of this source are not seen");
            return;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = notices.follow(&source, poller) => {}
    }
}

/// Logs what a look has changed.
fn log(source: &str, look: &SourceLook) {
    match (&look.seen, look.health) {
        (Err(error), SourceHealth::Fails) => warn!(source, %error, "the source of notices fails"),
        (Ok(_), SourceHealth::Answers { .. }) => info!(source, "the source of notices answers"),
        _ => {}
    }
    if look.change == NoticeChange::Far {
        info!(source, longest = %NOTICE_MAX, "the notice is given when so much time is left");
    }
}
