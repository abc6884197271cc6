"""Server processes that end with the comparison, however it ends."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
from goal import Unavailable

STOP_SECONDS_MAX = 10.0
LOG_BYTES = 600


class Server:
    """One process. As a context it is killed at the end; its log stays in the work directory."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        with open(log, "wb") as output:
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            except OSError as error:
                raise Unavailable(f"{name} cannot be started: {error.strerror}") from error

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_seconds(self) -> float:
        """Returns the processor time that the process has used."""
        return machine.cpu_seconds(self.pid)

    def serves(self, is_ready: Callable[[], Any]) -> Any:
        """Waits until the server is ready and returns what the question returned.

        Raises `Unavailable` with the end of its log when it has ended.
        """

        def asked() -> Any:
            if self.process.poll() is not None:
                end = self.log.read_text(errors="replace")[-LOG_BYTES:].strip()
                raise Unavailable(f"{self.name} ended with {self.process.returncode}: {end}")
            return is_ready()

        return machine.until(f"{self.name} serves", asked)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    """Returns a port of loopback that is free at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Returns whether a process accepts connections on a port."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
