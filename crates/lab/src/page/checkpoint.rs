//! Checkpoints on the page.

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{Section, paragraph, rerun, table};
use crate::figures::bags::BagRow;
use crate::figures::checkpoint::{
    CheckpointFigure, LongRun, MEASURE, MEASURES, NoticeRow, PolicyRow,
};

/// Space for the names of the policies, of which the longest fits. Chosen, not measured: in units
/// of the picture, which is 1140 wide.
const NAMES: f64 = 300.0;

/// Height of one bar with its gap. Chosen, not measured: in units of the picture, which is 1140
/// wide.
const ROW: f64 = 30.0;

/// Returns the part of the page about checkpoints.
pub(crate) fn section(figure: &CheckpointFigure) -> Section {
    let mut body = paragraph(&format!(
        "What a task of {:.1} hours wastes on spot machines whose dumps take {:.1} seconds: the \
         time in dumps, and the work that is lost with a machine and done again. The mean of {} \
         runs; all policies get the same machines. The best fixed interval in hindsight is the one \
         that would have wasted least on these machines.",
        figure.work_hours, figure.dump_seconds, figure.runs
    ));
    body += &legend([("blue", "dumps"), ("amber", "lost work")]);
    body += &bars(&figure.policies);
    body += &table(
        &["model", "interval", "#length", "#machines", "#elapsed", "#dumps", "#lost", "#wasted"],
        figure.policies.iter().map(PolicyRow::cells),
    );
    body += &rerun("sanderling lab checkpoint --out D");
    if !figure.bag.rows.is_empty() {
        body += "<h3>A bag with a deadline</h3>\n";
        body += &paragraph(&format!(
            "{}. Agents take tasks by the product's rule. HADS stands for the checkpoints of Teylo \
             et al.: dumps straight to a storage service at a fixed interval, notices unused.",
            figure.bag.title()
        ));
        body += &table(&bag_heads(), figure.bag.rows.iter().map(BagRow::cells));
    }
    body += "<h3>What a notice holds</h3>\n";
    body += &paragraph(
        "The largest state that is dumped within a notice at the rates that Teylo et al. measured.",
    );
    body += &table(
        &["service", "#rate", "#in 30 s", "#in 2 min"],
        figure.notices.iter().map(NoticeRow::cells),
    );
    body += "<h3>A task of 30 days</h3>\n";
    body += &paragraph(
        "The table of Teylo et al. (2020), computed: 720 hours, a dump for each checkpoint, 30 GB \
         stored, and for the machine $0.0294 an hour, which their costs imply.",
    );
    body += &table(
        &["service", "#interval", "#checkpoints", "#time", "#cost"],
        figure.long_runs.iter().map(LongRun::cells),
    );
    body += &paragraph(&format!("All of this is computed. {MEASURES}: {MEASURE}"));
    Section { title: "How often to dump".to_owned(), body }
}

/// Returns the heads of the bag's table; `#` marks columns of numbers.
fn bag_heads() -> [&'static str; 8] {
    ["model", "checkpoints", "#deadline met", "#cost", "#on demand", "#dumps", "#lost", "#elapsed"]
}

fn bars(rows: &[PolicyRow]) -> String {
    let minutes = |seconds: f64| seconds / 60.0;
    let wasted = |row: &PolicyRow| minutes(row.dumped_seconds + row.lost_seconds);
    let most = rows.iter().map(wasted).fold(1.0, f64::max) * 1.18;
    let x = Axis::linear("wasted minutes", (0.0, most), 8, NumberFormat::NONE);
    let name = |row: &PolicyRow| format!("{}: {}", row.model, row.policy);
    // The first is at the top.
    let mut plot =
        Plot::beside(NAMES, ROW * rows.len() as f64, x, Axis::places(rows.iter().rev().map(name)));
    for (at, row) in rows.iter().rev().enumerate() {
        let y = (at as f64 + 0.2, at as f64 + 0.8);
        let (dumped, all) = (minutes(row.dumped_seconds), wasted(row));
        plot.bar((0.0, dumped), y, "blue", &format!("{dumped:.1} min in dumps"));
        plot.bar((dumped, all), y, "amber", &format!("{:.1} min lost", all - dumped));
        plot.label((all, at as f64 + 0.5), (8.0, 4.0), "start", &format!("{all:.1} min"));
    }
    plot.figure("time that a task wastes by policy and model")
}
