#!/usr/bin/env python3
"""Runs a command that runs cargo, and shows how far the compiler is: `compiling.py COMMAND ...`.

On a terminal one line is rewritten; elsewhere a line appears every ten seconds. Cargo's own bar has
the counts but no time, and is not there when a log is written. Other lines are
shown when the command fails. The exit code is the command's.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import IO

# `Building [=====>   ] 12/240: serde, syn(build)`
BAR = re.compile(r"Building \[[=> ]*\] (\d+)/(\d+)")
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Lines of cargo that the count replaces.
STEPS = re.compile(
    r"\s*(Compiling|Fresh|Downloaded|Downloading|Updating|Locking|Finished|Blocking|Running)\b")
EVERY_SECONDS = 10.0
ON_TERMINAL_SECONDS = 0.5
# The crates at the end are the large ones: of the time, about this power of the part of the crates
# is over. It is a rough guess: after half of the crates a third of the time.
POWER = 1.7
# No estimate before this part of the crates.
ESTIMATE_FROM = 0.1
KEPT_LINES = 200


def estimate(done: int, total: int, elapsed: float) -> float | None:
    """Returns how many seconds are left, or None while that is unknown."""
    part = done / total if total else 0.0
    if part < ESTIMATE_FROM or done >= total:
        return None
    over = part**POWER
    return elapsed * (1 - over) / over


def span(seconds: float) -> str:
    """Writes a span as 45 s or 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def line(done: int, total: int, elapsed: float) -> str:
    """Describes how far it is."""
    text = f"compiling: crate {done} of {total}" if total else "compiling"
    text += f", {span(elapsed)}"
    left = estimate(done, total, elapsed)
    if left is None:
        return text
    # To the next half a minute: it is no more exact than that.
    return f"{text}, about {span(max(30, -(-left // 30) * 30))} left"


class Shown:
    """What is on the screen."""

    def __init__(self) -> None:
        self.is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.began = time.monotonic()
        self.done = self.total = 0
        self.over = threading.Event()
        self.lock = threading.Lock()

    def watch(self) -> None:
        """Shows the count until the command is over."""
        while not self.over.wait(ON_TERMINAL_SECONDS if self.is_terminal else EVERY_SECONDS):
            with self.lock:
                text = line(self.done, self.total, time.monotonic() - self.began)
                self.write(f"\r\x1b[K{text[:79]}" if self.is_terminal else f"{text}\n")

    def pass_on(self, text: str) -> None:
        """Prints a line of the command, above the count."""
        with self.lock:
            self.write(f"\r\x1b[K{text}\n" if self.is_terminal else f"{text}\n")

    def write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def pieces(stream: IO[bytes]) -> Iterator[str]:
    """Returns what stands between line ends and carriage returns, without colours."""
    rest = ""
    while chunk := os.read(stream.fileno(), 65536):
        *whole, rest = re.split(r"[\r\n]", rest + chunk.decode(errors="replace"))
        yield from (COLOURS.sub("", piece).rstrip() for piece in whole)
    yield COLOURS.sub("", rest).rstrip()


def main(command: list[str]) -> int:
    """Runs the command and returns its exit code."""
    environment = os.environ | {
        "CARGO_TERM_PROGRESS_WHEN": "always",
        "CARGO_TERM_PROGRESS_WIDTH": "100",
    }
    shown = Shown()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    watcher = threading.Thread(target=shown.watch, daemon=True)
    watcher.start()
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    for piece in pieces(process.stdout):
        if found := BAR.search(piece):
            shown.done, shown.total = int(found[1]), int(found[2])
        elif piece and not STEPS.match(piece):
            kept.append(piece)
    code = process.wait()
    shown.over.set()
    watcher.join()
    elapsed = span(time.monotonic() - shown.began)
    if code:
        for piece in kept:
            shown.pass_on(piece)
    elif shown.total:
        shown.pass_on(f"compiled {shown.total} crates in {elapsed}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
