#!/usr/bin/env python3
"""Compares a tenant beside noisy ones with and without time slices of the servers' threads.

    bench/slices.py --rounds 5 --seconds 2 --hog stat-frames,create-frames

Runs bench/noisy.py interleaved, every second time with a library loaded before all others that
refuses the system call which sets a thread's slice. Prints medians over the rounds, in
milliseconds. The machine should be idle. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Refuses sched_setattr(2), and passes on every other call of syscall(2).
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
long syscall(long number, ...) {
    static long (*real)(long, ...);
    long one[6];
    va_list list;
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    va_start(list, number);
    for (int at = 0; at < 6; at++) one[at] = va_arg(list, long);
    va_end(list);
    if (number == SYS_sched_setattr) { errno = EPERM; return -1; }
    return real(number, one[0], one[1], one[2], one[3], one[4], one[5]);
}
"""
OPERATIONS = ("get", "put", "stat")


def main() -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each phase")
    parser.add_argument("--hog", default="stat-frames,create-frames")
    options = parser.parse_args()
    flags = ["--seconds", f"{options.seconds:g}", "--hog", options.hog, "--json"]
    pages: dict[str, list[Any]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="sanderling-slices-") as work:
        source, library = Path(work) / "refuse.c", Path(work) / "refuse.so"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for name, more in (("without", {"LD_PRELOAD": str(library)}), ("with", {})):
                measured = subprocess.run([sys.executable, HERE / "noisy.py", *flags], check=True,
                                          env=os.environ | more, stdout=subprocess.PIPE)
                pages[name].append(json.loads(measured.stdout))
    print(f"{'hog':16}{'slices':10}{'p99 get, put, stat':>24}{'p50 get, put, stat':>24}"
          f"{'hog per second':>16}")
    for at, hog in enumerate(options.hog.split(",")):
        for name, rounds in pages.items():
            hogs = [page["hogs"][at] for page in rounds]
            columns = [", ".join(middle(hogs, operation, percent) for operation in OPERATIONS)
                       for percent in ("p99", "p50")]
            rate = statistics.median(it["hog_operations_per_second"] for it in hogs)
            print(f"{hog:16}{name:10}{columns[0]:>24}{columns[1]:>24}{rate:16,.0f}")
    return 0


def middle(hogs: list[Any], operation: str, percent: str) -> str:
    """Returns the median over the rounds, in milliseconds."""
    values = [hog["tenant"]["latency_micros"][operation][percent] for hog in hogs]
    return f"{statistics.median(values) / 1000:.2g}"


if __name__ == "__main__":
    sys.exit(main())
