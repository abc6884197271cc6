"""The figures of Spark's event log for each piece of work: tasks, failures, shuffles, time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import event_log

GROUP = "spark.jobGroup.id"
# The ids of this comparison: trace/round/work. Spark's own groups, of broadcasts, are others.
OURS = re.compile(r"[a-z0-9-]+/-?\d+/[a-z0-9-]+")

COUNTED = [
    "tasks", "tasks_failed", "tasks_killed", "tasks_resubmitted", "fetch_failures", "map_tasks",
    "map_tasks_recomputed", "map_outputs_missed", "stage_attempts", "stages_failed",
    "spilled_bytes", "task_seconds", "executors_added", "executors_removed",
]
SHUFFLED = ["write_bytes", "write_nanos", "read_blocks", "fetch_wait_millis"]


class Stages:
    """Adds up what the tasks of each stage took in each executor."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[str, list[float]]] = {}

    def add(self, event: event_log.Event) -> None:
        """Adds a task that succeeded; other events are ignored."""
        if event.get("Event") != "SparkListenerTaskEnd":
            return
        if event["Task End Reason"]["Reason"] != "Success":
            return
        info = event["Task Info"]
        of = self._seconds.setdefault(event["Stage ID"], {})
        tasks = of.setdefault(info["Executor ID"], [0, 0.0])
        tasks[0] += 1
        tasks[1] += max(0, info["Finish Time"] - info["Launch Time"]) / 1000

    def finish(self) -> list[dict[str, list[float]]]:
        """Returns for each stage, in order, how many tasks an executor ran and their seconds."""
        return [self._seconds[stage] for stage in sorted(self._seconds)]


def by_work(log: Path) -> dict[str, dict[str, Any]]:
    """Returns the figures of each piece of work by its id, from one application's log.

    The application does one piece after the other, so that what the log has between the first job
    of one and the first of the next belongs to the one.
    """
    readers: dict[str, tuple[event_log.Reader, Stages]] = {}
    current: tuple[event_log.Reader, Stages] | None = None
    for event in event_log.events(log):
        if event.get("Event") == "SparkListenerJobStart":
            name = (event.get("Properties") or {}).get(GROUP, "")
            if OURS.fullmatch(name):
                current = readers.setdefault(name, (event_log.Reader(), Stages()))
        for reader in current or ():
            reader.add(event)
    return {name: _figures(reader.finish()) | {"stages": stages.finish()}
            for name, (reader, stages) in readers.items()}


def executors(log: Path) -> list[tuple[float, float]]:
    """Returns when each executor began and ceased to take tasks, of `time.time`.

    It ceases when its worker is decommissioned, or else when it is lost; infinity if it never did.
    """
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in event_log.events(log):
        if event.get("Event") == "SparkListenerExecutorAdded":
            began[event["Executor ID"]] = event["Timestamp"] / 1000
        elif event.get("Event") == "SparkListenerExecutorRemoved":
            ended.setdefault(event["Executor ID"], event["Timestamp"] / 1000)
    return [(at, ended.get(executor, float("inf"))) for executor, at in began.items()]


def absent_seconds(
    lives: list[tuple[float, float]], began: float, ended: float, slots: int
) -> float:
    """Returns for how long executors were missing between two times, where there is room for so
    many: one that is missing for a second counts as one."""
    present = sum(max(0.0, min(last, ended) - max(first, began)) for first, last in lives)
    return slots * (ended - began) - present


def add(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the sums of several pieces of work."""
    sums: dict[str, Any] = dict.fromkeys([*COUNTED, *SHUFFLED, "read_bytes"], 0)
    for one in figures:
        for name in sums:
            sums[name] += one.get(name, 0)
    failures: dict[str, int] = {}
    messages: dict[str, str] = {}
    for one in figures:
        for why, many in one.get("failures", {}).items():
            failures[why] = failures.get(why, 0) + many
        messages = one.get("messages", {}) | messages
    return sums | {"failures": failures, "messages": messages}


def _figures(account: event_log.Account) -> dict[str, Any]:
    shuffle = account.shuffle
    return (
        {name: getattr(account, name) for name in COUNTED}
        | {name: getattr(shuffle, name) for name in SHUFFLED}
        | {
            "read_bytes": shuffle.read_bytes,
            "failures": account.failures,
            "messages": account.messages,
        }
    )
