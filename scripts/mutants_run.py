"""Runs tests that are built, with a mutant selected."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import mutants_build as build

FAILED = re.compile(r"^test (\S+)( - should panic)? \.\.\. FAILED")
# A mutant may loop; the machine may be busy.
SECONDS_MIN = 40
TIMES = 4
SECONDS_UNKNOWN = 60
# It searches thousands of seeds for bugs that are injected into the simulator, not into the code.
LEFT_OUT = ["sim injected_bugs"]
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
        self.binaries = [test for test in tree.tests(packages) if test[0] not in LEFT_OUT]
        # Tests that fail without a mutant, because the machine is busy, detect nothing.
        self.flaky: dict[Path, set[str]] = {}
        for name, binary, directory in self.binaries if not is_mutated else []:
            began = time.monotonic()
            failed = run(binary, directory, 0, 3600)
            if failed:
                sys.exit(f"{name}: {failed} fails without a mutant")
            self.seconds[name] = time.monotonic() - began
            print(f"{name}: passed in {self.seconds[name]:.1f} s", flush=True)

    def detect(self, mutant: build.Mutant) -> str | None:
        """Returns which test detects the mutant, if one does."""
        number = mutant.number
        for name, binary, directory in self.binaries:
            # The tests beside the code detect most mutants, and are few.
            near = beside(mutant.file) if name == f"{package_of(mutant.file)} unit" else []
            flaky = self.flaky.setdefault(binary, set())
            limit = SECONDS_MIN + TIMES * self.seconds.get(name, SECONDS_UNKNOWN)
            while failed := (
                near and fails(binary, directory, number, SECONDS_MIN, near, skip=flaky)
            ) or run(binary, directory, number, limit, skip=flaky):
                if failed == "abort":
                    return f"{name}: {failed}"
                if failed == "timeout":
                    # On a busy machine the tests may be late without the mutant, too.
                    if self.is_mutated or run(binary, directory, 0, limit, skip=flaky) is None:
                        return f"{name}: {failed}"
                    limit *= 2
                    self.seconds[name] = max(self.seconds.get(name, 0), limit / TIMES)
                    print(f"{name}: late without a mutant: {limit:.0f} s from now on", flush=True)
                    continue
                again = run(binary, directory, number, limit, [failed], is_exact=True)
                without = not self.is_mutated and run(
                    binary, directory, 0, limit, [failed], is_exact=True)
                if again and not without:
                    return f"{name}: {failed}"
                print(f"{name}: {failed} fails at times: skipped", flush=True)
                flaky.add(failed)
        return None


def fails(*arguments: object, **options: object) -> str | None:
    """Runs tests as `run`; returns the one that failed, and nothing if they took too long."""
    failed = run(*arguments, **options)
    return None if failed == "timeout" else failed


def run(
    binary: Path, directory: Path, number: int, seconds: float, only: Sequence[str] = (),
    is_exact: bool = False, skip: Iterable[str] = (),
) -> str | None:
    """Runs a test binary until a test fails; returns that test, or `timeout`, or `abort`."""
    words = ["nice", "-n", "10", str(binary), *only, *(f"--skip={name}" for name in sorted(skip))]
    words += ["--exact"] if is_exact else []
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


def package_of(file: str) -> str:
    """Returns the directory of the crate of a file."""
    return Path(file).parts[1]


def beside(file: str) -> list[str]:
    """Returns what the names of the tests contain that are in a file, and in those beside it."""
    parts = Path(file).with_suffix("").parts[3:]
    parts = parts[:-1] if parts[-1] == "mod" else parts
    tests = ["::".join([*parts[:-1], "tests", ""])] if len(parts) > 1 else []
    return ["::".join([*parts, ""]), *tests]


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
