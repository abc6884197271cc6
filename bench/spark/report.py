"""Writes what a comparison found: the page, its JSON, the table for a terminal, dated copies."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import charts
import summary
from modes import DECOMMISSION, NATIVE, SANDERLING, TITLES
from plot import page

EXPLAINED = """<p class=note>Capacity lost: the part of the workers' time in which they had no
executor that took tasks. Beyond: the slowdown that it does not explain. Cold JVMs: the part of the
workers' time that tasks took longer in executors that had come for others than the same tasks take
without preemptions. Waited: the part of the tasks' time in which they wrote map outputs or waited
for those that they read.</p>"""


def write(kept: dict[str, Any], directory: Path) -> Path:
    """Writes `index.html` and `result.json` into a directory; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "result.json").write_text(json.dumps(kept, indent=1) + "\n")
    path = directory / "index.html"
    path.write_text(_page(kept), encoding="utf-8")
    return path


def keep(kept: dict[str, Any], directory: Path) -> None:
    """Writes the small dated copy: the figures as JSON, and `text` as Markdown."""
    name = f"spark-{kept['date'][:10]}"
    small = {key: kept[key] for key in ("schema_version", "date", "revision", "machine", "spark",
                                        "options", "work", "played", "problems", "seconds")}
    small["ratios"] = {
        mode: [vars(one) for one in summary.ratios(kept, mode)] for mode in _others(kept)
    }
    # With the keys that the copies in bench/results have.
    small["disturbed"] = [vars(one) for one in summary.preempted(kept)]
    small["undisturbed"] = {mode: _without_preemptions(kept, mode)
                            for mode in kept["options"]["modes"]}
    (directory / f"{name}.json").write_text(json.dumps(small, indent=1) + "\n")
    words = f"# Spark's shuffle on Sanderling, {kept['date']}\n\n{_where(kept)}\n\n```text\n"
    (directory / f"{name}.md").write_text(f"{words}{text(kept)}\n```\n")


def text(kept: dict[str, Any]) -> str:
    """Returns the tables for a terminal."""
    lines = []
    for mode in _others(kept):
        lines.append(f"{TITLES[mode]} / native, without preemptions: median (smallest to largest "
                     "round)")
        lines += [
            f"  {one.name:<9} {one.median:6.3f} ({one.low:.3f} to {one.high:.3f})"
            f"  {one.seconds:7.2f} s, native {one.native_seconds:7.2f} s"
            for one in summary.ratios(kept, mode)
        ]
        lines.append("")
    rows = _table(kept)
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(f"{cell!s:>{width}}" for cell, width in zip(row, widths, strict=True))
              for row in rows]
    lines.append("")
    lines += [f"{'reached' if reached else 'MISSED '}  {what}: {figure}"
              for what, figure, reached in summary.verdicts(kept)]
    lines += [f"PROBLEM  {one}" for one in kept["problems"]]
    return "\n".join(lines)


def _page(kept: dict[str, Any]) -> str:
    wrong = [one for one in kept["runs"] if one["problem"]]
    right = len(kept["runs"]) - len(wrong)
    verdict = f"{right} of {len(kept['runs'])} results are DuckDB's"
    total = summary.ratios(kept, SANDERLING)
    if total:
        verdict += f"; with Sanderling the work takes {total[-1].median:.3f} of native's time"
    mine = [one for one in summary.preempted(kept) if one.mode == SANDERLING]
    if mine:
        taken, failed = (sum(each) for each in zip(
            *((one.notices, one.figures["tasks_failed"]) for one in mine), strict=True))
        lost = sum(one.lost_bytes for one in mine)
        verdict += (f"; {taken} machines were taken while it worked: {failed} tasks failed, {lost} "
                    "bytes were lost")
    parts = [
        charts.timeline(kept),
        _ratios(kept, SANDERLING),
        "<h2>Run times with and without preemptions</h2>"
        "<p>As figures 3 and 4 of Brodmann, Ioannou, Metzler, Pfefferle and Klimovic, "
        "“An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources”, which have one "
        "for each of its clusters; here one is for what is taken: datanodes, or Spark's executors. "
        "16 and 32 are the processors of the machines whose preemptions the traces follow.</p>"
        + "".join(charts.runtimes(kept, what) for what in ("datanodes", "executors")),
        f"<h2>Cost</h2><p>As in the same paper's figure 6: five machines at its prices, for "
        f"the work's time.</p>{charts.costs(kept)}",
        _ratios(kept, DECOMMISSION),
        f"<h2>Figures</h2>{_rows(_table(kept))}",
        f"<h2>Targets</h2>{_targets(kept)}",
        _problems(kept, wrong),
        f"<h2>Where</h2><p class=note>{html.escape(_where(kept))}</p>",
    ]
    body = "\n".join(part for part in parts if part)
    is_good = not wrong and not kept["problems"]
    return page("Spark's shuffle on Sanderling", f"{verdict}.", is_good, body)


