"""Writes the report: one HTML file that needs nothing else, and the figures as JSON beside it."""

from __future__ import annotations

import html
import json
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

from sanderling import __version__
from sanderling.demo import sampler, table
from sanderling.demo.fleet import Incarnation
from sanderling.demo.meter import bandwidth
from sanderling.demo.run import Facts
from sanderling.demo.sampler import Sample
from sanderling.demo.summary import Summary

STEP_SECONDS = 0.125
"""Width of one step of the bandwidth: twice the time between two samples of the nodes."""


def write(facts: Facts, summary: Summary, directory: Path) -> Path:
    """Writes `report.html` and `result.json` into `directory`; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    result = json.dumps(summary.as_json(), indent=2)
    (directory / "result.json").write_text(result + "\n")
    path = directory / "report.html"
    path.write_text(_page(facts, summary), encoding="utf-8")
    return path


def _page(facts: Facts, summary: Summary) -> str:
    parts = {
        "verdict": _verdict(summary),
        "verdict_class": "bad" if summary.problems else "good",
        "figures": _figures(summary),
        "problems": _problems(summary),
        "setup": html.escape(_setup(facts)),
        "style": _part("report.css"),
        "script": _part("report.js"),
        # "</" would end the script element wherever it stands.
        "data": json.dumps(_picture(facts, summary), separators=(",", ":")).replace("</", "<\\/"),
        "version": __version__,
    }
    page = _part("report.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def _part(name: str) -> str:
    return resources.files("sanderling.demo").joinpath("page", name).read_text(encoding="utf-8")


def _verdict(summary: Summary) -> str:
    if summary.problems:
        return f"{len(summary.problems)} problems: see below the picture."
    return (
        f"{summary.notices} machines were taken away. All {summary.queries_total} query results "
        f"are right, all {summary.writer_objects} short-lived objects too; "
        f"{table.size(summary.relocated_bytes)} moved in time, nothing was lost, no call failed."
    )


def _figures(summary: Summary) -> str:
    return "\n".join(
        f"<tr><th>{html.escape(what)}</th><td class=figure>{html.escape(figure)}</td>"
        f"<td>{html.escape(note)}</td></tr>"
        for what, figure, note in table.rows(summary)
    )


def _problems(summary: Summary) -> str:
    if not summary.problems:
        return ""
    items = "".join(f"<li>{html.escape(problem)}</li>" for problem in summary.problems[:200])
    return f"<h2>Problems</h2><ul class=problems>{items}</ul>"


def _setup(facts: Facts) -> str:
    options = facts.options
    return (
        f"TPC-DS tables at scale {options.scale:g} ({table.size(facts.table_bytes)} of Parquet, "
        f"{facts.tables} tables) in {options.datanodes} datanodes of "
        f"{table.size(facts.dram_bytes)} each, every one a process; {facts.queries} queries by "
        f"DuckDB over sanderling://, {options.writers} writers of short-lived objects at "
        f"{table.size(options.writer_bytes_per_second)}/s each. Preemptions: model "
        f"{options.model_name}, seed {options.seed}; one hour of the model takes "
        f"{facts.trace.seconds_per_hour:.2f} s here, a notice {options.notice_seconds:g} s instead "
        f"of the cloud's 30 s, and at most {options.overlap_max} machines leave at a time."
    )


def _picture(facts: Facts, summary: Summary) -> dict[str, Any]:
    assert facts.sampler and facts.fleet
    start, end = facts.undisturbed.began, facts.disturbed.ended
    samples = facts.sampler.samples
    series = bandwidth(facts.meter.calls(), start, end, STEP_SECONDS)
    series["relocation"] = sampler.relocation(samples, start, end, STEP_SECONDS)
    answers = facts.undisturbed.answers + facts.disturbed.answers
    times: dict[int, list[float]] = {}
    for answer in answers:
        times.setdefault(answer.query, []).append(answer.seconds)
    stall = summary.stall
    return {
        "step": STEP_SECONDS,
        "end": end - start,
        "rough": facts.disturbed.began - start,
        "noticeSeconds": facts.options.notice_seconds,
        "capacity": facts.dram_bytes,
        "series": {
            name: [round(value) for value in values] for name, values in series.items()
        },
        "lanes": _lanes(facts.fleet.incarnations, samples, start, end, summary),
        "answers": [
            [
                round(answer.began - start, 3),
                round(answer.seconds, 4),
                answer.query,
                answer.is_right,
                round(fmean(times[answer.query]), 4),
            ]
            for answer in answers
        ],
        "stall": None
        if stall is None
        else [round(stall.began - start, 3), stall.who, stall.kind, round(stall.took_seconds, 4)],
    }


def _lanes(
    incarnations: list[Incarnation],
    samples: list[Sample],
    start: float,
    end: float,
    summary: Summary,
) -> list[list[dict[str, Any]]]:
    nodes = sampler.by_node(samples)
    gone = {each.node: each for each in summary.preempted}
    lanes: dict[int, list[dict[str, Any]]] = {}

    def offset(moment: float | None) -> float | None:
        return None if moment is None else round(moment - start, 3)

    for each in incarnations:
        preempted = gone.get(each.node)
        until = min(each.killed or end, end)
        lanes.setdefault(each.slot, []).append(
            {
                "node": each.node,
                "from": max(offset(each.began) or 0.0, 0.0),
                "to": offset(until),
                "noticed": offset(each.noticed),
                "killed": offset(each.killed),
                "drainedAfter": preempted.drained_after_seconds if preempted else None,
                "held": each.noticed_bytes,
                "moved": preempted.moved_bytes if preempted else 0,
                "lost": preempted.lost_bytes if preempted else 0,
                "livedHours": each.lived_hours,
                "deferred": each.deferred_seconds,
                "samples": [
                    [offset(sample.at), sample.held_bytes, sample.moved_bytes]
                    for sample in nodes.get(each.node, [])
                    if start <= sample.at <= until
                ],
            }
        )
    return [lanes[slot] for slot in sorted(lanes)]
