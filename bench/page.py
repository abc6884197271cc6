"""The page of a run: one file without network, with the picture first."""

from __future__ import annotations

import html as escape
from typing import Any

from plot import Row, page, rows
from table import number

LEFT = 380
RIGHT = 170
# The picture ends at a twentieth and at twenty times of a target; dots beyond lie on its edge.
FACTOR_MAX = 20.0
TICKS = [0.05, 0.1, 0.2, 0.5, 2.0, 5.0, 10.0, 20.0]

def html(kept: dict[str, Any]) -> str:
    """Writes the page of a results file."""
    goals = [goal for row in kept["rows"] for goal in row.get("goals", [row])]
    reached = sum(row["reached"] for row in kept["rows"])
    missing = [goal for goal in goals if goal["ratio"] is None]
    reasons = "".join(
        f"<li>Row {one['row']}, {escape.escape(one['name'])}: {escape.escape(one['why_not'])}"
        for one in missing
    )
    verdict = f"{reached} of {len(kept['rows'])} rows reached"
    body = f"""<p>Every dot is the median of the rounds, its line reaches from the smallest to the
largest round. Right of the upright line the target is reached: twice as far as needed at 2.</p>
{picture(goals)}
{f"<h2>Not run</h2><ul>{reasons}</ul>" if missing else ""}
<h2>Figures</h2>
{figures(goals)}
<h2>Where</h2>
<p class=note>{escape.escape(machine(kept))}</p>"""
    is_good = reached == len(kept["rows"])
    return page("Sanderling beside its peers", verdict, is_good, body)


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
    ticks = [(tick, f"{tick:g}") for tick in TICKS] + [(1.0, "target", "goal")]
    x = {"ends": (1 / FACTOR_MAX, FACTOR_MAX), "log": True, "at": ticks}
    return rows("every row and its target", (LEFT, RIGHT), x, [line(goal) for goal in goals])


def line(goal: dict[str, Any]) -> Row:
    """Returns one goal's line."""
    name = f"{goal['row']}  {goal['name']}"
    if goal["ratio"] is None:
        return Row(name, "grey", "not run")
    low, middle, high = (factor(goal, goal[end]) for end in ("min", "ratio", "max"))
    note = f"{number(goal['ratio'])} ({limit(goal)})"
    return Row(name, "good" if goal["reached"] else "bad", note, (low, middle, high))


def limit(goal: dict[str, Any]) -> str:
    """Writes a target."""
    unit = "" if goal["unit"] == "ratio" else f" {goal['unit']}"
    return f"{'≤' if goal['is_limit'] else '≥'} {number(goal['target'])}{unit}"


def figures(goals: list[dict[str, Any]]) -> str:
    """Writes the table."""
    words = ["row", "what", "median", "min", "max", "target", "reached"]
    head = "".join(
        f"<th{'' if word in ('what', 'reached') else ' class=number'}>{word}" for word in words
    )
    lines = []
    for goal in goals:
        values = [goal[end] for end in ("ratio", "min", "max")]
        shown = "".join(
            f"<td class=number>{'-' if value is None else number(value)}" for value in values
        )
        kind = "yes" if goal["reached"] else "no"
        verdict = "not run" if goal["ratio"] is None else kind
        lines.append(
            f"<tr><td class=number>{goal['row']}<td>{escape.escape(goal['name'])}{shown}"
            f'<td class=number>{limit(goal)}<td class="{kind}">{verdict}'
        )
    table = f"<table><thead><tr>{head}</thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<div class=scroll>{table}</div>"
