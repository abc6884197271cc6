"""The two sides of `object_store.py`, as processes that take requests line by line."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goal import Unavailable
from world import SECONDS_MAX, World

PROGRAM = Path(__file__).parent / "object_store.py"


class Objects:
    """A Python with one of the packages."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    def micros(self, kind: str, count: int) -> float:
        """Returns the median time of a call."""
        assert self.process.stdin
        self.process.stdin.write(f"{kind} {count}\n")
        self.process.stdin.flush()
        return self.answer()["p50_micros"]

    def answer(self) -> dict[str, Any]:
        """Reads one line of JSON; other lines are a package's own output."""
        assert self.process.stdout
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], SECONDS_MAX)
            line = self.process.stdout.readline() if ready else ""
            if not line:
                end = self.log.read_text(errors="replace").strip().splitlines()[-1:]
                raise Unavailable(f"Python gives no answer: {' '.join(end)}")
            if line.startswith("{"):
                return json.loads(line)


@contextlib.contextmanager
def objects(world: World, python: str, *words: str) -> Iterator[Objects]:
    """Runs one side."""
    log = world.work / f"python-{words[0]}.log"
    # Nothing here sends reports.
    quiet = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    with open(log, "w") as errors:
        try:
            process = subprocess.Popen(
                [python, str(PROGRAM), *words], env=quiet, text=True, bufsize=1, stderr=errors,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"{python} cannot be run: {error.strerror}") from error
    with process:
        try:
            made = Objects(process, log)
            made.answer()
            yield made
        finally:
            # The end of its input ends it, and Ray's processes with it.
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
