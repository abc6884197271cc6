"""A cluster of real processes on loopback, for tests, notebooks and the demo."""

from __future__ import annotations

import contextlib
import http
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sanderling.connection import Observer, connect
from sanderling.metadata import Node
from sanderling.namenode_http import call
from sanderling.store import Store

START_SECONDS_MAX = 30.0
"""How long a server may take until it serves. Faulting the arena in happens behind its back."""

STOP_SECONDS_MAX = 10.0
"""How long a server may take to stop before it is killed."""

VOTE_SECONDS_MAX = 30.0
"""How long the namenodes may take until all of them vote, or until one leads."""

LIST_SECONDS_MAX = 5.0
"""How long one list of the namenodes may take: a namenode that hangs must not hide the others."""

ANY_PORT = "127.0.0.1:0"
"""An address on loopback with a free port."""

NAMENODES = (1, 3, 5)
"""How many namenodes there may be: half of an even number is no majority, so the group survives no
more losses than with one namenode less.
"""

NOTICE_SECONDS_MAX = 7 * 24 * 3600.0
"""The longest notice that a namenode takes."""

LEFT = b"has left its group"
"""What a namenode logs before it ends because another one has its place. Its exit code is 0 then,
as it is after SIGTERM, which costs it no place.
"""

_Member = dict[str, Any]
"""A namenode as `sanderling group ls --json` lists it."""

_Found = TypeVar("_Found")


class ClusterError(Exception):
    """A server did not start, or did not do its part; the text ends with the end of its log, or
    with what it answered.
    """


@dataclass(frozen=True, slots=True)
class Namenode:
    """One namenode of a cluster, as its process was started."""

    address: str
    """Where it serves the protocol, `host:port`. It stays when the namenode is restarted."""
    http_address: str
    """Where it serves HTTP, `host:port`. It stays, too."""
    pid: int | None
    """Its process; `None` while none runs."""
    directory: Path
    """Its catalog. A restarted namenode has the same one."""
    is_gone: bool = False
    """It has left its group for good: its machine got a notice, another namenode has its place, and
    its process has ended by itself with exit code 0.
    """


@dataclass(eq=False)
class _Server:
    """One process and the contents of its ready file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_file: Path
    ready: dict[str, Any]
    join: str | None = None
    """Of a namenode: the address of the member through which it joined its group."""
    has_notice: bool = False
    """Of a namenode: the cluster has given its machine a notice."""
    _has_left: bool = False

    @property
    def node(self) -> int | None:
        return self.ready.get("node")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def has_left(self) -> bool:
        """Whether it is a namenode that has left its group and ended by itself."""
        if not self._has_left and self.process.poll() == 0:
            with contextlib.suppress(OSError):
                self._has_left = LEFT in self.log.read_bytes()
        return self._has_left


class _Spawner:
    """Starts processes from one thread that lives as long as the cluster.

    The kernel counts the *thread* that started a child as its parent, so `--exit-with-parent`
    from a short-lived thread would kill the child as soon as that thread ends.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[list[str], Path, Future[Any]] | None]
        self._orders = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sanderling-spawner", daemon=True)
        self._thread.start()

    def spawn(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Starts a process whose output goes to `log`."""
        future: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((command, log, future))
        return future.result()

    def stop(self) -> None:
        """Ends the thread."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            command, log, future = order
            try:
                with open(log, "ab") as output:
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                future.set_result(process)
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)


