"""Rows of large reads and writes over one connection."""

from __future__ import annotations

from fleet import Fleet, fleet
from goal import Goal, Sample
from machine import MIB
from peers.iperf import bytes_per_second, iperf
from rows.row import Row
from world import World

OPERATIONS = 1500
STREAM_SECONDS = 1.0


def one_node(world: World) -> Fleet:
    """Returns a cluster of one datanode, so that a client has one connection for data."""
    return world.keep("fleet", lambda: fleet(world, dram="2GiB"))


def against_iperf(world: World, kind: str, *flags: str) -> list[Sample]:
    """Compares a benchmark's bytes per second with iperf3's."""
    cluster = one_node(world)
    port = world.keep("iperf3", lambda: iperf(world))
    count = str(world.count(OPERATIONS))
    words = ["--size", "1MiB", "--depth", "2", "--count", count, "--warmup", "64", *flags]
    ours, peer = world.both(
        lambda: cluster.bench(kind, *words)["bytes_per_second"],
        lambda: bytes_per_second(port, STREAM_SECONDS),
    )
    return [Sample.ratio(ours / MIB, peer / MIB, "MiB/s")]


def read(world: World) -> list[Sample]:
    """Reads 1 MiB at a time, two reads under way."""
    return against_iperf(world, "readSequentialAsync")


ROWS = [
    Row(1, (Goal("read 1 MiB, one connection / iperf3", 0.80),), read, frozenset({"iperf3"})),
]
