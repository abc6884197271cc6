"""What the clients see: bytes over time, errors, and how long each call took."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

PERCENTILE = 0.99


@dataclass(frozen=True)
class Call:
    """One call of one client."""

    client: str
    """`query` or `writer`."""
    kind: str
    bytes: int
    began: float
    """By `time.monotonic`."""
    seconds: float
    error: str


@dataclass(frozen=True)
class Stall:
    """The call that was held up most, against the calls of its kind without preemptions."""

    client: str
    kind: str
    began: float
    took_seconds: float
    usual_seconds: float
    """The 99th percentile of the calls without preemptions of the same client and kind."""

    @property
    def seconds(self) -> float:
        """What it took beyond the usual."""
        return self.took_seconds - self.usual_seconds


class Meter:
    """Collects calls from any thread. The list is bounded by the run's length."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def observer(self, client: str):  # noqa: ANN201 - an Observer of sanderling.store
        """Returns an observer for one client's store."""

        def observe(
            kind: str, size: int, began: float, seconds: float, error: BaseException | None
        ) -> None:
            text = f"{type(error).__name__}: {error}" if error else ""
            with self._lock:
                self._calls.append(Call(client, kind, size, began, seconds, text))

        return observe

    def calls(self) -> list[Call]:
        """Returns a copy of what was collected."""
        with self._lock:
            return list(self._calls)

    def now(self) -> tuple[int, int]:
        """Returns how many calls there were and how many of them failed."""
        with self._lock:
            return len(self._calls), sum(1 for call in self._calls if call.error)


def usual_seconds(calls: list[Call]) -> dict[tuple[str, str], float]:
    """Returns the 99th percentile of the calls' times by client and kind."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for call in calls:
        if not call.error:
            times[call.client, call.kind].append(call.seconds)
    return {
        key: sorted(each)[min(len(each) - 1, int(len(each) * PERCENTILE))]
        for key, each in times.items()
    }


def longest_stall(usual: dict[tuple[str, str], float], calls: list[Call]) -> Stall | None:
    """Returns the call with the longest time beyond the usual one of its client and kind."""
    stalls = [
        Stall(it.client, it.kind, it.began, it.seconds, usual.get((it.client, it.kind), 0.0))
        for it in calls
    ]
    return max(stalls, key=lambda stall: stall.seconds, default=None)


def bandwidth(
    calls: list[Call], start: float, end: float, step: float
) -> dict[str, list[float]]:
    """Returns bytes per second by client and direction, in steps from `start`.

    Each call's bytes are spread evenly over its time.
    """
    count = max(1, int((end - start) / step) + 1)
    series: dict[str, list[float]] = defaultdict(lambda: [0.0] * count)
    for call in calls:
        if call.bytes == 0 or call.error or call.began + call.seconds < start:
            continue
        bins = series[f"{call.client}_{'write' if call.kind == 'write' else 'read'}"]
        seconds = max(call.seconds, 1e-6)
        first = int((call.began - start) / step)
        last = int((call.began + seconds - start) / step)
        for index in range(max(first, 0), min(last, count - 1) + 1):
            left = max(call.began, start + index * step)
            right = min(call.began + seconds, start + (index + 1) * step)
            bins[index] += call.bytes * max(right - left, 0.0) / seconds / step
    return dict(series)


def clock() -> float:
    """Returns the time that all parts of the demo share."""
    return time.monotonic()
