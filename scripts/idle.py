"""How idle the processors of this machine are: what waits most of the time leaves room for more."""

import contextlib
from pathlib import Path

STAT = Path("/proc/stat")
# The priority of what only fills gaps: beside others it gets little of a processor.
LOWEST = 19


class Idleness:
    """Measures which part of the processors is idle between two looks."""

    def __init__(self) -> None:
        self.idle, self.all = ticks()

    def share(self) -> float:
        """Returns the idle part since the last look, of 1.0; 0.0 where the system does not count.

        What runs at a lower priority is counted as idle: it yields.
        """
        before = self.idle, self.all
        self.idle, self.all = ticks()
        passed = self.all - before[1]
        return (self.idle - before[0]) / passed if passed > 0 else 0.0


def lower_session(pid: int, priority: int) -> None:
    """Gives the processes of a session that began with this one a lower priority than others.

    Where the kernel groups the processes of a session, only the group's priority counts.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(priority))


def ticks() -> tuple[int, int]:
    """Returns the idle ticks of all processors since the start, and all ticks; zeros if unknown."""
    try:
        first = STAT.read_text().split("\n", 1)[0]
    except OSError:
        return 0, 0
    # user, nice, system, idle, iowait, irq, softirq, steal; what guests used is in the first two.
    counts = [int(word) for word in first.split()[1:9]]
    return counts[1] + counts[3] + counts[4], sum(counts)
