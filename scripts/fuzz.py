#!/usr/bin/env python3
"""Runs the targets of fuzz/ with libFuzzer and prints executions and coverage of each.

Builds them with coverage by the compiler that builds everything else; the flags are those of
cargo-fuzz. What is found goes to target/fuzz/found/TARGET; the end of the log has the reason. With
--keep, inputs that reach more code go into fuzz/corpus/TARGET, the smallest that reach all of it.

With --executions the targets together run that many inputs, and each of them at least --floor, in
slices on --jobs cores. The command can be stopped at any time, or by --minutes, and started again:
it continues. target/fuzz/plan.json has what was done; remove it to begin anew.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

from fuzz_plan import Plan, Slice

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
BUILT = ROOT / "target" / "fuzz"
LOGS = ROOT / "target" / "logs"
# Those of cargo-fuzz 0.13 without a sanitizer of memory: all but counting it is safe code.
FLAGS = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# Longest input in bytes. Longer ones cost time and reach no other code.
INPUT_BYTES_MAX = 4096
# A corpus is committed: inputs beyond that are left out, the longest first.
CORPUS_BYTES_MAX = 24 << 10
CORPUS_FILES_MAX = 100
# The programs themselves reject an input that takes a second of processor time. This one ends what
# does not end by itself; it counts time in which the machine runs other processes, too.
HANG_SECONDS = 60
# Ended by a signal, with no finding.
INTERRUPTED = 72


def main() -> int:
    """Builds, runs the targets and returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("targets", nargs="*", help="only these; all if none is given")
    arguments.add_argument("--seconds", type=int, default=60, help="for each target")
    arguments.add_argument("--keep", action="store_true", help="write to fuzz/corpus")
    arguments.add_argument("--executions", type=number, help="of all targets together, as 1e9")
    arguments.add_argument("--floor", type=number, help="of each target; a hundredth of all")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time")
    arguments.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    arguments.add_argument("--show", action="store_true", help="print the plan's state alone")
    options = arguments.parse_args()
    known = [it["name"] for it in tomllib.loads((FUZZ / "Cargo.toml").read_text())["bin"]]
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        arguments.error(f"no target is called {unknown[0]}; there are {', '.join(known)}")
    names = options.targets or known
    LOGS.mkdir(parents=True, exist_ok=True)
    if options.executions is not None or options.show:
        return carry_out(names, options)
    programs = build(names)
    row("target", "executions", "per s", "edges", "features", "seconds")
    failed = [name for name in names if fuzz_once(programs / name, name, options)]
    if failed:
        print(f"FOUND something in {', '.join(failed)}: see target/logs/fuzz-TARGET.log")
    return 1 if failed else 0


def number(text: str) -> int:
    """Reads a number of executions: 1e9 is one."""
    return int(float(text))


