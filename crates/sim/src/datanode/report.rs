//! Block reports of the simulated datanode: the calls around the machine that the real one has.

use sanderling_core::datanode::ReportStep;
use sanderling_protocol::{Reply, Request};

use super::Datanode;
use super::member::outcome;
use crate::InjectedBug;
use crate::context::Context;
use crate::event::DatanodeCall;
use crate::wire::Response;

/// Blocks in a page: so few that reports have several.
pub(super) const PAGE_BLOCKS: usize = 8;

/// Block reports between two passes of the scrub. So some runs have damage that a report meets
/// first, and others damage that the scrub finds.
const REPORTS_PER_SCRUB: u32 = 3;

impl Datanode {
    /// Does what the report does next.
    pub(super) fn report_next(&mut self, context: &mut Context<'_>) {
        let (Some(report), Some(node)) = (&mut self.report, self.node) else { return };
        match report.next(&self.table) {
            ReportStep::Held(blocks) => {
                let request = Request::BlockReport { node, blocks };
                self.call(context, request, DatanodeCall::Held);
            }
            ReportStep::Probe => {
                report.probed();
                self.damages.report_again();
                self.reports += 1;
                let is_due = self.reports.is_multiple_of(REPORTS_PER_SCRUB);
                if is_due && !self.table.is_fenced() {
                    self.scrub();
                }
                self.report_damage(context);
                self.report_next(context);
            }
            ReportStep::Expected { after, limit } => {
                let nonce = self.member.nonce();
                let request = Request::ExpectedBlocks { node, nonce, after, limit };
                self.call(context, request, DatanodeCall::Expected);
            }
            ReportStep::Done => self.report_ended(context, true),
        }
    }

    /// Takes which blocks of a page are unwanted.
    pub(super) fn take_unwanted(&mut self, context: &mut Context<'_>, answer: Option<Response>) {
        let Ok(Reply::Drop { blocks }) = outcome(answer) else {
            return self.report_ended(context, false);
        };
        let is_forgotten = context.runtime.has_bug(InjectedBug::DropForgotten);
        let Some(report) = &mut self.report else { return };
        for unwanted in report.unwanted(blocks) {
            // What came since the report was made is not what the namenode has judged.
            if !is_forgotten {
                self.drop_block_at(unwanted.block, unwanted.epoch);
            }
        }
        self.report_next(context);
    }

    /// Takes a page of what must be here.
    pub(super) fn take_expected(&mut self, context: &mut Context<'_>, answer: Option<Response>) {
        let Ok(Reply::Expected { blocks, is_more }) = outcome(answer) else {
            return self.report_ended(context, false);
        };
        let Some(report) = &mut self.report else { return };
        for missing in report.expected(&self.table, &blocks, is_more) {
            self.damages.add(missing);
        }
        self.report_damage(context);
        self.report_next(context);
    }

    fn report_ended(&mut self, context: &mut Context<'_>, is_taken: bool) {
        let now = context.runtime.monotonic();
        self.report = None;
        if is_taken {
            self.reported_in = self.member.log().seen().map(|place| place.term);
        }
        self.member.reported(now, is_taken);
        self.step(context);
    }
}
