//! Events about the group of namenodes, which its leader writes into the log.

use std::collections::BTreeSet;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::replica::{GroupEvents, RISK_LASTS};
use sanderling_protocol::limits::EVENTS_KEPT_MAX;
use sanderling_protocol::{EventKind, MemberId};
use tracing::{info, warn};

use super::CatalogWriter;
use crate::group::boot_time;

impl CatalogWriter {
    /// Writes that this member leads, and goes on where the leader before it ended.
    pub(super) fn write_leadership(&mut self) {
        let events = self.state.namenode.read().events_after(0, EVENTS_KEPT_MAX);
        self.group_events = GroupEvents::continued(events.iter().map(|event| &event.kind));
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
        let risk = status.at_risk.as_ref();
        for event in self.group_events.look(boot_time(), voters, risk, RISK_LASTS) {
            self.write_event(event);
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
        let batch = self.group_commit.own(vec![Command { at, action }]);
        self.work_off(batch);
    }
}
