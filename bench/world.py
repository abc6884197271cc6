"""What a row is given: programs, the round, and servers that live as long as the row."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from goal import Unavailable

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 120.0


@dataclass
class World:
    """Everything that rows share. Rows run one after the other; rounds are numbered from 0."""

    sanderling: Path
    peer: Path
    python: Path
    work: Path
    rounds: int = 5
    is_quick: bool = False
    round: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def keep(self, name: str, make: Callable[[], contextlib.AbstractContextManager[T]]) -> T:
        """Returns what `make` opened when the row first requested that name."""
        if name not in self._kept:
            self._kept[name] = self._stack.enter_context(make())
        return self._kept[name]

    @contextlib.contextmanager
    def servers(self) -> Iterator[None]:
        """Ends every server that a row was given when the row is over."""
        try:
            yield
        finally:
            self._kept.clear()
            self._stack.close()

    def both(self, ours: Callable[[], T], peer: Callable[[], T]) -> tuple[T, T]:
        """Measures both sides, in turn one or the other first, and returns ours and the peer's."""
        if self.round % 2:
            theirs = peer()
            return ours(), theirs
        own = ours()
        return own, peer()

    def count(self, many: int) -> int:
        """Returns how many operations to measure: a twentieth when it has to be quick."""
        return max(many // 20, 32) if self.is_quick else many


def run(command: list[str], seconds: float = SECONDS_MAX, **kept: Any) -> str:
    """Runs a command and returns what it printed.

    Raises `Unavailable` with the end of what it printed when it fails or does not end.
    """
    program = Path(command[0]).name
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **kept)
    except OSError as error:
        raise Unavailable(f"{program} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{program} did not end within {seconds:.0f} s") from error
    if ran.returncode:
        output = (ran.stderr or ran.stdout).strip().splitlines()[-3:]
        raise Unavailable(f"{program} ended with {ran.returncode}: {' / '.join(output)}")
    return ran.stdout


def run_json(command: list[str], seconds: float = SECONDS_MAX, **kept: Any) -> Any:
    """Runs a command that prints JSON and returns that; refuses as `run` does."""
    output = run(command, seconds, **kept)
    try:
        return json.loads(output)
    except ValueError as error:
        text = f"{Path(command[0]).name} printed no JSON: {output[-200:]}"
        raise Unavailable(text) from error


def pinned(core: int, command: list[str]) -> list[str]:
    """Returns a command that runs on one core alone."""
    return ["taskset", "-c", str(core), *command]


def last_core() -> int:
    """Returns the core for pinned pairs: not the first, which takes most interrupts."""
    return max(os.sched_getaffinity(0))
