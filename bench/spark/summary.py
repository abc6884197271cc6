"""Boils the runs of a comparison down to the figures of its page."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import accounts
from modes import NATIVE, SANDERLING

NO_PREEMPTIONS = "no-preemptions"
TOTAL_MAX = 1.03
QUERY_MAX = 1.15
SLOWDOWN_MAX = 0.01


@dataclass(frozen=True)
class Ratio:
    """One piece of work's time over native's, of the rounds: median, smallest, largest."""

    name: str
    median: float
    low: float
    high: float
    seconds: float
    """The median of its own time."""
    native_seconds: float


@dataclass(frozen=True)
class Preempted:
    """One mode under one trace, over its rounds."""

    mode: str
    trace: str
    notices: int
    seconds: float
    """Median of a round's time."""
    slowdown: float
    """Over the same mode without preemptions, less one: in the round beside which it was played
    when datanodes are taken, else in the median of all."""
    capacity_lost: float
    """The part of their time in which Spark's workers had no executor that took tasks: from the
    notice, or else the kill, until the next one's had registered. 0 for datanodes."""
    beyond: float
    """The slowdown that the lost capacity does not explain."""
    cold: float
    """The part of the workers' time that tasks took longer in executors that had come for others
    than the same tasks take without preemptions: what new JVMs cost until they are warm."""
    lost_bytes: int
    moved_bytes: int
    figures: dict[str, Any]


def ratios(kept: dict[str, Any], mode: str) -> list[Ratio]:
    """Returns each piece of work's ratio to native, without preemptions; the total is the last."""
    times = _times(kept, NO_PREEMPTIONS)
    made = []
    for name in kept["work"]:
        pairs = _pairs(times.get((NATIVE, name), {}), times.get((mode, name), {}))
        if pairs:
            made.append(_ratio(name, pairs))
    totals: dict[int, tuple[float, float]] = {}
    for number in {one["round"] for one in kept["runs"] if one["round"] >= 0}:
        both = [
            (times[NATIVE, name][number], times[mode, name][number])
            for name in kept["work"]
            if number in times.get((NATIVE, name), {}) and number in times.get((mode, name), {})
        ]
        if both:
            totals[number] = (sum(one for one, _ in both), sum(other for _, other in both))
    return [*made, _ratio("total", list(totals.values()))] if totals else made


def preempted(kept: dict[str, Any]) -> list[Preempted]:
    """Returns every mode under every trace that was played."""
    made = []
    for trace in kept["options"]["traces"]:
        for mode in kept["options"]["modes"]:
            played = [one for one in kept["played"]
                      if one["trace"] == trace and one["mode"] == mode]
            if played:
                made.append(_preempted(kept, mode, trace, played))
    return made


def seconds_without_preemptions(kept: dict[str, Any], mode: str) -> float:
    """Returns the time of one round without preemptions: the sum of each work's median."""
    times = _times(kept, NO_PREEMPTIONS)
    each = [times[mode, name].values() for name in kept["work"] if times.get((mode, name))]
    return sum(statistics.median(one) for one in each)


def figures(kept: dict[str, Any], mode: str, trace: str) -> dict[str, Any]:
    """Returns what the event log counted in a mode under a trace, rounds together."""
    return accounts.add([
        one.get("figures", {}) for one in kept["runs"]
        if one["mode"] == mode and one["trace"] == trace and one["round"] >= 0
    ])


