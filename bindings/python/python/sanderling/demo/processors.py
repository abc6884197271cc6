"""How much of the processors other programs took, which a comparison of two times must state."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sanderling import Cluster

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Processor seconds used so far."""

    all: float
    """By every process on this computer, the hypervisor's other guests included."""
    own: float
    """By the demo and its cluster, processes that have ended included."""


def usage(cluster: Cluster) -> Usage | None:
    """Reads what was used; None where the kernel does not report it."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
        namenodes = [each.pid for each in cluster.namenodes if each.pid is not None]
        living = sum(map(_ticks, [*cluster.pids.values(), *namenodes]))
    except (OSError, ValueError):
        return None
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    busy = user + nice + system + irq + softirq + steal
    return Usage(busy / _TICKS_PER_SECOND, own + living / _TICKS_PER_SECOND)


def others_share(before: Usage | None, after: Usage | None, seconds: float) -> float | None:
    """Returns the part of all processors' time that others used between two readings."""
    if before is None or after is None or seconds <= 0:
        return None
    others = (after.all - before.all) - (after.own - before.own)
    return max(others, 0.0) / seconds / (os.cpu_count() or 1)


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return int(fields[11]) + int(fields[12])
