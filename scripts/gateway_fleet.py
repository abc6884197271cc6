"""A cluster with an S3 gateway, as processes, for the tests of the gateway."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOON_SECONDS = 60.0
KEY = "sanderling"
KEPT_OUT = ("SANDERLING_", "AWS_", "S3_", "RCLONE_")


def program() -> str:
    """Returns the program to test."""
    built = [ROOT / ".venv/bin/sanderling", ROOT / "target/debug/sanderling"]
    found = [os.environ.get("SANDERLING_EXE"), *(str(path) for path in built if path.exists())]
    for path in found:
        if path:
            return path
    sys.exit("there is no program to test: run cargo build, or set SANDERLING_EXE")


def until(what: str, condition: Callable[[], Any], seconds: float = SOON_SECONDS) -> Any:
    """Waits until a condition holds and returns its value; fails at a deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return value


class Fleet:
    """A namenode, datanodes and a gateway. Everything ends with `stop`."""

    def __init__(self, datanodes: int = 2, dram: str = "192MiB", flags: tuple[str, ...] = (),
                 node_flags: tuple[str, ...] = ()) -> None:
        self.program = program()
        self.own = tempfile.TemporaryDirectory()
        self.directory = Path(self.own.name)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.namenode = "127.0.0.1:0"
        try:
            self.namenode_flags = ("--dir", str(self.directory / "catalog"))
            ready = self.start("namenode", "namenode", "--listen", self.namenode,
                               *self.namenode_flags, "--http", "none")
            self.namenode = ready["address"]
            for number in range(datanodes):
                self.start_datanode(f"n{number}", "--dram", dram, *node_flags)
            self.address = self.start_gateway("gateway", *flags)
        except BaseException:
            self.stop()
            raise
        self.endpoint = f"http://{self.address}"

    def start_datanode(self, name: str, *flags: str) -> dict[str, Any]:
        return self.start(name, "datanode", "--http", "none", "--name", name, *flags)

    def start_gateway(self, name: str, *flags: str) -> str:
        """Starts a gateway and returns its address."""
        ready = self.start(name, "gateway", "s3", "--listen", "127.0.0.1:0", "--http",
                           "127.0.0.1:0", *flags)
        self.http_address = str(ready["http_address"])
        return str(ready["address"])

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(KEPT_OUT)}
        return kept | {"NO_COLOR": "1", "SANDERLING_NAMENODE": self.namenode}

    def client_environment(self) -> dict[str, str]:
        """Returns what clients find their way and their keys by."""
        return self.environment() | {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.directory),
        }

    def start(self, name: str, *words: str) -> dict[str, Any]:
        """Starts a server and waits until it serves."""
        ready = self.directory / f"{name}.ready"
        ready.unlink(missing_ok=True)
        command = [self.program, *words, "--exit-with-parent", "--ready-file", str(ready)]
        with open(self.directory / f"{name}.log", "a") as log:
            process = subprocess.Popen(command, env=self.environment(), stderr=log)
        self.processes[name] = process

        def serves() -> bool:
            if process.poll() is not None:
                raise AssertionError((self.directory / f"{name}.log").read_text()[-2000:])
            return ready.exists()

        until(f"{name} serves", serves)
        return dict(json.loads(ready.read_text()))

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def cli(self, *words: str, passes: tuple[int, ...] = (0,)) -> str:
        ran = subprocess.run([self.program, *words], env=self.environment(), capture_output=True,
                             timeout=4 * SOON_SECONDS)
        if ran.returncode not in passes:
            raise AssertionError(f"{words}: {ran.stderr.decode()}")
        return ran.stdout.decode()

    def nodes(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(self.cli("node", "ls", "--all", "--json"))
        return {node["name"]: node for node in listed["nodes"]}

    def logs(self) -> str:
        return "".join(log.read_text() for log in self.directory.glob("*.log"))

    def stop(self) -> None:
        for name in list(self.processes):
            self.resume(name)
            self.kill(name)
        self.own.cleanup()
