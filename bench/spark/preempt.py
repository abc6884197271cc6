"""Plays a trace of preemptions: a notice, SIGKILL at its deadline, and a replacement."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import fleet
from engine import Workers
from server import Server


# Between two looks at a machine that leaves.
LOOK_SECONDS = 0.4


class Machines(Protocol):
    """What a trace takes away: datanodes, or Spark's workers."""

    kind: str
    slots: int

    def notice(self, slot: int, seconds: float) -> None:
        """Gives a machine its notice."""

    def kill(self, slot: int) -> None:
        """Takes it, at once."""

    def replace(self, slot: int) -> None:
        """Starts another one in its place, and returns when it serves."""

    def empty_at(self, slot: int) -> float | None:
        """Returns when a noticed machine was seen without data, by `time.time`."""


@dataclass
class Taken:
    """One preemption as it was played. Times are of `time.time`."""

    slot: int
    noticed: float
    killed: float = 0.0
    replaced: float = 0.0
    empty: float | None = None


class Datanodes:
    """The datanodes of a fleet by place."""

    kind = "datanode"

    def __init__(self, made: fleet.Fleet, start: Callable[[str], Server]) -> None:
        self.fleet = made
        self.slots = len(made.datanodes)
        self._start = start
        self._running = {slot: (f"n{slot}", one) for slot, one in enumerate(made.datanodes)}
        self._started = self.slots

    def notice(self, slot: int, seconds: float) -> None:
        name, _ = self._running[slot]
        self.fleet.cli("node", "notice", name, "--deadline", f"{round(seconds * 1000)}ms",
                       "--reason", "spot preemption", "--yes")

    def kill(self, slot: int) -> None:
        _, server = self._running.pop(slot)
        with contextlib.suppress(OSError):
            os.kill(server.pid, signal.SIGKILL)
        server.process.wait()

    def replace(self, slot: int) -> None:
        name = f"n{self._started}"
        self._started += 1
        self._running[slot] = (name, self._start(name))

    def empty_at(self, slot: int) -> float | None:
        name, _ = self._running[slot]
        nodes = self.fleet.cli("node", "ls")["nodes"]
        found = [node for node in nodes if node["name"] == name]
        return time.time() if found and not found[0]["home_bytes"] else None


class Executors:
    """Spark's workers by place, each with an executor."""

    kind = "worker"

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.slots = workers.size.workers

    def notice(self, slot: int, seconds: float) -> None:
        self.workers.notice(slot)

    def kill(self, slot: int) -> None:
        self.workers.kill(slot)

    def replace(self, slot: int) -> None:
        self.workers.add(slot)

    def empty_at(self, slot: int) -> float | None:
        return None


@dataclass
class Player:
    """Plays one trace while a `with` block runs; what is under way when it ends is finished."""

    machines: Machines
    preemptions: list[dict[str, Any]]
    notice_seconds: float
    replace_seconds: float
    # The thread that starts replacements. They end with the thread that started them, so it has to
    # outlive them, as this player's own do not.
    starter: ThreadPoolExecutor
    on_event: Callable[[str], None] = lambda text: None
    taken: list[Taken] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __enter__(self) -> Player:
        self._is_over = threading.Event()
        self._places = [threading.Lock() for _ in range(self.machines.slots)]
        began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._preempt, args=(one, began), daemon=True)
            for one in self.preemptions
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def as_json(self) -> list[dict[str, Any]]:
        """Returns what was taken, in order."""
        return [asdict(one) for one in sorted(self.taken, key=lambda one: one.noticed)]

    def _preempt(self, one: dict[str, Any], began: float) -> None:
        late = began + one["at_seconds"] - time.monotonic()
        if self._is_over.wait(max(late, 0.0)):
            return
        # A replacement that is late to come puts its own notice off.
        with self._places[one["slot"]]:
            if not self._is_over.is_set():
                self._take(one["slot"])

    def _take(self, slot: int) -> None:
        taken = Taken(slot, time.time())
        deadline = time.monotonic() + self.notice_seconds
        try:
            self.machines.notice(slot, self.notice_seconds)
            self._report(slot, f"notice, {self.notice_seconds:g} s left")
            self._wait(taken, deadline)
            taken.killed = time.time()
            self.taken.append(taken)
            self.machines.kill(slot)
            after = f", empty {taken.empty - taken.noticed:.1f} s after" if taken.empty else ""
            self._report(slot, f"killed{after}")
            time.sleep(self.replace_seconds)
            self.starter.submit(self.machines.replace, slot).result()
            taken.replaced = time.time()
            self._report(slot, "replaced")
        except Exception as error:  # noqa: BLE001 - reported with the result
            self.problems.append(f"place {slot}: {type(error).__name__}: {error}")

    def _wait(self, taken: Taken, deadline: float) -> None:
        """Waits for the deadline and looks meanwhile whether the machine is empty."""
        while time.monotonic() < deadline:
            # A look takes a moment: the kill must not be late for it.
            if not taken.empty and time.monotonic() < deadline - 2 * LOOK_SECONDS:
                taken.empty = self.machines.empty_at(taken.slot)
            time.sleep(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0)))

    def _report(self, slot: int, text: str) -> None:
        self.on_event(f"{self.machines.kind} {slot + 1}: {text}")
