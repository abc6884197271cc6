//! What the parts of a datanode count at the moment when it happens. What can be read at any time
//! is in [`metrics`](crate::metrics).

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};
use sanderling_notices::NoticeSource;
use sanderling_protocol::{Op, Refusal};

use crate::latency::{LatencyHistogram, TIMED_OF};

pub(crate) type Gauge64 = Gauge<u64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpLabel {
    op: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

/// One more than the largest number of an operation.
const OPS: usize = Op::LAST as usize + 1;

/// The counters of one datanode.
#[derive(Debug)]
pub(crate) struct Counters {
    /// By number of operation: the family would take a lock each time.
    requests: [Counter; OPS],
    /// By number of operation, of those whose requests are data.
    latencies: [Option<LatencyHistogram>; OPS],
    refusals: Family<KindLabel, Counter>,
    notice_sources: Family<SourceLabel, Gauge64>,
    /// The labels and names of the sources of notices that fail: all files have one label.
    failing_sources: Mutex<BTreeSet<(String, String)>>,
    notices: Family<SourceLabel, Counter>,
    pub(crate) heartbeats_failed: Counter,
    pub(crate) registrations: Counter,
    pub(crate) objects_deleted: Counter,
}

impl Counters {
    /// Makes the counters and registers them.
    pub(crate) fn new(to: &mut Registry) -> Self {
        let requests: Family<OpLabel, Counter> =
            registered(to, "requests", "Requests received, by operation");
        let of = |number: usize| {
            let op = u8::try_from(number).ok().and_then(Op::from_wire)?;
            Some(requests.get_or_create_owned(&OpLabel { op: op_name(op) }))
        };
        let times: Family<OpLabel, LatencyHistogram> = Family::default();
        let help = "Time from a whole request to its answer, before that is sent";
        to.register_with_unit("request", help, Unit::Seconds, times.clone());
        let time_of = |number: usize| {
            let op = u8::try_from(number).ok().and_then(Op::from_wire)?;
            let is_data = matches!(op, Op::Read | Op::ReadMany | Op::Write | Op::Store);
            is_data.then(|| times.get_or_create_owned(&OpLabel { op: op_name(op) }))
        };
        let up = "1 while a source of notices answers, 0 while it fails";
        let failed = "Heartbeats that the namenode did not answer";
        let deleted = "Objects deleted from the object tier because no node serves them";
        Self {
            requests: std::array::from_fn(|number| of(number).unwrap_or_default()),
            latencies: std::array::from_fn(time_of),
            refusals: registered(to, "refusals", "Requests refused, by kind of refusal"),
            notice_sources: registered(to, "notice_source_up", up),
            failing_sources: Mutex::default(),
            notices: registered(to, "notices", "Notices given, by source"),
            heartbeats_failed: registered(to, "heartbeats_failed", failed),
            registrations: registered(to, "registrations", "Registrations with the namenode"),
            objects_deleted: registered(to, "objects_deleted", deleted),
        }
    }

    /// Counts a request. Returns the time of its begin if its end is to be timed, should it be
    /// answered at once.
    pub(crate) fn count_request(&self, op: Op) -> Option<Instant> {
        let before = self.requests[op as usize].inc();
        before.is_multiple_of(TIMED_OF).then(Instant::now)
    }

    /// Returns where the times of an operation are counted; `None` if they are not.
    pub(crate) fn latency(&self, op: Op) -> Option<&LatencyHistogram> {
        self.latencies[op as usize].as_ref()
    }

    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        self.refusals.get_or_create(&KindLabel { kind: refusal.name() }).inc();
    }

    /// Counts a notice of a source.
    pub(crate) fn count_notice(&self, source: &str) {
        self.notices.get_or_create(&SourceLabel { source: source.to_owned() }).inc();
    }

    /// Notes whether a source of notices answered. Several files have one gauge: it is 1 while each
    /// of them answers.
    pub(crate) fn set_notice_source(&self, source: &NoticeSource, is_up: bool) {
        let label = SourceLabel { source: source.to_string() };
        let key = (label.source.clone(), source.name());
        // Held to the end: another source of the same label is looked at in another task.
        let mut failing = self.failing_sources.lock();
        match is_up {
            true => failing.remove(&key),
            false => failing.insert(key),
        };
        let is_up = failing.iter().all(|(of, _)| *of != label.source);
        self.notice_sources.get_or_create(&label).set(u64::from(is_up));
    }
}

/// Makes a metric and registers it.
fn registered<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

const fn op_name(op: Op) -> &'static str {
    match op {
        Op::Hello => "hello",
        Op::Meta => "meta",
        Op::Order => "order",
        Op::Read => "read",
        Op::ReadMany => "read_many",
        Op::Write => "write",
        Op::Store => "store",
        Op::LocalEndpoint => "local_endpoint",
        Op::Lease => "lease",
        Op::Return => "return",
        Op::Stage => "stage",
        Op::Fill => "fill",
        Op::Trace => "trace",
        Op::Group => "group",
        Op::Cancel => "cancel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_one_label_are_up_while_each_of_them_answers() {
        let counters = Counters::new(&mut Registry::default());
        let source = |text: &str| text.parse::<NoticeSource>().unwrap();
        let (one, other, aws) = (source("file:/one"), source("file:/other"), source("aws"));
        let up = |name: &str| {
            let label = SourceLabel { source: name.to_owned() };
            counters.notice_sources.get_or_create_owned(&label).get()
        };
        for source in [&one, &other, &aws] {
            counters.set_notice_source(source, true);
        }
        assert_eq!((up("file"), up("aws")), (1, 1));
        for _ in 0..2 {
            counters.set_notice_source(&one, false);
            counters.set_notice_source(&other, true);
            assert_eq!((up("file"), up("aws")), (0, 1), "one of the files fails");
        }
        counters.set_notice_source(&other, false);
        counters.set_notice_source(&one, true);
        assert_eq!(up("file"), 0, "the other one fails");
        counters.set_notice_source(&other, true);
        assert_eq!(up("file"), 1);
    }
}
