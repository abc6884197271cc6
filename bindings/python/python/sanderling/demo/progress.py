"""Progress on stderr: one line that is rewritten on a terminal, else one every ten seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

EVERY_SECONDS = 10.0
ON_TERMINAL_SECONDS = 0.2


class Progress:
    """Reports which step is under way, for how long, and how far it is."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began = time.monotonic()
        self._step = 0

    def run(
        self, what: str, work: Callable[[], T], status: Callable[[], str] | None = None
    ) -> T:
        """Runs a step and reports what it is, how far it is and how long it took."""
        self._step += 1
        began = time.monotonic()
        done = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(what, began, status, done), name="progress", daemon=True
        )
        if not self._is_terminal:
            self._line(f"{what} ...")
        watcher.start()
        try:
            return work()
        finally:
            done.set()
            watcher.join()
            detail = f": {status()}" if status else ""
            self._line(f"{what}: {time.monotonic() - began:.1f} s{detail}", is_last=True)

    def _watch(
        self,
        what: str,
        began: float,
        status: Callable[[], str] | None,
        done: threading.Event,
    ) -> None:
        pause = ON_TERMINAL_SECONDS if self._is_terminal else EVERY_SECONDS
        while not done.wait(pause):
            detail = f": {status()}" if status else ""
            self._line(f"{what} {time.monotonic() - began:.0f} s{detail}")

    def _line(self, text: str, is_last: bool = False) -> None:
        if self._is_quiet:
            return
        text = f"[{time.monotonic() - self._began:5.1f} s] {text}"
        if not self._is_terminal:
            print(text, file=sys.stderr, flush=True)
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        end = "\n" if is_last else ""
        print(f"\r\x1b[K{text[: width - 1]}", end=end, file=sys.stderr, flush=True)
