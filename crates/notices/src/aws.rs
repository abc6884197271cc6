//! Amazon: the instance metadata service, version 2 ("Use the Instance Metadata Service to access
//! instance metadata", "Spot Instance interruption notices" and "EC2 instance rebalance
//! recommendations", Amazon EC2 User Guide).

use std::time::Duration;

use hyper::Method;
use sanderling_core::datanode::SourceReading;
use serde::Deserialize;
use tokio::time::Instant;

use crate::fetch::{FetchError, Service};
use crate::moment;
use crate::options::NoticeOptions;
use crate::reading::{AnswerFault, NoticeMaker, SourceError};

const TOKEN: &str = "/latest/api/token";
const ACTION: &str = "/latest/meta-data/spot/instance-action";
const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";

/// Lifetime of a token, in seconds. It is renewed after half of it. Amazon allows 1 s to 6 h. At a
/// look every 5 s by default, one request in thirty is for a token. Chosen, not measured.
const TOKEN_SECONDS: u64 = 300;

/// Amazon's instance metadata service.
#[derive(Debug)]
pub(crate) struct Aws {
    service: Service,
    token: Option<(String, Instant)>,
    notices: NoticeMaker,
}

/// `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`.
#[derive(Debug, Deserialize)]
struct InstanceAction {
    action: String,
    time: String,
}

/// `{"noticeTime": "2020-10-27T08:22:00Z"}`.
#[derive(Debug, Deserialize)]
struct Rebalance {
    #[serde(rename = "noticeTime")]
    notice_time: String,
}

impl Aws {
    pub(crate) fn new(options: &NoticeOptions, notices: NoticeMaker) -> Result<Self, FetchError> {
        let service = Service::new(options.url(), options.call_within)?;
        Ok(Self { service, token: None, notices })
    }

    pub(crate) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        let action = self.page(ACTION).await?;
        let announced = action.map(|body| notice(&body)).transpose()?;
        let notice = announced.map(|(left, reason)| self.notices.notice(left, reason));
        let rebalance = self.page(REBALANCE).await;
        let recommendation = match rebalance {
            Ok(body) => body.map(|body| recommendation(&body)).transpose()?,
            // The notice is what counts.
            Err(_) if notice.is_some() => None,
            Err(error) => return Err(error),
        };
        Ok(SourceReading { notice, recommendation })
    }

    /// Reads a page that is there only while there is a notice or recommendation.
    async fn page(&mut self, path: &'static str) -> Result<Option<String>, SourceError> {
        for _ in 0..2 {
            let token = self.token().await?;
            let header = ("x-aws-ec2-metadata-token", token.as_str());
            let answer = self.service.get(path, header).await?;
            match answer.status {
                200 => return Ok(Some(answer.body)),
                404 => return Ok(None),
                // The token has ended before its time.
                401 => self.token = None,
                status => return Err(SourceError::Status { path, status }),
            }
        }
        Err(SourceError::Status { path, status: 401 })
    }

    async fn token(&mut self) -> Result<String, SourceError> {
        if let Some((token, renew_at)) = &self.token
            && *renew_at > Instant::now()
        {
            return Ok(token.clone());
        }
        let seconds = TOKEN_SECONDS.to_string();
        let header = ("x-aws-ec2-metadata-token-ttl-seconds", seconds.as_str());
        let within = self.service.within();
        let answer = self.service.send(Method::PUT, TOKEN, header, "", within).await?;
        if answer.status != 200 {
            return Err(SourceError::Status { path: TOKEN, status: answer.status });
        }
        let token = answer.body.trim().to_owned();
        if token.is_empty() || token.chars().any(|sign| !sign.is_ascii_graphic()) {
            return Err(SourceError::Garbled { path: TOKEN, fault: AnswerFault::NoToken });
        }
        let renew_at = Instant::now() + Duration::from_secs(TOKEN_SECONDS / 2);
        self.token = Some((token.clone(), renew_at));
        Ok(token)
    }
}

/// Returns the time that the machine has left, and the reason.
pub(crate) fn notice(body: &str) -> Result<(Duration, String), SourceError> {
    let garbled = |fault| SourceError::Garbled { path: ACTION, fault };
    let action: InstanceAction =
        serde_json::from_str(body).map_err(|error| garbled(error.into()))?;
    let moment = moment::from_rfc3339(&action.time)
        .ok_or_else(|| garbled(AnswerFault::NoTime { text: action.time.clone() }))?;
    // Memory is gone by each of terminate, stop and hibernate.
    let reason = format!("AWS spot interruption: {} at {}", action.action, action.time);
    Ok((moment::until(moment), reason))
}

pub(crate) fn recommendation(body: &str) -> Result<String, SourceError> {
    let rebalance: Rebalance = serde_json::from_str(body)
        .map_err(|error| SourceError::Garbled { path: REBALANCE, fault: error.into() })?;
    Ok(format!("AWS rebalance recommendation of {}", rebalance.notice_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_bodies_are_understood() {
        let (_, reason) =
            notice(r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#).unwrap();
        assert!(reason.contains("terminate"), "{reason}");
        assert!(notice(r#"{"action":"hibernate","time":"2099-09-18T08:22:00Z"}"#).is_ok());
        let words = recommendation(r#"{"noticeTime": "2020-10-27T08:22:00Z"}"#).unwrap();
        assert!(words.ends_with("2020-10-27T08:22:00Z"));
    }

    #[test]
    fn garbage_is_an_error_and_no_notice() {
        for body in ["", "<html>", "{}", r#"{"action":"stop","time":"soon"}"#, "[1]"] {
            assert!(matches!(notice(body), Err(SourceError::Garbled { .. })), "{body}");
        }
        assert!(recommendation("null").is_err());
    }
}