class Cluster:
    """Namenodes and datanodes, each a process of its own. Made by `Cluster.local`."""

    def __init__(
        self,
        directory: Path,
        owns_directory: bool,
        dram: int,
        disk: int | None,
        key_file: Path | None,
        namenodes: int = 1,
    ) -> None:
        self.directory = directory
        self._owns_directory = owns_directory
        self._dram_bytes = dram
        self._disk_bytes = disk
        self._key_file = key_file
        self._spawner = _Spawner()
        self._lock = threading.Lock()
        self._started = 0
        self._namenodes_wanted = namenodes
        self._namenodes_started = 0
        self._namenodes: list[_Server] = []
        self._datanodes: dict[int, _Server] = {}
        self._store: Store | None = None
        self._store_address = ""

    @classmethod
    def local(
        cls,
        datanodes: int = 3,
        dram_bytes: int = 256 << 20,
        disk_bytes: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        encrypt: str | os.PathLike[str] | None = None,
        *,
        namenodes: int = 1,
    ) -> Cluster:
        """Starts namenodes and datanodes on loopback and waits until all of them serve.

        Each datanode gets `dram_bytes` of memory and, if given, `disk_bytes` of disk below
        `directory`, which otherwise is a temporary one that goes with the cluster. The processes
        die with this one, however it ends. `encrypt` is a file that no other user can read, with 32
        random bytes in hexadecimal or base64: what datanodes write to their disks is encrypted
        with them.

        `namenodes` is 1, 3 or 5. Several are a group, and all of them vote when this returns: the
        cluster goes on while a majority of them runs.

        Raises `ValueError` for another number of namenodes, and for a `directory` with the catalogs
        of an earlier group, or with any catalog if `namenodes` is more than 1: give another
        directory. Raises `ClusterError` when a process does not serve within 30 seconds, or the
        namenodes do not all vote within another 30; no process is left.
        """
        if namenodes not in NAMENODES:
            raise ValueError(f"namenodes is {namenodes!r}: 1, 3 or 5 is wanted")
        if encrypt is not None and not disk_bytes:
            raise ValueError("encrypt is for what is on disk: give disk_bytes, too")
        key_file = None if encrypt is None else Path(encrypt).absolute()
        owns = directory is None
        home = Path(tempfile.mkdtemp(prefix="sanderling-") if directory is None else directory)
        home.mkdir(parents=True, exist_ok=True)
        _refuse_catalogs(home, namenodes)
        cluster = cls(home, owns, dram_bytes, disk_bytes, key_file, namenodes)
        try:
            cluster._start_namenodes()
            cluster._add_many(datanodes)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<sanderling.Cluster at {self.address}: {len(self._datanodes)} datanodes>"

    @property
    def address(self) -> str:
        """The namenode's address, `host:port`; of several all addresses, separated by commas.

        Clients take it as it is. It stays when namenodes are killed and restarted. One that
        `add_namenode` started is in it, and one that has left its group is not.
        """
        members = self._members()
        staying = [server for server in members if not server.has_left] or members
        return ",".join(server.ready["address"] for server in staying)

    @property
    def http_address(self) -> str:
        """Where the namenode serves HTTP, `host:port`; of several the first one that runs."""
        return str(self._first_running().ready["http_address"])

    @property
    def namenodes(self) -> list[Namenode]:
        """The namenodes in the order of their indexes, those that do not run included.

        An index stays: one that has left its group remains, with `is_gone`.
        """
        return [self._entry(server) for server in self._members()]

    @property
    def pids(self) -> dict[int, int]:
        """The process of each datanode by its node id."""
        with self._lock:
            return {node: server.process.pid for node, server in self._datanodes.items()}

    @property
    def namenode_pid(self) -> int:
        """The namenode's process; of several that of the first one that runs."""
        return self._first_running().process.pid

    def store(self, *, timeout: float | None = None, observer: Observer | None = None) -> Store:
        """Connects a new client."""
        return connect(self.address, timeout=timeout, observer=observer)

    def nodes(self) -> list[Node]:
        """Lists the datanodes that are not gone, as the namenode reports them."""
        return self._client().nodes()

    def notice(self, node: int | Node, deadline_seconds: float, reason: str = "test") -> Node:
        """Gives a node notice. It is not killed at the deadline: that is `kill`."""
        return self._client().notice(_id(node), deadline_seconds, reason)

    def kill(self, node: int | Node) -> None:
        """Ends a datanode's process with SIGKILL, as a cloud does, and waits until it is gone."""
        with self._lock:
            server = self._datanodes.pop(_id(node), None)
        if server is None:
            raise LookupError(f"node {_id(node)} is no running datanode of this cluster")
        _end(server, signal.SIGKILL)

    def add(self, *, dram_bytes: int | None = None) -> int:
        """Starts another datanode, waits until it serves and returns its node id."""
        return self._ready_datanode(self._spawn_datanode(dram_bytes))

    def leader(self) -> int:
        """Returns the index of the namenode that leads. It waits while none does.

        Raises `ClusterError` when none leads within 30 seconds: without a majority none can, and
        `restart_namenode` starts one that was killed.
        """

        def leader(members: list[_Member]) -> int | None:
            leads = [member["address"] for member in members if member["role"] == "Leader"]
            for index, server in enumerate(self._members()):
                # Until the next election the others list the one that was killed.
                if server.ready["address"] in leads and server.is_running:
                    return index
            return None

        return self._until_listed("no namenode leads", leader)

    def kill_namenode(self, index: int) -> None:
        """Ends a namenode's process with SIGKILL and waits until it is gone.

        Another one leads within about a second while a majority runs; clients that have `address`
        repeat their calls there. `restart_namenode` starts it again. Raises `LookupError` for an
        index that no namenode has, and when it does not run.
        """
        _end(self._running(index), signal.SIGKILL)

    def notice_namenode(
        self, index: int, deadline_seconds: float, reason: str = "test"
    ) -> None:
        """Gives the machine of a namenode notice: it will be taken in `deadline_seconds`.

        Returns when the namenode has it. A leader gives the leadership away. As soon as a spare has
        everything, it votes in place of the noticed namenode, whose process ends by itself:
        `namenodes` shows it with `is_gone`. Without a spare it stays, until `add_namenode` has
        started one. It is not killed at the deadline: that is `kill_namenode`. A notice that it has
        already is replaced.

        Raises `ValueError` unless `deadline_seconds` is more than 0 and at most seven days,
        `LookupError` for an index that no namenode has, and when it does not run, and
        `ClusterError` when it does not take the notice within 10 seconds.
        """
        if not 0 < deadline_seconds <= NOTICE_SECONDS_MAX:
            wanted = "more than 0 and at most seven days"
            raise ValueError(f"a notice of {deadline_seconds!r} s: {wanted} is wanted")
        server = self._running(index)
        # Before the call: the namenode may have left when it returns.
        server.has_notice = True
        body = {"deadline_seconds": deadline_seconds, "reason": reason}
        try:
            status, answer = call(server.ready["http_address"], "POST", "/v1/notice", body)
        except OSError as error:
            raise ClusterError(f"namenode {index} does not take its notice: {error}") from error
        if status != http.HTTPStatus.OK:
            why = answer.get("error", {}).get("message", f"the answer has status {status}")
            raise ClusterError(f"namenode {index} does not take its notice: {why}")

    def add_namenode(self) -> Namenode:
        """Starts another namenode, which joins the group as a spare, and returns its entry.

        Returns when it serves; its index is that of the last entry of `namenodes`. It gets
        everything that the others have, then votes in place of a namenode with a notice, or of one
        that has been silent for 30 seconds, or once the voters are fewer than they should be: as
        many as `local` started, and three if it started one.

        Raises `ClusterError` when it does not serve within 30 seconds: it joins only while a
        namenode leads.
        """
        with self._lock:
            name = self._next_namenode_name()
        server = self._spawn_namenode(name, self._member_to_join().ready["address"])
        _wait_ready(server)
        with self._lock:
            self._namenodes.append(server)
        return self._entry(server)

    def restart_namenode(self, index: int = 0) -> None:
        """Starts a namenode again on its ports and directory; kills it with SIGKILL if it runs.

        Returns when it serves. One of several votes from then on if it did before. Raises
        `LookupError` for an index that no namenode has, and for one that has left its group:
        `add_namenode` starts another. Raises `ClusterError` when it does not serve within 30
        seconds.
        """
        server = self._member(index)
        if server.has_left:
            raise LookupError(f"namenode {index} has left its group: add_namenode starts another")
        _end(server, signal.SIGKILL)
        again = self._spawn_namenode(server.name, server.join, server)
        self._namenodes[index] = again
        _wait_ready(again)

    def stop(self) -> None:
        """Stops every process; calling it again does nothing."""
        with self._lock:
            servers = list(self._datanodes.values())
            self._datanodes.clear()
            servers += self._namenodes
            self._namenodes = []
        if self._store:
            self._store.close()
            self._store = None
        for server in servers:
            server.process.send_signal(signal.SIGINT)
        for server in servers:
            _end(server, signal.SIGINT)
        self._spawner.stop()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Below

    def _client(self) -> Store:
        address = self.address
        with self._lock:
            # A client learns the namenodes during calls: one that makes none while they are
            # replaced has no address of those that are left. Calls of the one before may be under
            # way.
            if self._store is None or self._store_address != address:
                self._store, self._store_address = self.store(), address
            return self._store

    def _members(self) -> list[_Server]:
        members = list(self._namenodes)
        if not members:
            raise ClusterError("the cluster is stopped")
        return members

    def _member(self, index: int) -> _Server:
        members = self._members()
        if index not in range(len(members)):
            raise LookupError(f"namenode {index} is none of this cluster: it has {len(members)}")
        return members[index]

    def _running(self, index: int) -> _Server:
        server = self._member(index)
        if server.is_running:
            return server
        if server.has_left:
            raise LookupError(f"namenode {index} has left its group: add_namenode starts another")
        raise LookupError(f"namenode {index} does not run: restart_namenode starts it")

    def _entry(self, server: _Server) -> Namenode:
        return Namenode(
            address=server.ready["address"],
            http_address=server.ready["http_address"],
            pid=server.process.pid if server.is_running else None,
            directory=self.directory / server.name,
            is_gone=server.has_left,
        )

    def _member_to_join(self) -> _Server:
        """Returns a namenode through which another one can join: one that will not leave soon."""
        running = [server for server in self._members() if server.is_running]
        staying = [server for server in running if not server.has_notice]
        return next(iter(staying or running), self._first_running())

    def _first_running(self) -> _Server:
        members = self._members()
        return next((server for server in members if server.is_running), members[0])

    def _start_namenodes(self) -> None:
        """Starts the first namenode, then those that join it, and waits until all vote."""
        for _ in range(self._namenodes_wanted):
            join = self._namenodes[0].ready["address"] if self._namenodes else None
            server = self._spawn_namenode(self._next_namenode_name(), join)
            self._namenodes.append(server)
            _wait_ready(server)
        wanted = ["Leader"] + ["Voter"] * (len(self._namenodes) - 1)

        def do_vote(members: list[_Member]) -> bool | None:
            return sorted(member["role"] for member in members) == wanted or None

        if len(wanted) > 1:
            self._until_listed("not all namenodes vote", do_vote)

    def _next_namenode_name(self) -> str:
        index, self._namenodes_started = self._namenodes_started, self._namenodes_started + 1
        return "namenode" if self._namenodes_wanted == 1 and index == 0 else f"namenode-{index}"

    def _spawn_namenode(
        self, name: str, join: str | None, before: _Server | None = None
    ) -> _Server:
        """Starts a namenode at the addresses of the process that was it before, or at new ones."""
        # A namenode that is restarted has its addresses before it serves.
        ready = before.ready if before else {"address": ANY_PORT, "http_address": ANY_PORT}
        arguments = ["--listen", ready["address"], "--http", ready["http_address"]]
        arguments += ["--dir", str(self.directory / name)]
        if self._namenodes_wanted > 1:
            arguments += ["--voters", str(self._namenodes_wanted)]
        if join:
            # The flag has no effect once the directory is that of a member.
            arguments += ["--join", join]
        server = self._spawn("namenode", name, arguments)
        server.ready, server.join = ready, join
        return server

    def _until_listed(self, what: str, found: Callable[[list[_Member]], _Found | None]) -> _Found:
        """Waits until the list of the namenodes has what is wanted, and returns it."""
        deadline = time.monotonic() + VOTE_SECONDS_MAX
        while (value := found(self._listed())) is None:
            if time.monotonic() >= deadline:
                logs = "\n".join(_tail(server.log) for server in self._members())
                raise ClusterError(f"{what} within {VOTE_SECONDS_MAX:.0f} s:\n{logs}")
            time.sleep(0.01)
        return value

    def _listed(self) -> list[_Member]:
        """Returns the namenodes as one of them lists them; nothing if none answers in time."""
        command = [sys.executable, "-m", "sanderling", "group", "ls", "--json"]
        command += ["--namenode", self.address]
        with contextlib.suppress(subprocess.TimeoutExpired):
            ran = subprocess.run(
                command, capture_output=True, timeout=LIST_SECONDS_MAX, check=False
            )
            if ran.returncode == 0:
                members: list[_Member] = json.loads(ran.stdout)["members"]
                return members
        return []

    def _add_many(self, count: int) -> None:
        for server in [self._spawn_datanode(None) for _ in range(count)]:
            self._ready_datanode(server)

    def _spawn_datanode(self, dram_bytes: int | None) -> _Server:
        with self._lock:
            self._started += 1
            name = f"node-{self._started}"
        arguments = ["--namenode", self.address, "--name", name]
        arguments += ["--listen", ANY_PORT, "--http", ANY_PORT]
        arguments += ["--dram", str(dram_bytes or self._dram_bytes)]
        if self._disk_bytes:
            arguments += ["--disk", str(self._disk_bytes), "--disk-dir", str(self.directory / name)]
        if self._key_file:
            arguments += ["--encrypt", str(self._key_file)]
        return self._spawn("datanode", name, arguments)

    def _ready_datanode(self, server: _Server) -> int:
        _wait_ready(server)
        node = server.node
        if node is None:
            raise ClusterError(f"{server.name} did not say which node it is")
        with self._lock:
            self._datanodes[node] = server
        return node

    def _spawn(self, role: str, name: str, arguments: list[str]) -> _Server:
        ready_file = self.directory / f"{name}.ready"
        ready_file.unlink(missing_ok=True)
        log = self.directory / f"{name}.log"
        command = [sys.executable, "-m", "sanderling", role, *arguments]
        command += ["--ready-file", str(ready_file), "--exit-with-parent"]
        return _Server(name, self._spawner.spawn(command, log), log, ready_file, {})


def _refuse_catalogs(directory: Path, namenodes: int) -> None:
    """Raises `ValueError` for a directory that the namenodes cannot start in.

    The members of an earlier group had other ports and would not find each other.
    """
    # A namenode alone has none of these, unless others joined it.
    earlier = sorted(path for path in directory.glob("namenode-*") if path.is_dir())
    if namenodes > 1 and (directory / "namenode").exists():
        earlier.append(directory / "namenode")
    if earlier:
        raise ValueError(f"{earlier[0]} is of an earlier cluster: give another directory")


def _id(node: int | Node) -> int:
    return node if isinstance(node, int) else node.id


def _wait_ready(server: _Server) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        if server.ready_file.exists():
            server.ready = json.loads(server.ready_file.read_text())
            return
        status = server.process.poll()
        if status is None and time.monotonic() < deadline:
            # The file appears by a rename: there is nothing to wait on but the clock.
            time.sleep(0.01)
            continue
        _end(server, signal.SIGKILL)
        why = f"ended with status {status}" if status is not None else "does not serve in time"
        raise ClusterError(f"{server.name} {why}:\n{_tail(server.log)}")


def _end(server: _Server, with_signal: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        server.process.send_signal(with_signal)
    try:
        server.process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return "(no log)"
