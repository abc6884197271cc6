"""Rows of names: look-ups, creates, small values, and the namenode's memory.

Apache Crail cannot be installed from a registry. Its figures were taken on a machine of this kind,
where a bare TCP ping-pong of 64 B on one core took 12 us; they are scaled by the ping-pong that is
measured beside.
"""

from __future__ import annotations

import machine
from fleet import Fleet, fleet
from goal import Goal, Sample
from machine import GIB, MIB
from peers.clients import ping_micros
from rows.row import Row
from world import World, last_core

CRAIL_PING_MICROS = 12.0
CRAIL_CREATES_PER_SECOND = 5_500.0
CRAIL_LOOKUPS_PER_SECOND = 51_000.0
CRAIL_GET_KEY_MICROS = 107.0
# A block of 1 MiB for every object, however small.
CRAIL_OBJECTS_PER_GIB = 1024.0
MILLION = 1_000_000


def cluster(world: World) -> Fleet:
    """Returns a cluster of one datanode."""
    return world.keep("fleet", lambda: fleet(world, dram="64MiB"))


def tree(world: World) -> dict:
    """Looks names up in batches of 128, in a tree of a million; the first round makes it."""
    paths = MILLION // 50 if world.is_quick else MILLION
    words = ["--paths", str(paths), "--batch", "128", "--keep", "--depth", "4"]
    words += ["--count", str(world.count(8_000)), "--warmup", "50"]
    return cluster(world).bench("lookup-many", *words)


def lookups_per_core(world: World) -> list[Sample]:
    """Divides look-ups by the namenode's processor time."""
    report = tree(world)
    value = report["items"] / report["cpu"]["namenode_seconds"] / 1e6
    return [Sample(value, value, unit="M/s")]


def scaled(world: World) -> float:
    """Returns how much faster than Crail's this machine's ping-pong is."""
    return CRAIL_PING_MICROS / ping_micros(world, last_core())


def creates(world: World) -> list[Sample]:
    """Creates empty files, 16 in flight."""
    words = ["--depth", "16", "--count", str(world.count(60_000))]
    ours, faster = world.both(
        lambda: cluster(world).bench("create-file-async", *words)["operations_per_second"],
        lambda: scaled(world),
    )
    return [Sample.ratio(ours, CRAIL_CREATES_PER_SECOND * faster, "/s")]


def lookups(world: World) -> list[Sample]:
    """Looks files up, 16 in flight; then with four threads on one client, and with one."""
    words = ["--depth", "16", "--warmup", "1000", "--count"]
    count = world.count(200_000)

    def of(threads: int) -> float:
        share = ["--share-client", "--threads", str(threads)]
        each = str(count // threads)
        report = cluster(world).bench("get-file-async", *words, each, *share)
        return report["operations_per_second"]

    def alone() -> float:
        report = cluster(world).bench("get-file-async", *words, str(count))
        return report["operations_per_second"]

    ours, faster = world.both(alone, lambda: scaled(world))
    many, one = world.both(lambda: of(4), lambda: of(1))
    return [
        Sample.ratio(ours, CRAIL_LOOKUPS_PER_SECOND * faster, "/s"),
        Sample.ratio(many, one, "/s"),
    ]


def small_get(world: World) -> list[Sample]:
    """Gets values of 64 B by name, client and namenode on one core."""
    core = last_core()
    pinned = world.keep("fleet", lambda: fleet(world, dram="64MiB", namenode_core=core))
    words = ["--size", "64", "--pin", str(core), "--warmup", "500"]
    words += ["--count", str(world.count(20_000))]
    ours, faster = world.both(
        lambda: pinned.bench("get-small", *words)["latency_micros"]["p50"],
        lambda: scaled(world),
    )
    return [Sample.ratio(ours, CRAIL_GET_KEY_MICROS / faster, "us")]


def objects_per_gib(world: World) -> list[Sample]:
    """Puts values of 64 B and reads what they add to the memory of a fresh namenode."""
    many = world.count(400_000)
    with fleet(world, dram="64MiB") as fresh:
        before = machine.resident_bytes(fresh.namenode.pid)["all"]
        words = ["--size", "64", "--depth", "128", "--count", str(many), "--warmup", "0"]
        # The type goes round a few names unless there are as many as operations.
        fresh.bench("put-small", *words, "--working-set", str(64 * many), "--keep")
        grown = machine.resident_bytes(fresh.namenode.pid)["all"] - before
    value = GIB / (grown / many) / 1e3
    return [Sample(value, value, CRAIL_OBJECTS_PER_GIB / 1e3, "k")]


def memory(world: World) -> list[Sample]:
    """Reads the memory of a datanode under load, and of a namenode with a million objects."""
    load = ["--size", "1MiB", "--threads", "4", "--warmup", "0"]
    load += ["--count", str(world.count(1_000))]
    loaded = world.keep("loaded", lambda: fleet(world, dram="1GiB"))
    with machine.Peak(loaded.datanodes[0].pid) as peak:
        loaded.bench("read-random-async", *load, "--depth", "32")
        loaded.bench("write-async", *load, "--depth", "8")
    beyond = peak.bytes / MIB
    tree(world)
    paths = MILLION // 50 if world.is_quick else MILLION
    resident = machine.resident_bytes(cluster(world).namenode.pid)["all"]
    names = resident / MIB * MILLION / paths
    return [Sample(beyond, beyond, unit="MiB"), Sample(names, names, unit="MiB")]


ROWS = [
    Row(
        9,
        (Goal("look-ups per namenode core, batch 128", 3.0, unit="M/s"),),
        lookups_per_core,
    ),
    Row(10, (Goal("creates, 16 in flight / Crail, scaled", 10.0),), creates),
    Row(
        11,
        (
            Goal("look-ups, 16 in flight / Crail, scaled", 5.0),
            Goal("look-ups, 4 threads on a client / 1", 1.0),
        ),
        lookups,
    ),
    Row(12, (Goal("get 64 B by name, p50 / Crail, scaled", 1 / 3, is_limit=True),), small_get),
    Row(13, (Goal("objects of 64 B per GiB", 200.0, unit="k"),), objects_per_gib),
    Row(
        19,
        (
            Goal("datanode's memory beyond its arena", 64.0, is_limit=True, unit="MiB"),
            Goal("namenode's memory, 1 M objects", 512.0, is_limit=True, unit="MiB"),
        ),
        memory,
    ),
]