def _ratios(kept: dict[str, Any], mode: str) -> str:
    if mode not in _others(kept):
        return ""
    name = f"{TITLES[mode][0].upper()}{TITLES[mode][1:]}"
    title = f"{name}: time over native's, without preemptions"
    return f"<h2>{html.escape(title)}</h2>{charts.ratios(summary.ratios(kept, mode))}"


def _table(kept: dict[str, Any]) -> list[list[str]]:
    """Returns the table of what the event logs counted, its head first."""
    rows = [["mode", "machines taken", "notices", "round s", "slowdown", "capacity lost", "beyond",
             "cold JVMs", "failed tasks", "fetch failures", "maps again", "shuffled MiB",
             "waited", "moved MiB", "lost bytes"]]
    for mode in kept["options"]["modes"]:
        counted = summary.figures(kept, mode, summary.NO_PREEMPTIONS)
        rounds = {one["round"] for one in kept["runs"]
                  if one["trace"] == summary.NO_PREEMPTIONS and one["round"] >= 0}
        seconds = summary.seconds_without_preemptions(kept, mode)
        rows.append([mode, "none", "0", f"{seconds:.1f}", "", "", "", "",
                     *_counted(counted, len(rounds)), "", ""])
    for one in summary.preempted(kept):
        rounds = {each["round"] for each in kept["played"]
                  if each["trace"] == one.trace and each["mode"] == one.mode}
        rows.append([one.mode, one.trace, str(one.notices), f"{one.seconds:.1f}",
                     f"{one.slowdown:+.1%}", f"{one.capacity_lost:.1%}", f"{one.beyond:+.1%}",
                     f"{one.cold:.1%}", *_counted(one.figures, len(rounds)),
                     f"{one.moved_bytes / (1 << 20):.0f}", str(one.lost_bytes)])
    return rows


def _counted(figures: dict[str, Any], rounds: int) -> list[str]:
    written = figures["write_bytes"] / max(rounds, 1) / (1 << 20)
    # What tasks spent in calls that write map outputs and in waiting for those that they read.
    waited = figures["fetch_wait_millis"] / 1e3 + figures["write_nanos"] / 1e9
    return [str(figures["tasks_failed"]), str(figures["fetch_failures"]),
            str(figures["map_tasks_recomputed"]), f"{written:.1f}",
            f"{waited / max(figures['task_seconds'], 1e-9):.2%}"]


def _rows(rows: list[list[str]]) -> str:
    def cells(row: list[str], name: str) -> str:
        kinds = ("", "", *[" class=number"] * (len(row) - 2))
        return "".join(f"<{name}{kind}>{html.escape(cell)}"
                       for kind, cell in zip(kinds, row, strict=True))

    lines = "".join(f"<tr>{cells(row, 'td')}" for row in rows[1:])
    head = f"<thead><tr>{cells(rows[0], 'th')}</thead>"
    table = f"<table class=wide>{head}<tbody>{lines}</tbody></table>"
    return f"<div class=scroll>{table}</div>{EXPLAINED}"


def _targets(kept: dict[str, Any]) -> str:
    lines = [
        f"<tr><td>{html.escape(what)}<td>{html.escape(figure)}"
        f'<td class="{"yes" if reached else "no"}">{"reached" if reached else "missed"}'
        for what, figure, reached in summary.verdicts(kept)
    ]
    head = "<thead><tr><th>target<th>found<th></thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"


def _problems(kept: dict[str, Any], wrong: list[dict[str, Any]]) -> str:
    each = [f"{one['mode']}, {one['trace']}, round {one['round']}, {one['work']}: {one['problem']}"
            for one in wrong] + kept["problems"]
    if not each:
        return ""
    items = "".join(f"<li>{html.escape(one)}" for one in each)
    return f"<h2>Problems</h2><ul class=problems>{items}</ul>"


def _where(kept: dict[str, Any]) -> str:
    it, options = kept["machine"], kept["options"]
    return (
        f"{kept['date']}; Spark {kept['spark']}, {options['workers']} workers with "
        f"{options['cores']} core and {options['executor_memory']} each, "
        "ParallelGC, defaults otherwise; "
        f"{options['datanodes']} datanodes of {options['dram']}; TPC-DS data at scale "
        f"{options['scale']:g} (not an official TPC-DS result); a notice takes "
        f"{options['notice']:g} s for the cloud's 30 s, and the time of a round without "
        "preemptions stands for two hours; "
        f"{it['cores']} cores of {it['cpu']}, {it['memory_bytes'] / (1 << 30):.0f} GiB, "
        f"Linux {it['kernel']}; revision {kept['revision']}; load average {it['load']} at the end; "
        f"the whole run took {kept['seconds']:.0f} s"
    )


def _without_preemptions(kept: dict[str, Any], mode: str) -> dict[str, Any]:
    counted = summary.figures(kept, mode, summary.NO_PREEMPTIONS)
    return {"round_seconds": summary.seconds_without_preemptions(kept, mode)} | counted


def _others(kept: dict[str, Any]) -> list[str]:
    names = kept["options"]["modes"]
    return [mode for mode in names if mode != NATIVE] if NATIVE in names else []
