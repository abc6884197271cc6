"""Watches the datanodes through the namenode, several times a second."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from sanderling import Node, SanderlingError, Store

SAMPLES_PER_SECOND = 16.0


@dataclass(frozen=True)
class Sample:
    """What the namenode had of one node at one moment."""

    at: float
    """By `time.monotonic`."""
    node: int
    policy: str
    held_bytes: int
    """Bytes whose home it is."""
    moved_bytes: int
    """Bytes that have left it so far, moved or copied before."""
    lost_bytes: int
    read_bytes: int
    """Bytes that it has served so far, by its last heartbeat."""


class Sampler:
    """A thread that takes samples until it is stopped."""

    def __init__(self, store: Store) -> None:
        self.samples: list[Sample] = []
        self.failures = 0
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample and ends the thread."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1 / SAMPLES_PER_SECOND):
            self._take()
        self._take()

    def _take(self) -> None:
        try:
            nodes = self._store.nodes(all=True)
        except SanderlingError:
            self.failures += 1
            return
        now = time.monotonic()
        self.samples += [_sample(now, node) for node in nodes]


def _sample(now: float, node: Node) -> Sample:
    return Sample(
        at=now,
        node=node.id,
        policy=node.policy,
        held_bytes=node.home_bytes,
        moved_bytes=node.drain.moved_bytes + node.drain.promoted_bytes if node.drain else 0,
        lost_bytes=node.drain.lost_bytes if node.drain else 0,
        read_bytes=node.load["read_bytes_total"],
    )


def by_node(samples: list[Sample]) -> dict[int, list[Sample]]:
    """Returns each node's samples in the order of time."""
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.node, []).append(sample)
    return found


def relocation(samples: list[Sample], start: float, end: float, step: float) -> list[float]:
    """Returns bytes moved per second off draining nodes, in steps from `start`."""
    bins = [0.0] * max(1, int((end - start) / step) + 1)
    for node in by_node(samples).values():
        for before, after in zip(node, node[1:], strict=False):
            moved = after.moved_bytes - before.moved_bytes
            if moved <= 0 or after.at < start:
                continue
            first, last = int((before.at - start) / step), int((after.at - start) / step)
            touched = range(max(first, 0), min(last, len(bins) - 1) + 1)
            for index in touched:
                bins[index] += moved / len(touched) / step
    return bins


def moved_bytes(samples: list[Sample], node: int) -> int:
    """Returns the bytes that a node's drain moved in the end."""
    return max((each.moved_bytes for each in samples if each.node == node), default=0)


def lost_bytes(samples: list[Sample], node: int) -> int:
    """Returns the bytes that were declared lost with a node."""
    return max((each.lost_bytes for each in samples if each.node == node), default=0)


def drained_at(samples: list[Sample], node: int, since: float) -> float | None:
    """Returns when the node was first seen to hold nothing after its notice."""
    for sample in samples:
        if sample.node == node and sample.at >= since and sample.policy in ("drained", "gone"):
            return sample.at if sample.held_bytes == 0 else None
    return None
