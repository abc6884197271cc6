//! Azure: scheduled events ("Azure Metadata Service: Scheduled Events for Linux VMs", Azure
//! documentation). The events of a whole scale set are listed; those of other machines are not
//! ours.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::Notice;
use serde::Deserialize;
use serde_json::json;

use crate::fetch::{FetchError, Service};
use crate::moment;
use crate::options::NoticeOptions;
use crate::reading::{AnswerFault, NoticeMaker, SourceError};

const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

/// Azure's metadata service.
#[derive(Debug)]
pub(crate) struct Azure {
    service: Service,
    deadline: Duration,
    /// This machine's name, once known.
    name: Option<String>,
    /// The events that take this machine, by their ids.
    events: BTreeMap<String, OwnEvent>,
    notices: NoticeMaker,
}

/// An event that takes this machine.
#[derive(Debug)]
struct OwnEvent {
    /// What was read of it: Azure may move an event.
    read: AzureEvent,
    /// Counted from the sight of what was read.
    notice: Notice,
    is_acknowledged: bool,
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
            events: BTreeMap::new(),
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
        self.take(&events)
    }

    /// Takes what is listed. Of several events of this machine the earliest counts.
    fn take(&mut self, events: &[AzureEvent]) -> Result<SourceReading, SourceError> {
        let mine = |event: &&AzureEvent| {
            event.resources.is_empty()
                || self.name.as_ref().is_some_and(|name| {
                    event.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name))
                })
        };
        let own: Vec<&AzureEvent> = events.iter().filter(mine).collect();
        self.events.retain(|id, _| own.iter().any(|event| event.id == *id));
        for event in own {
            let known = self.events.get(&event.id);
            if known.is_some_and(|known| known.read == *event) {
                continue;
            }
            let reason = format!("Azure {} of {:?}", event.kind, event.not_before);
            let notice = self.notices.notice(self.left(event)?, reason);
            let is_acknowledged = known.is_some_and(|known| known.is_acknowledged);
            let own = OwnEvent { read: event.clone(), notice, is_acknowledged };
            self.events.insert(event.id.clone(), own);
        }
        let notice = self.events.values().map(|own| own.notice.clone());
        let notice = notice.min_by_key(|notice| notice.deadline);
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
            fault: AnswerFault::NoTime { text: event.not_before.clone() },
        })
    }

    /// Lets the events start: what the machine had to do is done.
    pub(crate) async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let open = || self.events.iter().filter(|(_, own)| !own.is_acknowledged);
        let ids: Vec<String> = open().map(|(id, _)| id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let starts: Vec<_> = ids.iter().map(|id| json!({ "EventId": id })).collect();
        let body = json!({ "StartRequests": starts }).to_string();
        let (header, within) = (("metadata", "true"), self.service.within());
        let answer = self.service.send(Method::POST, EVENTS, header, &body, within).await?;
        if answer.status != 200 {
            return Err(SourceError::Status { path: EVENTS, status: answer.status });
        }
        for id in ids {
            if let Some(own) = self.events.get_mut(&id) {
                own.is_acknowledged = true;
            }
        }
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
        .map_err(|error| SourceError::Garbled { path: EVENTS, fault: error.into() })?;
    let takes = |event: &AzureEvent| matches!(event.kind.as_str(), "Preempt" | "Terminate");
    Ok(document.events.into_iter().filter(takes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::NoticeSource;

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

    fn azure() -> Azure {
        let options = NoticeOptions::new(NoticeSource::Azure);
        let notices = NoticeMaker::new(&options.source, tokio::time::Instant::now());
        Azure::new(&options, notices).unwrap()
    }

    fn event(id: &str, seconds: u64) -> AzureEvent {
        let at = std::time::SystemTime::now() + Duration::from_secs(seconds);
        AzureEvent {
            id: id.to_owned(),
            kind: "Preempt".to_owned(),
            resources: Vec::new(),
            status: "Scheduled".to_owned(),
            not_before: httpdate::fmt_http_date(at),
        }
    }

    #[test]
    fn earliest_event_of_the_machine_counts_also_when_it_was_moved() {
        let mut azure = azure();
        let left = |azure: &mut Azure, events: &[AzureEvent]| {
            let notice = azure.take(events).unwrap().notice?;
            Some(notice.deadline.0 / 1_000_000)
        };
        let late = event("late", 900);
        assert!((890..=900).contains(&left(&mut azure, std::slice::from_ref(&late)).unwrap()));
        let both = [late.clone(), event("soon", 30)];
        assert!((25..=30).contains(&left(&mut azure, &both).unwrap()));
        let moved = [event("late", 60)];
        assert!((55..=60).contains(&left(&mut azure, &moved).unwrap()), "it was moved");
        let before = azure.take(&moved).unwrap();
        assert_eq!(azure.take(&moved).unwrap(), before, "each look shows the same notice");
        assert_eq!(left(&mut azure, &[]), None);
    }

    #[test]
    fn garbage_is_an_error() {
        for body in ["", "{}", "<html>", r#"{"Events":[{"EventType":"Preempt"}]}"#] {
            assert!(matches!(taking(body), Err(SourceError::Garbled { .. })), "{body}");
        }
    }
}
