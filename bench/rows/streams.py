"""Rows of large reads and writes."""

from __future__ import annotations

from fleet import Fleet, fleet
from goal import Goal, Sample
from machine import MIB
from peers.clients import memcached
from peers.iperf import bytes_per_second, iperf
from rows.row import Row
from world import World

OPERATIONS = 4000
STREAM_SECONDS = 1.0


def one_node(world: World) -> Fleet:
    """Returns a cluster of one datanode, so that a client has one connection for data."""
    return world.keep("fleet", lambda: fleet(world, dram="1GiB"))


def large(world: World, kind: str, *flags: str) -> dict:
    """Runs a benchmark of operations of 1 MiB, two under way."""
    count = str(world.count(OPERATIONS))
    words = ["--size", "1MiB", "--depth", "2", "--count", count, "--warmup", "64", *flags]
    return one_node(world).bench(kind, *words)


def against_iperf(world: World, kind: str) -> list[Sample]:
    """Compares a benchmark's bytes per second with iperf3's."""
    one_node(world)
    port = world.keep("iperf3", lambda: iperf(world))
    ours, peer = world.both(
        lambda: large(world, kind)["bytes_per_second"],
        lambda: bytes_per_second(port, STREAM_SECONDS),
    )
    return [Sample.ratio(ours / MIB, peer / MIB, "MiB/s")]


def read(world: World) -> list[Sample]:
    """Reads a file of 128 MiB again and again, 1 MiB at a time."""
    return against_iperf(world, "read-sequential-async")


def write(world: World) -> list[Sample]:
    """Writes files of 128 MiB, 1 MiB at a time, and deletes the one before."""
    return against_iperf(world, "write-async")


def cpu(world: World) -> list[Sample]:
    """Compares the servers' processor time of reads with memcached's of gets, 256 MiB of values."""
    one_node(world)
    peer = world.keep("memcached", lambda: memcached(world, MIB))
    flags = ["--working-set", "256MiB"]
    ours, theirs = world.both(
        lambda: large(world, "read-sequential-async", *flags)["cpu"]["server_seconds_per_gib"],
        lambda: peer.gets(world.count(OPERATIONS), 2).cpu_seconds_per_gib,
    )
    return [Sample.ratio(ours * 1e3, theirs * 1e3, "ms/GiB")]


def checksums(world: World) -> list[Sample]:
    """Compares reads that are checked with reads that are not."""
    checked, unchecked = world.both(
        lambda: large(world, "read-sequential-async")["bytes_per_second"],
        lambda: large(world, "read-sequential-async", "--checksums", "off")["bytes_per_second"],
    )
    return [Sample.ratio(checked / MIB, unchecked / MIB, "MiB/s")]


IPERF = frozenset({"iperf3"})
ROWS = [
    Row(1, (Goal("read 1 MiB, one connection / iperf3", 0.80),), read, IPERF),
    Row(2, (Goal("write 1 MiB, one connection / iperf3", 0.80),), write, IPERF),
    Row(
        6,
        (Goal("read 1 MiB, server CPU / memcached", 1.10, is_limit=True),),
        cpu,
        frozenset({"memcached"}),
    ),
    Row(14, (Goal("read 1 MiB, checked / unchecked", 0.85),), checksums),
]
