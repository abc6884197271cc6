"""Steps of a run: which begin when, what a command of theirs printed, and what they counted."""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from idle import LOWEST, Idleness, lower_session
from null_device import mend_null_device, null_device_is_whole

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "target" / "logs"
# The program with all commands, which the tests of other things than the wheel run.
PROGRAM = ROOT / "target" / "debug" / "sanderling"
# A line for each command: its name, its seconds, those of processor time of all its descendants.
TIMES = "times.tsv"
TAIL_LINES = 60
TAIL_COLUMNS = 200
# Lines shown of one failed test.
TEST_LINES = 25
# For every JVM: they live for seconds, of which the optimizing compiler would take half.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# One step more than run at once begins when this part of the processors was idle since the last
# look: one of two. Tests that wait for servers leave so much, builds do not.
IDLE_FOR_ONE_MORE = 0.5
LOOK_SECONDS = 10.0
# Time for a command to end what it started.
END_SECONDS = 10.0

# Lines of each failed command that the run shows again at its end.
LAST_LINES = 8

# What failed, as the run shows it at its end: its begin may be far away by then, or cut.
FAILURES: list[str] = []
# The commands that run now.
RUNNING: list[subprocess.Popen] = []
# Set when no further one may begin.
ENDING = threading.Event()


class Current(threading.local):
    """The step that a thread runs: its processor time, and whether it only fills gaps."""

    seconds = 0.0
    fills_gaps = False


CURRENT = Current()


@dataclass
class Counts:
    """What one step found. Every skip has its reason."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)


@dataclass
class Run:
    """What became of one command."""

    log: str
    is_fine: bool


@dataclass
class Step:
    """What one step does, and which steps have to be over before."""

    run: Callable[[argparse.Namespace], Counts]
    after: tuple[str, ...] = ()
    # It runs beside all others, at the lowest priority: it computes, and waits for nothing that
    # has a deadline.
    fills_gaps: bool = False


class Plan:
    """The steps of one run, in the order in which they begin."""

    def __init__(self, steps: dict[str, Step], names: list[str],
                 options: argparse.Namespace) -> None:
        self.steps = steps
        self.names = list(dict.fromkeys(names))
        self.options = options
        self.waiting = list(self.names)
        self.running: list[str] = []
        self.counts: dict[str, Counts] = {}
        self.changed = threading.Condition()

    def run(self, at_once: int) -> dict[str, Counts]:
        """Runs all steps, some at once, and returns what each found, in their order.

        One after the other, none fills gaps, and none begins because processors are idle.
        """
        takes = [None] if at_once == 1 else [*[False] * at_once, True]
        threads = [threading.Thread(target=self.work, args=(one,), daemon=True) for one in takes]
        if at_once > 1:
            threads.append(threading.Thread(target=self.work_while_idle, daemon=True))
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            ENDING.set()
            while RUNNING:
                stop(RUNNING[0])
            print("interrupted")
            sys.exit(130)
        return {name: self.counts[name] for name in self.names}

    def work(self, fills_gaps: bool | None) -> None:
        """Runs one step after the other, those that fill gaps or the others, until none is left."""
        CURRENT.fills_gaps = bool(fills_gaps)
        while True:
            with self.changed:
                while (mine := self.mine(fills_gaps)) and not (ready := self.ready(mine)):
                    self.changed.wait()
                if not mine or ENDING.is_set():
                    return
                name = self.begun(ready[0])
            self.finish(name)

    def work_while_idle(self) -> None:
        """Runs one step more than run at once, whenever processors are idle, until none is left."""
        idleness = Idleness()
        while True:
            with self.changed:
                until = time.monotonic() + LOOK_SECONDS
                while self.mine(False) and (left := until - time.monotonic()) > 0:
                    self.changed.wait(left)
                if not self.mine(False) or ENDING.is_set():
                    return
                is_idle = idleness.share() >= IDLE_FOR_ONE_MORE
                ready = self.ready(self.mine(False)) if is_idle else []
                name = self.begun(ready[0]) if ready else ""
            if name:
                self.finish(name)
                idleness.share()

    def begun(self, name: str) -> str:
        """Takes a step from those that wait; the caller has the lock."""
        self.waiting.remove(name)
        self.running.append(name)
        return name

    def finish(self, name: str) -> None:
        """Runs a step that was taken, and lets those begin that waited for it."""
        counts = self.one(name)
        with self.changed:
            self.running.remove(name)
            self.counts[name] = counts
            self.changed.notify_all()

    def mine(self, fills_gaps: bool | None) -> list[str]:
        """Returns the waiting steps that a thread may run; all for one that runs alone."""
        return [name for name in self.waiting if fills_gaps in (None, self.steps[name].fills_gaps)]

    def ready(self, names: list[str]) -> list[str]:
        """Returns those of the waiting steps for which no other one has to end."""
        open_steps = {*self.waiting, *self.running}
        return [name for name in names if not open_steps.intersection(self.steps[name].after)]

    def one(self, name: str) -> Counts:
        """Runs a step and prints a line before and after it."""
        place = f"[{self.names.index(name) + 1}/{len(self.names)}] {name}"
        print(f"{place} ...", flush=True)
        started = time.monotonic()
        CURRENT.seconds = 0.0
        try:
            counts = self.steps[name].run(self.options)
        except Exception:
            print(f"{place}: {traceback.format_exc()}", flush=True)
            counts = Counts(failed=1)
        if counts.failed:
            FAILURES.append(f"FAILED {name}: {counts.failed}")
        with self.changed:
            if not null_device_is_whole():
                mend_null_device()
                others = " or ".join([name, *(one for one in self.running if one != name)])
                print(f"the step {others} left /dev/null as a plain file, or without it")
                counts.failed += 1
        print(
            f"{place}: {counts.passed} passed, {counts.failed} failed, {len(counts.skipped)}"
            f" skipped in {time.monotonic() - started:.0f} s"
            f" ({CURRENT.seconds:.0f} s of processor)",
            flush=True,
        )
        return counts


def run(
    name: str,
    command: list[str],
    seconds: float = 3600.0,
    passes: tuple[int, ...] = (0,),
    own: dict[str, str] | None = None,
) -> Run:
    """Runs a command with its output in a log of that name; shows the log's end on failure."""
    path = LOGS / f"{name}.log"
    quiet = {"NO_COLOR": "1", "CARGO_TERM_COLOR": "never", "CARGO_TERM_PROGRESS_WHEN": "never"}
    own = {"JAVA_TOOL_OPTIONS": JAVA_OPTIONS, "SANDERLING_BIN": str(PROGRAM)} | (own or {})
    if "CI" in os.environ:
        # Nothing is compiled twice there: what incremental builds keep would only be written.
        own["CARGO_INCREMENTAL"] = "0"
    environment = own | os.environ | quiet
    late = threading.Event()
    started = time.monotonic()
    if ENDING.is_set():
        return Run("", False)
    if CURRENT.fills_gaps:
        command = ["nice", "-n", str(LOWEST), *command]
    with path.open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    RUNNING.append(process)
    if CURRENT.fills_gaps:
        lower_session(process.pid, LOWEST)
    limit = threading.Timer(seconds, lambda: (late.set(), stop(process)))
    limit.start()
    # What it used, with all its descendants that were waited for.
    _, status, used = os.wait4(process.pid, 0)
    seconds_used = used.ru_utime + used.ru_stime
    process.returncode = os.waitstatus_to_exitcode(status)
    limit.cancel()
    RUNNING.remove(process)
    CURRENT.seconds += seconds_used
    with (LOGS / TIMES).open("a") as times:
        times.write(f"{name}\t{time.monotonic() - started:.1f}\t{seconds_used:.1f}\n")
    text = path.read_text(errors="replace")
    is_fine = process.returncode in passes and not late.is_set()
    if not is_fine:
        why = f"not finished after {seconds:.0f} s" if late.is_set() else (
            f"exit code {process.returncode}")
        shown = "\n".join(line[:TAIL_COLUMNS] for line in what_failed(text))
        print(f"--- {' '.join(command)}: {why}; from {path}:\n{shown}\n---", flush=True)
        last = "\n".join(f"    {line[:TAIL_COLUMNS]}" for line in essence(text))
        FAILURES.append(f"FAILED {name}: {why}\n{last}")
    return Run(text, is_fine)


