"""What Spark's event log says of each piece of work: tasks, failures, shuffles, time."""

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


def by_work(log: Path) -> dict[str, dict[str, Any]]:
    """Returns the figures of each piece of work by its id, from one application's log.

    The application does one piece after the other, so that what the log has between the first job
    of one and the first of the next belongs to the one.
    """
    readers: dict[str, event_log.Reader] = {}
    current: event_log.Reader | None = None
    for event in event_log.events(log):
        if event.get("Event") == "SparkListenerJobStart":
            name = (event.get("Properties") or {}).get(GROUP, "")
            if OURS.fullmatch(name):
                current = readers.setdefault(name, event_log.Reader())
        if current is not None:
            current.add(event)
    return {name: _figures(reader.finish()) for name, reader in readers.items()}


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
