"""The machine that is measured on, and the kernel's figures of processes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
GIB = 1 << 30


def describe(versions: dict[str, str]) -> dict[str, Any]:
    """Returns the properties of the machine that a reader needs to compare figures."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu": cpu.group(1).strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory.group(1)) << 10 if memory else 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "peers": versions,
    }


def cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process, all threads, ended ones included."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> dict[str, int]:
    """Returns the resident memory of a process: `all` of it, and the part that is `shared` memory.

    A datanode's arena is a memfd, which the kernel counts as shared memory.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|RssShmem):\s*(\d+) kB$", status, re.MULTILINE))
    return {"all": int(found["VmRSS"]) << 10, "shared": int(found["RssShmem"]) << 10}


class Peak:
    """Watches a process's memory beyond its shared memory while a `with` block runs."""

    EVERY_SECONDS = 0.02

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            memory = resident_bytes(self.pid)
            self.bytes = max(self.bytes, memory["all"] - memory["shared"])
            if self._is_over.wait(self.EVERY_SECONDS):
                return


def revision(root: Path) -> str:
    """Returns the commit that is measured, with a `+` when files differ from it."""
    def git(*words: str) -> str:
        ran = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        return ran.stdout.strip() if ran.returncode == 0 else ""

    commit = git("rev-parse", "--short", "HEAD")
    return commit + ("+" if git("status", "--porcelain", "--", "crates", "bindings") else "")


def until(what: str, condition: Any, seconds: float = 30.0) -> Any:
    """Waits until a condition holds and returns its value.

    Raises `TimeoutError` after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return value
