//! Block reports of the simulated datanode: the calls around the machine that the real one has.

use sanderling_core::datanode::ReportStep;
use sanderling_protocol::{Reply, Request};

use super::member::outcome;
use crate::Broken;
use crate::event::DatanodeCall;
use crate::wire::Response;
use crate::world::World;

/// Blocks in a page: so few that reports have several.
pub(super) const PAGE_BLOCKS: usize = 8;

/// Block reports between two passes of the scrub.
const REPORTS_PER_SCRUB: u32 = 3;

impl World {
    /// Does what the report does next.
    pub(super) fn datanode_report(&mut self, slot: u8) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let (Some(report), Some(node)) = (&mut datanode.report, datanode.node) else { return };
        match report.next(&datanode.table) {
            ReportStep::Held(blocks) => {
                let request = Request::BlockReport { node, blocks };
                self.datanode_call(slot, request, DatanodeCall::Held);
            }
            ReportStep::Probe => {
                report.probed();
                datanode.damages.report_again();
                datanode.reports += 1;
                let is_due = datanode.reports.is_multiple_of(REPORTS_PER_SCRUB);
                if is_due && !datanode.table.is_fenced() {
                    datanode.scrub();
                }
                self.datanode_tell_damage(slot);
                self.datanode_report(slot);
            }
            ReportStep::Expected { after, limit } => {
                let nonce = datanode.member.nonce();
                let request = Request::ExpectedBlocks { node, nonce, after, limit };
                self.datanode_call(slot, request, DatanodeCall::Expected);
            }
            ReportStep::Done => self.datanode_reported(slot, true),
        }
    }

    /// Takes which blocks of a page nobody wants.
    pub(super) fn datanode_held(&mut self, slot: u8, answer: Option<Response>) {
        let Ok(Reply::Drop { blocks }) = outcome(answer) else {
            return self.datanode_reported(slot, false);
        };
        let is_forgotten = self.runtime.is_broken(Broken::DropForgotten);
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(report) = &mut datanode.report else { return };
        for unwanted in report.unwanted(blocks) {
            // What came since the report was made is not what the namenode spoke of.
            let held = datanode.held(unwanted.block);
            if !is_forgotten && held.is_some_and(|held| held.epoch == unwanted.epoch) {
                datanode.drop_block(unwanted.block, unwanted.epoch);
            }
        }
        self.datanode_report(slot);
    }

    /// Takes a page of what must be here.
    pub(super) fn datanode_expected(&mut self, slot: u8, answer: Option<Response>) {
        let Ok(Reply::Expected { blocks, is_more }) = outcome(answer) else {
            return self.datanode_reported(slot, false);
        };
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(report) = &mut datanode.report else { return };
        for missing in report.expected(&datanode.table, &blocks, is_more) {
            datanode.damages.add(missing);
        }
        self.datanode_tell_damage(slot);
        self.datanode_report(slot);
    }

    fn datanode_reported(&mut self, slot: u8, is_taken: bool) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.report = None;
        if is_taken {
            datanode.reported_in = datanode.member.log().seen().map(|place| place.term);
        }
        datanode.member.reported(now, is_taken);
        self.datanode_step(slot);
    }
}
