#!/usr/bin/env python3
"""Measures Sanderling beside what a user would pick instead, and prints which targets are reached.

Both sides of a row are measured in turn within one run; what is judged is the median of the
rounds' ratios. Writes bench/results/DATE.json and DATE.html. Needs Python 3.11, cargo and, for the
peers, apt-get as root and a package index.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import page
import table
from goal import Outcome, Unavailable, outcomes_of, record_of_row
from peers import packages
from rows import ROWS
from rows.row import Row
from world import ROOT, World

RESULTS = ROOT / "bench" / "results"


def main() -> int:
    """Runs the rows that were requested and returns the exit code: 1 when one could not be."""
    options = arguments()
    if options.show:
        kept = json.loads(options.show.read_text())
        print(table.markdown(outcomes_of(kept["rows"])))
        return 0
    # A measurement that is cut short still ends its servers and namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [row for row in ROWS if not options.rows or row.number in options.rows]
    wanted = frozenset().union(*(row.peers for row in rows))
    if not options.no_install:
        packages.install(set(wanted))
    build(options, rows)
    with tempfile.TemporaryDirectory(prefix="sanderling-bench-") as work:
        world = World(
            sanderling=options.sanderling,
            peer=options.peer,
            python=options.python,
            work=Path(work),
            rounds=1 if options.quick and not options.rounds else options.rounds or 5,
            is_quick=options.quick,
            versions=packages.versions(set(wanted)),
        )
        outcomes: list[Outcome] = []
        for row in rows:
            outcomes += run_row(world, row)
            # After each: what was measured is not lost with what comes after it.
            write(options, world, outcomes)
    print(table.text(outcomes))
    return 0 if all(outcome.is_measured for outcome in outcomes) else 1


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=numbers, help="only these, as 1,2,5-8")
    parser.add_argument("--rounds", type=int, help="rounds of each row; 5 if nothing else is said")
    parser.add_argument("--quick", action="store_true",
                        help="one short round: shows that everything works, measures nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--add", action="store_true",
                        help="keep the other rows of today's file")
    parser.add_argument("--show", type=Path, metavar="FILE",
                        help="measure nothing; print a results file as a table of Markdown")
    parser.add_argument("--no-install", action="store_true", help="install no peers")
    parser.add_argument("--no-build", action="store_true",
                        help="build nothing; results then name no revision")
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    parser.add_argument("--sanderling", type=Path, default=built / "sanderling",
                        help="the program to measure")
    parser.add_argument("--peer", type=Path, default=built / "examples" / "peer",
                        help="the other systems' clients")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python",
                        help="the Python that has the wheel")
    options = parser.parse_args()
    unknown = set(options.rows or []) - {row.number for row in ROWS}
    if unknown:
        parser.error(f"no row has the number {min(unknown)}")
    return options


def numbers(text: str) -> list[int]:
    """Reads numbers and ranges of them."""
    found = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def build(options: argparse.Namespace, rows: list[Row]) -> None:
    """Builds what is measured; ends the program when that fails."""
    if options.no_build:
        return
    package = ["--package", "sanderling-cli", "--bins", "--example", "peer"]
    commands = [["cargo", "build", "--locked", "--quiet", "--release", *package]]
    if any(row.needs_wheel for row in rows):
        commands.append([str(ROOT / "scripts" / "build-wheel.sh")])
    for command in commands:
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(f"{' '.join(command)} failed")


def run_row(world: World, row: Row) -> list[Outcome]:
    """Measures all rounds of a row."""
    outcomes = [Outcome(row.number, goal) for goal in row.goals]
    began = time.monotonic()
    try:
        with world.servers():
            for world.round in range(world.rounds):
                for outcome, sample in zip(outcomes, row.measure(world), strict=True):
                    outcome.samples.append(sample)
    except (Unavailable, TimeoutError) as error:
        for outcome in outcomes:
            outcome.why_not = str(error)
    seconds = time.monotonic() - began
    for outcome in outcomes:
        cells = " ".join(table.cells(outcome)[2:7])
        packages.note(f"row {row.number}: {outcome.goal.name}: {cells} ({seconds:.0f} s)")
    return outcomes


def write(options: argparse.Namespace, world: World, outcomes: list[Outcome]) -> None:
    """Writes the results and the page."""
    options.out.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    file = options.out / f"{today}.json"
    by_row: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        by_row.setdefault(outcome.row, []).append(outcome)
    revision = "unknown" if options.no_build else machine.revision(ROOT)
    measured = {"revision": revision, "quick": world.is_quick}
    rows = {number: record_of_row(found) | measured for number, found in by_row.items()}
    description = machine.describe(world.versions)
    if options.add and file.exists():
        old = json.loads(file.read_text())
        description["peers"] = old["machine"].get("peers", {}) | description["peers"]
        rows = {row["row"]: row for row in old["rows"]} | rows
    kept = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": description,
        "rows": [rows[number] for number in sorted(rows)],
    }
    file.write_text(json.dumps(kept, indent=1) + "\n")
    file.with_suffix(".html").write_text(page.html(kept))


if __name__ == "__main__":
    sys.exit(main())
