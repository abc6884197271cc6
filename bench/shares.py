#!/usr/bin/env python3
"""Shows what a row's processes spend their processor time on, as shares of perf's samples.

    bench/shares.py --rows 2,3,4

Starts a cluster of one namenode and one datanode on loopback, runs the row's load on it, and
samples each process with `perf record`. The classes do not overlap: a copy by the kernel counts as
a copy.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fleet import Fleet, fleet
from goal import Unavailable
from world import ROOT, World, run

SECONDS = 4.0
SAMPLES_PER_SECOND = 2000

# The first that matches the name of a function counts. A virtual machine has no counters that
# interrupt where interrupts are off: what runs there is counted at the function that ends it.
CLASSES = {
    "copy": r"mem(cpy|move)|copy_(user|page|to|from)|rep_movs|_copy_|csum_and_copy",
    "checksum": r"crc32",
    "switch": r"schedul|switch|wake|futex|_raw_spin_unlock_irqrestore|idle|yield|poll|epoll",
}
KERNEL, REST = "rest of the kernel", "rest of the program"


@dataclass(frozen=True)
class Load:
    """What a row measures: the type of `sanderling bench`, and its flags."""

    kind: str
    flags: tuple[str, ...] = ()
    has_local_endpoint: bool = False


LOADS = {
    2: Load("write", ("--size", "1MiB")),
    3: Load("read-random", ("--size", "64B")),
    4: Load("read-random-async", ("--size", "4KiB", "--depth", "32")),
    8: Load("put-small", ("--size", "1MiB"), has_local_endpoint=True),
    9: Load("lookup-many", ("--batch", "128")),
    11: Load("get-file-async", ("--depth", "16")),
}


def main() -> int:
    """Samples the rows, prints their shares, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    every = ",".join(str(row) for row in LOADS)
    parser.add_argument("--rows", default=every, help=f"which rows (default: {every})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each sample")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = [int(row) for row in options.rows.split(",")]
    if unknown := [row for row in rows if row not in LOADS]:
        parser.error(f"row {unknown[0]} has no load here; choose from {every}")
    try:
        shares = {row: sampled(options.program.resolve(), LOADS[row], options.seconds)
                  for row in rows}
    except Unavailable as error:
        print(f"shares.py: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(shares, indent=2))
        return 0
    for row, of_row in shares.items():
        print(f"row {row}: sanderling bench {' '.join([LOADS[row].kind, *LOADS[row].flags])}")
        for process, parts in of_row.items():
            shown = ", ".join(f"{part} {share:.0%}" for part, share in parts.items())
            print(f"  {process}: {shown}")
    return 0


def sampled(program: Path, load: Load, seconds: float) -> dict[str, dict[str, float]]:
    """Runs a load and returns, by process, the share of each class and of the kernel in all."""
    with tempfile.TemporaryDirectory(prefix="sanderling-shares-") as work:
        world = World(sanderling=program, peer=program, python=program, work=Path(work))
        with fleet(world, has_local_endpoint=load.has_local_endpoint) as made:
            return of_processes(made, load, seconds)


def of_processes(made: Fleet, load: Load, seconds: float) -> dict[str, dict[str, float]]:
    """Samples client, datanode and namenode under the load at the same time."""
    words = [str(made.world.sanderling), "--namenode", made.address, "-q", "bench", load.kind]
    words += [*load.flags, "--duration", f"{seconds + 3}s"]
    null = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=null, stderr=null) as client:
        processes = {"client": client.pid, "datanode": made.datanodes[0].pid,
                     "namenode": made.namenode.pid}
        try:
            # What is prepared before the load is no part of it.
            time.sleep(1)
            recorders = {name: record(made.directory / f"{name}.perf", pid, seconds)
                         for name, pid in processes.items()}
            for recorder in recorders.values():
                recorder.wait()
            if client.poll() is not None:
                raise Unavailable(f"the load ended with {client.returncode} before its sample")
        finally:
            client.terminate()
    return {name: classified(made.directory / f"{name}.perf") for name in processes}


def record(file: Path, pid: int, seconds: float) -> subprocess.Popen[bytes]:
    """Begins to sample a process."""
    words = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_PER_SECOND)]
    words += ["-o", str(file), "-p", str(pid), "--", "sleep", str(seconds)]
    try:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise Unavailable(f"perf cannot be run: {error.strerror}; install linux-perf") from error


def classified(file: Path) -> dict[str, float]:
    """Returns the share of each class among the samples of a file; nothing if it has none."""
    words = ["perf", "script", "-i", str(file), "-F", "ip,sym,dso"]
    counts = dict.fromkeys([*CLASSES, KERNEL, REST, "kernel in all"], 0)
    lines = [line for line in run(words).splitlines() if line.strip()]
    for line in lines:
        is_kernel = "[kernel" in line or "([unknown])" in line
        matching = (name for name, words in CLASSES.items() if re.search(words, line))
        counts[next(matching, KERNEL if is_kernel else REST)] += 1
        counts["kernel in all"] += is_kernel
    return {part: count / len(lines) for part, count in counts.items()} if lines else {}


if __name__ == "__main__":
    sys.exit(main())
