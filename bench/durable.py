#!/usr/bin/env python3
"""Measures how fast durable directories are copied to their store, and what readers lose meanwhile.

    bench/durable.py --rounds 5
    bench/durable.py --rounds 5 --links --rate-mib 5 --mib 128

A round starts a cluster of 1, of 2 and of 4 datanodes in turn, the next round in the other order.
Each datanode sends at most `--rate-mib` a second. Objects of 4 MiB are written into a durable
directory while no manager runs, so that nothing is copied before the clock starts. The clock starts
with the manager; `fs sync` stops it. The rate of N datanodes is divided by N times that of one.
Then blocks of 1 MiB are read, one after the other, without a copy and beside one.

By default the store is a directory (`file://`) on tmpfs, and datanodes hold themselves back
(`--egress-limit`): that counts each byte once, when it is read from its home, and not the bytes
that go to the store. With `--links` each datanode is in a network namespace whose link is shaped at
both ends, and the store is an S3 server (moto) beyond the links: every byte counts that leaves a
datanode. That needs root and `scripts/venv.sh s3`. The store's own limit, without limits of the
datanodes, is measured first.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import table
from fleet import Fleet, fleet, start
from goal import Goal, Outcome, Sample, Unavailable, outcomes_of
from links import Links, links
from machine import MIB
from world import ROOT, World

# For the S3 server, which tests use, too.
sys.path.append(str(ROOT / "scripts"))

import bucket_server  # noqa: E402

COUNTS = (1, 2, 4)
OBJECT_MIB = 4
# What is copied beside readers, so that it takes equally long however many datanodes there are.
BESIDE_MIB_PER_DATANODE = 128
# A copy gives way to a reader when the parts under way have ended, which takes a second or two.
READ_SECONDS = 8
# The store is not what limits if it takes twice what all datanodes send.
STORE_FACTOR_MIN = 2.0
SCALES = {count: Goal(f"copied by {count} datanodes / {count} x one", 0.8) for count in COUNTS[1:]}
READS = {count: Goal(f"read 1 MiB beside a copy / alone, datanodes: {count}", 0.95)
         for count in COUNTS}


def main() -> int:
    """Measures all rounds, keeps the figures and prints the table."""
    options = arguments()
    if options.show:
        print(table.markdown(outcomes_of(json.loads(options.show.read_text())["rows"])))
        return 0
    # A measurement that is cut short still ends its servers and namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    program = options.program.resolve()
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="sanderling-durable-", dir=options.tmpfs))
        world = World(sanderling=program, peer=program, python=Path(sys.executable),
                      work=Path(work), rounds=options.rounds, is_quick=options.quick)
        limit = store_limit(world, options)
        network = None
        if options.links:
            network = stack.enter_context(links(max(COUNTS), options.rate_mib * MIB))
        outcomes = [Outcome(1, goal) for goal in SCALES.values()]
        outcomes += [Outcome(2, goal) for goal in READS.values()]
        for at in range(options.rounds):
            for outcome, sample in zip(outcomes, measured(world, options, network, at),
                                       strict=True):
                outcome.samples.append(sample)
            # After each: what was measured is not lost with what comes after it.
            write(options, limit, outcomes)
    print(table.text(outcomes))
    print(f"the store takes {limit:.0f} MiB/s; {max(COUNTS)} datanodes send "
          f"{max(COUNTS) * options.rate_mib} MiB/s at most")
    return 0


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    parser.add_argument("--rounds", type=int, help="5 unless it is to be quick")
    parser.add_argument("--rate-mib", type=int, default=10,
                        help="MiB that a datanode sends a second at most")
    parser.add_argument("--mib", type=int, help="of the objects that are copied; 256")
    parser.add_argument("--links", action="store_true",
                        help="shaped links and an S3 server in place of --egress-limit and file://")
    parser.add_argument("--quick", action="store_true",
                        help="one short round: shows that everything works, measures nothing")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "bench" / "durable.json")
    parser.add_argument("--show", type=Path, metavar="FILE",
                        help="measure nothing; print a results file as a table of Markdown")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.mib = options.mib or (32 if options.quick else 256)
    if options.links and os.geteuid():
        parser.error("--links needs root")
    if options.links and not bucket_server.is_installed():
        parser.error("--links needs an S3 server: scripts/venv.sh s3")
    return options


def store_limit(world: World, options: argparse.Namespace) -> float:
    """Returns the MiB a second that the store takes from datanodes without a limit.

    Ends the program if it is too slow to measure datanodes with it.
    """
    with cluster(world, options, None, max(COUNTS), is_limited=False) as made:
        fill(made, "limit", options.mib)
        rate = options.mib / copied(made)
    wanted = STORE_FACTOR_MIN * max(COUNTS) * options.rate_mib
    if rate < wanted and not options.quick:
        raise SystemExit(f"the store takes {rate:.0f} MiB/s, and {wanted:.0f} are needed so that "
                         "it is not what limits: choose a lower --rate-mib")
    return rate


def measured(world: World, options: argparse.Namespace, network: Links | None,
             round_: int) -> list[Sample]:
    """Measures one round; returns a sample for each goal."""
    rates: dict[int, float] = {}
    reads: dict[int, Sample] = {}
    for count in COUNTS if round_ % 2 == 0 else reversed(COUNTS):
        with cluster(world, options, network, count) as made:
            fill(made, "timed", options.mib)
            rates[count] = options.mib / copied(made)
            reads[count] = beside(made, options, count, round_)
        note(f"round {round_ + 1}, datanodes: {count}: copied {rates[count]:.1f} MiB/s, reads "
             f"{reads[count].ours:.1f} of {reads[count].peer:.1f} MiB/s")
    scales = [Sample.ratio(rates[count] / count, rates[1], "MiB/s") for count in SCALES]
    return [*scales, *(reads[count] for count in READS)]


def beside(made: Fleet, options: argparse.Namespace, count: int, round_: int) -> Sample:
    """Reads without a copy and beside one, in turn one or the other first."""
    def alone() -> float:
        return read_rate(made, options)

    def while_copied() -> float:
        # Long enough, as reads take their part of what the datanodes send.
        fill(made, "beside", count * (16 if options.quick else BESIDE_MIB_PER_DATANODE))
        waits = backlog_bytes(made)
        with manager(made, "beside"):
            machine.until("the copy begins", lambda: backlog_bytes(made) < waits)
            rate = read_rate(made, options)
            if not backlog_bytes(made) and not options.quick:
                raise Unavailable("the copy was over before the reads: choose a lower --rate-mib")
            made.cli("fs", "sync", "/out")
        return rate

    if round_ % 2 == 0:
        without = alone()
        return Sample.ratio(while_copied(), without, "MiB/s")
    slowed = while_copied()
    return Sample.ratio(slowed, alone(), "MiB/s")


def read_rate(made: Fleet, options: argparse.Namespace) -> float:
    """Returns the MiB a second of one reader."""
    seconds = 0.5 if options.quick else READ_SECONDS
    figures = made.bench("read-sequential", "--size", "1MiB", "--duration", f"{seconds:g}s",
                         "--warmup", "0", "--working-set", "16MiB")
    return float(figures["bytes_per_second"]) / MIB


def fill(made: Fleet, name: str, mib: int) -> None:
    """Stores objects in the durable directory. No manager runs, so nothing is copied."""
    place = made.directory / name
    place.mkdir()
    first = place / "0"
    first.write_bytes(bytes(range(256)) * (OBJECT_MIB * MIB // 256))
    for at in range(1, mib // OBJECT_MIB):
        os.link(first, place / str(at))
    made.cli("fs", "put", "-r", str(place), f"/out/{name}")


def copied(made: Fleet) -> float:
    """Starts a manager, and returns how long it takes until everything is copied."""
    began = time.monotonic()
    with manager(made, "timed"):
        made.cli("fs", "sync", "/out")
        return time.monotonic() - began


@contextlib.contextmanager
def manager(made: Fleet, name: str) -> Iterator[None]:
    """Runs a manager, which copies what waits for the store. The name is given once."""
    with contextlib.ExitStack() as stack:
        words = ["manager", "--namenode", made.address, "--http", "none", "--name", name]
        start(made.world, stack, made.directory, f"manager-{name}", words)
        yield


def backlog_bytes(made: Fleet) -> int:
    """Returns the bytes that wait for the store."""
    [found] = made.cli("fs", "stat", "/out")["objects"]
    return int(found["durability"]["backlog_bytes"])


@contextlib.contextmanager
def cluster(world: World, options: argparse.Namespace, network: Links | None, count: int,
            is_limited: bool = True) -> Iterator[Fleet]:
    """Starts a store and a cluster with a durable directory, /out.

    On the network each datanode has a place of its own; else it holds itself back if it is limited.
    """
    with contextlib.ExitStack() as stack:
        host = network.root if network else "127.0.0.1"
        flags = ("--no-manager", *(("--allow-unauthenticated",) if network else ()))
        made = stack.enter_context(
            fleet(world, datanodes=0, listen=f"{host}:0", namenode_flags=flags))
        url, variables = store(made, options, host, stack)
        # All that is copied lies in memory, unevenly, beside what is read.
        beside_mib = count * BESIDE_MIB_PER_DATANODE
        dram = f"{(options.mib + beside_mib) * 3 // 2 // count + 64}MiB"
        for at in range(count):
            name = f"n{at}"
            # The second store shows when the node has reported its stores.
            words = ["--namenode", made.address, "datanode", "--name", name, "--http", "none",
                     "--dram", dram, "--local-socket", "none", "--durable", f"archive={url}",
                     "--durable", f"{name}=file://{directory(made, name)}"]
            prefix = ("env", *(f"{key}={value}" for key, value in variables.items()))
            if network:
                words += ["--allow-unauthenticated", "--listen", f"{network.address(at)}:0"]
                prefix = (*network.at(at), *prefix)
            elif is_limited:
                words += ["--egress-limit", f"{options.rate_mib}MiB"]
            server, _ = start(world, stack, made.directory, name, words, prefix=prefix)
            made.datanodes.append(server)
        # At once: on SIGTERM each would first move away what it holds.
        stack.callback(lambda: [server.process.kill() for server in made.datanodes])
        made.wait_for_arenas()
        for at in range(count):
            machine.until(f"n{at} reports its stores", lambda at=at: is_reported(made, f"n{at}"))
        made.cli("fs", "mkdir", "/out", "--durable", "archive")
        yield made


def store(made: Fleet, options: argparse.Namespace, host: str,
          stack: contextlib.ExitStack) -> tuple[str, dict[str, str]]:
    """Starts the store; returns its URL, and the variables with which datanodes find it."""
    if not options.links:
        return f"file://{directory(made, 'store')}", {}
    server = bucket_server.BucketServer(made.directory / "s3.log", host)
    stack.callback(server.stop)
    return f"s3://{bucket_server.BUCKET}/run", server.environment


def directory(made: Fleet, name: str) -> Path:
    """Makes a directory beside those of the others."""
    place = made.directory / f"{name}-files"
    place.mkdir()
    return place


def is_reported(made: Fleet, name: str) -> bool:
    """Returns whether a datanode has reported a store. Makes nothing: the parent is not there."""
    try:
        made.cli("fs", "mkdir", "/absent/below", "--durable", name)
    except Unavailable as error:
        return "no datanode has a store" not in str(error)
    raise Unavailable("a directory was made whose parent is not there")


def write(options: argparse.Namespace, limit: float, outcomes: list[Outcome]) -> None:
    """Writes the figures."""
    kept: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine.describe({}),
        "revision": machine.revision(ROOT),
        "quick": options.quick,
        "rate_mib": options.rate_mib,
        "mib": options.mib,
        "is_on_links": options.links,
        "store_mib_per_second": limit,
        "rows": [outcome.record() for outcome in outcomes],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(kept, indent=1) + "\n")


def note(text: str) -> None:
    """Prints how far it is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
