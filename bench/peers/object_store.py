"""Gets and puts of 1 MiB from Python, timed inside the Python that has the package.

Runs as a program of its own: `object_store.py ray`, or `object_store.py sanderling ADDRESS`. A line
on stdin, `get 300` or `put 300`, is answered by a line of JSON with the median in microseconds.
Both packages take the same bytes and give back something with the buffer protocol, of which one
byte is read.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

OBJECT_BYTES = 1 << 20
OBJECTS = 64
# Not constant, so that nothing can make it smaller.
CONTENT = bytearray(os.urandom(OBJECT_BYTES))
WARMUP = 20


def ray_calls() -> dict[str, Callable[[int], Any]]:
    """Starts Ray on this machine and returns its calls."""
    import numpy
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False,
             object_store_memory=1 << 30)
    content = numpy.frombuffer(CONTENT, dtype=numpy.uint8)
    kept = [ray.put(content) for _ in range(OBJECTS)]
    return {
        "get": lambda at: ray.get(kept[at % OBJECTS]),
        "put": lambda _: ray.put(content),
    }


def sanderling_calls(address: str) -> dict[str, Callable[[int], Any]]:
    """Connects to a cluster and returns its calls.

    A reference of Ray's holds where its object is; what holds that here is an open object. `named`
    looks the name up as well.
    """
    import sanderling

    store = sanderling.connect(address)
    store.mkdir("/objects", parents=True)
    for at in range(OBJECTS):
        store.put(f"/objects/{at}", CONTENT)
    kept = [store.open(f"/objects/{at}") for at in range(OBJECTS)]

    def put(at: int) -> Any:
        return store.put(f"/objects/new-{at % OBJECTS}", CONTENT)

    return {
        "get": lambda at: kept[at % OBJECTS].view(0, OBJECT_BYTES),
        "named": lambda at: store.get(f"/objects/{at % OBJECTS}"),
        "put": put,
    }


def median_micros(call: Callable[[int], Any], count: int, is_read: bool) -> float:
    """Times so many calls; results are let go outside of the time."""
    nanos = []
    for at in range(WARMUP + count):
        began = time.perf_counter_ns()
        result = call(at)
        if is_read:
            memoryview(result)[at]
        nanos.append(time.perf_counter_ns() - began)
        del result
    return statistics.median(nanos[WARMUP:]) / 1e3


def main() -> None:
    """Answers lines until stdin ends."""
    side, *rest = sys.argv[1:]
    calls = ray_calls() if side == "ray" else sanderling_calls(*rest)
    print(json.dumps({"ready": sorted(calls)}), flush=True)
    for line in sys.stdin:
        kind, count = line.split()
        micros = median_micros(calls[kind], int(count), kind != "put")
        print(json.dumps({"p50_micros": micros}), flush=True)


if __name__ == "__main__":
    main()
