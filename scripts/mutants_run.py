"""Runs tests that are built, with a mutant selected."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import mutants_build as build

FAILED = re.compile(r"^test (\S+)( - should panic)? \.\.\. FAILED")
# A mutant may loop; the machine may be busy.
SECONDS_MIN = 30
TIMES = 4
SECONDS_UNKNOWN = 60
# A mutant may allocate without end. Arenas reserve more addresses than they use.
ADDRESS_BYTES_MAX = 16 << 30


class Tests:
    """The tests of some crates, built, and how long each binary takes without a mutant.

    With `is_mutated`, the tree has a mutant that cannot be left out.
    """

    # By name.
    seconds: dict[str, float] = {}

    def __init__(self, tree: build.Tree, packages: list[str], is_mutated: bool = False) -> None:
        self.is_mutated = is_mutated
        self.binaries = tree.tests(packages)
        # Tests that fail without a mutant, because the machine is busy, detect nothing.
        self.flaky: dict[Path, set[str]] = {}
        for name, binary, directory in self.binaries if not is_mutated else []:
            began = time.monotonic()
            failed = run(binary, directory, 0, 3600)
            if failed:
                sys.exit(f"{name}: {failed} fails without a mutant")
            self.seconds[name] = time.monotonic() - began
            print(f"{name}: passed in {self.seconds[name]:.1f} s", flush=True)

    def detect(self, number: int) -> str | None:
        """Returns which test detects the mutant, if one does."""
        for name, binary, directory in self.binaries:
            flaky = self.flaky.setdefault(binary, set())
            limit = SECONDS_MIN + TIMES * self.seconds.get(name, SECONDS_UNKNOWN)
            while failed := run(binary, directory, number, limit, skip=flaky):
                if failed in ("timeout", "abort"):
                    return f"{name}: {failed}"
                again = run(binary, directory, number, limit, only=failed)
                without = None if self.is_mutated else run(binary, directory, 0, limit, only=failed)
                if again and not without:
                    return f"{name}: {failed}"
                print(f"{name}: {failed} fails at times: skipped", flush=True)
                flaky.add(failed)
        return None


def run(
    binary: Path, directory: Path, number: int, seconds: float, only: str | None = None,
    skip: set[str] = frozenset(),
) -> str | None:
    """Runs a test binary until a test fails; returns that test, or `timeout`, or `abort`."""
    words = ["nice", "-n", "10", str(binary)]
    words += ["--exact", only] if only else [f"--skip={name}" for name in sorted(skip)]
    environment = {**os.environ, build.VARIABLE: str(number),
                   "CARGO_MANIFEST_DIR": str(directory)}
    process = subprocess.Popen(
        words, cwd=directory, env=environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=bounded)
    is_late = threading.Event()
    timer = threading.Timer(seconds, lambda: (is_late.set(), stop(process)))
    timer.start()
    failed = None
    for line in process.stdout:
        found = FAILED.match(line)
        if found:
            failed = found[1]
            break
    timer.cancel()
    if failed:
        stop(process)
    code = process.wait()
    stop(process)
    process.stdout.close()
    if failed:
        return failed
    if is_late.is_set():
        return "timeout"
    return "abort" if code else None


def bounded() -> None:
    """Bounds the memory of the process that is about to start."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def stop(process: subprocess.Popen) -> None:
    """Ends a test binary and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
