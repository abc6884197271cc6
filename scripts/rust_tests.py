#!/usr/bin/env python3
"""Builds the test programs of Rust packages and runs two or three of them at a time.

    scripts/rust_tests.py --workspace --exclude sanderling-python

`cargo test` runs one program after the other. Those that start servers mostly wait, so it leaves a
processor idle. Two run at once here, one more begins while processors are idle, and the doc tests
run beside them at the lowest priority. Prints what `cargo test` prints, one program after the
other, and ends with its exit code: 0 if all passed. The words select packages and targets, as those
of `cargo test`. A program that is not finished after `--seconds` is ended, with its process group,
and has failed.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from idle import LOWEST, Idleness, lower_session

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 2
# One more begins when this part of the processors was idle since the last look: half of one, of
# two. On a busy machine none does.
IDLE_FOR_ONE_MORE = 0.25
LOOK_SECONDS = 5.0
# Their programs compute and wait for nothing that has a deadline: as the third they run first, at
# a priority at which they yield to the others, in so many times the time.
COMPUTING = ["sanderling-sim", "sanderling-core"]
YIELDING = LOWEST
YIELDING_TIMES = 2.5
# Packages whose programs take longest, in this order: what is left at the end is short.
LONG_FIRST = ["sanderling-cli", "sanderling-sim", "sanderling-namenode", "sanderling-datanode"]
# The longest program takes two minutes on two idle processors. One that takes this long hangs.
PROGRAM_SECONDS_MAX = 1200.0
# Doc tests may have to wait for another build before theirs, and yield to all programs.
DOC_TESTS_SECONDS_MAX = 3600.0
# Programs named at the end.
SLOWEST = 12
# What makes builds use clippy's driver: see lints.py.
LINTS = ("RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS")


@dataclass
class Program:
    """A test program and where it runs, as under `cargo test`."""

    path: str
    package: str
    target: str
    directory: Path

    @property
    def name(self) -> str:
        """Returns how it is called in what is printed."""
        return f"{self.package} {self.target}"

    def run(self, seconds: float, priority: int = 0) -> "Done":
        """Runs its tests, for so long at most. A priority above 0 is a lower one."""
        environment = os.environ | {
            "CARGO": os.environ.get("CARGO", "cargo"),
            "CARGO_MANIFEST_DIR": str(self.directory),
            "CARGO_PKG_NAME": self.package,
        }
        # What a test compiles is not ours to lint.
        environment = {key: value for key, value in environment.items() if key not in LINTS}
        return watched([self.path], self.directory, environment, seconds, priority)


@dataclass
class Done:
    """What became of a program: what it printed, why it failed, and the time that it took."""

    printed: str
    why: str
    seconds: float
    processor_seconds: float


# The programs that run now.
RUNNING: list[subprocess.Popen] = []


def watched(command: list[str], directory: Path, environment: dict[str, str],
            seconds: float, priority: int = 0) -> Done:
    """Runs a command, for so long at most, and returns what became of it."""
    began = time.monotonic()
    if priority:
        command = ["nice", "-n", str(priority), *command]
    # A file: what a program leaves running may keep a pipe open.
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=directory, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        RUNNING.append(process)
        if priority:
            lower_session(process.pid, priority)
        late = threading.Event()
        limit = threading.Timer(seconds, lambda: (late.set(), end(process)))
        limit.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        limit.cancel()
        RUNNING.remove(process)
        out.seek(0)
        printed = out.read().decode(errors="replace")
    why = ""
    if late.is_set():
        why = f"not finished after {seconds:.0f} s"
    elif process.returncode:
        why = f"exit code {process.returncode}"
    return Done(printed, why, time.monotonic() - began, used.ru_utime + used.ru_stime)


def end(process: subprocess.Popen) -> None:
    """Ends a program with what it started in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_all(*_signal: object) -> None:
    """Ends this program and all that it runs: they have process groups of their own."""
    for process in list(RUNNING):
        end(process)
    os._exit(130)


