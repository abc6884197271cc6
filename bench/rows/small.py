"""Rows of small reads."""

from __future__ import annotations

from fleet import fleet
from goal import Goal, Sample
from peers.clients import Store, ping_micros, redis
from rows.row import Row
from world import World, last_core

PAGE = 4096
DEPTH = 32
GETS = 300_000


def latency(world: World) -> list[Sample]:
    """Reads 64 B at a time, client and datanode on one core, beside a bare TCP ping-pong there."""
    core = last_core()
    cluster = world.keep("fleet", lambda: fleet(world, dram="64MiB", core=core))
    words = ["--size", "64", "--count", str(world.count(20_000)), "--warmup", "500"]
    words += ["--working-set", "1MiB", "--pin", str(core)]
    ours, peer = world.both(
        lambda: cluster.bench("read-random", *words)["latency_micros"]["p50"],
        lambda: ping_micros(world, core),
    )
    return [Sample.ratio(ours, peer, "us")]


def pages(world: World) -> tuple[dict, Store]:
    """Returns a function that reads pages, and a Redis that holds as many."""
    cluster = world.keep("fleet", lambda: fleet(world, dram="256MiB"))
    words = ["--size", str(PAGE), "--depth", str(DEPTH), "--warmup", "1000"]
    words += ["--count", str(world.count(GETS)), "--working-set", "1MiB"]
    store = world.keep("redis", lambda: redis(world, PAGE))
    return lambda: cluster.bench("read-random-async", *words), store


def rate(world: World) -> list[Sample]:
    """Reads 4 KiB out of 1 MiB, 32 in flight, beside Redis GET of 256 such values."""
    ours, store = pages(world)
    own, peer = world.both(
        lambda: ours()["operations_per_second"],
        lambda: store.gets(world.count(GETS), DEPTH).operations_per_second,
    )
    return [Sample.ratio(own, peer, "/s")]


def cpu(world: World) -> list[Sample]:
    """The same, and what an operation costs the servers."""
    ours, store = pages(world)
    own, peer = world.both(
        lambda: ours()["cpu"]["server_micros_per_operation"],
        lambda: store.gets(world.count(GETS), DEPTH).cpu_micros_per_operation,
    )
    return [Sample.ratio(own, peer, "us")]


REDIS = frozenset({"redis"})
ROWS = [
    Row(3, (Goal("read 64 B, p50 / TCP ping-pong", 1.25, is_limit=True),), latency),
    Row(4, (Goal("read 4 KiB, 32 in flight / Redis GET", 1.2),), rate, REDIS),
    Row(5, (Goal("the same, server CPU / Redis", 0.75, is_limit=True),), cpu, REDIS),
]
