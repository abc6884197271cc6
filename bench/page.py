"""The page of a run: one file without network, with the picture first."""

from __future__ import annotations

import html as escape
from typing import Any

from plot import Row, dots
from table import number

LEFT = 330
RIGHT = 150
# The picture ends at a twentieth and at twenty times of a target; dots beyond lie on its edge.
FACTOR_MAX = 20.0
TICKS = [0.05, 0.1, 0.2, 0.5, 2.0, 5.0, 10.0, 20.0]

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667080; --grid: #d8dde4;
  --good: #1a7f4b; --bad: #c2410c; --ground: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #98a2b3; --grid: #333b47;
  --good: #4ade80; --bad: #fb923c; --ground: #12161c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 1060px; margin: 2em auto; padding: 0 1em; }
svg { width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); }
.grid { stroke: var(--grid); } .goal { stroke: var(--ink); stroke-width: 1.5; }
.yes { stroke: var(--good); fill: var(--good); } .no { stroke: var(--bad); fill: var(--bad); }
svg text[class] { stroke: none; } .spread { stroke-width: 4; stroke-opacity: .45; }
td.yes { color: var(--good); } td.no { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: right; padding: .3em .6em; border-bottom: 1px solid var(--grid); }
th:nth-child(2), td:nth-child(2) { text-align: left; }
p, li { max-width: 75ch; } .soft { color: var(--soft); }
"""


def html(kept: dict[str, Any]) -> str:
    """Writes the page of a results file."""
    goals = [goal for row in kept["rows"] for goal in row.get("goals", [row])]
    reached = sum(row["reached"] for row in kept["rows"])
    missing = [goal for goal in goals if goal["ratio"] is None]
    reasons = "".join(
        f"<li>Row {one['row']}, {escape.escape(one['name'])}: {escape.escape(one['why_not'])}"
        for one in missing
    )
    title = f"{reached} of {len(kept['rows'])} rows reached"
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sanderling beside its peers: {title}</title><style>{STYLE}</style>
<h1>Sanderling beside its peers</h1>
<p>{title}. Every dot is the median of the rounds, its line reaches from the smallest to the
largest round. Right of the upright line the target is reached: twice as far as needed at 2.</p>
{picture(goals)}
{f"<h2>Not run</h2><ul>{reasons}</ul>" if missing else ""}
<h2>Figures</h2>
{figures(goals)}
<h2>Where</h2>
<p class="soft">{escape.escape(machine(kept))}</p>
</html>
"""


def machine(kept: dict[str, Any]) -> str:
    """Returns where and when the figures were taken."""
    it = kept["machine"]
    peers = ", ".join(f"{name} {version}" for name, version in it["peers"].items())
    revisions = sorted({row.get("revision", "") for row in kept["rows"]} - {""})
    return (
        f"{kept['date']}; {it['cores']} cores of {it['cpu']}, "
        f"{it['memory_bytes'] / (1 << 30):.0f} GiB, Linux {it['kernel']}; revision "
        f"{', '.join(revisions)}; load average {it['load']} at the end; {peers}"
    )


def factor(goal: dict[str, Any], value: float) -> float:
    """Returns how far beyond the target a value is: 1 is just reached."""
    if value <= 0:
        return FACTOR_MAX if goal["is_limit"] else 1 / FACTOR_MAX
    return goal["target"] / value if goal["is_limit"] else value / goal["target"]


def picture(goals: list[dict[str, Any]]) -> str:
    """Draws every goal as a line with a dot, on a logarithmic scale of factors of its target."""
    ticks = [(tick, f"{tick:g}", "grid") for tick in TICKS] + [(1.0, "target", "goal")]
    ends = (1 / FACTOR_MAX, FACTOR_MAX)
    shown = [line(goal) for goal in goals]
    return dots("every row and its target", (LEFT, RIGHT), ends, ticks, shown, is_log=True)


def line(goal: dict[str, Any]) -> Row:
    """Returns one goal's line."""
    name = f"{goal['row']}  {goal['name']}"
    if goal["ratio"] is None:
        return Row(name, "soft", "not run")
    low, middle, high = (factor(goal, goal[end]) for end in ("min", "ratio", "max"))
    note = f"{number(goal['ratio'])} ({limit(goal)})"
    return Row(name, "yes" if goal["reached"] else "no", note, (low, middle, high))


def limit(goal: dict[str, Any]) -> str:
    """Writes a target."""
    unit = "" if goal["unit"] == "ratio" else f" {goal['unit']}"
    return f"{'≤' if goal['is_limit'] else '≥'} {number(goal['target'])}{unit}"


def figures(goals: list[dict[str, Any]]) -> str:
    """Writes the table."""
    words = ["row", "what", "median", "min", "max", "target", "reached"]
    head = "".join(f"<th>{word}" for word in words)
    lines = [f"<tr>{head}"]
    for goal in goals:
        values = [goal[end] for end in ("ratio", "min", "max")]
        shown = "".join(f"<td>{'-' if value is None else number(value)}" for value in values)
        kind = "yes" if goal["reached"] else "no"
        verdict = "not run" if goal["ratio"] is None else kind
        lines.append(
            f"<tr><td>{goal['row']}<td>{escape.escape(goal['name'])}{shown}"
            f'<td>{limit(goal)}<td class="{kind}">{verdict}'
        )
    return f"<table>{''.join(lines)}</table>"
