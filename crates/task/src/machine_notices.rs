//! Notices that this machine will be taken, for a task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::Failure;
use sanderling_command::output::Output;
use sanderling_command::units::{self, Span};
use sanderling_core::notices::{NOTICE_MAX, NoticeChange, SourceHealth};
use sanderling_notices::{NoticeOptions, NoticeSource, SourceLook, SourcePoller};
use tokio::sync::watch;
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

/// The notices that the sources show to the runners of this process. Each receiver takes them by
/// itself: one that begins late gets those that are shown then, and one that is slow delays none.
#[derive(Debug, Clone)]
pub(crate) struct MachineNotices {
    shown: watch::Receiver<ShownNotices>,
    /// The number of the last one that was taken here.
    taken: u64,
}

impl Default for MachineNotices {
    /// No source shows any.
    fn default() -> Self {
        Self { shown: watch::channel(ShownNotices::default()).1, taken: 0 }
    }
}

impl MachineNotices {
    /// Returns the next notice; `None` if there are no sources. Dropped before that, it takes none.
    pub(crate) async fn recv(&mut self) -> Option<MachineNotice> {
        let taken = self.taken;
        let shown = self.shown.wait_for(|shown| shown.after(taken).is_some()).await.ok()?;
        let (number, notice) = shown.after(taken)?;
        self.taken = number;
        Some(notice.clone())
    }
}

/// What all sources show.
#[derive(Debug, Clone, Default)]
struct ShownNotices {
    /// How many notices were given, withdrawn or not: the number of the last one.
    given: u64,
    /// The notices that are shown, with their numbers and sources.
    shown: BTreeMap<u64, (usize, MachineNotice)>,
}

impl ShownNotices {
    /// Takes a notice of a source, which takes the place of the one before.
    fn give(&mut self, source: usize, notice: MachineNotice) {
        self.withdraw(source);
        self.given += 1;
        self.shown.insert(self.given, (source, notice));
    }

    fn withdraw(&mut self, source: usize) {
        self.shown.retain(|_, (of, _)| *of != source);
    }

    /// Returns the first notice after the one of a number, with its own.
    fn after(&self, number: u64) -> Option<(u64, &MachineNotice)> {
        let (number, (_, notice)) = self.shown.range(number + 1..).next()?;
        Some((*number, notice))
    }
}

impl OnNoticeArgs {
    /// Polls the sources until what is returned is dropped, with its clones.
    ///
    /// # Errors
    /// The address of a source is none.
    pub(crate) fn watch(&self, output: Output) -> Result<MachineNotices, Failure> {
        let (sender, shown) = watch::channel(ShownNotices::default());
        for (number, source) in NoticeSource::distinct(&self.notice_source).enumerate() {
            let options = NoticeOptions {
                url: self.notice_url.clone(),
                deadline: self.notice_deadline.0,
                ..NoticeOptions::new(source.clone())
            };
            let since = Instant::now();
            let poller = SourcePoller::open(&options, since)
                .map_err(|error| Failure::usage(format_args!("--notice-url: {error}")))?;
            let (name, shown) = (source.to_string(), sender.clone());
            let polled = PolledSource { number, name, since, shown, output };
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
    number: usize,
    name: String,
    /// Zero of the clock of its deadlines.
    since: Instant,
    shown: watch::Sender<ShownNotices>,
    output: Output,
}

impl PolledSource {
    /// Publishes each notice that the source shows.
    async fn follow(&self, mut poller: SourcePoller) {
        loop {
            let look = poller.look().await;
            note(&self.name, &look, self.output);
            match look.change {
                NoticeChange::Given(deadline) => {
                    let deadline = self.since + Duration::from_micros(deadline.0);
                    let source = self.name.clone();
                    let notice = MachineNotice { source, is_sigterm: false, deadline };
                    self.shown.send_modify(|shown| shown.give(self.number, notice));
                }
                NoticeChange::Withdrawn => {
                    self.shown.send_modify(|shown| shown.withdraw(self.number));
                }
                NoticeChange::Unchanged | NoticeChange::Far => {}
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

    fn notice(source: &str) -> MachineNotice {
        let (source, deadline) = (source.to_owned(), Instant::now() + Duration::from_secs(30));
        MachineNotice { source, is_sigterm: false, deadline }
    }

    /// Returns the sources of the notices that a receiver can take now.
    fn taken(notices: &mut MachineNotices) -> Vec<String> {
        let next = || notices.recv().now_or_never().flatten();
        std::iter::from_fn(next).map(|notice| notice.source).collect()
    }

    #[test]
    fn each_receiver_takes_what_is_shown_once_and_a_late_one_what_is_shown_then() {
        let (sender, shown) = watch::channel(ShownNotices::default());
        let first = MachineNotices { shown, taken: 0 };
        let (mut fast, mut slow) = (first.clone(), first.clone());
        assert!(taken(&mut fast).is_empty());
        sender.send_modify(|shown| shown.give(0, notice("a")));
        sender.send_modify(|shown| shown.give(1, notice("b")));
        assert_eq!(taken(&mut fast), ["a", "b"]);
        assert!(taken(&mut fast).is_empty(), "each once");
        sender.send_modify(|shown| shown.withdraw(0));
        sender.send_modify(|shown| shown.give(1, notice("c")));
        assert_eq!(taken(&mut fast), ["c"]);
        let mut late = first.clone();
        assert_eq!(taken(&mut late), ["c"], "the others are not shown any more");
        assert_eq!(taken(&mut slow), ["c"], "it has delayed none");
        drop(sender);
        assert!(taken(&mut late).is_empty());
        assert!(taken(&mut MachineNotices::default()).is_empty(), "there are no sources");
    }

    #[tokio::test]
    async fn sources_are_polled_until_the_last_receiver_is_gone() {
        let (sender, shown) = watch::channel(ShownNotices::default());
        let first = MachineNotices { shown, taken: 0 };
        let mut other = first.clone();
        drop(first);
        assert!(sender.closed().now_or_never().is_none(), "one is left");
        sender.send_modify(|shown| shown.give(0, notice("a")));
        assert_eq!(taken(&mut other), ["a"]);
        drop(other);
        sender.closed().await;
    }
}
