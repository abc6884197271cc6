#!/usr/bin/env python3
"""Changes the code in small ways, one by one, and lists the changes that no test detects.

A mutant is one small change of one function that cargo-mutants lists: an operator replaced, a
condition negated, a body replaced. A sample is drawn from the code whose mistakes lose data or
break promises. All mutants of the sample are compiled into one copy of the repository: a function
gets a branch for each of its mutants, and an environment variable selects the branch at run time.
So a mutant costs one run of the tests, not one build. Mutants that cannot be selected at run time
(constants, `const fn` in constants, `-> impl Trait`) are built one by one.

Each mutant is first tested with its own crate's tests; those that survive are tested again with
the simulator and the tests of the servers and the client. A mutant is detected if a test fails
twice with it and passes without it, or if the tests take several times as long as without it.
The report names the survivors: each is either a test that is missing or a change that makes no
difference.

    scripts/mutants.py --seed 7 --count 150
    scripts/mutants.py --seed 7 --count 150 --resume --budget 30

Results are kept in target/mutants/; --resume continues, --again tests the survivors again.
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

import mutants_build as build
import mutants_run as run

ROOT = build.ROOT
TOOLS = ROOT / "target" / "tools"
VERSION = "27.1.0"
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
# What runs on the survivors of their own crate's tests.
SECOND = {
    "sanderling-core": ["sanderling-sim", "sanderling-namenode", "sanderling-datanode",
                        "sanderling-client"],
    "sanderling-namenode": ["sanderling-client"],
    "sanderling-datanode": ["sanderling-client"],
    "sanderling-protocol": ["sanderling-core", "sanderling-transport", "sanderling-namenode",
                            "sanderling-datanode"],
}
OUTCOMES = ["first", "second", "survived", "unviable", "not run"]


def main() -> int:
    """Draws a sample, tests it in two stages, and prints the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, help="of the sample; drawn if not given")
    arguments.add_argument("--count", type=int, default=150, help="mutants of the sample")
    arguments.add_argument("--files", nargs="*", default=FILES, help="globs to draw from")
    arguments.add_argument("--first-only", action="store_true", help="own crate's tests only")
    arguments.add_argument("--resume", action="store_true", help="keep the results so far")
    arguments.add_argument("--again", action="store_true", help="resume, survivors once more")
    arguments.add_argument("--budget", type=float, default=1e9, help="minutes, then it ends")
    arguments.add_argument("--list", action="store_true", help="print the sample and end")
    options = arguments.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    install()
    everything = mutants(options.files)
    sample = draw(everything, options.seed, options.count)
    print(f"sample of {len(sample)} of {len(everything)} mutants, seed {options.seed}", flush=True)
    if options.list:
        print("\n".join(mutant.name for mutant in sample))
        return 0
    results = Results(options, len(everything))
    deadline = time.monotonic() + options.budget * 60
    if not test(sample, results, deadline, options.first_only):
        print("the budget is spent: --resume continues")
    report(sample, results.outcomes)
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


def mutants(files: list[str]) -> dict[str, dict]:
    """Returns all mutants of these files as cargo-mutants describes them, by name."""
    command = [str(TOOLS / "bin" / "cargo-mutants"), "mutants", "--list", "--json",
               *(f"--file={glob}" for glob in files)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = {mutant["name"]: mutant for mutant in json.loads(listed)}
    return {name: mutant for name, mutant in found.items() if not re.search(NOT_DRAWN, name)}


def draw(everything: dict[str, dict], seed: int, count: int) -> list[build.Mutant]:
    """Returns the sample of this seed, numbered from 1 in the order of its names."""
    names = random.Random(seed).sample(sorted(everything), min(count, len(everything)))
    return [build.Mutant.of(number, everything[name])
            for number, name in enumerate(sorted(names), start=1)]


class Results:
    """What became of each mutant, in a file, so that a run may be cut at any time."""

    def __init__(self, options: argparse.Namespace, listed: int) -> None:
        self.path = build.OUT / f"results-{options.seed}-{options.count}-{listed}.json"
        self.outcomes: dict[str, dict] = {}
        if (options.resume or options.again) and self.path.exists():
            self.outcomes = json.loads(self.path.read_text())
        if options.again:
            self.outcomes = {name: found for name, found in self.outcomes.items()
                             if found["outcome"] != "survived"}

    def add(self, mutant: build.Mutant, outcome: str, by: str) -> None:
        """Keeps one result and prints it."""
        self.outcomes[mutant.name] = {"outcome": outcome, "by": by}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.outcomes, indent=1, sort_keys=True) + "\n")
        print(f"{mutant.number}: {outcome}: {mutant.name} ({by})", flush=True)

    def lacks(self, mutant: build.Mutant, stage: str) -> bool:
        """Returns whether this stage still has to test the mutant."""
        outcome = self.outcomes.get(mutant.name, {}).get("outcome")
        return outcome is None or (stage == "second" and outcome == "survived first")


