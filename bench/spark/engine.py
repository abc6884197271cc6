"""Spark itself: a standalone master, workers that can be noticed and killed, and applications."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from goal import Unavailable
from server import Server

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 300.0
# A query that takes longer hangs; the largest take some ten seconds at scale 1.
ANSWER_SECONDS_MAX = 600.0
DAEMON_MEMORY = "256m"
# Broadcasts of twenty queries at scale 1 do not fit into less.
DRIVER_MEMORY = "2g"


@dataclass(frozen=True)
class Size:
    """How large the Spark cluster is."""

    workers: int
    cores: int


class Session:
    """One application in a process of its own. Not thread-safe."""

    def __init__(self, name: str, opened: dict[str, Any], log: Path, memory: str) -> None:
        self.name = name
        self.log = log
        # Driver memory and class path are the JVM's, which pyspark starts from these words.
        words = ["--driver-memory", memory]
        for option in ("extraClassPath", "extraJavaOptions", "defaultJavaOptions"):
            key = f"spark.driver.{option}"
            if key in opened["conf"]:
                words += ["--conf", f"{key}={opened['conf'][key]}"]
        quoted = " ".join(f"'{word}'" for word in [*words, "pyspark-shell"])
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": quoted, "SPARK_LOCAL_IP": "127.0.0.1"}
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "session.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                text=True,
            )
        found = self._exchange(opened, START_SECONDS_MAX)
        if "error" in found:
            self.close()
            raise Unavailable(f"{name}: {found['error']}; see {log}")
        self.version: str = found["version"]
        self.application: str = found["application"]

    def sql(self, id_: str, text: str) -> dict[str, Any]:
        """Runs a query and returns its time with its rows, or with `error`."""
        return self._exchange({"id": id_, "sql": text}, ANSWER_SECONDS_MAX)

    def job(self, id_: str, name: str, records: int, value_bytes: int) -> dict[str, Any]:
        """Runs a job of `workloads` and returns the same."""
        arguments = {"name": name, "records": records, "value_bytes": value_bytes}
        return self._exchange({"id": id_, "job": arguments}, ANSWER_SECONDS_MAX)

    def close(self) -> None:
        """Ends the application as its user would, and kills it when it does not end."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            for pid in descendants(self.process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        late = threading.Timer(seconds, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        finally:
            late.cancel()
        if not line:
            end = self.log.read_text(errors="replace")[-600:]
            raise Unavailable(f"{self.name} gave no answer within {seconds:.0f} s: {end}")
        return json.loads(line)


@dataclass
class Workers:
    """A standalone master with workers, each of which runs one executor of the application."""

    address: str
    size: Size
    decommissions: bool
    directory: Path
    environment: dict[str, str]
    stack: contextlib.ExitStack
    running: dict[int, Server] = field(default_factory=dict)
    started: int = 0

    def add(self, *slots: int) -> None:
        """Starts a worker in each place of the cluster, and waits until the master lists them."""
        started = [self._start(slot) for slot in slots]
        for server in started:
            _await_line(server, r"Successfully registered with master")

    def _start(self, slot: int) -> Server:
        name = f"worker-{self.started}"
        self.started += 1
        words = ["worker.Worker", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        words += ["--cores", str(self.size.cores), "--memory", "8g"]
        words += ["--work-dir", str(self.directory / name), self.address]
        server = _daemon(self.stack, self.directory, name, words, self.environment)
        self.running[slot] = server
        return server

    def notice(self, slot: int) -> None:
        """Gives a worker its notice: it decommissions its executors.

        One that is not set to do so gets no signal: SIGPWR would end it.
        """
        if self.decommissions:
            os.kill(_java(self.running[slot].pid), signal.SIGPWR)

    def kill(self, slot: int) -> None:
        """Kills a worker and its executors at once, as a machine that is switched off."""
        server = self.running.pop(slot)
        for pid in [server.pid, *descendants(server.pid)]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        server.process.wait()


@contextlib.contextmanager
def workers(directory: Path, size: Size, decommissions: bool, local: Path) -> Iterator[Workers]:
    """Starts a master and its workers and ends them."""
    directory.mkdir(parents=True, exist_ok=True)
    options = f"-Dspark.decommission.enabled={str(decommissions).lower()}"
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_LOCAL_DIRS": str(local),
    }
    local.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        words = ["master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        daemon = _daemon(stack, directory, "master", words, environment)
        address = _await_line(daemon, r"Starting Spark master at (spark://\S+)")[1]
        _await_line(daemon, r"I have been elected leader")
        made = Workers(address, size, decommissions, directory, environment, stack)
        made.add(*range(size.workers))
        yield made


def descendants(pid: int) -> list[int]:
    """Returns the processes that a process started, and those that they did."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def spark_home() -> Path:
    """Returns where the package pyspark of this Python keeps Spark."""
    try:
        import pyspark
    except ImportError as error:
        raise Unavailable(f"{error}: scripts/venv.sh spark41") from error
    return Path(pyspark.__file__).parent


def _daemon(
    stack: contextlib.ExitStack,
    directory: Path,
    name: str,
    words: list[str],
    environment: dict[str, str],
) -> Server:
    """Starts a daemon of Spark's that also ends when this program is killed."""
    home = spark_home()
    command = ["setpriv", "--pdeathsig", "KILL", "env", f"SPARK_HOME={home}"]
    command += [f"{key}={environment[key]}" for key in environment if key.startswith("SPARK_")]
    command += [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}"]
    return stack.enter_context(Server(name, [*command, *words[1:]], directory / f"{name}.log"))


def _java(pid: int) -> int:
    """Returns the JVM that a script started or became."""
    for one in [pid, *descendants(pid)]:
        if Path(f"/proc/{one}/comm").read_text().strip() == "java":
            return one
    raise Unavailable(f"process {pid} is no JVM")


def _await_line(server: Server, pattern: str) -> re.Match[str]:
    """Waits until a daemon's log has a line."""
    found: list[re.Match[str]] = []

    def look() -> bool:
        match = re.search(pattern, server.log.read_text(errors="replace"))
        if match:
            found.append(match)
        elif server.process.poll() is not None:
            end = server.log.read_text(errors="replace")[-600:]
            raise Unavailable(f"{server.name} ended: {end}")
        return bool(match)

    machine.until(f"{server.name} says {pattern!r}", look, START_SECONDS_MAX)
    return found[0]
