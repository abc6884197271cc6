//! What stands in the cells of `top`, and by what rows are sorted and found.

use std::cmp::Ordering;

use sanderling_command::printable::printable;
use sanderling_command::units;
use sanderling_events::Severity;
use sanderling_protocol::message::JobInfo;
use sanderling_protocol::node::{Availability, DrainProgress, NodeInfo};
use sanderling_protocol::{Millis, Policy, Tier};

use super::event_rows::EventRow;
use super::fields::Field;
use super::rates::{NodeTraffic, RateTable};

/// One line of a view.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowSource<'a> {
    Node(&'a NodeInfo),
    Job(&'a JobInfo),
    Event(&'a EventRow),
}

/// The value that a row is sorted by. Rows without one come last.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SortKey {
    None,
    Number(i128),
    Text(String),
}

/// How a cell is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emphasis {
    Normal,
    Warning,
    Error,
}

impl From<Severity> for Emphasis {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Normal,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

impl SortKey {
    /// Compares two values; texts by the numbers in them.
    pub(super) fn compare(&self, other: &Self, is_descending: bool) -> Ordering {
        let turned = |order: Ordering| if is_descending { order.reverse() } else { order };
        match (self, other) {
            (Self::None, Self::None) => Ordering::Equal,
            (Self::None, _) => Ordering::Greater,
            (_, Self::None) => Ordering::Less,
            (Self::Number(one), Self::Number(two)) => turned(one.cmp(two)),
            (Self::Text(one), Self::Text(two)) => turned(natural(one, two)),
            (Self::Number(_), Self::Text(_)) => turned(Ordering::Less),
            (Self::Text(_), Self::Number(_)) => turned(Ordering::Greater),
        }
    }
}

/// Compares texts so that `n2` comes before `n10`.
fn natural(one: &str, two: &str) -> Ordering {
    let (mut one_rest, mut two_rest) = (one, two);
    loop {
        match (one_rest.chars().next(), two_rest.chars().next()) {
            (None, None) => return one.cmp(two),
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) if a.is_ascii_digit() && b.is_ascii_digit() => {
                let (a, b) = (digits(one_rest), digits(two_rest));
                let (x, y) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
                let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
                if order.is_ne() {
                    return order;
                }
                (one_rest, two_rest) = (&one_rest[a.len()..], &two_rest[b.len()..]);
            }
            (Some(a), Some(b)) if a == b => {
                (one_rest, two_rest) = (&one_rest[a.len_utf8()..], &two_rest[b.len_utf8()..]);
            }
            (Some(a), Some(b)) => return a.cmp(&b),
        }
    }
}

