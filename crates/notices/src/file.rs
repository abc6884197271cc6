//! A file, written by scripts, tests, or for clouds that are not supported here.
//!
//! `{"deadline_seconds": 30, "reason": "..."}` counts from the file's last change,
//! `{"deadline_at": "2026-01-02T03:04:05Z"}` names the moment, `{}` leaves the default time, and
//! `{"recommendation": "..."}` is no notice. Removing the file takes its notice back.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::Notice;
use serde::Deserialize;

use crate::moment;
use crate::options::NoticeSource;
use crate::reading::{NoticeFault, NoticeMaker, SourceError};

/// Longest file that is read. A notice has a reason of at most 1 KiB (`TEXT_BYTES_MAX`); a path
/// that leads to something larger is a mistake.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The file and what it contained last.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    deadline: Duration,
    seen: Option<(SystemTime, SourceReading)>,
    notices: NoticeMaker,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    deadline_seconds: Option<f64>,
    deadline_at: Option<String>,
    recommendation: Option<String>,
    #[serde(default)]
    reason: String,
}

impl File {
    pub(crate) const fn new(path: PathBuf, deadline: Duration, notices: NoticeMaker) -> Self {
        Self { path, deadline, seen: None, notices }
    }

    pub(crate) fn look(&mut self) -> Result<SourceReading, SourceError> {
        let path = || self.path.clone();
        let failed = |cause| SourceError::File { path: path(), cause };
        let about = match std::fs::metadata(&self.path) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.seen = None;
                return Ok(SourceReading::default());
            }
            Err(error) => return Err(failed(error)),
        };
        if !about.is_file() {
            // A pipe would wait for a writer.
            return Err(SourceError::NoFile { path: path() });
        }
        let changed_at = about.modified().map_err(failed)?;
        if let Some((at, seen)) = &self.seen
            && *at == changed_at
        {
            return Ok(seen.clone());
        }
        if about.len() > FILE_BYTES_MAX {
            return Err(SourceError::LongFile { path: path() });
        }
        let text = std::fs::read_to_string(&self.path).map_err(failed)?;
        let seen = self.read(&text, changed_at)?;
        self.seen = Some((changed_at, seen.clone()));
        Ok(seen)
    }

    fn read(&self, text: &str, changed_at: SystemTime) -> Result<SourceReading, SourceError> {
        let garbled = |fault| SourceError::NoNotice { path: self.path.clone(), fault };
        let content: Content = serde_json::from_str(text).map_err(|error| garbled(error.into()))?;
        let reason = match content.reason.as_str() {
            "" => format!("the file {}", self.path.display()),
            reason => reason.to_owned(),
        };
        let moment = match (content.deadline_seconds, &content.deadline_at) {
            (Some(_), Some(_)) => {
                return Err(garbled(NoticeFault::TwoDeadlines));
            }
            (Some(seconds), None) => {
                let left =
                    Duration::try_from_secs_f64(seconds).map_err(|error| garbled(error.into()))?;
                let moment = changed_at.checked_add(left);
                Some(moment.ok_or_else(|| garbled(NoticeFault::TooLate { seconds }))?)
            }
            (None, Some(text)) => {
                let moment = moment::from_rfc3339(text);
                Some(moment.ok_or_else(|| garbled(NoticeFault::NoTime { text: text.clone() }))?)
            }
            (None, None) => None,
        };
        let notice = match (moment, &content.recommendation) {
            (None, Some(_)) => None,
            (moment, _) => {
                Some(self.announce(moment.unwrap_or(changed_at + self.deadline), reason))
            }
        };
        Ok(SourceReading { notice, recommendation: content.recommendation })
    }

    fn announce(&self, moment: SystemTime, reason: String) -> Notice {
        self.notices.notice(moment::until(moment), reason)
    }
}

/// Returns whether a text is a notice, without a file.
pub(crate) fn understands(text: &str) -> bool {
    read(text).is_ok()
}

fn read(text: &str) -> Result<SourceReading, SourceError> {
    let path = PathBuf::from("/notice");
    let notices = NoticeMaker::new(&NoticeSource::File(path.clone()), tokio::time::Instant::now());
    File::new(path, Duration::from_secs(30), notices).read(text, SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn each_form_is_understood() {
        let left = |text: &str| {
            let notice = read(text).unwrap().notice.unwrap();
            notice.deadline.0 / 1_000_000
        };
        assert!((8..=9).contains(&left(r#"{"deadline_seconds": 9.5, "reason": "why"}"#)));
        assert!((28..=30).contains(&left("{}")));
        assert!(left(r#"{"deadline_at": "2099-01-01T00:00:00Z"}"#) > 1_000_000);
        for many in ["1e19", "1e300"] {
            read(&format!(r#"{{"deadline_seconds": {many}}}"#)).expect_err("no such time");
        }
        let seen = read(r#"{"recommendation": "leave"}"#).unwrap();
        assert_eq!((seen.notice, seen.recommendation.as_deref()), (None, Some("leave")));
    }

    /// Reading a pipe would wait for its writer, and a server that ends waits for the reader.
    #[test]
    fn what_is_no_file_is_an_error_at_once() {
        let path = PathBuf::from("/");
        let notices =
            NoticeMaker::new(&NoticeSource::File(path.clone()), tokio::time::Instant::now());
        let error = File::new(path, Duration::from_secs(30), notices).look().unwrap_err();
        assert_eq!(error.to_string(), "/ is no file");
    }

    #[test]
    fn half_written_and_wrong_files_are_errors() {
        for text in ["", "{", "30", r#"{"deadline_seconds": -1}"#, r#"{"deadline": 3}"#] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(r#"{"deadline_seconds": 1, "deadline_at": "2099-01-01T00:00:00Z"}"#).is_err());
    }

    #[test]
    fn error_of_a_file_has_its_fault_and_the_parser_as_sources() {
        let wrong = read("{").unwrap_err();
        let fault = wrong.source().and_then(|it| it.downcast_ref::<NoticeFault>()).unwrap();
        let parser = fault.source().and_then(|it| it.downcast_ref::<serde_json::Error>()).unwrap();
        assert_eq!(wrong.to_string(), format!("/notice is no notice: {parser}"));
        let twice = r#"{"deadline_seconds": 1, "deadline_at": "2099-01-01T00:00:00Z"}"#;
        let text = "/notice is no notice: it has deadline_seconds and deadline_at";
        assert_eq!(read(twice).unwrap_err().to_string(), text);
    }
}
