//! The kinds of events: their names, how severe they are, and which nodes they concern.

use clap::ValueEnum;
use sanderling_protocol::NodeId;
use sanderling_protocol::event::EventKind;
use serde::Serialize;

/// How much an event matters to an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A step of normal operation
    Info,
    /// Data is at risk, or something is degraded
    Warning,
    /// Data or changes are lost
    Error,
}

impl Severity {
    /// Returns the name, as the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// Returns the number of a terminal's colour.
    #[must_use]
    pub const fn colour(self) -> Option<u8> {
        match self {
            Self::Info => None,
            Self::Warning => Some(33),
            Self::Error => Some(31),
        }
    }
}

/// The names of all kinds, in the order of the protocol.
pub(crate) const KINDS: [&str; 35] = [
    "node_registered",
    "node_noticed",
    "node_decommissioning",
    "node_fenced",
    "node_cancelled",
    "blocks_moved",
    "blocks_promoted",
    "blocks_copied",
    "blocks_rebalanced",
    "drain_forecast",
    "node_at_risk",
    "node_drained",
    "node_gone",
    "blocks_lost",
    "job_registered",
    "job_ended",
    "manager_changed",
    "namenode_started",
    "namenode_absent",
    "log_end_lost",
    "blocks_orphaned",
    "reserve_short",
    "reserve_restored",
    "journal_cut",
    "snapshot_skipped",
    "blocks_damaged",
    "namenode_leads",
    "group_changed",
    "group_at_risk",
    "group_restored",
    "directory_durable",
    "objects_durable",
    "durable_stalled",
    "durable_dropped",
    "store_adopted",
];

/// Returns the name of a kind, as JSON has it.
#[must_use]
pub const fn kind_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::NodeRegistered { .. } => "node_registered",
        EventKind::NodeNoticed { .. } => "node_noticed",
        EventKind::NodeDecommissioning { .. } => "node_decommissioning",
        EventKind::NodeFenced { .. } => "node_fenced",
        EventKind::NodeCancelled { .. } => "node_cancelled",
        EventKind::BlocksMoved { .. } => "blocks_moved",
        EventKind::BlocksPromoted { .. } => "blocks_promoted",
        EventKind::BlocksCopied { .. } => "blocks_copied",
        EventKind::BlocksRebalanced { .. } => "blocks_rebalanced",
        EventKind::DrainForecast { .. } => "drain_forecast",
        EventKind::NodeAtRisk { .. } => "node_at_risk",
        EventKind::NodeDrained { .. } => "node_drained",
        EventKind::NodeGone { .. } => "node_gone",
        EventKind::BlocksLost { .. } => "blocks_lost",
        EventKind::JobRegistered { .. } => "job_registered",
        EventKind::JobEnded { .. } => "job_ended",
        EventKind::ManagerChanged { .. } => "manager_changed",
        EventKind::NamenodeStarted { .. } => "namenode_started",
        EventKind::NamenodeAbsent { .. } => "namenode_absent",
        EventKind::LogEndLost { .. } => "log_end_lost",
        EventKind::BlocksOrphaned { .. } => "blocks_orphaned",
        EventKind::ReserveShort { .. } => "reserve_short",
        EventKind::ReserveRestored { .. } => "reserve_restored",
        EventKind::JournalCut { .. } => "journal_cut",
        EventKind::SnapshotSkipped { .. } => "snapshot_skipped",
        EventKind::BlocksDamaged { .. } => "blocks_damaged",
        EventKind::NamenodeLeads { .. } => "namenode_leads",
        EventKind::GroupChanged { .. } => "group_changed",
        EventKind::GroupAtRisk { .. } => "group_at_risk",
        EventKind::GroupRestored { .. } => "group_restored",
        EventKind::DirectoryDurable { .. } => "directory_durable",
        EventKind::ObjectsDurable { .. } => "objects_durable",
        EventKind::DurableStalled { .. } => "durable_stalled",
        EventKind::DurableDropped { .. } => "durable_dropped",
        EventKind::StoreAdopted { .. } => "store_adopted",
    }
}

/// Returns how severe an event is: an error when bytes or changes are lost, a warning when they may
/// be soon or when a server did not do its part.
#[must_use]
pub const fn severity(kind: &EventKind) -> Severity {
    match kind {
        EventKind::BlocksLost { .. }
        | EventKind::BlocksOrphaned { .. }
        | EventKind::LogEndLost { .. }
        | EventKind::JournalCut { .. } => Severity::Error,
        EventKind::BlocksDamaged { blocks, saved, .. } if *saved < *blocks => Severity::Error,
        EventKind::DrainForecast { forecast, .. }
            if forecast.late_bytes > 0 || forecast.unplaced_bytes > 0 =>
        {
            Severity::Warning
        }
        EventKind::DurableDropped { changes, .. } if *changes == 0 => Severity::Info,
        EventKind::JobEnded { is_expired: true, .. }
        | EventKind::DurableStalled { .. }
        | EventKind::DurableDropped { .. }
        | EventKind::NodeNoticed { .. }
        | EventKind::NodeAtRisk { .. }
        | EventKind::NodeGone { .. }
        | EventKind::ReserveShort { .. }
        | EventKind::NamenodeAbsent { .. }
        | EventKind::SnapshotSkipped { .. }
        | EventKind::GroupAtRisk { .. }
        | EventKind::BlocksDamaged { .. } => Severity::Warning,
        _ => Severity::Info,
    }
}

