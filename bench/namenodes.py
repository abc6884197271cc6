"""A group of namenodes as processes on loopback, and the load on it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from fleet import start
from goal import Unavailable
from server import Server
from world import World, run_json

SECONDS_MAX = 120.0


@dataclass
class Member:
    """One namenode: its process, where it serves, and its directory."""

    server: Server
    address: str
    http: str
    directory: Path

    def page(self) -> dict[str, Any]:
        """Returns the group as this member has it; empty while it does not answer."""
        try:
            return json.loads(self.get("/v1/group"))
        except (OSError, ValueError, http.client.HTTPException):
            return {}

    def get(self, path: str) -> str:
        """Returns what its HTTP interface answers to a request without a body."""
        return self._request("GET", path, None)

    def notice(self, seconds: float) -> None:
        """Gives it a notice that its machine will be taken."""
        self._request("POST", "/v1/notice", json.dumps({"deadline_seconds": seconds}))

    def _request(self, method: str, path: str, body: str | None) -> str:
        host, port = self.http.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise Unavailable(f"{method} {path} of {self.server.name}: {answer.status} {text}")
        return text

    def metric(self, name: str) -> float:
        """Returns one of its metrics, without labels."""
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        if found is None:
            raise Unavailable(f"{self.server.name} has no metric {name}")
        return float(found.group(1))

    def is_running(self) -> bool:
        """Returns whether its process runs."""
        return self.server.process.poll() is None


@dataclass
class Group:
    """Namenodes of one group, in the order of their starts. One that has left is not listed."""

    world: World
    directory: Path
    stack: contextlib.ExitStack
    members: list[Member] = field(default_factory=list)
    started: int = 0

    @property
    def addresses(self) -> str:
        """Returns the addresses of all members, as clients take them."""
        return ",".join(member.address for member in self.members)

    def add(self) -> Member:
        """Starts a namenode: the first one founds the group, each other one joins it."""
        flags = ["--join", self.members[0].address] if self.members else []
        directory = self.directory / f"catalog-{self.started}"
        return self._start(directory, "127.0.0.1:0", flags)

    def restart(self, member: Member) -> Member:
        """Starts a member that has ended again, on its directory and address."""
        self.members.remove(member)
        return self._start(member.directory, member.address, [])

    def _start(self, directory: Path, listen: str, flags: list[str]) -> Member:
        name = f"namenode-{self.started}"
        self.started += 1
        words = ["namenode", "--listen", listen, "--http", "127.0.0.1:0", "--dir", str(directory)]
        # What goes on besides would not be the same from run to run.
        words += ["--no-rebalance", "--no-precopy", "--ramp-up", "0s", *flags]
        server, ready = start(self.world, self.stack, self.directory, name, words)
        member = Member(server, ready["address"], ready["http_address"], directory)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        """Kills a member, and waits until its process has ended."""
        member.server.process.kill()
        member.server.process.wait()

    def leader(self) -> Member:
        """Returns the member that leads, by what it reports itself."""
        if len(self.members) == 1:
            return self.members[0]

        def leading() -> Member | None:
            running = [member for member in self.members if member.is_running()]
            return next((it for it in running if it.page().get("state") == "leader"), None)

        return machine.until("a member leads", leading, SECONDS_MAX)

    def followers(self) -> list[Member]:
        """Returns the members that vote and do not lead."""
        page = self.leader().page()
        votes = {row["address"] for row in page["members"]
                 if row["is_voter"] and not row["is_leader"]}
        return [member for member in self.members if member.address in votes]

    def until_steady(self, voters: int, spares: int = 0) -> None:
        """Waits until so many vote and so many are spare, and all of them have everything."""

        def steady() -> bool:
            rows = self.leader().page().get("members", [])
            votes = sum(row["is_voter"] for row in rows)
            behind = [row for row in rows if row["behind_entries"] != 0 or not row["is_active"]]
            return (votes, len(rows) - votes, len(behind)) == (voters, spares, 0)

        what = f"{voters} members vote, and {spares} are spare"
        machine.until(what, steady, SECONDS_MAX)

    def forget_ended(self) -> None:
        """Leaves out members whose process has ended."""
        self.members = [member for member in self.members if member.is_running()]

    def bench(self, *words: str) -> dict[str, Any]:
        """Runs one benchmark against the group and returns its JSON."""
        begin = [str(self.world.sanderling), "--namenode", self.addresses, "--json", "-q"]
        return run_json([*begin, "bench", *words], SECONDS_MAX)

    def cli(self, *words: str) -> Any:
        """Runs any other command that prints JSON."""
        begin = [str(self.world.sanderling), "--namenode", self.addresses, "--json", "-q"]
        return run_json([*begin, *words], SECONDS_MAX)


@contextlib.contextmanager
def group(world: World, voters: int, spares: int = 0) -> Iterator[Group]:
    """Starts a namenode alone, or a group, and ends it."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=world.work)))
        made = Group(world, directory, stack)
        for _ in range(voters + spares):
            made.add()
        if voters > 1:
            made.until_steady(voters, spares)
        yield made


class Load:
    """Clients in a process of their own, each of which makes one call after the other."""

    def __init__(self, made: Group, seconds: float, clients: int = 4) -> None:
        words = [str(made.world.sanderling), "--namenode", made.addresses, "--json", "-q", "bench",
                 "create-file", "--threads", str(clients), "--warmup", "20", "--histogram",
                 "--duration", f"{seconds:g}s", "--path", f"/load-{time.monotonic_ns()}"]
        self._began = time.monotonic()
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True)

    def end(self) -> dict[str, Any]:
        """Waits for its end and returns what it measured.

        Raises `Unavailable` with the error of the first call that failed.
        """
        printed, errors = self._process.communicate(timeout=SECONDS_MAX)
        if self._process.returncode:
            raise Unavailable(f"a caller got an error: {errors.strip()[-300:]}")
        return json.loads(printed)


class Watch:
    """Notes when a condition holds first, looking every few milliseconds in a thread."""

    EVERY_SECONDS = 0.002

    def __init__(self, condition: Any) -> None:
        self.at: float | None = None
        self._condition = condition
        self._limit = time.monotonic() + SECONDS_MAX
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while time.monotonic() < self._limit:
            if self._condition():
                self.at = time.monotonic()
                return
            time.sleep(self.EVERY_SECONDS)

    def wait(self, what: str) -> float:
        """Returns when it held.

        Raises `Unavailable` when it never did.
        """
        self._thread.join()
        if self.at is None:
            raise Unavailable(f"{what}: not within {SECONDS_MAX:.0f} s")
        return self.at


def socket_bytes(pid: int) -> tuple[int, int]:
    """Returns the bytes that the TCP connections of a process have sent and received."""
    listed = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
    sent = received = 0
    # A connection has two lines: its ends with its process, and its counts.
    lines = listed.splitlines()
    for ends, counts in zip(lines[::2], lines[1::2], strict=False):
        if f"pid={pid}," in ends:
            sent += count(counts, "bytes_sent")
            received += count(counts, "bytes_received")
    return sent, received


def count(text: str, name: str) -> int:
    """Returns one count of a connection; 0 if it has none."""
    found = re.search(rf"\b{name}:(\d+)", text)
    return int(found.group(1)) if found else 0


def pause(member: Member) -> None:
    """Stops a process, as a machine that stalls."""
    os.kill(member.server.pid, signal.SIGSTOP)


def resume(member: Member) -> None:
    """Continues a process that was stopped."""
    os.kill(member.server.pid, signal.SIGCONT)
