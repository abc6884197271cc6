"""The row of the disk tier."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet import Fleet, fleet
from goal import Goal, Sample
from machine import MIB
from peers.disk import file_of, little_cache, read_bytes_per_second
from rows.row import Row
from world import ROOT, World

DEPTH = 8
FILE_BYTES = 768 * MIB
CACHE_BYTES = 160 * MIB
FIO_SECONDS = 2
READS = 3_000


@dataclass
class Disk:
    """Both sides on one file system."""

    cluster: Fleet
    prefix: list[str]
    file: Path


@contextlib.contextmanager
def disk(world: World) -> Iterator[Disk]:
    """Starts a datanode with a disk tier and makes a file as large beside it."""
    with contextlib.ExitStack() as stack:
        target = ROOT / "target"
        where = stack.enter_context(tempfile.TemporaryDirectory(dir=target, prefix="disk-"))
        prefix = stack.enter_context(little_cache(CACHE_BYTES))
        blocks = Path(where) / "blocks"
        blocks.mkdir()
        flags = ("--disk", "4GiB", "--disk-dir", str(blocks))
        started = fleet(world, dram="1MiB", datanode_flags=flags, datanode_prefix=tuple(prefix))
        cluster = stack.enter_context(started)
        yield Disk(cluster, prefix, stack.enter_context(file_of(Path(where) / "file", FILE_BYTES)))


def read(world: World) -> list[Sample]:
    """Reads 1 MiB at a time from begin to end, as many under way on either side.

    The page cache of both sides is bounded by a control group to a part of the file; fio passes it
    by (`direct=1`) besides.
    """
    both = world.keep("disk", lambda: disk(world))
    words = ["--class", "disk:refuse", "--size", "1MiB", "--depth", str(DEPTH)]
    words += ["--working-set", str(FILE_BYTES), "--warmup", "0"]
    words += ["--count", str(world.count(READS))]
    ours, peer = world.both(
        lambda: both.cluster.bench("read-sequential-async", *words)["bytes_per_second"],
        lambda: read_bytes_per_second(both.prefix, both.file, DEPTH, FIO_SECONDS),
    )
    return [Sample.ratio(ours / MIB, peer / MIB, "MiB/s")]


ROWS = [Row(18, (Goal("disk tier, sequential read / fio", 0.85),), read, frozenset({"fio"}))]
