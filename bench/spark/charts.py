"""The page's pictures, as SVG that both modes of a page can show."""

from __future__ import annotations

import html
from typing import Any

import summary
from modes import TITLES

WIDTH = 1000
LEFT = 170
RIGHT = 30
LANE = 22
BAR = 20
# Brodmann et al., figure 6: dollars per hour of an n2-standard-16.
ON_DEMAND_DOLLARS = 0.776944
SPOT_DOLLARS = 0.188320
PAPER_MACHINES = 5
RATIO_LOW, RATIO_HIGH = 0.5, 1.5


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
    keys = [("leaving", "noticed, its data leaves"), ("empty", "seen empty"),
            ("gone", "killed, not yet replaced"), ("sanderling", "a query or job, right"),
            ("wrong", "a wrong result")]
    legend = "".join(
        f'<svg viewBox="0 0 14 14" style="width:14px;height:14px;vertical-align:-2px">'
        f'<rect class="{kind}" x="1" y="1" width="12" height="12"/></svg> {text} &nbsp; '
        for kind, text in keys
    )
    return (f"<h2>Machines that are taken while Spark works</h2>{''.join(parts)}"
            f"<p class=soft>{legend}</p>")


def _lanes(kept: dict[str, Any], played: dict[str, Any], longest: float) -> str:
    began, slots = played["began"], played["slots"]
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = LANE * (slots + 1) + 26

    def x(at: float) -> float:
        return LEFT + max(min(at, played["ended"]) - began, 0) * scale

    def box(kind: str, y: float, start: float, end: float, tall: float, title: str = "") -> str:
        wide = max(x(end) - x(start), 0.8)
        return (f'<rect class="{kind}" x="{x(start):.1f}" y="{y:.1f}" width="{wide:.1f}" '
                f'height="{tall}"><title>{html.escape(title)}</title></rect>')

    what = played["trace"].split("-")[0]
    lines = []
    for slot in range(slots):
        y = LANE * slot + 4
        lines.append(f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end">'
                     f'{what[:-1]} {slot + 1}</text>')
        lines.append(box("alive", y, began, played["ended"], 15))
        for one in (each for each in played["taken"] if each["slot"] == slot):
            killed = one["killed"] or played["ended"]
            lines.append(box("leaving", y, one["noticed"], killed, 15, "noticed"))
            if one["empty"]:
                lines.append(box("empty", y, one["empty"], killed, 15, "seen empty"))
            until = one["replaced"] or played["ended"]
            lines.append(f'<rect x="{x(killed):.1f}" y="{y}" height="15" fill="var(--ground)" '
                         f'width="{max(x(until) - x(killed), 1):.1f}"/>')
            lines.append(box("gone", y, killed, until, 15, "killed, not yet replaced"))
    lines.append(f'<text x="{LEFT - 10}" y="{LANE * slots + 16}" text-anchor="end">work</text>')
    for one in kept["runs"]:
        if all(one[key] == played[key] for key in ("mode", "trace", "round")):
            title = f"{one['work']}: {one['seconds']:.2f} s"
            kind = "wrong" if one["problem"] else "sanderling"
            end = one["began"] + one["seconds"]
            lines.append(box(kind, LANE * slots + 4, one["began"], end - 0.4 / scale, 15, title))
    seconds = played["ended"] - began
    title = (f"{TITLES[played['mode']]}, {played['trace']}: {len(played['taken'])} taken in "
             f"{seconds:.0f} s")
    lines.append(f'<text class="soft key" x="{LEFT}" y="{height - 4}">{html.escape(title)}</text>')
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
            f'{"".join(lines)}</svg>')