fn digits(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

impl RowSource<'_> {
    /// Returns what identifies the row in its view, whatever the order.
    pub(super) const fn id(&self) -> u64 {
        match self {
            Self::Node(node) => node.id.0 as u64,
            Self::Job(job) => job.job.0,
            Self::Event(event) => event.sequence,
        }
    }

    /// Returns the order of two rows of equal values: nodes by name, others by id.
    pub(super) fn tie(&self, other: &Self) -> Ordering {
        let names = match (self, other) {
            (Self::Node(one), Self::Node(two)) => natural(&one.name, &two.name),
            _ => Ordering::Equal,
        };
        names.then_with(|| self.id().cmp(&other.id()))
    }

    /// Returns whether all words, in lower case, are in what the row is about.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        let text = match self {
            Self::Node(node) => format!(
                "{} {} {} {} {} {} {}",
                node.name,
                node.address,
                node.host,
                node.id,
                node.policy.name(),
                health(node),
                node.reason
            ),
            Self::Job(job) => format!("{} {}", job.path, job.job),
            Self::Event(event) => {
                format!("{} {} {}", event.text, event.kind, event.severity.name())
            }
        };
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    /// Returns the text of a cell, on one line and printable.
    pub(super) fn cell(&self, field: Field, rates: &RateTable) -> String {
        let text = match self {
            Self::Node(node) => node_cell(node, field, rates),
            Self::Job(job) => job_cell(job, field, rates),
            Self::Event(event) => event_cell(event, field),
        };
        printable(&text).into_owned()
    }

    /// Returns the value of a row by which rows are sorted in the order of a field.
    pub(super) fn key(&self, field: Field, rates: &RateTable) -> SortKey {
        match self {
            Self::Node(node) => node_key(node, field, rates),
            Self::Job(job) => match field {
                Field::Used => number(job.used_bytes),
                Field::Quota => job.quota_bytes.map_or(SortKey::None, number),
                Field::Growth => {
                    rates.job(job.job).map_or(SortKey::None, |it| SortKey::Number(it.into()))
                }
                Field::Lease => number(job.remaining.0),
                Field::Id => number(job.job.0),
                _ => SortKey::Text(job.path.to_string()),
            },
            Self::Event(event) => match field {
                Field::Severity => number(event.severity as u64),
                _ => number(event.sequence),
            },
        }
    }

    /// Returns how a cell is to be seen.
    pub(super) fn emphasis(&self, field: Field) -> Emphasis {
        let if_so = |is_so: bool, emphasis| if is_so { emphasis } else { Emphasis::Normal };
        match self {
            Self::Job(_) => Emphasis::Normal,
            Self::Event(event) => event.severity.into(),
            Self::Node(node) => match field {
                Field::State => match node.policy {
                    Policy::Active => Emphasis::Normal,
                    Policy::Gone => Emphasis::Error,
                    _ => Emphasis::Warning,
                },
                Field::Health if node.availability == Availability::Down => Emphasis::Error,
                Field::Health => if_so(health(node) != "up", Emphasis::Warning),
                Field::Exposure => {
                    if_so(node.exposure_bytes > node.budget_bytes, Emphasis::Warning)
                }
                Field::Lost => if_so(lost(node) > 0, Emphasis::Error),
                Field::Late | Field::NoRoom => {
                    if_so(drain_bytes(node, field).unwrap_or(0) > 0, Emphasis::Warning)
                }
                _ => Emphasis::Normal,
            },
        }
    }
}

fn number(value: impl Into<i128>) -> SortKey {
    SortKey::Number(value.into())
}

/// Returns what heartbeats, and the cloud, report of a node.
pub(super) const fn health(node: &NodeInfo) -> &'static str {
    match node.availability {
        Availability::Suspect => "suspect",
        Availability::Down => "down",
        Availability::Up if node.is_at_risk => "at risk",
        Availability::Up => "up",
    }
}

fn lost(node: &NodeInfo) -> u64 {
    node.drain.map_or(0, |drain| drain.lost_bytes)
}

/// Returns the part of a drain, in percent, that no longer has to be moved.
fn done(drain: &DrainProgress) -> u64 {
    let gone = drain.moved_bytes + drain.promoted_bytes + drain.lost_bytes;
    match gone + drain.left_bytes {
        0 => 100,
        all => (u128::from(gone) * 100 / u128::from(all)) as u64,
    }
}

fn drain_bytes(node: &NodeInfo, field: Field) -> Option<u64> {
    let drain = node.drain?;
    let forecast = drain.forecast.filter(|_| node.policy.is_draining());
    match field {
        Field::Left => Some(drain.left_bytes),
        Field::Moved => Some(drain.moved_bytes + drain.promoted_bytes),
        Field::Lost => Some(drain.lost_bytes),
        Field::Late => forecast.map(|it| it.late_bytes),
        Field::NoRoom => forecast.map(|it| it.unplaced_bytes),
        Field::Speed => forecast.map(|it| it.bytes_per_second),
        _ => None,
    }
}

fn finish_in(node: &NodeInfo) -> Option<Millis> {
    let drain = node.drain.filter(|_| node.policy.is_draining())?;
    match drain.forecast {
        Some(forecast) => forecast.finish_in,
        None => drain.finish_in,
    }
}

