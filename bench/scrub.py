#!/usr/bin/env python3
"""Measures what a datanode's scrub costs: its own processor time, and what readers lose by it.

    bench/scrub.py --rounds 5

Two clusters of one datanode hold the same data in memory. One is not scrubbed, the other at a rate
(by default that of a datanode). At first there are no readers: the difference in processor time is
the scrub's, per second and per GiB. Then each round reads 1 MiB blocks and 4 KiB ranges from both,
in turn one or the other first; a line is the median of the rounds' ratios, scrubbed divided by not
scrubbed, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import machine
from fleet import Fleet, fleet
from goal import Unavailable
from world import ROOT, World

STORED_BYTES = 512 << 20
GIB = 1 << 30
READS = [
    ("read 1 MiB, bytes/s", "read-sequential-async", "bytes_per_second",
     ["--size", "1MiB", "--depth", "2", "--count", "2000", "--warmup", "64"]),
    ("read 4 KiB, 32 in flight, operations/s", "read-random-async", "operations_per_second",
     ["--size", "4096", "--depth", "32", "--warmup", "1000", "--count", "60000",
      "--working-set", "1MiB"]),
]


def main() -> int:
    """Measures both, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    parser.add_argument("--rate", default="32MiB", help="bytes a second, as --scrub-rate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="how long nobody reads")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(one(options.program, rate))
                 for rate in ("none", options.rate)]
        for side in sides:
            fill(side)
        scrub_seconds, scrubbed = alone(sides, options.seconds)
        share, price = scrub_seconds / options.seconds, scrub_seconds * GIB / max(scrubbed, 1)
        print(f"scrub at {options.rate}/s: {scrubbed / options.seconds / (1 << 20):.0f} MiB/s "
              f"compared, {share:.2%} of a core, {price:.3f} s of processor time per GiB")
        print("\n| what | scrubbed / not | lowest to highest |\n| --- | --- | --- |")
        for name, kind, figure, flags in READS:
            ratios = sorted(
                pair[1] / pair[0]
                for pair in (in_turn(sides, at, kind, figure, flags)
                             for at in range(options.rounds)))
            print(f"| {name} | {statistics.median(ratios):.3f} "
                  f"| {ratios[0]:.3f} to {ratios[-1]:.3f} |", flush=True)
    return 0


@contextlib.contextmanager
def one(program: Path, rate: str) -> Iterator[Fleet]:
    """Starts a cluster whose datanode is scrubbed at a rate."""
    with tempfile.TemporaryDirectory(prefix="sanderling-scrub-") as work:
        world = World(sanderling=program.resolve(), peer=program, python=program, work=Path(work))
        with fleet(world, dram="1GiB", datanode_http="127.0.0.1:0",
                   datanode_flags=("--scrub-rate", rate)) as made:
            yield made


def fill(side: Fleet) -> None:
    """Stores what the scrub looks at."""
    part = side.directory / "part"
    part.write_bytes(bytes(range(256)) * (STORED_BYTES // 8 // 256))
    for at in range(8):
        side.cli("fs", "put", str(part), f"/stored-{at}")


def alone(sides: list[Fleet], seconds: float) -> tuple[float, int]:
    """Returns the processor time that the scrub alone took, and the bytes that it compared."""
    before = [cpu(side) for side in sides]
    compared = scrubbed_bytes(sides[1])
    time.sleep(seconds)
    without, with_scrub = (cpu(side) - was for side, was in zip(sides, before, strict=True))
    return max(with_scrub - without, 0.0), scrubbed_bytes(sides[1]) - compared


def cpu(side: Fleet) -> float:
    """Returns the processor time of a cluster's datanode so far."""
    return machine.cpu_seconds(side.datanodes[0].pid)


def scrubbed_bytes(side: Fleet) -> int:
    """Returns what a cluster's datanode has compared so far."""
    url = f"http://{side.http_addresses[0]}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r"^sanderling_\w*scrubbed_bytes(?:{.*})? (\d+)", text, re.MULTILINE)
    if not found:
        raise Unavailable("the datanode's metrics say nothing of a scrub")
    return int(found[1])


def in_turn(sides: list[Fleet], round_: int, kind: str, figure: str, flags: list[str]
            ) -> tuple[float, float]:
    """Measures both sides once, the other one first in every second round."""
    figures: dict[int, float] = {}
    for at in (1, 0) if round_ % 2 else (0, 1):
        figures[at] = float(sides[at].bench(kind, *flags)[figure])
    return figures[0], figures[1]


if __name__ == "__main__":
    sys.exit(main())