def test(sample: list[build.Mutant], results: Results, deadline: float, first_only: bool) -> bool:
    """Tests the sample, and returns whether the time was enough."""
    left = [mutant for mutant in sample if results.lacks(mutant, "second")]
    tree = build.Tree()
    print(f"{len(left)} mutants are built at once ...", flush=True)
    alone, unviable = tree.dispatch(left)
    for mutant, why in unviable.items():
        results.add(mutant, "unviable", why)
    together = [mutant for mutant in left if mutant not in unviable and mutant not in alone]
    for stage in ["first"] if first_only else ["first", "second"]:
        if not stage_of(stage, together, tree, results, deadline, first_only):
            return False
    for mutant in alone:
        if time.monotonic() > deadline:
            return False
        why = tree.apply(mutant)
        if why is not None:
            results.add(mutant, "unviable", why)
            continue
        for stage in ["first"] if first_only else ["first", "second"]:
            stage_of(stage, [mutant], tree, results, deadline, first_only, is_mutated=True)
    return True


def stage_of(
    stage: str, chosen: list[build.Mutant], tree: build.Tree, results: Results, deadline: float,
    first_only: bool, is_mutated: bool = False,
) -> bool:
    """Tests what this stage has to test, crate by crate; returns whether the time was enough."""
    by_package: dict[str, list[build.Mutant]] = {}
    for mutant in chosen:
        if results.lacks(mutant, stage):
            by_package.setdefault(mutant.package, []).append(mutant)
    for package, some in by_package.items():
        tests = run.Tests(tree, [package] if stage == "first" else SECOND[package],
                          is_mutated)
        for mutant in some:
            if time.monotonic() > deadline:
                return False
            by = tests.detect(mutant)
            if by:
                results.add(mutant, stage, by)
            else:
                last = stage == "second" or first_only
                results.add(mutant, "survived" if last else "survived first", "")
    return True


def report(sample: list[build.Mutant], outcomes: dict[str, dict]) -> None:
    """Prints a table by file and the survivors."""
    files: dict[str, Counter] = {}
    for mutant in sample:
        kind = outcomes.get(mutant.name, {}).get("outcome", "not run")
        # The second stage has not run for it.
        kind = "survived" if kind == "survived first" else kind
        files.setdefault(mutant.file, Counter())[kind] += 1
    print(f"\n| file | {' | '.join(OUTCOMES)} |\n| --- |{' --- |' * len(OUTCOMES)}")
    for file, counts in sorted(files.items()):
        print(f"| {file} | {' | '.join(str(counts[kind] or '') for kind in OUTCOMES)} |")
    total = sum(files.values(), Counter())
    print(f"| all | {' | '.join(str(total[kind]) for kind in OUTCOMES)} |")
    detected = total["first"] + total["second"]
    print(f"\n{detected} of {detected + total['survived']} detected")
    for mutant in sample:
        found = outcomes.get(mutant.name, {}).get("outcome", "")
        if found.startswith("survived"):
            print(f"{found}: {mutant.name}")


if __name__ == "__main__":
    sys.exit(main())
