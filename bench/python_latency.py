#!/usr/bin/env python3
"""Measures get and put of whole objects from Python, and the same with Ray's object store.

Prints one JSON object: for each side and each call the median, the 99th percentile and the least
time in microseconds. The sides take turns, a round each, so that both meet the same machine; Ray is
left out, and said to be, where it is not installed.

    bench/python_latency.py                    # starts a cluster of one datanode
    bench/python_latency.py --address HOST:PORT --bytes 65536 --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

Calls = dict[str, Callable[[int], Any]]


def main() -> int:
    """Measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--address", help="a namenode; without it a cluster is started")
    arguments.add_argument("--bytes", type=int, default=1 << 20, help="bytes of an object")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--operations", type=int, default=200, help="of each kind and round")
    arguments.add_argument("--peer", choices=["auto", "none", "only"], default="auto")
    arguments.add_argument("--one-core", action="store_true", help="pin everything to one core")
    options = arguments.parse_args()
    if options.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with ExitStack() as stack:
        sides: dict[str, Calls] = {}
        if options.peer != "only":
            sides["sanderling"] = sanderling_calls(stack, options)
        ray = None if options.peer == "none" else ray_calls(stack, options)
        if ray:
            sides["ray"] = ray
        times = measure(sides, options)
    print(json.dumps({"bytes": options.bytes, "rounds": options.rounds} | summary(times)))
    if options.peer != "none" and "ray" not in times:
        print("ray is not installed: pip install ray", file=sys.stderr)
    return 0


def sanderling_calls(stack: ExitStack, options: argparse.Namespace) -> Calls:
    """Returns the calls of this store: by name, and of an object that is open."""
    import sanderling

    address = options.address
    if not address:
        room = max(1 << 30, 16 * options.bytes)
        cluster = stack.enter_context(sanderling.Cluster.local(datanodes=1, dram_bytes=room))
        address = cluster.address
    store = stack.enter_context(sanderling.connect(address))
    data = os.urandom(options.bytes)
    store.mkdir("/python-latency", parents=True)
    stack.callback(store.delete, "/python-latency", recursive=True)
    store.put("/python-latency/read", data)
    file = stack.enter_context(store.open("/python-latency/read"))
    if store.get("/python-latency/read") != data or file.view() != data:
        raise SystemExit("what was read is not what was written")
    written = fresh("/python-latency/written")

    def put(_: int) -> Any:
        return store.put(next(written), data)

    calls: Calls = {"get": lambda _: store.get("/python-latency/read")}
    calls |= {"view": lambda _: file.view(), "put": put}
    return calls


def fresh(stem: str) -> Iterator[str]:
    """Yields names, each once, in turn from so few that the room suffices."""
    number = 0
    while True:
        yield f"{stem}-{number % 8}"
        number += 1


def ray_calls(stack: ExitStack, options: argparse.Namespace) -> Calls | None:
    """Returns the calls of Ray's store of shared memory."""
    try:
        import numpy
        import ray
    except ImportError:
        return None
    ray.init(num_cpus=1, object_store_memory=1 << 30, include_dashboard=False, log_to_driver=False)
    stack.callback(ray.shutdown)
    data = numpy.frombuffer(os.urandom(options.bytes), dtype=numpy.uint8)
    kept = ray.put(data)
    return {"get": lambda _: ray.get(kept), "put": lambda _: ray.put(data)}


def measure(sides: dict[str, Calls], options: argparse.Namespace) -> dict[str, Any]:
    """Returns the times of every call in seconds, by side and kind, round by round."""
    times: dict[str, Any] = {side: {kind: [] for kind in calls} for side, calls in sides.items()}
    for _ in range(options.rounds):
        for side, calls in sides.items():
            for kind, found in times[side].items():
                found.append(timed(calls[kind], options.operations))
    return times


def timed(call: Callable[[int], Any], operations: int) -> list[float]:
    """Returns the times of calls one after the other, after some that are not counted."""
    for number in range(min(20, operations)):
        call(number)
    times = []
    for number in range(operations):
        began = time.perf_counter()
        result = call(number)
        times.append(time.perf_counter() - began)
        del result
    return times


def summary(times: dict[str, Any]) -> dict[str, Any]:
    """Returns figures in microseconds and, with a peer, the ratio of each round's medians."""
    found: dict[str, Any] = {}
    for side, kinds in times.items():
        found[side] = {}
        for kind, rounds in kinds.items():
            ordered = sorted(each for single in rounds for each in single)
            found[side][kind] = {
                "p50_us": round(1e6 * ordered[len(ordered) // 2], 1),
                "p99_us": round(1e6 * ordered[len(ordered) * 99 // 100], 1),
                "min_us": round(1e6 * ordered[0], 1),
            }
    if len(times) == 2:
        pairs = {"get": "get", "view": "get", "put": "put"}
        found["ratios"] = {}
        for ours, theirs in pairs.items():
            rounds = zip(times["sanderling"][ours], times["ray"][theirs], strict=True)
            ratios = [statistics.median(a) / statistics.median(b) for a, b in rounds]
            found["ratios"][ours] = [round(f(ratios), 3) for f in (statistics.median, min, max)]
    return found


if __name__ == "__main__":
    sys.exit(main())