def main() -> int:
    """Builds and runs them, and returns the exit code."""
    if "--" in sys.argv[1:]:
        print("rust_tests: `--` and arguments behind it are not for this script, which runs whole "
              "test programs: run `cargo test ... -- ARGUMENTS` for some of the tests",
              file=sys.stderr)
        return 2
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    arguments.add_argument("--seconds", type=float, default=PROGRAM_SECONDS_MAX,
                           help="time for each program (default: %(default).0f)")
    options, selection = arguments.parse_known_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    found = build(selection)
    if isinstance(found, int):
        return found
    with ThreadPoolExecutor(1) as beside:
        of_docs = beside.submit(doc_tests, selection, {program.package for program in found})
        failed = run(sorted(found, key=order), options.seconds)
        done = of_docs.result()
    if done:
        print(done.printed, flush=True)
        failed += [f"doc tests ({done.why})"] if done.why else []
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def build(selection: list[str]) -> "list[Program] | int":
    """Builds the test programs of a selection and returns them, or the exit code of a failure."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json", *selection]
    built = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    if built.returncode:
        # As JSON the errors went where they are not read.
        return subprocess.run(["cargo", "test", "--locked", "--no-run", *selection], cwd=ROOT,
                              check=False).returncode
    found = programs(built.stdout)
    if not found:
        print("no test program was built")
        return 1
    return found


class Waiting:
    """The programs that have not begun, in their order."""

    def __init__(self, programs: list[Program]) -> None:
        self.left = list(programs)
        self.lock = threading.Lock()
        self.none = threading.Event()
        if not self.left:
            self.none.set()

    def take(self, computing_first: bool = False) -> Program | None:
        """Returns the next one, or the next one that computes, and None when all have begun."""
        with self.lock:
            if not self.left:
                return None
            computing = (at for at, one in enumerate(self.left) if one.package in COMPUTING)
            program = self.left.pop(next(computing, 0) if computing_first else 0)
            if not self.left:
                self.none.set()
            return program


class Report:
    """What became of the programs. Prints what each printed as soon as it is over."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.times: list[tuple[float, float, str]] = []
        self.lock = threading.Lock()

    def add(self, program: Program, done: Done) -> None:
        """Adds a program that is over."""
        with self.lock:
            print(f"     Running {program.name}\n{done.printed}", flush=True)
            self.times.append((done.seconds, done.processor_seconds, program.name))
            if done.why:
                print(f"{program.name}: {done.why}", flush=True)
                self.failed.append(f"{program.name} ({done.why})")


def run(found: list[Program], seconds: float) -> list[str]:
    """Runs programs, prints what they print, and returns the names of those that failed."""
    waiting, report = Waiting(found), Report()

    def always() -> None:
        while program := waiting.take():
            report.add(program, program.run(seconds))

    def while_idle() -> None:
        idleness = Idleness()
        while not waiting.none.wait(LOOK_SECONDS):
            if idleness.share() < IDLE_FOR_ONE_MORE:
                continue
            if program := waiting.take(computing_first=True):
                if program.package in COMPUTING:
                    done = program.run(YIELDING_TIMES * seconds, YIELDING)
                else:
                    done = program.run(seconds)
                report.add(program, done)
            idleness.share()

    with ThreadPoolExecutor(AT_ONCE + 1) as pool:
        workers = [pool.submit(always) for _ in range(AT_ONCE)] + [pool.submit(while_idle)]
        for worker in workers:
            worker.result()
    print("slowest programs:")
    for wall, processor, name in sorted(report.times, reverse=True)[:SLOWEST]:
        print(f"{wall:8.1f} s, {processor:6.1f} s of processor: {name}")
    return report.failed


def doc_tests(selection: list[str], packages: set[str]) -> Done | None:
    """Runs the doc tests of the packages; None if no manifest allows any."""
    command = ["cargo", "test", "--locked", "--no-fail-fast", "--doc",
               *documented(selection, packages)]
    if "--package" not in command and "--workspace" not in command:
        return None
    return watched(command, ROOT, dict(os.environ), DOC_TESTS_SECONDS_MAX, YIELDING)


def programs(messages: str) -> list[Program]:
    """Returns the test programs that cargo built."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["profile"]["test"]:
            directory = Path(message["manifest_path"]).parent
            package = message["package_id"].split("#")[0].rstrip("/").rsplit("/", 1)[-1]
            name = message["package_id"].split("#")[-1].split("@")
            package = name[0] if len(name) == 2 else f"sanderling-{package}"
            found.append(Program(message["executable"], package, message["target"]["name"],
                                 directory))
    return found


def documented(selection: list[str], packages: set[str]) -> list[str]:
    """Returns what selects the doc tests of the packages whose manifests allow them.

    `--doc` selects all. The same selection as before without the others keeps the features of
    shared crates, so that nothing is compiled again.
    """
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE,
                                         check=True).stdout)
    has_doc_tests = {package["name"] for package in metadata["packages"]
                     if any(target["doctest"] for target in package["targets"])}
    if "--workspace" not in selection:
        return [word for package in sorted(packages & has_doc_tests)
                for word in ("--package", package)]
    left_out = {package["name"] for package in metadata["packages"]} - packages
    left_out |= packages - has_doc_tests
    return ["--workspace", *(word for package in sorted(left_out)
                             for word in ("--exclude", package))]


def order(program: Program) -> tuple[int, str]:
    """Returns the place of a program: long ones first."""
    long = LONG_FIRST.index(program.package) if program.package in LONG_FIRST else len(LONG_FIRST)
    return long, program.target


if __name__ == "__main__":
    sys.exit(main())
