"""Rows of whole objects from Python, on one machine."""

from __future__ import annotations

from fleet import fleet
from goal import Goal, Sample
from peers import packages
from peers.plasma import Objects, objects
from rows.row import Row
from world import World

CALLS = 400


def sides(world: World) -> tuple[Objects, Objects]:
    """Starts both sides once."""
    cluster = world.keep("fleet", lambda: fleet(world, dram="512MiB", has_local_endpoint=True))
    words = ("sanderling", cluster.address)
    ours = world.keep("ours", lambda: objects(world, str(world.python), *words))
    peer = world.keep("ray", lambda: objects(world, packages.ray_python(), "ray"))
    return ours, peer


def get(world: World) -> list[Sample]:
    """Gets objects of 1 MiB: open ones here, references there."""
    ours, peer = sides(world)
    count = world.count(CALLS)
    own, theirs = world.both(lambda: ours.micros("get", count), lambda: peer.micros("get", count))
    sample = Sample.ratio(own, theirs, "us")
    named = ours.micros("named", count)
    return [Sample(sample.value, own, theirs, "us", {"by_name_micros": named})]


def put(world: World) -> list[Sample]:
    """Puts objects of 1 MiB."""
    ours, peer = sides(world)
    count = world.count(CALLS)
    own, theirs = world.both(lambda: ours.micros("put", count), lambda: peer.micros("put", count))
    return [Sample.ratio(own, theirs, "us")]


RAY = frozenset({"ray"})
ROWS = [
    Row(7, (Goal("Python get of 1 MiB, p50 / Ray", 0.35, is_limit=True),), get, RAY, True),
    Row(8, (Goal("Python put of 1 MiB, p50 / Ray", 0.5, is_limit=True),), put, RAY, True),
]
