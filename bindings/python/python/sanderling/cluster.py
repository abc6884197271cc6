"""A cluster of real processes on loopback, for tests, notebooks and the demo."""

from __future__ import annotations

import contextlib
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
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.facts import Node
from sanderling.connection import Observer, connect
from sanderling.store import Store

START_SECONDS_MAX = 30.0
"""How long a server may take until it serves. Faulting the arena in happens behind its back."""

STOP_SECONDS_MAX = 10.0
"""How long a server may take to stop before it is killed."""


class ClusterError(Exception):
    """A server did not start or did not stop; the text ends with the last lines of its log."""


@dataclass(eq=False)
class _Server:
    """One process and the contents of its ready file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_file: Path
    ready: dict[str, Any]

    @property
    def node(self) -> int | None:
        return self.ready.get("node")


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
    """One namenode and its datanodes, each a process of its own. Made by `Cluster.local`."""

    def __init__(
        self,
        directory: Path,
        owns_directory: bool,
        dram: int,
        disk: int | None,
        key_file: Path | None,
    ) -> None:
        self.directory = directory
        self._owns_directory = owns_directory
        self._dram_bytes = dram
        self._disk_bytes = disk
        self._key_file = key_file
        self._spawner = _Spawner()
        self._lock = threading.Lock()
        self._started = 0
        self._namenode: _Server | None = None
        self._datanodes: dict[int, _Server] = {}
        self._store: Store | None = None

    @classmethod
    def local(
        cls,
        datanodes: int = 3,
        dram_bytes: int = 256 << 20,
        disk_bytes: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        encrypt: str | os.PathLike[str] | None = None,
    ) -> Cluster:
        """Starts a namenode and datanodes on loopback and waits until all of them serve.

        Each datanode gets `dram_bytes` of memory and, if given, `disk_bytes` of disk below
        `directory`, which otherwise is a temporary one that goes with the cluster. The processes
        die with this one, however it ends. `encrypt` is a file that no other user can read, with 32
        random bytes in hexadecimal or base64: what datanodes write to their disks is encrypted
        with them.
        """
        if encrypt is not None and not disk_bytes:
            raise ValueError("encrypt is for what is on disk: give disk_bytes, too")
        key_file = None if encrypt is None else Path(encrypt).absolute()
        owns = directory is None
        home = Path(tempfile.mkdtemp(prefix="sanderling-") if directory is None else directory)
        home.mkdir(parents=True, exist_ok=True)
        cluster = cls(home, owns, dram_bytes, disk_bytes, key_file)
        try:
            cluster._start_namenode()
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
        """The namenode's address, `host:port`."""
        return str(self._running_namenode().ready["address"])

    @property
    def http_address(self) -> str:
        """Where the namenode serves HTTP, `host:port`."""
        return str(self._running_namenode().ready["http_address"])

    @property
    def pids(self) -> dict[int, int]:
        """The process of each datanode by its node id."""
        with self._lock:
            return {node: server.process.pid for node, server in self._datanodes.items()}

    @property
    def namenode_pid(self) -> int:
        """The namenode's process."""
        return self._running_namenode().process.pid

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

    def restart_namenode(self) -> None:
        """Kills the namenode with SIGKILL and starts it again on the same port and directory."""
        namenode = self._running_namenode()
        address, http = namenode.ready["address"], namenode.ready["http_address"]
        _end(namenode, signal.SIGKILL)
        self._start_namenode(address, http)

    def stop(self) -> None:
        """Stops every process; calling it again does nothing."""
        with self._lock:
            servers = list(self._datanodes.values())
            self._datanodes.clear()
            if self._namenode:
                servers.append(self._namenode)
                self._namenode = None
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
        with self._lock:
            if self._store is None:
                self._store = self.store()
            return self._store

    def _running_namenode(self) -> _Server:
        if self._namenode is None:
            raise ClusterError("the cluster is stopped")
        return self._namenode

    def _start_namenode(self, listen: str = "127.0.0.1:0", http: str = "127.0.0.1:0") -> None:
        arguments = ["--listen", listen, "--http", http, "--dir", str(self.directory / "namenode")]
        server = self._spawn("namenode", "namenode", arguments)
        _wait_ready(server)
        self._namenode = server

    def _add_many(self, count: int) -> None:
        for server in [self._spawn_datanode(None) for _ in range(count)]:
            self._ready_datanode(server)

    def _spawn_datanode(self, dram_bytes: int | None) -> _Server:
        with self._lock:
            self._started += 1
            name = f"node-{self._started}"
        arguments = ["--namenode", self.address, "--name", name]
        arguments += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
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
