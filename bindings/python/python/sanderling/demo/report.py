"""Writes the report: one HTML file that needs nothing else, and the figures as JSON beside it."""

from __future__ import annotations

import html
import json
from pathlib import Path

from sanderling._sanderling import page
from sanderling.demo import table
from sanderling.demo.pictures import Pictures
from sanderling.demo.run import RunRecord
from sanderling.demo.summary import Summary

TITLE = "TPC-DS on machines that are taken away"

AROUND = """<p class=note>Every preemption of the run laid over each other at its notice: bandwidth
as the queries see it, relocation off the leaving machine, and SIGKILL at the end of the shaded
time. Thick lines are means, the dashed one is what the queries read without preemptions.</p>"""

NAMENODES = """<p class=note>The machine that is taken first is the one of the namenode that leads
then. A noticed namenode gives the leadership away if it leads, a spare votes in its place, and its
process ends by itself; a new spare starts at the deadline.</p>"""

METHOD = """<p>The namenode gives the bytes of the fleet and of relocation, sixteen times a second;
the clients' own calls give bandwidth and stalls. A stall is what a call took beyond the 99th
percentile of the calls of the same client and kind without preemptions. Every query result is
compared with DuckDB on the local files: floats to a relative 1e-9, everything else exactly. The run
without preemptions has the same writers and the same queries. Everything, the machines' processes
too, shares this computer's cores, so moving data takes processor time from the queries that
separate machines would not take. The lifetimes follow Kadupitiya, Jadhao and Sharma (HPDC 2020)
unless another model was chosen; prices and layout follow Brodmann et al., “An Elastic Ephemeral
Datastore using Cheap, Transient Cloud Resources”. The data is generated; these are no official
TPC-DS results.</p>"""


def write(record: RunRecord, summary: Summary, directory: Path) -> Path:
    """Writes `report.html` and `result.json` into `directory`; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    result = json.dumps(summary.as_json(), indent=2)
    (directory / "result.json").write_text(result + "\n")
    path = directory / "report.html"
    path.write_text(_page(record, summary), encoding="utf-8")
    return path


def _page(record: RunRecord, summary: Summary) -> str:
    pictures = Pictures(record, summary)
    around = pictures.around()
    parts = [
        pictures.legend(),
        pictures.timeline(),
        _problems(summary),
        f"<h2>Around a notice</h2>{AROUND}{around}" if around else "",
        f"<h2>The run in figures</h2>{_figures(summary)}",
        f"<h2>Datanodes taken away</h2>{_taken(record, summary)}",
        _namenodes_taken(record, summary),
        f"<h2>How it was measured</h2><p>{html.escape(_setup(record))}</p>{METHOD}",
    ]
    return page(TITLE, _verdict(summary), not summary.problems, "\n".join(parts))


def _verdict(summary: Summary) -> str:
    if summary.problems:
        return f"{len(summary.problems)} problems: see below the picture."
    return (
        f"{_machines(summary)} were taken away. All {summary.queries_total} query results "
        f"are right, all {summary.writer_objects} short-lived objects too; "
        f"{table.size(summary.relocated_bytes)} moved in time, nothing was lost, no call failed."
    )


def _machines(summary: Summary) -> str:
    datanodes, namenodes = summary.notices, summary.namenode_notices
    if not namenodes:
        return f"{datanodes} machines"
    kinds = f"{datanodes} of datanodes and {namenodes} of namenodes"
    return f"{datanodes + namenodes} machines, {kinds},"


def _figures(summary: Summary) -> str:
    rows = "\n".join(
        f"<tr><th>{html.escape(what)}</th><td class=figure>{html.escape(figure)}</td>"
        f"<td>{html.escape(note)}</td></tr>"
        for what, figure, note in table.rows(summary)
    )
    return f"<div class=scroll><table><tbody>{rows}</tbody></table></div>"


def _problems(summary: Summary) -> str:
    if not summary.problems:
        return ""
    items = "".join(f"<li>{html.escape(problem)}</li>" for problem in summary.problems[:200])
    return f"<h2>Problems</h2><ul class=problems>{items}</ul>"


def _taken(record: RunRecord, summary: Summary) -> str:
    """Returns the table of the machines that got a notice."""
    assert record.fleet
    columns = ["place", "node", "lived, model", "notice at", "held back", "held", "moved",
               "empty after", "killed after", "lost"]
    start = record.undisturbed.began
    rows: list[list[str]] = []
    for each, gone in zip(record.fleet.noticed(), summary.preempted, strict=True):
        noticed = each.noticed or 0.0
        deferred, empty = each.deferred_seconds, gone.drained_after_seconds
        rows.append([
            f"machine {each.slot + 1}",
            str(each.node),
            "–" if each.lived_hours is None else f"{each.lived_hours:.1f} h",
            f"{noticed - start:.1f} s",
            table.seconds(deferred) if deferred > 0 else "–",
            table.size(gone.noticed_bytes),
            table.size(gone.moved_bytes),
            "–" if empty is None else table.seconds(empty),
            "–" if each.killed is None else table.seconds(each.killed - noticed),
            table.size(gone.lost_bytes),
        ])
    return _table(columns, rows)


def _namenodes_taken(record: RunRecord, summary: Summary) -> str:
    """Returns the table of the namenodes whose machines got a notice."""
    assert record.namenodes
    columns = ["place", "process", "lived, model", "notice at", "held back", "led", "left after",
               "end"]
    start = record.undisturbed.began
    rows = []
    for each, gone in zip(record.namenodes.noticed(), summary.preempted_namenodes, strict=True):
        left = gone.left_after_seconds
        rows.append([
            f"namenode {each.slot + 1}",
            each.name,
            f"{gone.lived_hours:.1f} h",
            f"{(each.noticed or 0.0) - start:.1f} s",
            table.seconds(each.deferred_seconds) if each.deferred_seconds > 0 else "–",
            "yes" if each.has_led else "–",
            "–" if left is None else table.seconds(left),
            "SIGKILL" if left is None else "by itself",
        ])
    return f"<h2>Namenodes taken away</h2>{NAMENODES}{_table(columns, rows)}" if rows else ""


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th class=number>{column}</th>" for column in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td class=number>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    table_of_all = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class=scroll>{table_of_all}</div>"


def _setup(record: RunRecord) -> str:
    options = record.options
    of_datanodes, group = "machines", ""
    if options.spares:
        of_datanodes = "machines of datanodes"
        group = (
            f" {options.namenodes} namenodes and a spare are preempted on the same clock, at most "
            f"one at a time."
        )
    return (
        f"TPC-DS tables at scale {options.scale:g} ({table.size(record.table_bytes)} of Parquet, "
        f"{record.tables} tables) in {options.datanodes} datanodes of "
        f"{table.size(record.dram_bytes)} each, every one a process; {record.queries} queries by "
        f"DuckDB over sanderling://, {options.writers} writers of short-lived objects at "
        f"{table.size(options.writer_bytes_per_second)}/s each. Preemptions: model "
        f"{options.model_name}, seed {options.seed}; one hour of the model takes "
        f"{record.trace.seconds_per_hour:.2f} s here, a notice {options.notice_seconds:g} s "
        f"instead of the cloud's 30 s, and at most {options.overlap_max} {of_datanodes} leave at a "
        f"time."
        f"{group}"
    )
