#!/usr/bin/env python3
"""Runs the targets of fuzz/ with libFuzzer and prints executions and coverage of each.

Builds them with coverage by the compiler that builds everything else; the flags are those of
cargo-fuzz. What is found goes to target/fuzz/found/TARGET; the end of the log says how. With
--keep, inputs that reach more code go into fuzz/corpus/TARGET, the smallest that reach all of it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

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


def main() -> int:
    """Builds, runs each target in turn and returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("targets", nargs="*", help="only these; all if none is given")
    arguments.add_argument("--seconds", type=int, default=60, help="for each target")
    arguments.add_argument("--keep", action="store_true", help="write to fuzz/corpus")
    options = arguments.parse_args()
    known = [it["name"] for it in tomllib.loads((FUZZ / "Cargo.toml").read_text())["bin"]]
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        arguments.error(f"no target is called {unknown[0]}; there are {', '.join(known)}")
    names = options.targets or known
    programs = build(names)
    LOGS.mkdir(parents=True, exist_ok=True)
    row("target", "executions", "per s", "edges", "features", "inputs")
    failed = [name for name in names if not fuzz(programs / name, name, options)]
    if failed:
        print(f"FOUND something in {', '.join(failed)}: see target/logs/fuzz-TARGET.log")
    return 1 if failed else 0


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


def fuzz(program: Path, name: str, options: argparse.Namespace) -> bool:
    """Runs one target; prints its line. Returns whether nothing was found."""
    found = BUILT / "found" / name
    work = BUILT / "corpus" / name
    for directory in [found, work]:
        directory.mkdir(parents=True, exist_ok=True)
    corpus = FUZZ / "corpus" / name
    command = [str(program), str(work), str(corpus), f"-max_total_time={options.seconds}",
               f"-max_len={INPUT_BYTES_MAX}", "-timeout=1", "-rss_limit_mb=2048",
               "-malloc_limit_mb=64", "-print_final_stats=1", f"-artifact_prefix={found}/"]
    log = LOGS / f"fuzz-{name}.log"
    with log.open("w") as file:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    code = process.returncode
    text = log.read_text(errors="replace")
    done = re.search(r"^stat::number_of_executed_units:\s+(\d+)$", text, re.MULTILINE)
    rate = re.search(r"^stat::average_exec_per_sec:\s+(\d+)$", text, re.MULTILINE)
    seen = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    edges, features, inputs = seen[-1] if seen else ("?", "?", "?")
    found_some = "" if code == 0 else "FOUND"
    row(name, done[1] if done else "?", rate[1] if rate else "?", edges, features, inputs,
        found_some)
    if options.keep and code == 0:
        keep(program, work, corpus)
    return code == 0


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
