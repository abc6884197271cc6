//! Google: the metadata server's `preempted` ("Spot VMs" and "View and query VM metadata", Compute
//! Engine documentation). It names no moment; the machine is stopped about 30 s later.

use std::time::Duration;

use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::Notice;

use crate::fetch::{FetchError, Service};
use crate::options::NoticeOptions;
use crate::reading::{AnswerFault, NoticeMaker, SourceError};

const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";

/// How long the server waits for a change before it answers, in seconds. Less than the 30 s of the
/// notice, so that 10 s are left of it if a request is lost on its way; more would save few
/// requests.
const WAIT_SECONDS: u64 = 20;

/// Google's metadata server.
#[derive(Debug)]
pub(crate) struct Gcp {
    service: Service,
    deadline: Duration,
    /// The version of the value seen last: the server answers when it has another.
    etag: Option<String>,
    has_waited: bool,
    /// Deadlines are counted from the first sight.
    notice: Option<Notice>,
    notices: NoticeMaker,
}

impl Gcp {
    pub(crate) fn new(options: &NoticeOptions, notices: NoticeMaker) -> Result<Self, FetchError> {
        Ok(Self {
            service: Service::new(options.url(), options.call_within)?,
            deadline: options.deadline,
            etag: None,
            has_waited: false,
            notice: None,
            notices,
        })
    }

    pub(crate) const fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Has the next look answered at once, whether or not anything changes.
    pub(crate) fn skip_wait(&mut self) {
        self.etag = None;
    }

    pub(crate) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        self.has_waited = false;
        let header = ("metadata-flavor", "Google");
        let answer = match &self.etag {
            Some(etag) => {
                let path = format!(
                    "{PREEMPTED}?wait_for_change=true&timeout_sec={WAIT_SECONDS}&last_etag={etag}"
                );
                let within = self.service.within() + Duration::from_secs(WAIT_SECONDS);
                self.service.get_within(&path, header, within).await
            }
            None => self.service.get(PREEMPTED, header).await,
        };
        // After a failure the next look is a plain one, which answers at once.
        let was_waiting = self.etag.take().is_some();
        let answer = answer?;
        if answer.status != 200 {
            return Err(SourceError::Status { path: PREEMPTED, status: answer.status });
        }
        let is_preempted = read(&answer.body)?;
        let is_plain = |etag: &String| etag.chars().all(|sign| sign.is_ascii_alphanumeric());
        self.etag = answer.etag.filter(is_plain);
        self.has_waited = was_waiting && self.etag.is_some();
        if is_preempted {
            let new = || self.notices.notice(self.deadline, "GCP preemption".to_owned());
            self.notice = Some(self.notice.take().unwrap_or_else(new));
        } else {
            self.notice = None;
        }
        Ok(SourceReading { notice: self.notice.clone(), recommendation: None })
    }
}

pub(crate) fn read(body: &str) -> Result<bool, SourceError> {
    match body.trim() {
        "TRUE" => Ok(true),
        "FALSE" => Ok(false),
        other => {
            let fault = AnswerFault::UnknownWord { text: other.chars().take(40).collect() };
            Err(SourceError::Garbled { path: PREEMPTED, fault })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_documented_words_are_taken() {
        assert!(read("TRUE").unwrap());
        assert!(!read("FALSE\n").unwrap());
        for body in ["", "true", "1", "<html>"] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
