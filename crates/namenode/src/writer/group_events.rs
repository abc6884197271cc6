//! Events about the group of namenodes, which its leader writes into the log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sanderling_core::catalog::{Action, Command};
use sanderling_protocol::limits::EVENTS_KEPT_MAX;
use sanderling_protocol::{EventKind, MemberId};
use tracing::{info, warn};

use super::CatalogWriter;

/// How long a risk must last for an event: a restart of a namenode takes less.
const RISK_LASTS: Duration = Duration::from_secs(5);

/// What a leader has written about its group.
#[derive(Debug, Default)]
pub(crate) struct GroupEvents {
    voters: Option<BTreeSet<MemberId>>,
    at_risk_since: Option<Instant>,
    /// Whether the last event in the log about that is of a risk.
    is_risk_known: bool,
}

impl CatalogWriter {
    /// Writes that this member leads, and goes on where the leader before it ended.
    pub(super) fn write_leadership(&mut self) {
        let events = self.state.namenode.read().events_after(0, EVENTS_KEPT_MAX);
        let is_risk_known = events
            .iter()
            .rev()
            .find_map(|event| match event.kind {
                EventKind::GroupAtRisk { .. } => Some(true),
                EventKind::GroupRestored { .. } => Some(false),
                _ => None,
            })
            .unwrap_or(false);
        self.group_events = GroupEvents { voters: None, at_risk_since: None, is_risk_known };
        let status = self.state.group.status();
        if let Some(row) = status.rows.iter().find(|row| row.member == status.member) {
            let (member, address) = (row.member, row.address.clone());
            self.write_event(EventKind::NamenodeLeads { member, address });
        }
    }

    /// Writes what has changed since the last look.
    pub(super) fn write_group_events(&mut self) {
        if !self.member.as_ref().is_some_and(|member| member.is_serving()) {
            return;
        }
        let status = self.state.group.status();
        let voting = status.rows.iter().filter(|row| row.is_voter).map(|row| row.member);
        let voters: BTreeSet<MemberId> = voting.collect();
        let count = voters.len() as u64;
        if let Some(before) = self.group_events.voters.replace(voters.clone())
            && before != voters
        {
            let joined = voters.difference(&before).copied().collect();
            let left = before.difference(&voters).copied().collect();
            self.write_event(EventKind::GroupChanged { joined, left });
        }
        let Some(why) = status.at_risk else {
            self.group_events.at_risk_since = None;
            if std::mem::replace(&mut self.group_events.is_risk_known, false) {
                self.write_event(EventKind::GroupRestored { voters: count });
            }
            return;
        };
        let since = *self.group_events.at_risk_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= RISK_LASTS
            && !std::mem::replace(&mut self.group_events.is_risk_known, true)
        {
            self.write_event(EventKind::GroupAtRisk { why });
        }
    }

    fn write_event(&mut self, kind: EventKind) {
        match &kind {
            EventKind::GroupAtRisk { why } => warn!(why, "the group of namenodes is at risk"),
            EventKind::GroupRestored { voters } => {
                info!(voters, "the group of namenodes survives a loss again");
            }
            _ => {}
        }
        let (at, action) = (self.state.now(), Action::GroupEvent(Box::new(kind)));
        let turn = self.turns.own(vec![Command { at, action }]);
        self.work_off(turn);
    }
}