def carry_out(names: list[str], options: argparse.Namespace) -> int:
    """Carries a plan out, as far as it gets; returns 0 if it is whole."""
    total = options.executions or 0
    floor = total // 100 if options.floor is None else options.floor
    BUILT.mkdir(parents=True, exist_ok=True)
    plan = Plan(BUILT / "plan.json", names, total, floor)
    if not options.show:
        programs = build(names)
        lock = threading.Lock()
        until = time.monotonic() + options.minutes * 60
        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True).stdout.strip() or "?"
        work = (plan, lock, programs, until, commit, options)
        threads = [threading.Thread(target=worker, args=work) for _ in range(options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    row("target", "executions", "per s", "edges", "features", "seconds", "slowest s")
    for name, done in plan.targets.items():
        rate = f"{done.executions / max(done.seconds, 1):.0f}"
        row(name, str(done.executions), rate, str(done.edges), str(done.features),
            f"{done.seconds:.0f}", str(done.slowest_seconds), *["FOUND"] * done.has_finding)
    print(f"{plan.done()} of {total} executions, at least {floor} each: "
          f"{'whole' if plan.is_whole() else 'not whole'}")
    return 0 if plan.is_whole() else 1


def worker(
    plan: Plan, lock: threading.Lock, programs: Path, until: float, commit: str,
    options: argparse.Namespace,
) -> None:
    """Runs slices until the plan is whole or the time is over."""
    while (left := until - time.monotonic()) >= 1:
        with lock:
            name = plan.next()
        if name is None:
            return
        done = None
        try:
            done = fuzz(programs / name, name, min(options.seconds, int(left)))
            if options.keep and not done.has_finding:
                keep(programs / name, BUILT / "corpus" / name, FUZZ / "corpus" / name)
        finally:
            with lock:
                plan.end(name, done, commit)
        note = "  FOUND" if done.has_finding else ""
        print(f"{name} {done.executions} in {done.seconds:.0f} s, together {plan.done()}{note}",
              flush=True)


def build(names: list[str]) -> Path:
    """Builds the programs with coverage; returns where they are."""
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", host, re.MULTILINE)[1]
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--manifest-path",
               str(FUZZ / "Cargo.toml"), "--target", host, "--target-dir", str(BUILT)]
    for name in names:
        command += ["--bin", name]
    # The host's own programs, such as build scripts, get no flags where a target is given.
    subprocess.run(command, check=True, env=os.environ | {"RUSTFLAGS": " ".join(FLAGS)})
    return BUILT / host / "release"


def fuzz_once(program: Path, name: str, options: argparse.Namespace) -> bool:
    """Runs one target; prints its line. Returns whether something was found."""
    done = fuzz(program, name, options.seconds)
    rate = f"{done.executions / max(done.seconds, 1):.0f}"
    row(name, str(done.executions), rate, str(done.edges), str(done.features),
        f"{done.seconds:.0f}", *["FOUND"] * done.has_finding)
    if options.keep and not done.has_finding:
        keep(program, BUILT / "corpus" / name, FUZZ / "corpus" / name)
    return done.has_finding


def fuzz(program: Path, name: str, seconds: int) -> Slice:
    """Runs one target for so long."""
    found = BUILT / "found" / name
    work = BUILT / "corpus" / name
    for directory in [found, work]:
        directory.mkdir(parents=True, exist_ok=True)
    corpus = FUZZ / "corpus" / name
    command = [str(program), str(work), str(corpus), f"-max_total_time={seconds}",
               f"-max_len={INPUT_BYTES_MAX}", f"-timeout={HANG_SECONDS}", "-rss_limit_mb=2048",
               "-malloc_limit_mb=64", "-print_final_stats=1", f"-artifact_prefix={found}/"]
    log = LOGS / f"fuzz-{name}.log"
    began = time.monotonic()
    with log.open("w") as file:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    seconds_taken = time.monotonic() - began
    done = read_log(log.read_text(errors="replace"), seconds_taken, process.returncode)
    if done.has_finding:
        shutil.copy(log, LOGS / f"fuzz-{name}-found.log")
    return done


def read_log(text: str, seconds: float, code: int) -> Slice:
    """Returns what a run did, by its log and its exit code."""
    shown = re.findall(r"^#(\d+)\s.*cov: (\d+) ft: (\d+)", text, re.MULTILINE)
    last, edges, features = map(int, shown[-1]) if shown else (0, 0, 0)
    # A run that was killed has no final numbers: what it showed last was done.
    done = re.search(r"^stat::number_of_executed_units:\s+(\d+)$", text, re.MULTILINE)
    slowest = re.search(r"^stat::slowest_unit_time_sec:\s+(\d+)$", text, re.MULTILINE)
    return Slice(int(done[1]) if done else last, seconds, edges, features,
                 int(slowest[1]) if slowest else 0, code > 0 and code != INTERRUPTED)


def row(name: str, *columns: str) -> None:
    """Prints a row of the table."""
    print(f"{name:12}" + "".join(f"{column:>12}" for column in columns), flush=True)


def keep(program: Path, work: Path, corpus: Path) -> None:
    """Writes the smallest inputs that reach everything into the corpus, as many as fit."""
    with tempfile.TemporaryDirectory() as place:
        command = [str(program), "-merge=1", place, str(corpus), str(work)]
        subprocess.run(command, check=True, capture_output=True)
        merged = sorted(Path(place).iterdir(), key=lambda path: path.stat().st_size)
        kept = {path.read_bytes() for path in corpus.iterdir()}
        total = sum(map(len, kept))
        for path in merged:
            content = path.read_bytes()
            total += 0 if content in kept else len(content)
            if total > CORPUS_BYTES_MAX or len(kept) >= CORPUS_FILES_MAX:
                break
            if content not in kept:
                kept.add(content)
                shutil.copy(path, corpus / path.name)


if __name__ == "__main__":
    sys.exit(main())
