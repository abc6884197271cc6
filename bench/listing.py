#!/usr/bin/env python3
"""Lists a directory of many small files through fsspec, and prints where the time goes.

Run it with the environment that has the package: .venv/bin/python bench/listing.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import sanderling
from sanderling.fs import SanderlingFileSystem


def main() -> int:
    """Measures and prints medians with their least and greatest, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    with sanderling.Cluster.local(datanodes=1, dram_bytes=64 << 20) as cluster:
        store = cluster.store()
        names = [f"/many/part-{number:06}.parquet" for number in range(options.files)]
        store.put_many([(name, b"x" * 100) for name in names], parents=True)
        filesystem = SanderlingFileSystem(store=store)
        parts = {
            "ls": lambda: filesystem.ls("/many"),
            "ls, names only": lambda: filesystem.ls("/many", detail=False),
            "find": lambda: filesystem.find("/many"),
            "the store's own list": lambda: store.list("/many"),
        }
        times: dict[str, list[float]] = {name: [] for name in parts}
        for turn in range(options.rounds + 1):
            for name, call in parts.items():
                began = time.perf_counter()
                found = call()
                if turn:
                    times[name].append((time.perf_counter() - began) * 1000)
                if len(found) != options.files:
                    raise SystemExit(f"{name}: {len(found)} entries of {options.files}")
    for name, values in times.items():
        figures = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        print(json.dumps({"files": options.files, "what": name, "millis": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
