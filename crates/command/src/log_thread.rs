//! The log of a server leaves by a thread of its own: a pipe that no process reads, or a disk that
//! is full, costs lines of the log and never holds the server up.
//!
//! `tracing-appender` bounds the number of lines that wait and not their bytes, and a line of JSON
//! may have names of 32 KiB.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Most bytes of lines that wait: some 30,000 lines of usual length. Chosen, not measured.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Bytes that a line takes beside its own: its place in the queue, and what the allocator adds.
const LINE_BYTES: usize = 64;

/// A line on its way, or the request for an answer once all lines before it have left.
enum Message {
    Line(Vec<u8>),
    Flush(Sender<()>),
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// Lines that were not written, and that no line has reported yet.
    dropped: AtomicU64,
}

/// The thread that writes the lines of a log, and the queue of those that wait.
#[derive(Debug)]
pub(crate) struct LogThread {
    sender: Sender<Message>,
    waiting: Arc<Waiting>,
}

impl LogThread {
    /// Starts the thread, which ends with the queue. Once lines that were dropped are followed by
    /// one that was written, it calls `report` with their number.
    ///
    /// # Errors
    /// The system starts no thread: write the log without one.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let waiting = Arc::new(Waiting::default());
        let of_thread = Arc::clone(&waiting);
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write_lines(out, &receiver, &of_thread, report))?;
        Ok(Self { sender, waiting })
    }

    /// Queues a line, or drops it if too many wait. Never blocks.
    pub(crate) fn line(&self, line: &[u8]) {
        let bytes = line.len() + LINE_BYTES;
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_sent = before + bytes <= WAITING_BYTES_MAX
            && self.sender.send(Message::Line(line.to_vec())).is_ok();
        if !is_sent {
            self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.waiting.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the lines that wait have left, and for that long at most.
    pub(crate) fn flush(&self, within: Duration) {
        let (done, is_done) = channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            // Without an answer in that time nothing takes the lines.
            let _ = is_done.recv_timeout(within);
        }
    }
}

fn write_lines(
    mut out: impl Write,
    lines: &Receiver<Message>,
    waiting: &Waiting,
    report: impl Fn(u64),
) {
    for message in lines {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(done) => {
                // Nothing waits for it any more if this fails.
                let _ = done.send(());
                continue;
            }
        };
        let is_written = out.write_all(&line).is_ok();
        let bytes = line.len() + LINE_BYTES;
        let left = waiting.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if !is_written {
            waiting.dropped.fetch_add(1, Ordering::Relaxed);
        } else if left < WAITING_BYTES_MAX / 2 {
            match waiting.dropped.swap(0, Ordering::Relaxed) {
                0 => {}
                dropped => report(dropped),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::SyncSender;
    use std::time::Instant;

    use super::*;

    /// Takes a line after each permit, or refuses it.
    struct Slow {
        permits: Receiver<bool>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.permits.recv().unwrap_or(true) {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
            }
            self.taken.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Test {
        thread: LogThread,
        permits: SyncSender<bool>,
        taken: Arc<Mutex<Vec<u8>>>,
        reported: Arc<AtomicU64>,
    }

    fn test() -> Test {
        let (permits, of_writer) = std::sync::mpsc::sync_channel(1000);
        let (taken, reported) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (writer, report) =
            (Slow { permits: of_writer, taken: Arc::clone(&taken) }, Arc::clone(&reported));
        let count = move |lines| {
            report.fetch_add(lines, Ordering::Relaxed);
        };
        Test { thread: LogThread::start(writer, count).unwrap(), permits, taken, reported }
    }

    #[test]
    fn lines_that_nothing_takes_are_dropped_and_reported_later() {
        let Test { thread, permits, taken, reported } = test();
        let long = [b'x'; (64 << 10) - LINE_BYTES];
        // As many as wait at most, and ten more.
        for _ in 0..WAITING_BYTES_MAX / (64 << 10) + 10 {
            thread.line(&long);
        }
        let began = Instant::now();
        thread.flush(Duration::from_millis(10));
        assert!(began.elapsed() >= Duration::from_millis(10), "nothing has left");
        drop(permits);
        thread.flush(Duration::from_secs(60));
        assert_eq!(taken.lock().unwrap().len(), long.len() * (WAITING_BYTES_MAX >> 16));
        assert_eq!(reported.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn line_that_cannot_be_written_costs_that_line_alone() {
        let Test { thread, permits, taken, reported } = test();
        for (line, is_taken) in [("a\n", true), ("b\n", false), ("c\n", false), ("d\n", true)] {
            permits.send(is_taken).unwrap();
            thread.line(line.as_bytes());
        }
        thread.flush(Duration::from_secs(60));
        assert_eq!(*taken.lock().unwrap(), b"a\nd\n");
        assert_eq!(reported.load(Ordering::Relaxed), 2);
    }
}
