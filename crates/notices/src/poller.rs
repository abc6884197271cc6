//! The loop around [`SourcePoll`], which decides when a source is looked at and what has changed.

use std::time::Duration;

use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::{NextLook, NoticeChange, SourceHealth, SourcePoll, UNDONE_PAUSE};
use sanderling_protocol as protocol;
use tokio::time::{Instant, sleep};

use crate::fetch::FetchError;
use crate::options::NoticeOptions;
use crate::reading::SourceError;
use crate::source::SourceReader;

/// One source that is polled, for as long as its caller takes the next look.
#[derive(Debug)]
pub struct SourcePoller {
    reader: SourceReader,
    poll: SourcePoll,
    every: Duration,
    /// Zero of the clock by which deadlines are counted.
    since: Instant,
}

/// One look at a source, with what has changed since the look before. Act on [`Self::change`], and
/// log [`Self::health`].
#[derive(Debug)]
pub struct SourceLook {
    /// What the source shows. After an error, what it showed before may still hold.
    pub seen: Result<SourceReading, SourceError>,
    /// When it was seen, by the clock of the deadlines.
    pub at: protocol::Instant,
    /// Whether the source answers, if that is new.
    pub health: SourceHealth,
    /// What has changed of the notice.
    pub change: NoticeChange,
}

impl SourcePoller {
    /// Opens a source. The deadlines of its notices are in microseconds after `since`.
    ///
    /// # Errors
    /// Its address is none that can be called: correct `--notice-url`.
    pub fn open(options: &NoticeOptions, since: Instant) -> Result<Self, FetchError> {
        let reader = SourceReader::new(options, since)?;
        Ok(Self { reader, poll: SourcePoll::default(), every: options.poll(), since })
    }

    /// Waits until the next look is due, and looks. The look takes as long as the calls to the
    /// source may take; Google's server answers when something changes.
    pub async fn look(&mut self) -> SourceLook {
        match self.poll.next_look() {
            NextLook::AtOnce => {}
            NextLook::AfterPoll => sleep(self.every).await,
            NextLook::Again => {
                self.reader.skip_wait();
                sleep(UNDONE_PAUSE.into()).await;
            }
        }
        let seen = self.reader.look().await;
        let passed = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let at = protocol::Instant(passed);
        let (health, change) = match &seen {
            Ok(reading) => {
                let deadline = reading.notice.as_ref().map(|notice| notice.deadline);
                self.poll.read(at, deadline, self.reader.has_waited())
            }
            Err(_) => (self.poll.failed(), NoticeChange::Unchanged),
        };
        SourceLook { seen, at, health, change }
    }

    /// Takes that the caller could not do what the last look requires: the next one comes soon, and
    /// waits for no change of the source.
    pub const fn look_again_soon(&mut self) {
        self.poll.undone();
    }

    /// Acknowledges to the source that the machine may be taken. Only Azure has that.
    ///
    /// # Errors
    /// The source did not take it: try again after the next look.
    pub async fn acknowledge(&mut self) -> Result<(), SourceError> {
        self.reader.acknowledge().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::options::NoticeSource;

    /// Longer than any look of these tests takes on a busy machine, and shorter than Google's
    /// server lets a request wait.
    const SOON: Duration = Duration::from_secs(15);

    /// Returns the address of a server whose machine will be taken. A request that waits for a
    /// change gets no answer.
    async fn unchanging_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.unwrap_or_default();
                if String::from_utf8_lossy(&head[..length]).contains("wait_for_change") {
                    waiting.push(stream);
                    continue;
                }
                let answer = "HTTP/1.1 200 OK\r\netag: 1\r\ncontent-length: 4\r\n\r\nTRUE";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}")
    }

    fn options(source: NoticeSource, url: Option<String>) -> NoticeOptions {
        let (poll, call_within) = (Some(Duration::from_millis(1)), Duration::from_secs(60));
        NoticeOptions { url, poll, call_within, ..NoticeOptions::new(source) }
    }

    /// Else the notice would be given again only when Google's server answers, after 20 s.
    #[tokio::test]
    async fn source_is_not_waited_for_while_something_is_undone() {
        let options = options(NoticeSource::Gcp, Some(unchanging_server().await));
        let mut poller = SourcePoller::open(&options, Instant::now()).unwrap();
        let first = poller.look().await;
        assert!(matches!(first.change, NoticeChange::Given(_)), "{first:?}");
        for _ in 0..3 {
            poller.look_again_soon();
            let again = timeout(SOON, poller.look()).await.expect("it does not wait");
            assert!(again.seen.is_ok_and(|seen| seen.notice.is_some()));
            assert_eq!(again.change, NoticeChange::Unchanged);
        }
        let waits = timeout(Duration::from_millis(200), poller.look()).await;
        assert!(waits.is_err(), "it waits for a change when all is done: {waits:?}");
    }

    #[tokio::test]
    async fn look_that_fails_takes_no_notice_back() {
        let directory = std::env::temp_dir();
        let file = directory.join(format!("sanderling-poller-{}", std::process::id()));
        let options = options(NoticeSource::File(file.clone()), None);
        let mut poller = SourcePoller::open(&options, Instant::now()).unwrap();
        assert_eq!(poller.look().await.health, SourceHealth::Answers { is_again: false });
        std::fs::write(&file, r#"{"deadline_seconds": 600}"#).unwrap();
        let given = poller.look().await;
        let NoticeChange::Given(deadline) = given.change else { panic!("{given:?}") };
        assert!(deadline > given.at, "both are by one clock: {given:?}");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let failed = poller.look().await;
        std::fs::remove_dir(&file).unwrap();
        assert!(failed.seen.is_err(), "{failed:?}");
        assert_eq!((failed.health, failed.change), (SourceHealth::Fails, NoticeChange::Unchanged));
        let gone = poller.look().await;
        assert_eq!(gone.health, SourceHealth::Answers { is_again: true });
        assert_eq!(gone.change, NoticeChange::Withdrawn);
    }
}
