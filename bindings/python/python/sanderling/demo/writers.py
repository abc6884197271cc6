"""Short-lived objects, as shuffles and spills make them: written, read once, compared, deleted."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from sanderling import Store
from sanderling.demo.options import Options

OBJECT_BYTES_MIN = 4 << 10
OBJECT_BYTES_MAX = 8 << 20
"""Sizes are spread evenly over their logarithm, so that most objects are small and most bytes are
in large ones."""

_PIECE_BYTES = 1 << 20

_PATTERN_SEED = 20240229


@dataclass
class Counts:
    """What one writer did."""

    written_objects: int = 0
    written_bytes: int = 0
    checked_objects: int = 0
    wrong_objects: int = 0
    problems: list[str] = field(default_factory=list)


class Writers:
    """Threads that fill and delete objects until they are stopped."""

    def __init__(self, stores: list[Store], options: Options) -> None:
        pattern = random.Random(_PATTERN_SEED).randbytes(OBJECT_BYTES_MAX + (1 << 20))
        self._stop = threading.Event()
        self._writers = [
            _Writer(index, store, options, pattern, self._stop)
            for index, store in enumerate(stores)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for writer in self._writers:
            writer.thread.start()

    def stop(self) -> None:
        """Lets every writer check and delete what it has left, and waits for that."""
        self._stop.set()
        for writer in self._writers:
            if writer.thread.ident is not None:
                writer.thread.join()

    def counts(self) -> Counts:
        """Sums up what all writers did."""
        total = Counts()
        for counts in (writer.counts for writer in self._writers):
            total.written_objects += counts.written_objects
            total.written_bytes += counts.written_bytes
            total.checked_objects += counts.checked_objects
            total.wrong_objects += counts.wrong_objects
            total.problems += counts.problems
        return total


class _Writer:
    def __init__(
        self, index: int, store: Store, options: Options, pattern: bytes, stop: threading.Event
    ) -> None:
        self.counts = Counts()
        self.thread = threading.Thread(target=self._run, name=f"writer-{index}", daemon=True)
        self._store = store
        self._directory = f"/shuffle/writer-{index}"
        self._pace = options.writer_bytes_per_second
        self._live_bytes_max = options.live_bytes
        self._pattern = pattern
        self._stop = stop
        self._chance = random.Random(options.seed * 1000 + index)
        self._live: deque[tuple[str, int, int]] = deque()

    def _run(self) -> None:
        try:
            self._store.mkdir(self._directory, parents=True)
        except Exception as error:  # noqa: BLE001 - reported with the result
            self._failed(self._directory, error)
            return
        due = time.monotonic()
        while not self._stop.is_set():
            size = self._write()
            while sum(size for _, _, size in self._live) > self._live_bytes_max:
                self._check_oldest()
            due = max(due + size / self._pace, time.monotonic() - 1.0)
            self._stop.wait(max(due - time.monotonic(), 0.0))
        while self._live:
            self._check_oldest()

    def _write(self) -> int:
        size = round(OBJECT_BYTES_MIN * (OBJECT_BYTES_MAX / OBJECT_BYTES_MIN) ** self._random())
        start = self._chance.randrange(len(self._pattern) - size)
        path = f"{self._directory}/{self.counts.written_objects}"
        self.counts.written_objects += 1
        view = memoryview(self._pattern)[start : start + size]
        try:
            with self._store.open(path, "xb") as file:
                for offset in range(0, size, _PIECE_BYTES):
                    file.write(view[offset : offset + _PIECE_BYTES])
        except Exception as error:  # noqa: BLE001 - reported with the result
            self._failed(path, error)
            return size
        self.counts.written_bytes += size
        self._live.append((path, start, size))
        return size

    def _check_oldest(self) -> None:
        path, start, size = self._live.popleft()
        try:
            found = self._store.get(path)
            self.counts.checked_objects += 1
            if found != self._pattern[start : start + size]:
                self.counts.wrong_objects += 1
                self.counts.problems.append(f"{path} does not hold what was written")
            self._store.delete(path)
        except Exception as error:  # noqa: BLE001 - reported with the result
            self._failed(path, error)

    def _failed(self, path: str, error: Exception) -> None:
        self.counts.problems.append(f"{path}: {type(error).__name__}: {error}")

    def _random(self) -> float:
        return self._chance.random()