/// Returns the nodes that an event concerns, by their ids.
pub(crate) fn nodes_of(kind: &EventKind) -> Vec<NodeId> {
    match kind {
        EventKind::NodeRegistered { node, .. }
        | EventKind::NodeNoticed { node, .. }
        | EventKind::NodeDecommissioning { node, .. }
        | EventKind::NodeFenced { node }
        | EventKind::NodeCancelled { node }
        | EventKind::DrainForecast { node, .. }
        | EventKind::NodeAtRisk { node, .. }
        | EventKind::NodeDrained { node, .. }
        | EventKind::NodeGone { node, .. }
        | EventKind::BlocksLost { node, .. }
        | EventKind::BlocksOrphaned { node, .. }
        | EventKind::BlocksDamaged { node, .. }
        | EventKind::BlocksPromoted { from: node, .. } => vec![*node],
        EventKind::BlocksMoved { from, to, .. }
        | EventKind::BlocksCopied { from, to, .. }
        | EventKind::BlocksRebalanced { from, to, .. } => vec![*from, *to],
        EventKind::JobRegistered { .. }
        | EventKind::JobEnded { .. }
        | EventKind::ManagerChanged { .. }
        | EventKind::NamenodeStarted { .. }
        | EventKind::NamenodeAbsent { .. }
        | EventKind::LogEndLost { .. }
        | EventKind::ReserveShort { .. }
        | EventKind::ReserveRestored { .. }
        | EventKind::JournalCut { .. }
        | EventKind::SnapshotSkipped { .. }
        | EventKind::NamenodeLeads { .. }
        | EventKind::GroupChanged { .. }
        | EventKind::GroupAtRisk { .. }
        | EventKind::GroupRestored { .. }
        | EventKind::DirectoryDurable { .. }
        | EventKind::ObjectsDurable { .. }
        | EventKind::DurableStalled { .. }
        | EventKind::DurableDropped { .. }
        | EventKind::StoreAdopted { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Millis;
    use sanderling_protocol::message::Forecast;

    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        let node = NodeId(1);
        let kinds = [
            EventKind::NodeFenced { node },
            EventKind::BlocksRebalanced { from: node, to: node, blocks: 1, bytes: 1 },
            EventKind::ReserveRestored { departures: 1, room_bytes: 1 },
            EventKind::BlocksDamaged { node, blocks: 1, saved: 1 },
        ];
        for kind in kinds {
            let json = serde_json::to_value(&kind).expect("a kind is JSON");
            let keys: Vec<&String> = json.as_object().expect("a map").keys().collect();
            assert_eq!(keys, [kind_name(&kind)]);
            assert!(KINDS.contains(&kind_name(&kind)));
        }
    }

    #[test]
    fn list_has_every_kind_of_the_protocol() {
        // The reader of the enumeration refuses a name that it does not have, and lists all.
        let error = serde_json::from_str::<EventKind>(r#"{"no_such_kind":{}}"#).unwrap_err();
        let text = error.to_string();
        let known: Vec<&str> = text.split('`').skip(3).step_by(2).collect();
        assert_eq!(known, KINDS, "{text}");
    }

    #[test]
    fn lost_bytes_are_errors_and_a_drain_without_room_is_a_warning() {
        let node = NodeId(1);
        let lost = EventKind::BlocksLost { node, blocks: 1, bytes: 1, objects: 1, jobs: vec![] };
        assert_eq!(severity(&lost), Severity::Error);
        assert_eq!(
            severity(&EventKind::BlocksDamaged { node, blocks: 2, saved: 1 }),
            Severity::Error
        );
        let saved = EventKind::BlocksDamaged { node, blocks: 2, saved: 2 };
        assert_eq!(severity(&saved), Severity::Warning);
        assert_eq!(severity(&EventKind::NamenodeAbsent { millis: 1 }), Severity::Warning);
        assert_eq!(severity(&EventKind::NodeFenced { node }), Severity::Info);
        let forecast = |unplaced_bytes| EventKind::DrainForecast {
            node,
            forecast: Forecast {
                unplaced_bytes,
                finish_in: Some(Millis(1)),
                ..Forecast::default()
            },
        };
        assert_eq!(severity(&forecast(0)), Severity::Info);
        assert_eq!(severity(&forecast(1)), Severity::Warning);
    }
}