def verdicts(kept: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Returns (what, figure, reached) of each target that this run measured."""
    made = []
    if SANDERLING in kept["options"]["modes"] and NATIVE in kept["options"]["modes"]:
        found = ratios(kept, SANDERLING)
        if found:
            total, worst = found[-1], max(found[:-1], key=lambda one: one.median)
            made.append((f"total time over native at most {TOTAL_MAX:g}",
                         f"{total.median:.3f}", total.median <= TOTAL_MAX))
            made.append((f"no query above {QUERY_MAX:g}", f"{worst.name} {worst.median:.3f}",
                         worst.median <= QUERY_MAX))
    for one in preempted(kept):
        if one.mode != SANDERLING:
            continue
        failed = one.figures["tasks_failed"]
        fetch = one.figures["fetch_failures"]
        made.append((f"{one.trace}: slowdown beyond lost capacity at most {SLOWDOWN_MAX:.0%}",
                     f"{one.beyond:+.1%}", one.beyond <= SLOWDOWN_MAX))
        made.append((f"{one.trace}: no failed task, no fetch failure, no byte lost",
                     f"{failed}, {fetch}, {one.lost_bytes}",
                     not failed and not fetch and not one.lost_bytes))
    return made


def _preempted(
    kept: dict[str, Any], mode: str, trace: str, played: list[dict[str, Any]]
) -> Preempted:
    numbers = {one["round"] for one in kept["runs"] if one["mode"] == mode
               and one["trace"] == NO_PREEMPTIONS and one["round"] >= 0}
    usual = {at: _round_seconds(kept, mode, NO_PREEMPTIONS, at) for at in numbers}
    rounds = {one["round"]: _round_seconds(kept, mode, trace, one["round"]) for one in played}
    beside = usual if trace.startswith("datanodes") else {}
    median = statistics.median(usual.values()) if usual else 0.0
    each = [seconds / beside.get(at, median) for at, seconds in rounds.items() if median]
    slowdown = statistics.median(each) - 1 if each else 0.0
    lost = cold = 0.0
    if trace.startswith("executors"):
        lost = statistics.median(_gone(one) for one in played)
        cold = statistics.median(_cold(kept, mode, one) for one in played)
    return Preempted(
        mode=mode,
        trace=trace,
        notices=sum(len(one["taken"]) for one in played),
        seconds=statistics.median(rounds.values()),
        slowdown=slowdown,
        capacity_lost=lost,
        beyond=(1 + slowdown) * (1 - lost) - 1,
        cold=cold,
        lost_bytes=sum(one["lost"] for one in played),
        moved_bytes=sum(one["moved"] for one in played),
        figures=figures(kept, mode, trace),
    )


def _gone(played: dict[str, Any]) -> float:
    """Returns the part of the workers' time in which they had no executor that took tasks."""
    return played["absent"] / ((played["ended"] - played["began"]) * played["slots"])


def _cold(kept: dict[str, Any], mode: str, played: dict[str, Any]) -> float:
    """Returns the part of the workers' time that tasks took longer in new executors than usual."""
    usual: dict[tuple[str, int, int, int], list[float]] = {}
    known: set[str] = set()
    for one in kept["runs"]:
        if (one["mode"], one["trace"]) == (mode, NO_PREEMPTIONS):
            known |= {executor for stage in _stages(one) for executor in stage}
            if one["round"] >= 0:
                for key, stage in _keyed(one):
                    usual.setdefault(key, []).append(sum(it[1] for it in stage.values()))
    longer = 0.0
    for one in kept["runs"]:
        if (one["mode"], one["trace"], one["round"]) != (mode, played["trace"], played["round"]):
            continue
        for key, stage in _keyed(one):
            if key in usual:
                once = statistics.median(usual[key]) / key[3]
                longer += sum(seconds - tasks * once for executor, (tasks, seconds)
                              in stage.items() if executor not in known)
    return longer / ((played["ended"] - played["began"]) * played["slots"])


def _keyed(run: dict[str, Any]) -> list[tuple[tuple[str, int, int, int], dict[str, list[float]]]]:
    """Returns a run's stages with what makes them the same in another round.

    That is the work, how many stages it had, which of them it was and how many tasks that had: the
    numbers differ when a stage was repeated or adaptive execution chose otherwise.
    """
    stages = _stages(run)
    return [
        ((run["work"], len(stages), at, round(sum(it[0] for it in stage.values()))), stage)
        for at, stage in enumerate(stages)
    ]


def _stages(run: dict[str, Any]) -> list[dict[str, list[float]]]:
    found: list[dict[str, list[float]]] = run.get("figures", {}).get("stages", [])
    return found


def _round_seconds(kept: dict[str, Any], mode: str, trace: str, number: int) -> float:
    return sum(
        one["seconds"] for one in kept["runs"]
        if (one["mode"], one["trace"], one["round"]) == (mode, trace, number)
    )


def _times(kept: dict[str, Any], trace: str) -> dict[tuple[str, str], dict[int, float]]:
    """Returns the time of each counted round by mode and work."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for one in kept["runs"]:
        if one["trace"] == trace and one["round"] >= 0:
            found.setdefault((one["mode"], one["work"]), {})[one["round"]] = one["seconds"]
    return found


def _pairs(native: dict[int, float], mine: dict[int, float]) -> list[tuple[float, float]]:
    return [(native[number], mine[number]) for number in sorted(native.keys() & mine.keys())]


def _ratio(name: str, pairs: list[tuple[float, float]]) -> Ratio:
    each = [mine / native for native, mine in pairs]
    return Ratio(
        name, statistics.median(each), min(each), max(each),
        statistics.median(mine for _, mine in pairs),
        statistics.median(native for native, _ in pairs),
    )
