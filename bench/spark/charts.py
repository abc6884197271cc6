"""The page's pictures, as SVG that both modes of a page can show."""

from __future__ import annotations

from typing import Any

import summary
from modes import TITLES
from plot import WIDTH, Row, box, dots, svg, text

LEFT = 170
RIGHT = 30
# Space for what stands right of the ratios.
NOTES = 170
LANE = 22
# Brodmann et al., figure 6: dollars per hour of an n2-standard-16.
ON_DEMAND_DOLLARS = 0.776944
SPOT_DOLLARS = 0.188320
PAPER_MACHINES = 5
RATIOS = [0.5, 0.75, 1.0, 1.25, 1.5]


def timeline(kept: dict[str, Any]) -> str:
    """Draws each mode's round under the trace with most preemptions, machine by machine."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for one in kept["played"]:
        key = (one["trace"].split("-")[0], one["mode"])
        if key not in best or len(one["taken"]) > len(best[key]["taken"]):
            best[key] = one
    if not best:
        return ""
    longest = max(one["ended"] - one["began"] for one in best.values())
    parts = [_lanes(kept, one, longest) for _, one in sorted(best.items(), reverse=True)]
    keys = {"leaving": "noticed, its data leaves", "empty": "seen empty",
            "gone": "killed, not yet replaced", "sanderling": "a query or job, right",
            "wrong": "a wrong result"}
    legend = "".join(
        f'<svg viewBox="0 0 14 14" style="width:14px;height:14px;vertical-align:-2px">'
        f"{box(kind, (1, 13), 1, 12)}</svg> {words} &nbsp; " for kind, words in keys.items()
    )
    return (f"<h2>Machines that are taken while Spark works</h2>{''.join(parts)}"
            f"<p class=soft>{legend}</p>")


def _lanes(kept: dict[str, Any], played: dict[str, Any], longest: float) -> str:
    began, slots = played["began"], played["slots"]
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = LANE * (slots + 1) + 26

    def x(start: float, end: float) -> tuple[float, float]:
        until = played["ended"] - began
        start, end = (LEFT + min(max(at - began, 0), until) * scale for at in (start, end))
        return start, end

    what = played["trace"].split("-")[0]
    lines = []
    for slot in range(slots):
        y = LANE * slot + 4
        lines.append(text(LEFT - 10, y + 12, f"{what[:-1]} {slot + 1}", anchor="end"))
        lines.append(box("alive", x(began, played["ended"]), y, 15))
        for one in (each for each in played["taken"] if each["slot"] == slot):
            killed = one["killed"] or played["ended"]
            gone = x(killed, one["replaced"] or played["ended"])
            lines.append(box("leaving", x(one["noticed"], killed), y, 15, "noticed"))
            if one["empty"]:
                lines.append(box("empty", x(one["empty"], killed), y, 15, "seen empty"))
            lines.append(box("ground", gone, y, 15))
            lines.append(box("gone", gone, y, 15, "killed, not yet replaced"))
    lines.append(text(LEFT - 10, LANE * slots + 16, "work", anchor="end"))
    for one in kept["runs"]:
        if all(one[key] == played[key] for key in ("mode", "trace", "round")):
            title = f"{one['work']}: {one['seconds']:.2f} s"
            kind = "wrong" if one["problem"] else "sanderling"
            ends = x(one["began"], one["began"] + one["seconds"] - 0.4 / scale)
            lines.append(box(kind, ends, LANE * slots + 4, 15, title))
    seconds = played["ended"] - began
    title = (f"{TITLES[played['mode']]}, {played['trace']}: {len(played['taken'])} taken in "
             f"{seconds:.0f} s")
    lines.append(text(LEFT, height - 4, title, "soft key"))
    return svg(height, title, lines)


def ratios(found: list[summary.Ratio]) -> str:
    """Draws a line for each piece of work: its ratio, with the rounds' spread."""
    if not found:
        return "<p class=soft>not run</p>"
    ticks = [(tick, f"{tick:g}", "goal" if tick == 1 else "grid") for tick in RATIOS]
    ticks.append((summary.QUERY_MAX, "", "limit"))
    shown = []
    for one in found:
        most = summary.TOTAL_MAX if one.name == "total" else summary.QUERY_MAX
        note = f"{one.median:.3f}  ({one.seconds:.2f} s)"
        values = (one.low, one.median, one.high)
        shown.append(Row(one.name, "yes" if one.median <= most else "no", note, values))
    drawn = dots("time over native's", (LEFT, NOTES), (RATIOS[0], RATIOS[-1]), ticks, shown)
    return (f"{drawn}<p class=soft>Dot: median of the rounds; line: smallest to largest. Dashed: "
            f"{summary.QUERY_MAX:g}, which no query shall pass.</p>")


def runtimes(kept: dict[str, Any], what: str) -> str:
    """Draws a round's time, undisturbed and under both traces, for each mode."""
    found = [one for one in summary.disturbed(kept) if one.trace.startswith(what)]
    if not found:
        return ""
    shown = []
    for mode in kept["options"]["modes"]:
        mine = [one for one in found if one.mode == mode]
        if mine:
            shown.append(_bar(f"{mode}, none", mode, summary.undisturbed_seconds(kept, mode), "s"))
        shown += [_bar(f"{mode}, {one.trace.split('-')[1]}", mode, one.seconds, "s", one.slowdown)
                  for one in mine]
    return f"<h3>{what.capitalize()} are taken</h3>{_bars('seconds of a round', shown)}"


def costs(kept: dict[str, Any]) -> str:
    """Draws what the paper's five machines cost on demand, and on spot with each slowdown."""
    hours = 2.0
    demand = PAPER_MACHINES * ON_DEMAND_DOLLARS * hours
    spot = ((PAPER_MACHINES - 1) * SPOT_DOLLARS + ON_DEMAND_DOLLARS) * hours
    shown = [_bar("on demand", "native", demand, "dollars")]
    for one in summary.disturbed(kept):
        if one.mode == "sanderling":
            cost = spot * (1 + max(one.slowdown, 0.0))
            name = f"spot, {one.trace.replace('-', ' ')}"
            shown.append(_bar(name, one.mode, cost, "dollars", cost / demand - 1))
    return _bars("dollars", shown)


def _bar(name: str, kind: str, value: float, unit: str, change: float | None = None) -> Row:
    note = f"{value:.2f} {unit}" + ("" if change is None else f", {change:+.1%}")
    return Row(name, kind, note, (0, value, value))


def _bars(label: str, shown: list[Row]) -> str:
    most = max(row.values[1] for row in shown if row.values)
    return dots(label, (LEFT, NOTES), (0, most), [(0, "0", "goal")], shown)
