#!/usr/bin/env python3
"""Changes the code in small ways, one by one, and lists the changes that no test detects.

A mutant is one small change of one function that cargo-mutants makes: an operator turned, a
condition negated, a body replaced. A sample of them is drawn from the code whose mistakes lose data
or break promises. Each is first tested with its own crate's tests; those that survive are tested
again with the simulator and with servers that run. The report names the survivors: each is either a
test that is missing or a change that makes no difference.

    scripts/mutants.py --seed 7 --count 150

prints the sample's seed, so that the same sample can be run again.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "tools"
VERSION = "27.1.0"
OUT = ROOT / "target" / "mutants"
# The code that is drawn from.
FILES = [
    "crates/core/src/**/*.rs",
    "crates/namenode/src/journal.rs",
    "crates/namenode/src/journal/*.rs",
    "crates/namenode/src/recovery.rs",
    "crates/namenode/src/recovery/*.rs",
    "crates/namenode/src/snapshot.rs",
    "crates/namenode/src/directory.rs",
    "crates/datanode/src/arena.rs",
    "crates/datanode/src/allocator.rs",
    "crates/datanode/src/store.rs",
    "crates/protocol/src/frame.rs",
]
# Mutants of code that only prints, or only serves tests, do not concern promises.
NOT_DRAWN = r"impl (fmt::|std::fmt::)?(Debug|Display) for|tests?\.rs:|/tests/|crashes\.rs:|::fmt "
# What runs on the survivors of their own crate's tests: the simulator, then real processes.
SECOND = {
    "core": ["sanderling-sim", "sanderling-namenode", "sanderling-datanode", "sanderling-client"],
    "namenode": ["sanderling-client", "sanderling-cli"],
    "datanode": ["sanderling-client", "sanderling-cli"],
    "protocol": ["sanderling-transport", "sanderling-namenode", "sanderling-datanode"],
}
SECONDS_PER_TEST = 240


def main() -> int:
    """Draws a sample, tests it twice, and prints the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, help="of the sample; drawn if not given")
    arguments.add_argument("--count", type=int, default=150, help="mutants of the sample")
    arguments.add_argument("--files", nargs="*", default=FILES, help="globs to draw from")
    arguments.add_argument("--first-only", action="store_true", help="own crate's tests only")
    arguments.add_argument("--part", help="of the sample, as 2/3: where time is short")
    arguments.add_argument("--list", action="store_true", help="print the sample and end")
    options = arguments.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    install()
    everything = mutants(options.files)
    sample = random.Random(seed).sample(everything, min(options.count, len(everything)))
    sample.sort()
    if options.part:
        part, parts = (int(number) for number in options.part.split("/"))
        sample = sample[part - 1::parts]
    part = f", part {options.part}" if options.part else ""
    print(f"sample of {len(sample)} of {len(everything)} mutants, seed {seed}{part}", flush=True)
    if options.list:
        print("\n".join(sample))
        return 0
    began = time.monotonic()
    outcomes = test(sample, "first", None)
    if not options.first_only:
        for crate, packages in SECOND.items():
            left = [name for name in sample
                    if outcomes.get(name) == "missed" and name.startswith(f"crates/{crate}/")]
            if left:
                outcomes |= test(left, f"second-{crate}", packages)
    report(sample, outcomes, seed, time.monotonic() - began)
    return 0


def install() -> None:
    """Builds cargo-mutants into target/tools unless it is there."""
    tool = TOOLS / "bin" / "cargo-mutants"
    if tool.exists():
        return
    if not shutil.which("cargo"):
        sys.exit("cargo is not in PATH: install Rust (https://rustup.rs)")
    subprocess.run(["cargo", "install", "--locked", "--quiet", "--root", str(TOOLS),
                    "cargo-mutants", "--version", VERSION], check=True)


def mutants(files: list[str]) -> list[str]:
    """Returns the names of all mutants of these files."""
    command = cargo_mutants("--list", "--json", *(f"--file={glob}" for glob in files))
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {mutant["name"] for mutant in json.loads(listed)}
    return sorted(name for name in names if not re.search(NOT_DRAWN, name))


def test(sample: list[str], stage: str, packages: list[str] | None) -> dict[str, str]:
    """Tests each mutant and returns what became of it: caught, missed, timeout or unviable."""
    out = OUT / stage
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    # cargo-mutants tests all changes of fields of these files, whatever the expression is.
    files = sorted({name.split(":")[0] for name in sample})
    chosen = "^(" + "|".join(exactly(name) for name in sample) + ")$"
    which = [f"--test-package={package}" for package in packages or []]
    command = cargo_mutants(
        *(f"--file={file}" for file in files), f"--re={chosen}", f"--output={out}",
        "--no-shuffle", "--colors=never", "--jobs=1",
        f"--timeout={SECONDS_PER_TEST}", "--baseline=skip", "--cargo-arg=--locked", *which,
    )
    print(f"{stage}: {len(sample)} mutants ...", flush=True)
    with (out / "log.txt").open("w") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    found = {}
    for outcome in ["caught", "missed", "timeout", "unviable"]:
        path = out / "mutants.out" / f"{outcome}.txt"
        for name in path.read_text().splitlines() if path.exists() else []:
            found[name] = outcome
    return found


def cargo_mutants(*arguments: str) -> list[str]:
    """Returns the command line of cargo-mutants."""
    return [str(TOOLS / "bin" / "cargo-mutants"), "mutants", *arguments]


def exactly(name: str) -> str:
    """Returns the regular expression of the regex crate that matches just this name."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&\-~])", r"\\\1", name)


def report(sample: list[str], outcomes: dict[str, str], seed: int, seconds: float) -> None:
    """Prints a table by file and the survivors."""
    files: dict[str, Counter] = {}
    for name in sample:
        files.setdefault(name.split(":")[0], Counter())[outcomes.get(name, "not run")] += 1
    kinds = ["caught", "timeout", "missed", "unviable", "not run"]
    print(f"\n| file | {' | '.join(kinds)} |\n| --- |{' --- |' * len(kinds)}")
    for file, counts in sorted(files.items()):
        print(f"| {file} | {' | '.join(str(counts[kind] or '') for kind in kinds)} |")
    total = sum(files.values(), Counter())
    print(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    killed, missed = total["caught"] + total["timeout"], total["missed"]
    print(f"\nseed {seed}: {killed} of {killed + missed} killed, in {seconds / 60:.0f} min")
    for name in sample:
        if outcomes.get(name) == "missed":
            print(f"survived: {name}")


if __name__ == "__main__":
    sys.exit(main())