fn traffic(node: &NodeInfo, field: Field, rates: &RateTable) -> Option<u64> {
    let traffic: NodeTraffic = rates.node(node.id)?;
    Some(match field {
        Field::Read => traffic.read_bytes_per_second,
        Field::Write => traffic.written_bytes_per_second,
        Field::Sent => traffic.pushed_bytes_per_second,
        Field::Received => traffic.stored_bytes_per_second,
        _ => traffic.sum(),
    })
}

fn tier(node: &NodeInfo, tier: Tier) -> Option<(u64, u64)> {
    let usage = node.tiers.iter().find(|usage| usage.tier == tier)?;
    Some((usage.used_bytes, usage.capacity_bytes))
}

fn node_cell(node: &NodeInfo, field: Field, rates: &RateTable) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let used = |wanted| {
        or_none(tier(node, wanted).map(|(used, capacity)| {
            let percent = u128::from(used) * 100 / u128::from(capacity.max(1));
            format!("{} {percent:>3}%", units::bytes(used))
        }))
    };
    let per_second = |bytes: u64| format!("{}/s", units::bytes(bytes));
    match field {
        Field::Name => node.name.clone(),
        Field::State => node.policy.name().to_owned(),
        Field::Health => health(node).to_owned(),
        Field::Memory => used(Tier::Dram),
        Field::Disk => used(Tier::Disk),
        Field::Exposure => units::bytes(node.exposure_bytes),
        Field::Heartbeat => units::millis(node.heartbeat_age),
        Field::Blocks => node.blocks.to_string(),
        Field::Life => or_none(node.expected_life.map(units::millis)),
        Field::Budget => units::bytes(node.budget_bytes),
        Field::Address => node.address.clone(),
        Field::Id => node.id.to_string(),
        Field::Done => or_none(node.drain.map(|drain| format!("{}%", done(&drain)))),
        Field::Deadline => or_none(node.deadline_in.map(units::millis)),
        Field::DoneIn => or_none(finish_in(node).map(units::millis)),
        Field::Left | Field::Lost | Field::Late | Field::Moved | Field::NoRoom => {
            or_none(drain_bytes(node, field).map(units::bytes))
        }
        Field::Speed => or_none(drain_bytes(node, field).map(per_second)),
        Field::Reason => node.reason.clone(),
        Field::Read | Field::Write | Field::Sent | Field::Received | Field::Total => {
            or_none(traffic(node, field, rates).map(per_second))
        }
        Field::Requests => node.load.requests_in_flight.to_string(),
        Field::Connections => node.load.connections.to_string(),
        Field::Link => per_second(node.egress_bytes_per_second),
        _ => String::new(),
    }
}

fn node_key(node: &NodeInfo, field: Field, rates: &RateTable) -> SortKey {
    let maybe = |value: Option<u64>| value.map_or(SortKey::None, number);
    match field {
        // Those that need attention are the largest.
        Field::State => number(match node.policy {
            Policy::Draining => 4_u64,
            Policy::Decommissioning => 3,
            Policy::Drained => 2,
            Policy::Gone => 1,
            Policy::Active => 0,
        }),
        Field::Memory => maybe(tier(node, Tier::Dram).map(|(used, _)| used)),
        Field::Exposure => number(node.exposure_bytes),
        Field::Heartbeat => number(node.heartbeat_age.0),
        Field::Blocks => number(node.blocks),
        Field::Id => number(u64::from(node.id.0)),
        Field::Done => maybe(node.drain.map(|drain| done(&drain))),
        Field::Deadline => maybe(node.deadline_in.map(|left| left.0)),
        Field::Left | Field::Lost | Field::Late => maybe(drain_bytes(node, field)),
        Field::Read | Field::Write | Field::Sent | Field::Received | Field::Total => {
            maybe(traffic(node, field, rates))
        }
        Field::Requests => number(u64::from(node.load.requests_in_flight)),
        Field::Connections => number(u64::from(node.load.connections)),
        _ => SortKey::Text(node.name.clone()),
    }
}

