"""Plays the trace: a notice, SIGKILL exactly at its deadline, a replacement."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from sanderling import Cluster
from sanderling.demo.preemption import Preemption, Trace


@dataclass
class Incarnation:
    """One datanode process in one place of the fleet. Times are of `time.monotonic`."""

    slot: int
    node: int
    began: float
    noticed: float | None = None
    deadline: float | None = None
    killed: float | None = None
    lived_hours: float | None = None
    deferred_seconds: float = 0.0
    noticed_bytes: int = 0
    """What it held when its notice came."""


@dataclass
class Fleet:
    """The datanodes by place, with those that were there before."""

    cluster: Cluster
    trace: Trace
    notice_seconds: float
    incarnations: list[Incarnation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._current: dict[int, Incarnation] = {}
        now = time.monotonic()
        for slot, node in enumerate(sorted(self.cluster.pids)):
            self._joined(Incarnation(slot, node, now))

    def start(self) -> None:
        """Starts the trace's clock."""
        began = time.monotonic()
        for preemption in self.trace.preemptions:
            thread = threading.Thread(
                target=self._preempt,
                args=(preemption, began + preemption.at_seconds),
                name=f"preemption-{preemption.slot}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def is_over(self) -> bool:
        """Returns whether every machine of the trace is gone and replaced."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Gives the rest of the trace up and waits for what is under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def noticed(self) -> list[Incarnation]:
        """Returns those that got a notice, in its order."""
        with self._lock:
            gone = [each for each in self.incarnations if each.noticed is not None]
        return sorted(gone, key=lambda each: each.noticed or 0.0)

    def _preempt(self, preemption: Preemption, at: float) -> None:
        if self._stop.wait(max(at - time.monotonic(), 0.0)):
            return
        with self._lock:
            leaving = self._current[preemption.slot]
        leaving.lived_hours = preemption.lived_hours
        leaving.deferred_seconds = preemption.deferred_seconds
        try:
            leaving.noticed = time.monotonic()
            leaving.deadline = leaving.noticed + self.notice_seconds
            accepted = self.cluster.notice(leaving.node, self.notice_seconds, "spot preemption")
            leaving.noticed_bytes = accepted.home_bytes
            time.sleep(max(leaving.deadline - time.monotonic(), 0.0))
            leaving.killed = time.monotonic()
            self.cluster.kill(leaving.node)
            node = self.cluster.add()
        except Exception as error:  # noqa: BLE001 - reported with the result
            with self._lock:
                self.problems.append(f"node {leaving.node}: {type(error).__name__}: {error}")
            return
        self._joined(Incarnation(preemption.slot, node, time.monotonic()))

    def _joined(self, incarnation: Incarnation) -> None:
        with self._lock:
            self._current[incarnation.slot] = incarnation
            self.incarnations.append(incarnation)
