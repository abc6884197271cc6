#!/usr/bin/env python3
"""Measures how long a task stands still for a checkpoint, beside CRIU's own dump to tmpfs.

    bench/freeze.py --mb 546 --rounds 5

A task holds random bytes of which each chunk of 64 KiB can be compressed to its half. In each round
`criu dump` writes it to tmpfs and `criu restore` brings it back, from the files and by `--stream`
from a receiver that serves the same images from memory (image_receiver.py). `sanderling task run`
takes its first checkpoint into a cluster of two datanodes and restores it. Every second round goes
the other way round. A line is the median of the rounds' ratios, ours over CRIU's, with the lowest
and the highest. Needs root and CRIU (scripts/criu.sh).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import machine
from fleet import Fleet, fleet
from goal import Unavailable
from image_receiver import receiver
from world import ROOT, World

WITHIN_SECONDS = 120.0
PR_SET_CHILD_SUBREAPER = 36
# As a runner has it: neither side looks at control groups.
GROUPS = "--manage-cgroups=ignore"
# Each line: what it is, our figure, CRIU's figure, and the goal of the ratio.
LINES = [
    ("the task stands still, of `criu dump`", "frozen", "criu dump", 1.3),
    ("until it is published, of `criu dump`", "published", "criu dump", None),
    ("restore, of `criu restore` from tmpfs", "restored", "criu restore", None),
    ("restore, of `criu restore --stream` from memory", "restored", "criu restore --stream", 1.3),
]
TASK = """
import os, sys, time
half = 1 << 15
count = int(sys.argv[1]) * 1000000 // (2 * half)
# One mapping: chunks are aligned alike, and half of each repeats a byte that is not zero.
held = bytearray(count * 2 * half)
for at in range(count):
    random = os.urandom(half)
    held[at * 2 * half:(at + 1) * 2 * half] = random + b"7" * half
open(sys.argv[2], "w").close()
while True:
    time.sleep(0.05)
"""


def main() -> int:
    """Measures all rounds, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    parser.add_argument("--criu", default=str(ROOT / "target" / "criu" / "criu"))
    parser.add_argument("--mb", type=int, default=546, help="10^6 bytes of the task's memory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--image-memory", help="as that of `task run`")
    options = parser.parse_args()
    if os.geteuid() or subprocess.run([options.criu, "check"], capture_output=True).returncode:
        raise SystemExit("it needs root and CRIU: scripts/criu.sh")
    # What CRIU leaves behind becomes a child of this process, which can wait for its end.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit(f"prctl: {os.strerror(ctypes.get_errno())}")
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="sanderling-freeze-", dir="/dev/shm") as work:
        program = options.program.resolve()
        world = World(sanderling=program, peer=program, python=Path(sys.executable),
                      work=Path(work))
        dram = f"{options.mb * 3 // 2}MB"
        for at in range(options.rounds):
            figures: dict[str, float] = {}
            with fleet(world, datanodes=2, dram=dram, has_local_endpoint=True) as made:
                sides = [lambda: criu(options, made.directory, at),
                         lambda: ours(options, made)]
                for side in sides if at % 2 == 0 else reversed(sides):
                    figures |= side()
            rounds.append(figures)
            print(", ".join(f"{name} {value:.2f} s" for name, value in sorted(figures.items())),
                  flush=True)
    print("\n| what | ours over CRIU's | lowest to highest | ours | CRIU's | goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, mine, other, goal in LINES:
        ratios = sorted(one[mine] / one[other] for one in rounds)
        medians = [statistics.median(one[key] for one in rounds) for key in (mine, other)]
        print(f"| {name} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} "
              f"| {medians[0]:.2f} s | {medians[1]:.2f} s | {goal or ''} |")
    return 0


def criu(options: argparse.Namespace, directory: Path, round_: int) -> dict[str, float]:
    """Dumps a task to tmpfs, ends it, and restores it twice: from the files, and from memory."""
    images = directory / "images"
    images.mkdir()
    ready = directory / "criu-ready"
    task = subprocess.Popen(words(options, ready), stdin=subprocess.DEVNULL, cwd="/",
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        machine.until("the task is ready", ready.exists, WITHIN_SECONDS)
        dump = timed([options.criu, "dump", "-t", str(task.pid), "-D", str(images), "-o", "log",
                      "--leave-running", GROUPS])
    finally:
        task.kill()
        task.wait()
    figures = {"criu dump": dump}
    ways = [("criu restore", contextlib.nullcontext),
            ("criu restore --stream", lambda: receiver(images))]
    for name, served in ways if round_ % 2 == 0 else reversed(ways):
        with served():
            figures[name] = restored(options, images, name.split()[2:])
    return figures


def restored(options: argparse.Namespace, images: Path, flags: list[str]) -> float:
    """Restores a task, ends it, and returns how long the restore took."""
    pid_file = images.parent / "pid"
    seconds = timed([options.criu, "restore", "-D", str(images), "-o", "restore.log", "-d",
                     "--pidfile", str(pid_file), GROUPS, *flags])
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGKILL)
    # Its id is free for the next one after that.
    os.waitpid(pid, 0)
    pid_file.unlink()
    return seconds


def ours(options: argparse.Namespace, made: Fleet) -> dict[str, float]:
    """Lets a runner take the first checkpoint of a task, ends it, and starts it again."""
    record, ready = made.directory / "record", made.directory / "ready"
    command = [str(options.program.resolve()), "--namenode", made.address, "-q", "task", "run",
               "--name", "t", "--backend", "/tasks", "--driver", "criu", "--criu", options.criu,
               "--key", str(made.directory / "key"), "--record", str(record)]
    if options.image_memory:
        command += ["--image-memory", options.image_memory]
    # The task is ready by then; a checkpoint that began before would be of less.
    interval = f"{1.0 + options.mb / 100:.1f}s"
    with runner([*command, "--interval", interval, "--", *words(options, ready)]):
        machine.until("a checkpoint is taken", lambda: lines(record, "checkpoint"), WITHIN_SECONDS)
        if ready.stat().st_mtime > time.time() - lines(record, "checkpoint")[0]["dump_seconds"]:
            raise Unavailable("the task was not ready before its first checkpoint")
    with runner([*command, "--interval", "1h", "--lock-age", "1s", "--", *words(options, ready)]):
        machine.until("it is restored", lambda: lines(record, "restore"), WITHIN_SECONDS)
    taken, restored = lines(record, "checkpoint")[0], lines(record, "restore")[0]
    return {"frozen": taken["frozen_seconds"], "published": taken["dump_seconds"],
            "restored": restored["seconds"]}


def words(options: argparse.Namespace, ready: Path) -> list[str]:
    """Returns the task's command."""
    return [sys.executable, "-c", TASK, str(options.mb), str(ready)]


@contextlib.contextmanager
def runner(command: list[str]) -> Iterator[None]:
    """Runs a runner, and kills it at the end: its task ends with it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def lines(record: Path, event: str) -> list[dict[str, float]]:
    """Returns what was recorded of an event."""
    if not record.exists():
        return []
    found = [json.loads(line) for line in record.read_text().splitlines()]
    return [line for line in found if line["event"] == event]


def timed(command: list[str]) -> float:
    """Runs a command that must succeed, and returns its seconds."""
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
