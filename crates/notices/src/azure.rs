//! Azure: scheduled events ("Azure Metadata Service: Scheduled Events for Linux VMs", Azure
//! documentation). The events of a whole scale set are listed; those of other machines are not
//! ours.

use std::time::Duration;

use hyper::Method;
use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::Notice;
use serde::Deserialize;
use serde_json::json;

use crate::fetch::{FetchError, Service};
use crate::moment;
use crate::options::NoticeOptions;
use crate::reading::{NoticeMaker, SourceError};

const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

/// Azure's metadata service.
#[derive(Debug)]
pub(crate) struct Azure {
    service: Service,
    deadline: Duration,
    /// This machine's name, once known.
    name: Option<String>,
    /// The event that takes this machine, and its notice, counted from the first sight.
    event: Option<(String, Notice)>,
    is_acknowledged: bool,
    notices: NoticeMaker,
}

#[derive(Debug, Deserialize)]
struct Document {
    #[serde(rename = "Events")]
    events: Vec<AzureEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct AzureEvent {
    #[serde(rename = "EventId")]
    id: String,
    #[serde(rename = "EventType")]
    kind: String,
    #[serde(rename = "Resources", default)]
    resources: Vec<String>,
    #[serde(rename = "EventStatus", default)]
    status: String,
    #[serde(rename = "NotBefore", default)]
    not_before: String,
}

impl Azure {
    pub(crate) fn new(options: &NoticeOptions, notices: NoticeMaker) -> Result<Self, FetchError> {
        Ok(Self {
            service: Service::new(options.url(), options.call_within)?,
            deadline: options.deadline,
            name: None,
            event: None,
            is_acknowledged: false,
            notices,
        })
    }

    pub(crate) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        let body = self.page(EVENTS).await?;
        let events = taking(&body)?;
        let needs_name = events.iter().any(|event| !event.resources.is_empty());
        if needs_name && self.name.is_none() {
            self.name = Some(self.page(NAME).await?.trim().to_owned());
        }
        let mine = |event: &&AzureEvent| {
            event.resources.is_empty()
                || self.name.as_ref().is_some_and(|name| {
                    event.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name))
                })
        };
        let event = events.iter().find(mine);
        match event {
            Some(event) if self.event.as_ref().is_none_or(|(id, _)| *id != event.id) => {
                let reason = format!("Azure {} of {:?}", event.kind, event.not_before);
                let notice = self.notices.notice(self.left(event)?, reason);
                self.event = Some((event.id.clone(), notice));
                self.is_acknowledged = false;
            }
            Some(_) => {}
            None => self.event = None,
        }
        let notice = self.event.as_ref().map(|(_, notice)| notice.clone());
        Ok(SourceReading { notice, recommendation: None })
    }

    fn left(&self, event: &AzureEvent) -> Result<Duration, SourceError> {
        if event.not_before.trim().is_empty() {
            // It has started: the time left is unknown, and none is promised.
            let has_started = event.status == "Started";
            return Ok(if has_started { Duration::from_millis(500) } else { self.deadline });
        }
        let moment = moment::from_http(&event.not_before)
            .or_else(|| moment::from_rfc3339(&event.not_before));
        moment.map(moment::until).ok_or_else(|| SourceError::Garbled {
            path: EVENTS,
            why: format!("{:?} is no time", event.not_before),
        })
    }

    /// Lets the event start: what the machine had to do is done.
    pub(crate) async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some((id, _)) = self.event.as_ref().filter(|_| !self.is_acknowledged) else {
            return Ok(());
        };
        let body = json!({ "StartRequests": [{ "EventId": id }] }).to_string();
        let (header, within) = (("metadata", "true"), self.service.within());
        let answer = self.service.send(Method::POST, EVENTS, header, &body, within).await?;
        if answer.status != 200 {
            return Err(SourceError::Status { path: EVENTS, status: answer.status });
        }
        self.is_acknowledged = true;
        Ok(())
    }

    async fn page(&self, path: &'static str) -> Result<String, SourceError> {
        let answer = self.service.get(path, ("metadata", "true")).await?;
        match answer.status {
            200 => Ok(answer.body),
            status => Err(SourceError::Status { path, status }),
        }
    }
}

/// Returns the events that take a machine's memory for good.
pub(crate) fn taking(body: &str) -> Result<Vec<AzureEvent>, SourceError> {
    let document: Document = serde_json::from_str(body)
        .map_err(|error| SourceError::Garbled { path: EVENTS, why: error.to_string() })?;
    let takes = |event: &AzureEvent| matches!(event.kind.as_str(), "Preempt" | "Terminate");
    Ok(document.events.into_iter().filter(takes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{
        "DocumentIncarnation": 2,
        "Events": [
            {"EventId": "A", "EventStatus": "Scheduled", "EventType": "Freeze",
             "ResourceType": "VirtualMachine", "Resources": ["vm_0"],
             "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT", "Description": "",
             "EventSource": "Platform", "DurationInSeconds": 5},
            {"EventId": "B", "EventStatus": "Scheduled", "EventType": "Preempt",
             "ResourceType": "VirtualMachine", "Resources": ["vm_1"],
             "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT", "Description": "",
             "EventSource": "Platform", "DurationInSeconds": -1}
        ]
    }"#;

    #[test]
    fn only_events_that_take_the_machine_count() {
        let events = taking(RECORDED).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].id.as_str(), events[0].resources[0].as_str()), ("B", "vm_1"));
        assert!(taking(r#"{"DocumentIncarnation":1,"Events":[]}"#).unwrap().is_empty());
    }

    #[test]
    fn garbage_is_an_error() {
        for body in ["", "{}", "<html>", r#"{"Events":[{"EventType":"Preempt"}]}"#] {
            assert!(matches!(taking(body), Err(SourceError::Garbled { .. })), "{body}");
        }
    }
}