def ratios(found: list[summary.Ratio]) -> str:
    """Draws one bar for each piece of work, from 1 to its ratio, with the rounds' spread."""
    if not found:
        return "<p class=soft>not run</p>"
    height = 30 + BAR * len(found)

    def x(ratio: float) -> float:
        kept = min(max(ratio, RATIO_LOW), RATIO_HIGH)
        return LEFT + (kept - RATIO_LOW) / (RATIO_HIGH - RATIO_LOW) * (WIDTH - LEFT - 130)

    lines = []
    for tick in (0.5, 0.75, 1.0, 1.25, 1.5):
        kind = "goal" if tick == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="22" '
                     f'y2="{height}"/><text class="soft" x="{x(tick):.1f}" y="14" '
                     f'text-anchor="middle">{tick:g}</text>')
    limit = x(summary.QUERY_MAX)
    lines.append(f'<line class="limit" x1="{limit:.1f}" x2="{limit:.1f}" y1="22" y2="{height}"/>')
    for at, one in enumerate(found):
        y = 26 + BAR * at
        most = summary.TOTAL_MAX if one.name == "total" else summary.QUERY_MAX
        kind = "yes" if one.median <= most else "no"
        start, end = sorted((x(1.0), x(one.median)))
        weight = ' font-weight="700"' if one.name == "total" else ""
        lines.append(
            f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end"{weight}>{one.name}</text>'
            f'<rect class="{kind}" x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" '
            f'height="14" fill-opacity=".55" stroke="none"/>'
            f'<line class="whisker" x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="{y + 7}" '
            f'y2="{y + 7}"/><text class="{kind}" x="{WIDTH - 122}" y="{y + 12}"{weight}>'
            f'{one.median:.3f}</text><text class="soft" x="{WIDTH - 70}" y="{y + 12}">'
            f'{one.seconds:.2f} s</text>')
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="time over native\'s">'
            f'{"".join(lines)}</svg><p class=soft>Bar: median of the rounds; line: smallest to '
            f"largest. Dashed: {summary.QUERY_MAX:g}, which no query shall pass.</p>")


def runtimes(kept: dict[str, Any], what: str) -> str:
    """Draws bars of a round's time, undisturbed and under both traces, for each mode."""
    found = [one for one in summary.disturbed(kept) if one.trace.startswith(what)]
    if not found:
        return ""
    groups = []
    for mode in kept["options"]["modes"]:
        mine = [one for one in found if one.mode == mode]
        if mine:
            bars = [("undisturbed", summary.undisturbed_seconds(kept, mode), "")]
            bars += [(one.trace.split("-")[1], one.seconds, f"{one.slowdown:+.1%}") for one in mine]
            groups.append((mode, bars))
    return f"<h3>{what.capitalize()} are taken</h3>" + _bars(groups, "s", "{:.0f} s")


def costs(kept: dict[str, Any]) -> str:
    """Draws what the paper's five machines cost on demand, and on spot with each slowdown."""
    hours = 2.0
    demand = PAPER_MACHINES * ON_DEMAND_DOLLARS * hours
    spot = ((PAPER_MACHINES - 1) * SPOT_DOLLARS + ON_DEMAND_DOLLARS) * hours
    groups = [("on demand", [("undisturbed", demand, "")])]
    for one in summary.disturbed(kept):
        if one.mode == "sanderling":
            dollars = spot * (1 + max(one.slowdown, 0.0))
            bar = (one.trace.split("-")[1], dollars, f"{dollars / demand - 1:+.1%}")
            groups.append((f"spot, {one.trace.split('-')[0]}", [bar]))
    return _bars(groups, "$", "${:.2f}")


def _bars(groups: list[tuple[str, list[tuple[str, float, str]]]], unit: str, form: str) -> str:
    """Draws groups of upright bars with their values."""
    tall, wide = 190, 64
    highest = max((value for _, bars in groups for _, value, _ in bars), default=1.0) or 1.0
    lines, x = [], 40.0
    for name, bars in groups:
        start = x
        for label, value, note in bars:
            height = value / highest * (tall - 40)
            kind = name if name in TITLES else "sanderling"
            fade = "" if label == "undisturbed" else ' fill-opacity=".6"'
            lines.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{tall - height:.1f}" width="{wide - 10}" '
                f'height="{height:.1f}"{fade}/><text class="key" x="{x + wide / 2 - 5:.1f}" '
                f'y="{tall - height - 5:.1f}" text-anchor="middle">{form.format(value)}</text>'
                f'<text class="soft key" x="{x + wide / 2 - 5:.1f}" y="{tall + 15}" '
                f'text-anchor="middle">{"none" if label == "undisturbed" else label}</text>'
                f'<text class="key" x="{x + wide / 2 - 5:.1f}" y="{tall + 31}" '
                f'text-anchor="middle">{note}</text>')
            x += wide
        lines.append(f'<text x="{(start + x - 10) / 2:.1f}" y="{tall + 52}" '
                     f'text-anchor="middle">{html.escape(name)}</text>')
        x += 60
    lines.append(f'<line class="goal" x1="30" x2="{x - 40:.1f}" y1="{tall}" y2="{tall}"/>')
    return (f'<svg viewBox="0 0 {WIDTH} {tall + 62}" role="img" aria-label="bars in {unit}">'
            f'{"".join(lines)}</svg>')
