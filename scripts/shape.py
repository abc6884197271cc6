#!/usr/bin/env python3
"""Prints the shape of the code: lengths of files and functions, and lines of product code by crate.

Product code is Rust in `crates/` and `bindings/` without tests: no `tests` directory or file, no
module under `#[cfg(test)]`. Lines are those that are neither empty nor a comment. A function counts
from its signature to its closing brace, as rustfmt indents it.

  scripts/shape.py             the tree as it is
  scripts/shape.py --at REV    a revision
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = r'(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern "C" )*'
FUNCTION = re.compile(rf"^( *){WORDS}fn \w")
ONE_LINE = re.compile(r"[;}]$")
# Not product code: what checks, simulates or fuzzes it.
SIDE = {"crates/tidy", "crates/fuzz", "crates/sim"}


def git(*words: str) -> str:
    """Returns what git prints."""
    ran = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout


def sources(revision: str | None) -> dict[str, str]:
    """Returns the texts of the Rust files of product code and of their tests."""
    names = git("ls-tree", "-r", "--name-only", revision) if revision else git("ls-files")
    wanted = [name for name in names.splitlines()
              if name.endswith(".rs") and name.startswith(("crates/", "bindings/"))]
    if revision is None:
        return {name: (ROOT / name).read_text() for name in wanted if (ROOT / name).exists()}
    return {name: git("show", f"{revision}:{name}") for name in wanted}


def is_test(name: str) -> bool:
    """Returns whether a file has tests, examples or benchmarks alone."""
    parts = name.split("/")
    return bool({"tests", "examples", "benches"} & set(parts[:-1])) or parts[-1] == "tests.rs"


def product(text: str) -> list[str]:
    """Returns the lines before the module of tests, which is the last of a file."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line == "#[cfg(test)]" and lines[index + 1 :][:1] and "mod " in lines[index + 1]:
            return lines[:index]
    return lines


def functions(lines: list[str]) -> list[int]:
    """Returns the lengths of the functions with a body."""
    found = []
    for index, line in enumerate(lines):
        begins = FUNCTION.match(line)
        if not begins:
            continue
        end = begins[1] + "}"
        for at in range(index, len(lines)):
            if lines[at] == end or (at == index and ONE_LINE.search(line)):
                if not lines[at].endswith(";"):
                    found.append(at - index + 1)
                break
            if lines[at].startswith(begins[1]) and lines[at].endswith(";") and at > index \
                    and not lines[at].startswith(begins[1] + " "):
                break
    return found


def code(lines: list[str]) -> int:
    """Returns how many lines are code."""
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("//"))


def shown(name: str, values: list[int]) -> str:
    """Returns a line of quantiles."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return (f"{name:<28} {len(ordered):>7,} median {statistics.median(ordered):>5g}"
            f"  p95 {high:>4}  max {ordered[-1]:>4}")


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", metavar="REV", help="a revision instead of the working tree")
    options = parser.parse_args()
    files = sources(options.at)
    ours = {name: product(text) for name, text in files.items() if not is_test(name)}
    lengths = [length for lines in ours.values() for length in functions(lines)]
    print(shown("files of product code", [len(lines) for lines in ours.values()]))
    print(shown("files with their tests", [text.count("\n") for text in files.values()]))
    print(shown("functions of product code", lengths))
    crates: Counter[str] = Counter()
    for name, lines in ours.items():
        crates["/".join(name.split("/")[:2])] += code(lines)
    for name, count in crates.most_common():
        print(f"  {name:<26} {count:>7,}{'  side' if name in SIDE else ''}")
    side = sum(crates[name] for name in SIDE)
    print(f"lines of product code {sum(crates.values()) - side:,}, and beside them {side:,}")


if __name__ == "__main__":
    main()