def what_failed(text: str) -> list[str]:
    """Returns what failed tests printed, or else the end of the log.

    Of a long test the begin is shown (its seed) and the end (the panic).
    """
    lines = text.splitlines()
    edge = re.compile(r"---- .* stdout ----|failures:$")
    edges = [at for at, line in enumerate(lines) if edge.match(line)] + [len(lines)]
    found = []
    for start, end in zip(edges, edges[1:]):
        if lines[start] == "failures:":
            continue
        test = lines[start:end]
        cut = len(test) - TEST_LINES
        if cut > 0:
            test = [*test[:TEST_LINES // 4], f"... {cut} lines ...", *test[cut + TEST_LINES // 4:]]
        found += test
    return found or failed_points(lines) or lines[-TAIL_LINES:]


def failed_points(lines: list[str]) -> list[str]:
    """Returns the failed tests of a log in TAP 13, each with its whole YAML block."""
    found = []
    is_within = False
    for line in lines:
        is_within = is_within or line.lstrip().startswith("not ok ")
        if is_within:
            found.append(line)
        is_within = is_within and line.strip() != "..."
    return found


def essence(text: str) -> list[str]:
    """Returns the lines that name a failed test or a cause, or else the last ones."""
    marks = re.compile(r"^(FAIL|ERROR|FAILED): |^FAILED |panicked at|^\S*(Error|Exception): "
                       r"|^error(\[E\d+\])?: |^\S+ FAILED$|^---- .* stdout ----$")
    lines = [line for line in text.splitlines() if line.strip()]
    # A failed suite follows its tests; what failed first has the cause.
    if points := [line for line in failed_points(lines) if "_ms: " not in line]:
        return points[:2 * LAST_LINES]
    found = [line for line in lines if marks.search(line)]
    return (found or lines)[-LAST_LINES:]


def stop(process: subprocess.Popen) -> None:
    """Ends a command with everything it started, which has a moment to end its own sessions."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        deadline = time.monotonic() + END_SECONDS
        while process.returncode is None and time.monotonic() < deadline:
            time.sleep(0.05)


def one(run_result: Run) -> Counts:
    """Counts a command as one check."""
    return Counts(passed=1) if run_result.is_fine else Counts(failed=1)
