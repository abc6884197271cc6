//! Notices that this machine will be taken, for a task.

use std::fmt;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::Failure;
use sanderling_command::output::Output;
use sanderling_command::units::{self, Span};
use sanderling_core::notices::{NoticeChange, ShownNotice};
use sanderling_notices::{NoticeOptions, NoticeSource, SourceReader};
use sanderling_protocol as protocol;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

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
        for source in &self.notice_source {
            let options = NoticeOptions {
                url: self.notice_url.clone(),
                deadline: self.notice_deadline.0,
                ..NoticeOptions::new(source.clone())
            };
            let since = Instant::now();
            let reader = SourceReader::new(&options, since)
                .map_err(|error| Failure::usage(format_args!("--notice-url: {error}")))?;
            tokio::spawn(poll(reader, options, since, sender.clone(), output));
        }
        Ok(notices)
    }
}

async fn poll(
    mut reader: SourceReader,
    options: NoticeOptions,
    since: Instant,
    sender: mpsc::Sender<MachineNotice>,
    output: Output,
) {
    let source = options.source.to_string();
    let mut shown = ShownNotice::default();
    let mut is_bad = false;
    while !sender.is_closed() {
        match reader.look().await {
            Ok(reading) => {
                is_bad = false;
                let passed = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                let deadline = reading.notice.map(|notice| notice.deadline);
                let change = shown.look(protocol::Instant(passed), deadline);
                if let NoticeChange::Given(deadline) = change {
                    let (source, is_sigterm) = (source.clone(), false);
                    let deadline = since + Duration::from_micros(deadline.0);
                    let notice = MachineNotice { source, is_sigterm, deadline };
                    if sender.send(notice).await.is_err() {
                        return;
                    }
                }
            }
            // It is reported once. What the source showed before may still hold.
            Err(error) => {
                if !std::mem::replace(&mut is_bad, true) {
                    output.note(format_args!("the source of notices {source} fails: {error}"));
                }
            }
        }
        if !reader.has_waited() {
            sleep(options.poll()).await;
        }
    }
}
