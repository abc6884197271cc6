"""The table at the end."""

from __future__ import annotations

from sanderling.demo.cost import ON_DEMAND_DOLLARS_PER_HOUR, SPOT_DOLLARS_PER_HOUR, Cost
from sanderling.demo.summary import Summary

_PROBLEMS_SHOWN_MAX = 20

OTHERS_SHARE_SHOWN_MIN = 0.05
"""Other programs' share of the processors from which on the table has it."""


def rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Returns (what, figure, note) of each line."""
    stall = summary.stall
    stall_note = "no call was made"
    if stall:
        stall_note = (
            f"a {stall.client}'s {stall.kind} took {seconds(stall.took_seconds)}, usual are "
            f"{seconds(stall.usual_seconds)} (99th percentile without preemptions; longest without "
            f"call {seconds(summary.undisturbed_longest_seconds)})"
        )
    drained = [each.drained_after_seconds for each in summary.preempted]
    slowest = max((each for each in drained if each is not None), default=0.0)
    return [
        (
            "queries right",
            f"{summary.queries_right} / {summary.queries_total}",
            f"{summary.queries_distinct} different TPC-DS queries, compared row by row",
        ),
        (
            "short-lived objects right",
            f"{summary.writer_objects - summary.writer_objects_wrong} / {summary.writer_objects}",
            f"{size(summary.writer_bytes)} written, read back, compared, deleted",
        ),
        (
            "notices of datanodes",
            str(summary.notices),
            "each followed by SIGKILL at its deadline and a replacement",
        ),
        *_namenodes(summary),
        (
            "bytes relocated",
            size(summary.relocated_bytes),
            f"a node was empty after at most {seconds(slowest)}",
        ),
        ("bytes lost", size(summary.lost_bytes), "by the namenode's own report"),
        ("client errors", str(summary.client_errors), "of all calls of all clients"),
        ("longest stall", seconds(stall.seconds if stall else 0.0), stall_note),
        (
            "time of one round",
            f"{summary.disturbed_round_seconds:.2f} s",
            f"{summary.undisturbed_round_seconds:.2f} s without preemptions: "
            f"{(summary.slowdown - 1) * 100:+.1f} %{_others(summary)}",
        ),
        ("cost", *_cost(summary.cost)),
        ("cost, five machines", *_cost(summary.paper_cost)),
        ("whole run", f"{summary.seconds:.0f} s", "data, cluster, both runs and the checks"),
    ]


def text(summary: Summary, report: str) -> str:
    """Returns the table for a terminal."""
    lines = rows(summary)
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    shown = [
        f"  {what:<{widths[0]}}  {figure:>{widths[1]}}  {note}" for what, figure, note in lines
    ]
    problems = summary.problems
    if problems:
        shown += ["", f"WRONG: {len(problems)} problems"]
        shown += [f"  {problem[:300]}" for problem in problems[:_PROBLEMS_SHOWN_MAX]]
        if len(problems) > _PROBLEMS_SHOWN_MAX:
            shown.append(f"  and {len(problems) - _PROBLEMS_SHOWN_MAX} more")
    else:
        shown += ["", "  every result is right and nothing was lost"]
    return "\n".join(["", *shown, "", f"  open the report: {report}"])


def size(count: float) -> str:
    """Returns bytes in IEC units."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def seconds(span: float) -> str:
    """Returns a time in the unit that fits it."""
    return f"{span * 1000:.1f} ms" if span < 1 else f"{span:.2f} s"


def _namenodes(summary: Summary) -> list[tuple[str, str, str]]:
    if summary.namenodes == 1:
        return []
    gone = summary.preempted_namenodes
    left = [it.left_after_seconds for it in gone if it.left_after_seconds is not None]
    parts = [f"{sum(it.has_led for it in gone)} of them of the one that led"]
    if left:
        parts.append(f"{len(left)} left by themselves within {seconds(max(left))}")
    if len(left) < len(gone):
        parts.append(f"{len(gone) - len(left)} killed at the deadline")
    return [("notices of namenodes", str(summary.namenode_notices), "; ".join(parts))]


def _others(summary: Summary) -> str:
    """Returns what other programs took if that is enough to bend the comparison."""
    calm, rough = (share or 0.0 for share in summary.others_shares)
    if max(calm, rough) < OTHERS_SHARE_SHOWN_MIN:
        return ""
    return (
        f"; other programs took {rough * 100:.0f} % of the processors, without preemptions "
        f"{calm * 100:.0f} %"
    )


def _cost(cost: Cost) -> tuple[str, str]:
    figure = f"${cost.spot_dollars:.3f}/h"
    fleet = f"{cost.spot_machines} spot (${SPOT_DOLLARS_PER_HOUR})"
    if cost.on_demand_machines:
        fleet += f" + {cost.on_demand_machines} on demand (${ON_DEMAND_DOLLARS_PER_HOUR})"
    note = (
        f"{fleet}, slowdown included; {cost.compared_machines} on demand "
        f"${cost.on_demand_dollars:.3f}/h: {cost.saved * 100:.1f} % cheaper"
    )
    return figure, note
