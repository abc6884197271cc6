//! Until when the lock of a task lets its command run, on the side of the runner: what the lock
//! confirms goes through a pipe to the process that stops the command.

use std::convert::Infallible;
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use sanderling_command::output::Output;
use sanderling_protocol::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::boot_clock::since_boot;

/// Time between two looks at a lease that has ended, or that ends soon. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time between two looks: a machine that was suspended is noticed by the next one.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The end of a lease, by [`since_boot`]. Clones follow it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseEnd(watch::Receiver<LeaseState>);

/// What moves the end of a lease.
#[derive(Debug)]
pub(crate) struct LeaseMover(watch::Sender<LeaseState>);

#[derive(Debug)]
struct LeaseState {
    end: Instant,
    /// Why the last confirmation has failed, if it has.
    cause: Option<String>,
}

impl LeaseMover {
    /// Takes when the lease ends now. A later end is that of a confirmation.
    pub(crate) fn move_to(&self, end: Instant) {
        self.0.send_modify(|state| {
            if end > state.end {
                state.cause = None;
            }
            state.end = end;
        });
    }

    /// Takes why a confirmation has failed.
    pub(crate) fn failed(&self, cause: String) {
        self.0.send_modify(|state| state.cause = Some(cause));
    }
}

impl LeaseEnd {
    /// Returns a lease that ends then, and what moves its end.
    pub(crate) fn new(end: Instant) -> (LeaseMover, Self) {
        let (sender, receiver) = watch::channel(LeaseState { end, cause: None });
        (LeaseMover(sender), Self(receiver))
    }

    /// Returns one that never ends.
    pub(crate) fn never() -> Self {
        Self::new(Instant(u64::MAX)).1
    }

    /// Returns the present end of the lease, by [`since_boot`].
    pub(crate) fn at(&self) -> Instant {
        self.0.borrow().end
    }

    /// Returns why it has no later end, in parentheses after a space; nothing if nothing has
    /// failed, as after a pause of this process.
    fn cause(&self) -> String {
        let state = self.0.borrow();
        state.cause.as_ref().map_or_else(String::new, |cause| format!(" ({cause})"))
    }

    /// Returns whether it has ended, so that the command is stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.at() <= since_boot()
    }

    /// Waits until it has ended, or until it has not ended any more.
    pub(crate) async fn until(&self, is_over: bool) {
        while self.is_over() != is_over {
            let left = Duration::from(since_boot().until(self.at()));
            sleep(left.clamp(POLL_INTERVAL, LOOK_MAX)).await;
        }
    }

    /// Prints when the command is stopped, and when it goes on.
    pub(crate) async fn note_stops(self, output: Output) -> Infallible {
        if output.is_quiet {
            return std::future::pending().await;
        }
        loop {
            self.until(true).await;
            let cause = self.cause();
            output.note(format_args!(
                "the lock is not confirmed{cause}: the command is stopped until it is"
            ));
            self.until(false).await;
            output.note("the lock is confirmed again: the command goes on");
        }
    }
}

/// The pipe to the process that stops a command. It is closed when this is dropped, or when this
/// process ends.
#[derive(Debug)]
pub(crate) struct LeasePipe(JoinHandle<()>);

impl LeasePipe {
    /// Opens a pipe that has the end of a lease now, and gets each later one. Returns the end to
    /// read, too.
    ///
    /// # Errors
    /// The operating system makes no pipe.
    pub(crate) fn open(lease: LeaseEnd) -> io::Result<(PipeReader, Self)> {
        let (reader, writer) = pipe()?;
        // A reader that is stopped holds nothing up.
        ioctl_fionbio(&writer, true)?;
        send(&writer, lease.at());
        Ok((reader, Self(tokio::spawn(forward(writer, lease)))))
    }
}

impl Drop for LeasePipe {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forward(writer: PipeWriter, LeaseEnd(mut ends): LeaseEnd) {
    while ends.changed().await.is_ok() {
        let end = ends.borrow_and_update().end;
        send(&writer, end);
    }
    // The lock is given up or lost: the last end counts, and the pipe stays open.
    std::future::pending().await
}

/// Writes an end, as a whole or not at all: it is shorter than what a pipe writes at once. One that
/// finds no room is left out; a later one follows.
fn send(writer: &PipeWriter, end: Instant) {
    let _ = rustix::io::write(writer, &end.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tokio::task::yield_now;

    use super::*;

    /// Reads what is there, as soon as there is something or the pipe is closed.
    async fn read(reader: &mut PipeReader) -> Vec<u8> {
        let mut bytes = [0; 100];
        loop {
            match reader.read(&mut bytes) {
                Ok(count) => return bytes[..count].to_vec(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            yield_now().await;
        }
    }

    #[test]
    fn cause_of_a_failure_counts_until_the_next_confirmation() {
        let (mover, lease) = LeaseEnd::new(Instant(7));
        assert_eq!(lease.cause(), "");
        mover.failed("no room".to_owned());
        mover.move_to(Instant(7));
        assert_eq!((lease.cause(), lease.at()), (" (no room)".to_owned(), Instant(7)));
        mover.move_to(Instant(9));
        assert_eq!((lease.cause(), lease.at()), (String::new(), Instant(9)));
    }

    #[tokio::test]
    async fn pipe_has_the_end_of_the_lease_and_each_later_one() {
        let (sender, lease) = LeaseEnd::new(Instant(7));
        assert!(lease.is_over());
        let (mut reader, pipe) = LeasePipe::open(lease.clone()).expect("a pipe");
        ioctl_fionbio(&reader, true).expect("set");
        assert_eq!(read(&mut reader).await, 7_u64.to_le_bytes());
        sender.move_to(Instant(u64::MAX));
        assert_eq!(read(&mut reader).await, u64::MAX.to_le_bytes());
        assert!(!lease.is_over());
        // The lock is gone, and the pipe stays open until the command has ended.
        drop(sender);
        yield_now().await;
        let open = reader.read(&mut [0]).expect_err("nothing is there");
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        drop(pipe);
        assert!(read(&mut reader).await.is_empty());
    }
}
