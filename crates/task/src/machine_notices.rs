//! Notices that this machine will be taken, for a task.

use std::fmt;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::Failure;
use sanderling_command::output::Output;
use sanderling_command::units::{self, Span};
use sanderling_core::notices::{NOTICE_MAX, NoticeChange, SourceHealth};
use sanderling_notices::{NoticeOptions, NoticeSource, SourceLook, SourcePoller};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What happens when this machine will be taken.
#[derive(Debug, Clone, Args)]
pub(crate) struct OnNoticeArgs {
    /// At a notice, take a checkpoint if it ends in time. SIGTERM is one, after which the task ends
    #[arg(long)]
    pub(crate) on_notice: bool,
    /// A source of notices: aws, gcp, azure, file:PATH; may be repeated
    #[arg(long, value_name = "SOURCE", requires = "on_notice")]
    pub(crate) notice_source: Vec<NoticeSource>,
    /// The address of the cloud's metadata service [default: the cloud's own address]
    #[arg(long, value_name = "URL", requires = "notice_source")]
    pub(crate) notice_url: Option<String>,
    /// Time left after SIGTERM, and after a notice that has no deadline of its own
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) notice_deadline: Span,
}

/// A notice, by this process's clock.
#[derive(Debug, Clone)]
pub(crate) struct MachineNotice {
    source: String,
    /// Whether it is a signal, after which the task ends.
    pub(crate) is_sigterm: bool,
    deadline: Instant,
}

impl MachineNotice {
    /// Returns the notice of a signal.
    pub(crate) fn of_sigterm(left: Duration) -> Self {
        let (source, deadline) = ("SIGTERM".to_owned(), Instant::now() + left);
        Self { source, is_sigterm: true, deadline }
    }

    /// Returns the time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl fmt::Display for MachineNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = units::millis(self.left().into());
        write!(formatter, "notice from {}: {left} left", self.source)
    }
}

impl OnNoticeArgs {
    /// Watches the sources until the receiver is dropped.
    ///
    /// # Errors
    /// The address of a source is none.
    pub(crate) fn watch(&self, output: Output) -> Result<mpsc::Receiver<MachineNotice>, Failure> {
        let (sender, notices) = mpsc::channel(4);
        for source in NoticeSource::distinct(&self.notice_source) {
            let options = NoticeOptions {
                url: self.notice_url.clone(),
                deadline: self.notice_deadline.0,
                ..NoticeOptions::new(source.clone())
            };
            let since = Instant::now();
            let poller = SourcePoller::open(&options, since)
                .map_err(|error| Failure::usage(format_args!("--notice-url: {error}")))?;
            let (source, sender) = (source.to_string(), sender.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = sender.closed() => {}
                    () = follow(poller, &source, since, &sender, output) => {}
                }
            });
        }
        Ok(notices)
    }
}

/// Sends each notice that a source shows. Ends when it is not taken any more.
async fn follow(
    mut poller: SourcePoller,
    source: &str,
    since: Instant,
    sender: &mpsc::Sender<MachineNotice>,
    output: Output,
) {
    loop {
        let look = poller.look().await;
        note(source, &look, output);
        if let NoticeChange::Given(deadline) = look.change {
            let (source, is_sigterm) = (source.to_owned(), false);
            let deadline = since + Duration::from_micros(deadline.0);
            let notice = MachineNotice { source, is_sigterm, deadline };
            if sender.send(notice).await.is_err() {
                return;
            }
        }
    }
}

/// Prints what a look has changed beside a notice. That a source answers is printed only after it
/// has failed.
fn note(source: &str, look: &SourceLook, output: Output) {
    match (&look.seen, look.health) {
        (Err(error), SourceHealth::Fails) => {
            output.note(format_args!("the source of notices {source} fails: {error}"));
        }
        (Ok(_), SourceHealth::Answers { is_again: true }) => {
            output.note(format_args!("the source of notices {source} answers again"));
        }
        _ => {}
    }
    if look.change == NoticeChange::Far {
        output.note(format_args!("the notice from {source} counts when {NOTICE_MAX} are left"));
    }
}
