"""Key-value servers and an echo, and their clients in `crates/cli/examples/peer.rs`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from goal import Unavailable
from machine import GIB
from peers import packages
from server import Server, free_port, listens
from world import World, pinned, run_json

# As many as the clients request.
KEYS = 256


@dataclass(frozen=True)
class Gets:
    """What a run of gets cost."""

    operations_per_second: float
    cpu_micros_per_operation: float
    cpu_seconds_per_gib: float


@dataclass
class Store:
    """A running key-value server that holds values of one size."""

    world: World
    kind: str
    server: Server
    port: int
    size: int

    def gets(self, count: int, depth: int) -> Gets:
        """Gets values, `depth` in flight, and reads what that cost the server."""
        before = self.server.cpu_seconds()
        words = ["--size", str(self.size), "--count", str(count), "--depth", str(depth)]
        command = [str(self.world.peer), self.kind, f"127.0.0.1:{self.port}", *words]
        reply = run_json(command)
        spent = self.server.cpu_seconds() - before
        gib = count * self.size / GIB
        return Gets(reply["operations_per_second"], spent / count * 1e6, spent / gib)

    def fill(self, command: str, answer: bytes) -> None:
        """Sets every key; in the command, {key} stands for its name and {size} for the bytes."""
        value = bytes(at * 31 % 251 for at in range(self.size))
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            for at in range(KEYS):
                begin = command.format(key=f"key-{at:03}", size=self.size).encode()
                connection.sendall(begin + value + b"\r\n")
                reply = connection.recv(64)
                if not reply.startswith(answer):
                    raise Unavailable(f"{self.kind} refuses a value: {reply!r}")


@contextlib.contextmanager
def redis(world: World, size: int) -> Iterator[Store]:
    """Runs a Redis that keeps nothing on disk."""
    port = free_port()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command = [packages.program("redis"), *words]
    with Server("redis-server", command, world.work / "redis.log") as server:
        server.serves(lambda: listens(port))
        store = Store(world, "redis", server, port, size)
        store.fill("*3\r\n$3\r\nSET\r\n$7\r\n{key}\r\n${size}\r\n", b"+OK")
        yield store


@contextlib.contextmanager
def memcached(world: World, size: int) -> Iterator[Store]:
    """Runs a memcached that takes values of 1 MiB."""
    port = free_port()
    words = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "1024", "-I", "2m"]
    command = [packages.program("memcached"), "-u", "root", *words]
    with Server("memcached", command, world.work / "memcached.log") as server:
        server.serves(lambda: listens(port))
        store = Store(world, "memcached", server, port, size)
        store.fill("set {key} 0 0 {size}\r\n", b"STORED")
        yield store


@contextlib.contextmanager
def echo(world: World, core: int) -> Iterator[int]:
    """Runs an echo on one core and yields its port."""
    command = pinned(core, [str(world.peer), "echo"])
    with Server("echo", command, world.work / "echo.log") as server:
        yield int(server.serves(lambda: server.log.read_text().strip()))


def ping_micros(world: World, core: int, size: int = 64) -> float:
    """Returns the median round trip of a bare TCP connection, both ends on one core."""
    port = world.keep("echo", lambda: echo(world, core))
    words = ["--size", str(size), "--count", str(world.count(20_000)), "--warmup", "500"]
    command = [str(world.peer), "ping", f"127.0.0.1:{port}", *words]
    return run_json(pinned(core, command))["latency_micros"]["p50"]
