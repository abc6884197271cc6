#!/usr/bin/env python3
"""Compares the S3 gateway with versitygw on tmpfs: 1 MiB objects, eight connections.

Both serve the same signed requests of one load generator, which signs and hashes before the clock
runs; rounds alternate. The results are processor seconds of all servers per GiB, and throughput.

versitygw: `go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`, then VERSITYGW=path.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server import Server
from world import ROOT

MIB = 1 << 20
KEY = "sanderling"
REGION = "us-east-1"
# Objects that each connection goes round over: what is written must fit both sides' memory.
OBJECTS = 16


def sign(method: str, host: str, path: str, payload: str) -> bytes:
    """Returns a request's head, signed with Signature Version 4."""
    now = time.gmtime()
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
    headers = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{payload}"
    scope = f"{day}/{REGION}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = f"AWS4{KEY}".encode()
    for part in [day, REGION, "s3", "aws4_request"]:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{scope},SignedHeaders={names},Signature={signature}"
    )
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    length = f"content-length: {MIB}\r\n" if payload != EMPTY and method == "PUT" else ""
    length = length or ("content-length: 0\r\n" if method == "PUT" else "")
    return f"{method} {path} HTTP/1.1\r\n{fields}{length}\r\n".encode()


EMPTY = hashlib.sha256(b"").hexdigest()


class Connection:
    """One connection that sends one request after the other."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = memoryview(bytearray(MIB + (64 << 10)))

    def call(self, head: bytes, body: bytes = b"") -> int:
        """Sends a request and reads the answer; returns how long its body was."""
        self.socket.sendmsg([head, body[:0]])
        if body:
            self.socket.sendall(body)
        have = 0
        while (end := bytes(self.buffer[:min(have, 16384)]).find(b"\r\n\r\n")) < 0:
            have += self.read(have)
        reply = bytes(self.buffer[:end]).decode().lower()
        if reply.split(" ", 2)[1] not in ("200", "204"):
            raise AssertionError(bytes(self.buffer[:have]))
        lengths = [line for line in reply.split("\r\n") if line.startswith("content-length:")]
        length = int(lengths[0].split(":")[1]) if lengths else 0
        have -= end + 4
        while have < length:
            have += self.read(0)
        return length

    def read(self, at: int) -> int:
        count = self.socket.recv_into(self.buffer[at:])
        if not count:
            raise AssertionError("the server closed the connection")
        return count


@dataclass
class Side:
    """One server, its processes and what was measured of it."""

    name: str
    address: str
    servers: list[Server]
    cpu: dict[str, list[float]] = field(default_factory=lambda: {"put": [], "get": []})
    rate: dict[str, list[float]] = field(default_factory=lambda: {"put": [], "get": []})

    def used(self) -> float:
        return sum(server.cpu_seconds() for server in self.servers)

    def measure(self, what: str, connections: int, requests: int, body: bytes) -> None:
        """Runs one round and keeps its figures."""
        digest = hashlib.sha256(body).hexdigest() if what == "put" else EMPTY
        heads = [[sign(what.upper(), self.address, f"/bench/{number}/{at}", digest)
                  for at in range(OBJECTS)] for number in range(connections)]
        connected = [Connection(self.address) for _ in range(connections)]
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for at in range(requests):
                    head = heads[number][at % OBJECTS]
                    length = connected[number].call(head, body if what == "put" else b"")
                    if what == "get" and length != MIB:
                        raise AssertionError(f"{length} bytes came")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=[number]) for number in range(connections)]
        cpu, began = self.used(), time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, gib = time.monotonic() - began, connections * requests / 1024
        if failed:
            raise failed[0]
        self.cpu[what].append((self.used() - cpu) / gib)
        self.rate[what].append(connections * requests / seconds)


def ours(program: str, directory: Path) -> Side:
    """Starts a cluster with a gateway."""
    namenode = ""
    servers = []
    for name, words in [
        ("namenode", ["namenode", "--listen", "127.0.0.1:0", "--dir", str(directory / "catalog")]),
        ("datanode", ["datanode", "--dram", "1GiB"]),
        ("gateway", ["gateway", "s3", "--listen", "127.0.0.1:0"]),
    ]:
        ready = directory / f"{name}.ready"
        command = [program, *words, "--http", "none", "--ready-file", str(ready)]
        command += ["--namenode", namenode] if namenode else []
        server = Server(name, command, directory / f"{name}.log")
        servers.append(server)
        text = server.serves(lambda it=ready: it.exists() and it.read_text())
        address = json.loads(text)["address"]
        namenode = namenode or address
    return Side("sanderling", address, servers)


def theirs(program: str, directory: Path) -> Side:
    """Starts versitygw on tmpfs, with the settings that are best for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    os.environ.update({"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY})
    command = [program, "--quiet", "--keep-alive", "--port", address, "posix", str(directory)]
    server = Server("versitygw", command, directory.parent / f"{directory.name}.log")

    def answers() -> bool:
        try:
            Connection(address).socket.close()
        except OSError:
            return False
        return True

    server.serves(answers)
    return Side("versitygw", address, [server])


def summary(sides: list[Side], what: str) -> dict[str, Any]:
    """Returns the medians of one kind of request and how the sides compare."""
    row: dict[str, Any] = {"request": what}
    for side in sides:
        row[side.name] = {
            "cpu_seconds_per_gib": round(statistics.median(side.cpu[what]), 3),
            "mib_per_second": round(statistics.median(side.rate[what])),
        }
    if len(sides) > 1:
        us, them = row[sides[0].name], row[sides[1].name]
        row["cpu_ratio"] = round(them["cpu_seconds_per_gib"] / us["cpu_seconds_per_gib"], 2)
        row["rate_ratio"] = round(us["mib_per_second"] / them["mib_per_second"], 2)
    return row


def main() -> None:
    """Runs the rounds and prints one JSON object a kind of request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target/release/sanderling"
    parser.add_argument("--program", action="append", help=f"ours, by default {built}")
    parser.add_argument("--versitygw", default=os.environ.get("VERSITYGW"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--requests", type=int, default=40, help="of each connection and round")
    options = parser.parse_args()
    body = os.urandom(MIB)
    sides: list[Side] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        try:
            for number, program in enumerate(options.program or [str(built)]):
                directory = Path(place) / f"ours{number}"
                directory.mkdir()
                side = ours(program, directory)
                side.name += str(number) if number else ""
                sides.append(side)
            if options.versitygw:
                directory = Path(place) / "theirs"
                directory.mkdir()
                sides.append(theirs(options.versitygw, directory))
            for side in sides:
                Connection(side.address).call(sign("PUT", side.address, "/bench", EMPTY))
                side.measure("put", options.connections, OBJECTS, body)
                side.cpu["put"].clear()
                side.rate["put"].clear()
            for _ in range(options.rounds):
                for what in ["put", "get"]:
                    for side in sides:
                        side.measure(what, options.connections, options.requests, body)
        finally:
            for side in sides:
                for server in side.servers:
                    server.process.kill()
                    server.process.wait()
    for what in ["put", "get"]:
        print(json.dumps(summary(sides, what)))


if __name__ == "__main__":
    sys.exit(main())
