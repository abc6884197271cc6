"""Our side: a namenode, datanodes, and `sanderling bench` against them."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
from server import Server
from world import World, pinned, run_json


class Fleet:
    """A cluster of processes on loopback."""

    def __init__(self, world: World, directory: Path, namenode: Server, address: str) -> None:
        self.world = world
        self.directory = directory
        self.namenode = namenode
        self.address = address
        self.namenode_http = ""
        self.datanodes: list[Server] = []
        self.http_addresses: list[str] = []

    def bench(self, kind: str, *flags: str, core: int | None = None) -> dict[str, Any]:
        """Runs one benchmark and returns its JSON; with `core` on that core alone."""
        words = [str(self.world.sanderling), "--namenode", self.address, "--json", "-q", "bench"]
        command = [*words, kind, *flags]
        return run_json(command if core is None else pinned(core, command))

    def cli(self, *words: str) -> Any:
        """Runs any other command that prints JSON."""
        begin = [str(self.world.sanderling), "--namenode", self.address, "--json", "-q"]
        return run_json([*begin, *words])

    def wait_for_arenas(self) -> None:
        """Waits until every arena is faulted in, so that no benchmark pays for it."""
        for datanode in self.datanodes:
            before, still = -1, 0
            # An arena is the shared memory of its process: it is there when it grows no more.
            while still < 5:
                now = machine.resident_bytes(datanode.pid)["shared"]
                still = still + 1 if now == before else 0
                before = now
                time.sleep(0.05)


@contextlib.contextmanager
def fleet(
    world: World,
    datanodes: int = 1,
    dram: str = "1GiB",
    listen: str = "127.0.0.1:0",
    core: int | None = None,
    namenode_core: int | None = None,
    datanode_flags: tuple[str, ...] = (),
    datanode_prefix: tuple[str, ...] = (),
    has_local_endpoint: bool = False,
    namenode_flags: tuple[str, ...] = (),
    datanode_http: str = "none",
    namenode_http: str = "none",
) -> Iterator[Fleet]:
    """Starts a cluster and ends it; with `core` the datanodes run on that core alone.

    With `namenode_core` the namenode does. `datanode_http` is where each serves its metrics, whose
    addresses are in `http_addresses`; `namenode_http` is where the namenode does. Without a
    local endpoint clients on this machine use TCP.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=world.work)))
        flags = ["--listen", listen, "--http", namenode_http]
        flags += ["--dir", str(directory / "catalog")]
        words = ["namenode", *flags, *namenode_flags]
        namenode, ready = start(world, stack, directory, "namenode", words, namenode_core)
        made = Fleet(world, directory, namenode, ready["address"])
        made.namenode_http = ready.get("http_address") or ""
        if not has_local_endpoint:
            datanode_flags = ("--local-socket", "none", *datanode_flags)
        for at in range(datanodes):
            name = f"n{at}"
            words = ["--namenode", made.address, "datanode", "--name", name, "--dram", dram]
            words += ["--http", datanode_http]
            words += [flag.format(name=name) for flag in datanode_flags]
            server, ready = start(world, stack, directory, name, words, core, datanode_prefix)
            made.datanodes.append(server)
            made.http_addresses.append(ready.get("http_address") or "")
        made.wait_for_arenas()
        yield made


def start(
    world: World,
    stack: contextlib.ExitStack,
    directory: Path,
    name: str,
    words: list[str],
    core: int | None = None,
    prefix: tuple[str, ...] = (),
) -> tuple[Server, dict[str, Any]]:
    """Starts a server of ours and returns it with the content of its ready file."""
    file = directory / f"{name}.ready"
    command = [str(world.sanderling), *words, "--exit-with-parent", "--ready-file", str(file)]
    log = world.work / f"{name}.log"
    command = [*prefix, *(command if core is None else pinned(core, command))]
    made = Server(name, command, log)
    server = stack.enter_context(made)
    server.serves(file.exists)
    return server, json.loads(file.read_text())
