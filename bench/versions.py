#!/usr/bin/env python3
"""Compares two builds of Sanderling on the work of the comparison's rows 1 to 12.

    bench/versions.py --before target-of-the-old/release/sanderling --rounds 5

Each build serves its own cluster and is its own client. In each round both are measured, in turn
one or the other first; a line is the median of the rounds' ratios, after divided by before, with
the lowest and the highest. For times and for processor time less is better: those lines are marked.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fleet import Fleet, fleet
from goal import Unavailable
from world import ROOT, World, last_core

RATE, BYTES, P50 = ["operations_per_second"], ["bytes_per_second"], ["latency_micros", "p50"]
PER_GIB, PER_OPERATION = ["cpu", "server_seconds_per_gib"], ["cpu", "server_micros_per_operation"]
LARGE = ["--size", "1MiB", "--depth", "2", "--count", "3000", "--warmup", "64"]
PAGES = ["--size", "4096", "--depth", "32", "--warmup", "1000", "--count", "100000",
         "--working-set", "1MiB"]
ODD = ["--size", "100KB", "--depth", "8", "--warmup", "200", "--count", "10000",
       "--working-set", "64MiB"]
OBJECTS = ["--size", "1MiB", "--count", "600", "--warmup", "50", "--working-set", "64MiB"]


@dataclass(frozen=True)
class Line:
    """One figure of one benchmark."""

    rows: str
    name: str
    kind: str
    flags: list[str]
    figure: list[str]
    has_local_endpoint: bool = False
    is_pinned: bool = False

    @property
    def is_less_better(self) -> bool:
        """Returns whether the figure is a time."""
        return self.figure not in (RATE, BYTES)


SMALL = ["--size", "64", "--count", "20000", "--warmup", "500"]
LINES = [
    Line("1", "read 1 MiB", "read-sequential-async", LARGE, BYTES),
    Line("2", "write 1 MiB", "write-async", LARGE, BYTES),
    Line("3", "read 64 B", "read-random", [*SMALL, "--working-set", "1MiB"], P50, is_pinned=True),
    Line("4", "read 4 KiB, 32 in flight", "read-random-async", PAGES, RATE),
    Line("4", "read 100 kB at any place, 8 in flight", "read-random-async", ODD, BYTES),
    # The system counts processor time in ticks of 10 ms.
    Line("5", "read 4 KiB, server CPU", "read-random-async",
         [*PAGES[:-4], "--count", "1000000", "--working-set", "1MiB"], PER_OPERATION),
    Line("6", "read 1 MiB, server CPU", "read-sequential-async",
         [*LARGE, "--working-set", "256MiB"], PER_GIB),
    Line("7", "get 1 MiB, same host", "get-key", OBJECTS, P50, has_local_endpoint=True),
    Line("8", "put 1 MiB, same host", "put-key", OBJECTS, P50, has_local_endpoint=True),
    Line("9", "look-ups, batch 128, namenode's CPU", "lookup-many",
         ["--paths", "200000", "--batch", "128", "--keep", "--depth", "4", "--count", "40000",
          "--warmup", "50"], PER_OPERATION),
    Line("10", "creates, 16 in flight", "create-file-async",
         ["--depth", "16", "--count", "40000"], RATE),
    Line("11", "look-ups, 16 in flight", "get-file-async",
         ["--depth", "16", "--warmup", "1000", "--count", "60000"], RATE),
    Line("12", "get 64 B by name", "get-small", SMALL, P50, is_pinned=True),
    Line("-", "put 64 B by name", "put-small", SMALL, P50, is_pinned=True),
]


def main() -> int:
    """Measures every line and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--before", type=Path, required=True, help="the program of before")
    parser.add_argument("--after", type=Path, default=built, help="the program of now")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", help="only these, as 1,2,10")
    options = parser.parse_args()
    wanted = options.rows.split(",") if options.rows else None
    print("| row | what | before | after | after / before | lowest to highest |")
    print("| --- | --- | --- | --- | --- | --- |")
    for line in LINES:
        if wanted is None or line.rows in wanted:
            measure(line, options)
    return 0


def measure(line: Line, options: argparse.Namespace) -> None:
    """Runs the rounds of one line and prints it."""
    core = last_core() if line.is_pinned else None
    flags = [*line.flags, "--pin", str(core)] if line.is_pinned else line.flags
    with tempfile.TemporaryDirectory(prefix="sanderling-versions-") as work:
        with contextlib.ExitStack() as stack:
            sides = []
            for name, program in [("before", options.before), ("after", options.after)]:
                place = Path(work) / name
                place.mkdir()
                world = World(sanderling=program.resolve(), peer=program, python=program,
                              work=place)
                both = fleet(world, dram="1GiB", core=core, namenode_core=core,
                             has_local_endpoint=line.has_local_endpoint)
                sides.append(stack.enter_context(both))
            pairs = [in_turn(sides, round_, line, flags) for round_ in range(options.rounds)]
    ratios = sorted(after / before for before, after in pairs)
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    note = " (less is better)" if line.is_less_better else ""
    print(f"| {line.rows} | {line.name}{note} | {before:.4g} | {after:.4g} "
          f"| {statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |", flush=True)


def in_turn(
    sides: list[Fleet], round_: int, line: Line, flags: list[str]
) -> tuple[float, float]:
    """Measures both sides once, the other one first in every second round."""
    figures: dict[int, float] = {}
    for at in (1, 0) if round_ % 2 else (0, 1):
        result = sides[at].bench(line.kind, *flags)
        value: object = result
        for key in line.figure:
            value = value[key] if isinstance(value, dict) else None
        if not isinstance(value, int | float):
            raise Unavailable(f"{line.kind} measured no {'.'.join(line.figure)}")
        figures[at] = float(value)
    return figures[0], figures[1]


if __name__ == "__main__":
    sys.exit(main())
