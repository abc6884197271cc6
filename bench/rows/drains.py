"""Rows of what happens when a node must go."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet import Fleet, fleet, start
from goal import Goal, Sample, Unavailable
from links import Links, Sent, links
from machine import MIB, until
from peers.iperf import bytes_per_second, iperf
from rows.row import Row
from world import World

# 400 Mbit/s, so that the links and not the processors are the limit.
LINK_BYTES_PER_SECOND = 50_000_000
# A drain of less than three seconds: its fixed part shows, as it would of a short notice.
DATA_BYTES = 128 * MIB
IPERF_SECONDS = 2.0
# A drain takes the whole link when it has no more than three times the time that it needs.
DEADLINE = "6s"
PLACES = 3
TRIES = 6


class Drained:
    """A fleet on shaped links whose first node holds all data."""

    def __init__(self, world: World, network: Links, cluster: Fleet, stack: Any) -> None:
        self.world = world
        self.network = network
        self.cluster = cluster
        self.stack = stack

    def add(self, place: int) -> None:
        """Starts a datanode at a place."""
        name = f"n{place}"
        words = ["--namenode", self.cluster.address, "datanode", "--name", name, "--http", "none"]
        # A namespace does not hide a socket in the file system.
        words += ["--dram", "512MiB", "--allow-unauthenticated", "--local-socket", "none"]
        words += ["--listen", f"{self.network.address(place)}:0"]
        where = (self.cluster.directory, name, words, None, self.network.at(place))
        server, _ = start(self.world, self.stack, *where)
        self.cluster.datanodes.append(server)
        self.cluster.wait_for_arenas()

    def notice(self) -> dict[str, Any]:
        """Gives the first node its notice and returns the namenode's report of the drain.

        Raises `Unavailable` when something was lost.
        """
        reply = self.cluster.cli("node", "notice", "n0", "--deadline", DEADLINE,
                                 "--yes", "--wait")
        drain = reply["drain"]
        if drain["lost_bytes"] or not drain["moved_bytes"]:
            raise Unavailable(f"the drain lost or moved nothing: {json.dumps(drain)}")
        return drain


@contextlib.contextmanager
def one_full_node(world: World, network: Links) -> Iterator[Drained]:
    """Starts a namenode here and the first datanode at its place."""
    with contextlib.ExitStack() as stack:
        flags = ("--allow-unauthenticated",)
        listen = f"{network.root}:0"
        cluster = stack.enter_context(
            fleet(world, datanodes=0, listen=listen, namenode_flags=flags)
        )
        made = Drained(world, network, cluster, stack)
        made.add(0)
        yield made


def network(world: World) -> Links:
    """Returns the links, made once for a row."""
    return world.keep("links", lambda: links(PLACES, LINK_BYTES_PER_SECOND))


def stream(world: World) -> list[Sample]:
    """Empties a node without readers, beside iperf3 from the same place by the same link."""
    net = network(world)
    port = world.keep("iperf3", lambda: iperf(world, net.at(1), net.address(1)))

    def ours() -> float:
        with one_full_node(world, net) as it:
            file = world.work / "data"
            file.write_bytes(bytes(range(256)) * (DATA_BYTES // 256))
            it.cluster.cli("fs", "put", str(file), "/data")
            it.add(1)
            it.add(2)
            with Sent(0) as sent:
                moved = it.notice()["moved_bytes"]
        # What was sent before the first sample and after the last is not in the time either.
        return (moved - 2 * Sent.IDLE_BYTES) / sent.seconds()

    own, peer = world.both(
        ours, lambda: bytes_per_second(port, IPERF_SECONDS, net.at(0), net.address(1))
    )
    return [Sample.ratio(own / MIB, peer / MIB, "MiB/s")]


def drain(world: World) -> list[Sample]:
    """Empties a node while one client reads from it and another writes to the fleet."""
    net = network(world)
    with one_full_node(world, net) as it:
        words = [str(world.sanderling), "--namenode", it.cluster.address, "-q", "bench"]
        size = ["--working-set", str(DATA_BYTES), "--warmup", "0", "--duration", "8s"]
        read = ["read-random-async", "--size", "128KiB", "--depth", "16", *size]
        write = ["write", "--size", "64KiB", *size]
        log = world.work / "clients.log"
        with client([*words, *read], log) as reader:
            wait_for_data(it.cluster, DATA_BYTES)
            it.add(1)
            it.add(2)
            with client([*words, *write, "--path", "/written"], log):
                reply = it.notice()
                if reader.poll() is not None:
                    raise Unavailable(f"the reader ended early: {log.read_text()[-300:]}")
    ours = reply["elapsed"] / 1e3
    return [Sample.ratio(ours, reply["moved_bytes"] / LINK_BYTES_PER_SECOND, "s")]


@contextlib.contextmanager
def client(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    """Runs a client in the background."""
    with open(log, "ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def wait_for_data(cluster: Fleet, home_bytes: int) -> None:
    """Waits until the first node holds so many bytes."""

    def is_filled() -> bool:
        first = next(node for node in cluster.cli("node", "ls")["nodes"] if node["name"] == "n0")
        return first["home_bytes"] >= home_bytes

    until("the data is there", is_filled)


def stall(world: World) -> list[Sample]:
    """Lets writers of 2 KiB meet a fence on loopback, and takes the longest wait of one."""
    for _ in range(TRIES):
        with fleet(world, datanodes=3, dram="256MiB") as cluster:
            words = [str(world.sanderling), "--namenode", cluster.address, "--json", "-q", "bench"]
            words += ["write", "--size", "2KiB", "--threads", "3", "--warmup", "10"]
            words += ["--duration", "2s"]
            running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            wait_for_data(cluster, MIB)
            cluster.cli("node", "notice", "n0", "--deadline", "10s", "--yes")
            reply, _ = running.communicate(timeout=60)
        value = json.loads(reply)["longest_stall_millis"]
        if value > 0:
            return [Sample(value, value, unit="ms")]
    raise Unavailable(f"no writer met the fence in {TRIES} tries")


IPERF = frozenset({"iperf3"})
ROWS = [
    Row(15, (Goal("relocation stream / iperf3, same link", 0.90),), stream, IPERF),
    Row(16, (Goal("drain under load / (bytes / link)", 1.20, is_limit=True),), drain),
    Row(17, (Goal("stall of a writer at the fence", 10.0, is_limit=True, unit="ms"),), stall),
]
