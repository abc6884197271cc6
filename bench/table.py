"""The table that a run prints."""

from __future__ import annotations

from goal import Outcome

HEAD = ("row", "what", "median", "min", "max", "target", "reached", "ours", "peer")
RIGHT = {0, 2, 3, 4, 5, 7, 8}


def number(value: float) -> str:
    """Writes a number with three digits that count."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.2f}M"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}"


def target(outcome: Outcome) -> str:
    """Writes what is to be reached."""
    goal = outcome.goal
    unit = "" if goal.unit == "ratio" else f" {goal.unit}"
    return f"{'<=' if goal.is_limit else '>='} {number(goal.target)}{unit}"


def cells(outcome: Outcome) -> list[str]:
    """Returns one line of the table, cell by cell."""
    head = [str(outcome.row), outcome.goal.name]
    if not outcome.is_measured:
        return [*head, "-", "-", "-", target(outcome), "not run", "-", "-"]
    values = outcome.values
    middle = sorted(outcome.samples, key=lambda one: one.value)[len(values) // 2]
    peer = "-" if middle.peer is None else f"{number(middle.peer)} {middle.unit}".strip()
    return [
        *head,
        number(outcome.median),
        number(min(values)),
        number(max(values)),
        target(outcome),
        "yes" if outcome.is_reached else "no",
        f"{number(middle.ours)} {middle.unit}".strip(),
        peer,
    ]


def text(outcomes: list[Outcome]) -> str:
    """Writes the table in columns, and under it why a row was not run."""
    lines = [list(HEAD), *(cells(outcome) for outcome in outcomes)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    written = [
        "  ".join(
            cell.rjust(widths[at]) if at in RIGHT else cell.ljust(widths[at])
            for at, cell in enumerate(line)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*written, *reasons(outcomes)])


def markdown(outcomes: list[Outcome]) -> str:
    """Writes the table for a page of documentation."""
    rule = [" --: " if at in RIGHT else " --- " for at in range(len(HEAD))]
    lines = [f"| {' | '.join(HEAD)} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {' | '.join(cells(outcome))} |" for outcome in outcomes]
    return "\n".join([*lines, *("\n" + reason for reason in reasons(outcomes))])


def reasons(outcomes: list[Outcome]) -> list[str]:
    """Prints the reason for every row that was not run."""
    missing = [outcome for outcome in outcomes if not outcome.is_measured]
    return [f"row {one.row} ({one.goal.name}) was not run: {one.why_not}" for one in missing]
