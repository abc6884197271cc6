//! Notices that this machine will be taken, for a task.

use std::fmt;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::Failure;
use sanderling_command::output::Output;
use sanderling_command::units::{self, Span};
use sanderling_core::checkpoint::RunnerNotice;
use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::{NOTICE_MAX, Notice, NoticeChange, NoticesBySource, SourceHealth};
use sanderling_notices::{NoticeOptions, NoticeSource, SourceLook, SourcePoller};
use sanderling_protocol::{Instant as SteadyInstant, Millis};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::steady_now;

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

/// A notice, by [`steady_now`].
#[derive(Debug, Clone)]
pub(crate) struct MachineNotice {
    notice: Notice,
    /// Whether it is a signal, after which the task ends.
    is_sigterm: bool,
}

impl MachineNotice {
    /// Returns the notice of a signal.
    pub(crate) fn of_sigterm(left: Duration) -> Self {
        let (source, deadline) = ("SIGTERM".to_owned(), steady_now() + Millis::from(left));
        let notice = Notice { source, deadline, reason: "the process has to end".to_owned() };
        Self { notice, is_sigterm: true }
    }

    /// Returns what a source shows.
    const fn of_source(notice: Notice) -> Self {
        Self { notice, is_sigterm: false }
    }

    /// Returns what the machine of the task takes. `hands_over` is whether another runner goes on
    /// with the task once it is saved.
    pub(crate) const fn for_runner(&self, hands_over: bool) -> RunnerNotice {
        RunnerNotice { deadline: self.notice.deadline, is_sigterm: self.is_sigterm, hands_over }
    }
}

impl fmt::Display for MachineNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = units::millis(steady_now().until(self.notice.deadline));
        let source = self.notice.source.as_str();
        // Of a file without its path.
        let (kind, _) = source.split_once(':').unwrap_or((source, ""));
        write!(formatter, "notice from {kind}: {left} left")
    }
}

/// The notices that the sources show to the runners of this process. Each receiver takes them by
/// itself: one that begins late gets those that are shown then, and one that is slow delays none.
#[derive(Debug, Clone)]
pub(crate) struct MachineNotices {
    shown: watch::Receiver<NoticesBySource>,
    /// The number of the last one that was taken here.
    taken: u64,
}

impl Default for MachineNotices {
    /// No source shows any.
    fn default() -> Self {
        Self { shown: watch::channel(NoticesBySource::default()).1, taken: 0 }
    }
}

impl MachineNotices {
    /// Returns whether a source shows a notice, whether it was taken here or not.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.borrow().earliest().is_some()
    }

    /// Returns the next notice; `None` if there are no sources. Dropped before that, it takes none.
    pub(crate) async fn recv(&mut self) -> Option<MachineNotice> {
        let taken = self.taken;
        let shown = self.shown.wait_for(|shown| shown.after(taken).is_some()).await.ok()?;
        let (number, notice) = shown.after(taken)?;
        self.taken = number;
        Some(MachineNotice::of_source(notice.clone()))
    }
}

impl OnNoticeArgs {
    /// Polls the sources until what is returned is dropped, with its clones.
    ///
    /// # Errors
    /// The address of a source is none.
    pub(crate) fn watch(&self, output: Output) -> Result<MachineNotices, Failure> {
        let (sender, shown) = watch::channel(NoticesBySource::default());
        for source in NoticeSource::distinct(&self.notice_source) {
            let options = NoticeOptions {
                url: self.notice_url.clone(),
                deadline: self.notice_deadline.0,
                ..NoticeOptions::new(source.clone())
            };
            let poller = SourcePoller::open(&options, Instant::now())
                .map_err(|error| Failure::usage(format_args!("--notice-url: {error}")))?;
            let (label, name) = (source.to_string(), source.name());
            let polled = PolledSource { label, name, shown: sender.clone(), output };
            tokio::spawn(async move {
                tokio::select! {
                    () = polled.shown.closed() => {}
                    () = polled.follow(poller) => {}
                }
            });
        }
        Ok(MachineNotices { shown, taken: 0 })
    }
}

/// A source that is polled.
struct PolledSource {
    /// What is printed of it: of a file without its path.
    label: String,
    /// The source of its notices.
    name: String,
    shown: watch::Sender<NoticesBySource>,
    output: Output,
}

impl PolledSource {
    /// Publishes each notice that the source shows.
    async fn follow(&self, mut poller: SourcePoller) {
        loop {
            let look = poller.look().await;
            note(&self.label, &look, self.output);
            match (look.change, look.seen) {
                (NoticeChange::Given(deadline), Ok(SourceReading { notice: Some(notice), .. })) => {
                    let left_micros = deadline.0.saturating_sub(look.at.0);
                    let deadline = SteadyInstant(steady_now().0.saturating_add(left_micros));
                    let notice = Notice { deadline, ..notice };
                    self.shown.send_modify(|shown| {
                        shown.show(notice);
                    });
                }
                (NoticeChange::Withdrawn, _) => {
                    self.shown.send_modify(|shown| {
                        shown.withdraw(&self.name);
                    });
                }
                _ => {}
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn show(sender: &watch::Sender<NoticesBySource>, source: &str, reason: &str) {
        let deadline = steady_now() + Millis(30_000);
        let notice = Notice { source: source.to_owned(), deadline, reason: reason.to_owned() };
        sender.send_modify(|shown| {
            shown.show(notice);
        });
    }

    /// Returns the reasons of the notices that a receiver can take now.
    fn taken(notices: &mut MachineNotices) -> Vec<String> {
        let next = || notices.recv().now_or_never().flatten();
        std::iter::from_fn(next).map(|taken| taken.notice.reason).collect()
    }

    #[test]
    fn each_receiver_takes_what_is_shown_once_and_a_late_one_what_is_shown_then() {
        let (sender, shown) = watch::channel(NoticesBySource::default());
        let first = MachineNotices { shown, taken: 0 };
        let (mut fast, mut slow) = (first.clone(), first.clone());
        assert!(taken(&mut fast).is_empty() && !fast.is_shown());
        show(&sender, "aws", "a");
        show(&sender, "file:b", "b");
        assert_eq!(taken(&mut fast), ["a", "b"]);
        assert!(taken(&mut fast).is_empty(), "each once");
        assert!(fast.is_shown(), "until it is withdrawn");
        sender.send_modify(|shown| {
            shown.withdraw("aws");
        });
        show(&sender, "file:b", "c");
        assert_eq!(taken(&mut fast), ["c"]);
        let mut late = first.clone();
        assert_eq!(taken(&mut late), ["c"], "the others are not shown any more");
        assert_eq!(taken(&mut slow), ["c"], "it has delayed none");
        sender.send_modify(|shown| {
            shown.withdraw("file:b");
        });
        assert!(!slow.is_shown());
        drop(sender);
        assert!(taken(&mut late).is_empty());
        assert!(taken(&mut MachineNotices::default()).is_empty(), "there are no sources");
    }

    #[tokio::test]
    async fn sources_are_polled_until_the_last_receiver_is_gone() {
        let (sender, shown) = watch::channel(NoticesBySource::default());
        let first = MachineNotices { shown, taken: 0 };
        let mut other = first.clone();
        drop(first);
        assert!(sender.closed().now_or_never().is_none(), "one is left");
        show(&sender, "aws", "a");
        assert_eq!(taken(&mut other), ["a"]);
        drop(other);
        sender.closed().await;
    }
}
