"""iperf3: what one TCP connection carries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import server
from peers import packages
from world import World, run_json


@contextlib.contextmanager
def iperf(world: World, prefix: tuple[str, ...] = (), host: str = "127.0.0.1") -> Iterator[int]:
    """Runs an iperf3 server and yields its port; with `prefix` in a namespace."""
    port = server.free_port()
    words = ["-s", "-p", str(port), "-B", host, "--forceflush"]
    command = [*prefix, packages.program("iperf3"), *words]
    with server.Server("iperf3", command, world.work / "iperf3.log") as started:
        # An idle connection would count as a test: read the log, do not connect to the port.
        started.serves(lambda: "listening" in started.log.read_text())
        yield port


def bytes_per_second(
    port: int,
    seconds: float,
    prefix: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    block: str = "1M",
) -> float:
    """Returns what the receiver got of one stream, written in blocks of 1 MiB."""
    words = ["-c", host, "-p", str(port), "-l", block, "-t", str(max(1, round(seconds))), "-J"]
    report = run_json([*prefix, packages.program("iperf3"), *words])
    return report["end"]["sum_received"]["bits_per_second"] / 8
