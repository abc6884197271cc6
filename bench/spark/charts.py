"""The page's plots, as `plot` describes them."""

from __future__ import annotations

from typing import Any

import summary
from modes import TITLES
from plot import Row, bar, figure, legend, places, rows

LEFT = 170
RIGHT = 30
# Space for what stands right of the ratios.
NOTES = 190
ROW_HEIGHT = 24
# Brodmann et al., figure 6: dollars per hour of an n2-standard-16.
ON_DEMAND_DOLLARS = 0.776944
SPOT_DOLLARS = 0.188320
PAPER_MACHINES = 5
RATIOS = [0.5, 0.75, 1.0, 1.25, 1.5]
COLOURS = {"native": "grey", "decommission": "amber", "sanderling": "blue"}


def timeline(kept: dict[str, Any]) -> str:
    """Returns a plot of each mode's round under the trace with most preemptions, by machine."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for one in kept["played"]:
        key = (one["trace"].split("-")[0], one["mode"])
        if key not in best or len(one["taken"]) > len(best[key]["taken"]):
            best[key] = one
    if not best:
        return ""
    longest = max(one["ended"] - one["began"] for one in best.values())
    parts = [_timeline(kept, one, longest) for _, one in sorted(best.items(), reverse=True)]
    keys = {"amber": "noticed, its data leaves", "green": "seen empty",
            "red": "killed, not yet replaced; a wrong result", "blue": "a query or job, right"}
    return f"<h2>Machines that are taken while Spark works</h2>{''.join(parts)}{legend(keys)}"


def _timeline(kept: dict[str, Any], played: dict[str, Any], longest: float) -> str:
    began, slots = played["began"], played["slots"]
    until = played["ended"] - began
    marks = []

    def add(colour: str, start: float, end: float, place: int, title: str) -> None:
        start, end = (min(max(at - began, 0), until) for at in (start, end))
        marks.append(bar(colour, (start, end), (place + 0.15, place + 0.85), title))

    for slot in range(slots):
        add("held pale", began, played["ended"], slot, "")
        for one in (each for each in played["taken"] if each["slot"] == slot):
            killed = one["killed"] or played["ended"]
            replaced = one["replaced"] or played["ended"]
            add("amber", one["noticed"], killed, slot, "noticed")
            if one["empty"]:
                add("green", one["empty"], killed, slot, "seen empty")
            add("card", killed, replaced, slot, "")
            add("red open", killed, replaced, slot, "killed, not yet replaced")
    for one in kept["runs"]:
        if all(one[key] == played[key] for key in ("mode", "trace", "round")):
            end = one["began"] + one["seconds"] - longest / 2000
            title = f"{one['work']}: {one['seconds']:.2f} s"
            add("red" if one["problem"] else "blue", one["began"], end, slots, title)
    what = played["trace"].split("-")[0][:-1]
    names = [*(f"{what} {slot + 1}" for slot in range(slots)), "work"]
    title = (f"{TITLES[played['mode']]}, {played['trace']}: {len(played['taken'])} taken in "
             f"{until:.0f} s")
    panel = {"height": ROW_HEIGHT * (slots + 1), "y": places(names), "title": title, "marks": marks}
    x = {"ends": (0, longest), "count": 10, "unit": {"after": " s"}, "grid": True}
    return figure({"about": title, "left": LEFT, "right": RIGHT, "x": x, "panels": [panel]})


def ratios(found: list[summary.Ratio]) -> str:
    """Returns a plot with a line for each piece of work: its ratio, with the rounds' spread."""
    if not found:
        return "<p class=note>not run</p>"
    ticks = [(tick, f"{tick:g}", "goal" if tick == 1 else "grid") for tick in RATIOS]
    ticks.append((summary.QUERY_MAX, "", "cut"))
    shown = []
    for one in found:
        most = summary.TOTAL_MAX if one.name == "total" else summary.QUERY_MAX
        note = f"{one.median:.3f}  ({one.seconds:.2f} s)"
        values = (one.low, one.median, one.high)
        shown.append(Row(one.name, "good" if one.median <= most else "bad", note, values))
    x = {"ends": (RATIOS[0], RATIOS[-1]), "at": ticks}
    drawn = rows("time over native's", (LEFT, NOTES), x, shown)
    return (f"{drawn}<p class=note>Dot: median of the rounds; line: smallest to largest. Dashed: "
            f"{summary.QUERY_MAX:g}, which no query shall pass.</p>")


def runtimes(kept: dict[str, Any], what: str) -> str:
    """Returns a plot of a round's time, without preemptions and under both traces, by mode."""
    found = [one for one in summary.preempted(kept) if one.trace.startswith(what)]
    if not found:
        return ""
    shown = []
    for mode in kept["options"]["modes"]:
        mine = [one for one in found if one.mode == mode]
        if mine:
            seconds = summary.seconds_without_preemptions(kept, mode)
            shown.append(_bar(f"{mode}, none", mode, seconds, "s"))
        shown += [_bar(f"{mode}, {one.trace.split('-')[1]}", mode, one.seconds, "s", one.slowdown)
                  for one in mine]
    return f"<h3>{what.capitalize()} are taken</h3>{_bars('seconds of a round', shown)}"


def costs(kept: dict[str, Any]) -> str:
    """Returns a plot of what the paper's machines cost on demand, and on spot, by slowdown."""
    hours = 2.0
    demand = PAPER_MACHINES * ON_DEMAND_DOLLARS * hours
    spot = ((PAPER_MACHINES - 1) * SPOT_DOLLARS + ON_DEMAND_DOLLARS) * hours
    shown = [_bar("on demand", "native", demand, "dollars")]
    for one in summary.preempted(kept):
        if one.mode == "sanderling":
            cost = spot * (1 + max(one.slowdown, 0.0))
            name = f"spot, {one.trace.replace('-', ' ')}"
            shown.append(_bar(name, one.mode, cost, "dollars", cost / demand - 1))
    return _bars("dollars", shown)


def _bar(name: str, mode: str, value: float, unit: str, change: float | None = None) -> Row:
    note = f"{value:.2f} {unit}" + ("" if change is None else f", {change:+.1%}")
    return Row(name, COLOURS[mode], note, (0, value, value))


def _bars(label: str, shown: list[Row]) -> str:
    most = max(row.values[1] for row in shown if row.values)
    return rows(label, (LEFT, NOTES), {"ends": (0, most), "name": label, "count": 8}, shown)
