"""Runs a cluster as real processes for the tests of its endpoints. They end with the test."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
# Long enough for a machine three times slower than a laptop and loaded by other tests.
SOON_SECONDS = 60.0
COMMAND_SECONDS_MAX = 240.0
# Variables of the caller's environment that would change the tests.
KEPT_OUT = ("SANDERLING_", "AWS_", "S3_", "RCLONE_", "SPARK_", "PYSPARK_")


class SetUpError(Exception):
    """Prints what the tests need and how to get it."""


def program() -> str:
    """Returns the program under test: SANDERLING_BIN, else one that was built here."""
    named = os.environ.get("SANDERLING_BIN")
    built = [ROOT / ".venv/bin/sanderling", ROOT / "target/release/sanderling",
             ROOT / "target/debug/sanderling"]
    for path in [Path(named)] if named else built:
        if path.exists():
            return str(path.absolute())
    missing = named or "sanderling"
    raise SetUpError(f"{missing} is not there: run `make build`, or set SANDERLING_BIN")


def until(what: str, condition: Callable[[], Any], seconds: float = SOON_SECONDS) -> Any:
    """Waits until a condition holds and returns its value; fails at a deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return value


def stands_still(pid: int) -> bool:
    """Returns whether every thread of a process is stopped: the signal takes its time."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            state = (task / "stat").read_text().rpartition(") ")[2]
        except FileNotFoundError:
            continue
        if not state.startswith("T"):
            return False
    return True


class Cluster:
    """A namenode and datanodes named n0, n1, ...; all end with `stop`, or with this process."""

    # How long a server may take until it serves.
    soon_seconds = SOON_SECONDS

    def __init__(self, datanodes: int = 3, dram: str = "256MiB", flags: tuple[str, ...] = (),
                 node_flags: tuple[str, ...] = ()) -> None:
        self.program = program()
        self.own = tempfile.TemporaryDirectory(prefix="sanderling-test-")
        self.directory = Path(self.own.name)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.flags = ("--dir", str(self.directory / "catalog"), "--http", "none", *flags)
        self.node_flags = ("--http", "none", *node_flags)
        self.dram = dram
        self.namenode = "127.0.0.1:0"
        try:
            self.start_namenode()
            for number in range(datanodes):
                self.start_datanode(f"n{number}")
            self.started()
        except BaseException:
            self.stop()
            raise

    def started(self) -> None:
        """Starts what stands in front of the nodes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_what: object) -> None:
        self.stop()

    def start_namenode(self) -> None:
        """Starts the namenode; the second time on the address of the first."""
        ready = self.start("namenode", "namenode", "--listen", self.namenode, *self.flags)
        self.namenode = str(ready["address"])

    def start_datanode(self, name: str, *flags: str, dram: str = "") -> None:
        """Starts a datanode, with the cluster's amount of memory unless another one is given."""
        self.start(name, "datanode", "--name", name, "--dram", dram or self.dram,
                   *self.node_flags, *flags)

    def start(self, name: str, *words: str) -> dict[str, Any]:
        """Starts a server, waits until it serves and returns its addresses."""
        ready = self.directory / f"{name}.ready"
        ready.unlink(missing_ok=True)
        command = [self.program, *words, "--exit-with-parent", "--ready-file", str(ready)]
        with open(self.directory / f"{name}.log", "a") as log:
            process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        self.processes[name] = process

        def serves() -> bool:
            if process.poll() is not None:
                raise SetUpError((self.directory / f"{name}.log").read_text()[-2000:])
            return ready.exists() and ready.stat().st_size > 0

        until(f"{name} serves", serves, self.soon_seconds)
        return dict(json.loads(ready.read_text()))

    def environment(self) -> dict[str, str]:
        """Returns the environment of the cluster's own processes and commands."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(KEPT_OUT)}
        return kept | {"NO_COLOR": "1", "SANDERLING_NAMENODE": self.namenode}

    def kill(self, name: str) -> None:
        """Kills a server with SIGKILL: it sends no last message."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        """Stops a server without ending it, and waits until no thread of it runs any more."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        until(f"{name} stands still", lambda: stands_still(process.pid))

    def resume(self, name: str) -> None:
        """Lets a server that was stopped go on."""
        self.processes[name].send_signal(signal.SIGCONT)

    def run(self, *words: str,
            passes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[bytes]:
        """Runs a command; fails unless its exit code is one of `passes`."""
        ran = subprocess.run([self.program, *words], env=self.environment(),
                             capture_output=True, timeout=COMMAND_SECONDS_MAX)
        if ran.returncode not in passes:
            raise AssertionError(f"{words}: exit code {ran.returncode}: {ran.stderr.decode()}")
        return ran

    def cli(self, *words: str, passes: tuple[int, ...] = (0,)) -> str:
        """Runs a command and returns what it printed."""
        return self.run(*words, passes=passes).stdout.decode()

    def notice(self, name: str, deadline: str = "20s") -> None:
        """Gives a node its notice and waits until nothing is left on it; then kills it."""
        self.cli("node", "notice", name, "--deadline", deadline, "--wait")
        self.kill(name)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Returns what is known of each node, by its name."""
        listed = json.loads(self.cli("node", "ls", "--all", "--json"))
        return {node["name"]: node for node in listed["nodes"]}

    def names(self, path: str = "/") -> list[str]:
        """Returns the names in a directory; none if it is not there."""
        listed = self.cli("fs", "ls", "--json", path, passes=(0, 3))
        if not listed.strip():
            return []
        return sorted(str(entry["name"]) for entry in json.loads(listed)["entries"])

    def losses(self) -> dict[str, Any]:
        """Returns what fsck reports: objects with lost blocks, and anything wrong."""
        return dict(json.loads(self.cli("--json", "fsck", passes=(0, 5))))

    def logs(self) -> str:
        """Returns all that the servers logged."""
        return "".join(log.read_text() for log in sorted(self.directory.glob("*.log")))

    def stop(self) -> None:
        """Ends all processes; the data goes with them."""
        for name in list(self.processes):
            self.kill(name)
        self.own.cleanup()