fn job_cell(job: &JobInfo, field: Field, rates: &RateTable) -> String {
    match field {
        Field::Path => job.path.to_string(),
        Field::Used => units::bytes(job.used_bytes),
        Field::Quota => job.quota_bytes.map_or_else(|| "-".to_owned(), units::bytes),
        Field::Growth => rates.job(job.job).map_or_else(|| "-".to_owned(), growth),
        Field::Lease => units::millis(job.remaining),
        Field::Id => job.job.to_string(),
        _ => String::new(),
    }
}

fn growth(bytes_per_second: i64) -> String {
    let sign = match bytes_per_second {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}/s", units::bytes(bytes_per_second.unsigned_abs()))
}

fn event_cell(event: &EventRow, field: Field) -> String {
    match field {
        // The time of day: the date stands in the detail.
        Field::Time => time_of_day(event.at),
        Field::Severity => event.severity.name().to_owned(),
        Field::Text => event.text.clone(),
        Field::Sequence => event.sequence.to_string(),
        _ => String::new(),
    }
}

/// Writes the hours, minutes and seconds of an instant, in UTC.
pub(super) fn time_of_day(at: sanderling_protocol::Instant) -> String {
    units::instant(at).get(11..19).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::Forecast;

    use super::super::test_nodes::{draining, event, job, node};
    use super::*;

    #[test]
    fn names_are_sorted_by_the_numbers_in_them() {
        let mut names = vec!["n10", "n2", "n02", "m", "n", "n2a", "näh", "n1"];
        names.sort_by(|one, two| natural(one, two));
        assert_eq!(names, ["m", "n", "n1", "n02", "n2", "n2a", "n10", "näh"]);
    }

    #[test]
    fn rows_without_a_value_come_last_in_both_directions() {
        let (none, one, two) = (SortKey::None, SortKey::Number(1), SortKey::Number(2));
        for is_descending in [false, true] {
            assert_eq!(none.compare(&one, is_descending), Ordering::Greater);
            assert_eq!(one.compare(&none, is_descending), Ordering::Less);
        }
        assert_eq!(one.compare(&two, true), Ordering::Greater);
    }

    #[test]
    fn drain_shows_how_far_it_is_and_what_will_be_late() {
        let mut node = draining(1, "n1");
        let rates = RateTable::default();
        let cell = |node: &NodeInfo, field| RowSource::Node(node).cell(field, &rates);
        assert_eq!(cell(&node, Field::Done), "75%");
        assert_eq!(cell(&node, Field::Left), "5.00 MiB");
        assert_eq!(cell(&node, Field::Deadline), "28.0 s");
        assert_eq!(cell(&node, Field::DoneIn), "700 ms");
        assert_eq!(cell(&node, Field::Late), "-");
        assert_eq!(RowSource::Node(&node).emphasis(Field::Late), Emphasis::Normal);
        let forecast = Forecast { late_bytes: 1 << 20, ..Forecast::default() };
        node.drain.as_mut().expect("it drains").forecast = Some(forecast);
        assert_eq!(cell(&node, Field::Late), "1.00 MiB");
        assert_eq!(cell(&node, Field::DoneIn), "-");
        assert_eq!(RowSource::Node(&node).emphasis(Field::Late), Emphasis::Warning);
    }

    #[test]
    fn names_of_others_cannot_leave_their_cell() {
        let rates = RateTable::default();
        let node = node(1, "a\u{1b}[2J\nb\u{202e}");
        let cell = RowSource::Node(&node).cell(Field::Name, &rates);
        assert_eq!(cell, "a\\u{1b}[2J\\nb\\u{202e}");
    }

    #[test]
    fn filter_finds_words_in_any_order_and_case() {
        let mut node = draining(1, "Node-A");
        node.is_at_risk = true;
        let row = RowSource::Node(&node);
        assert!(row.has(&[]) && row.has(&["draining", "node-a"]) && row.has(&["at risk"]));
        assert!(!row.has(&["node-a", "10.9."]));
        let job = job(5, "/Jobs/ETL", 1);
        assert!(RowSource::Job(&job).has(&["etl"]));
        let event = event(1, Severity::Error, "LOST 3 blocks");
        assert!(RowSource::Event(&event).has(&["lost", "error", "node_gone"]));
    }
}
