#!/usr/bin/env python3
"""Builds the test programs of Rust packages and runs two of them at a time, then doc tests.

    scripts/rust_tests.py --workspace --exclude sanderling-python

`cargo test` runs one program after the other. Those that start servers mostly wait, so it leaves a
processor idle. Prints what `cargo test` prints, one program after the other, and ends with its exit
code: 0 if all passed.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 2
# Packages whose programs take longest, in this order: what is left at the end is short.
LONG_FIRST = ["sanderling-cli", "sanderling-sim", "sanderling-namenode", "sanderling-datanode"]


@dataclass
class Program:
    """A test program and where it runs, as under `cargo test`."""

    path: str
    package: str
    target: str
    directory: Path

    def run(self) -> subprocess.CompletedProcess:
        """Runs its tests, and returns what they printed and the exit code."""
        environment = os.environ | {
            "CARGO": os.environ.get("CARGO", "cargo"),
            "CARGO_MANIFEST_DIR": str(self.directory),
            "CARGO_PKG_NAME": self.package,
        }
        return subprocess.run([self.path], cwd=self.directory, env=environment, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)


def main() -> int:
    """Builds and runs them, and returns the exit code."""
    selection = sys.argv[1:]
    build = ["cargo", "test", "--locked", "--no-run", "--message-format=json", *selection]
    built = subprocess.run(build, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    if built.returncode:
        # As JSON the errors went where nobody reads them.
        return subprocess.run(["cargo", "test", "--locked", "--no-run", *selection], cwd=ROOT,
                              check=False).returncode
    found = sorted(programs(built.stdout), key=order)
    if not found:
        print("no test program was built")
        return 1
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for program, done in zip(found, pool.map(Program.run, found)):
            print(f"     Running {program.package} {program.target}\n{done.stdout}", flush=True)
            if done.returncode:
                failed.append(f"{program.package} {program.target}")
    packages = documented({program.package for program in found})
    options = [word for package in packages for word in ("--package", package)]
    doc_tests = ["cargo", "test", "--locked", "--no-fail-fast", "--doc", *options]
    if packages and subprocess.run(doc_tests, cwd=ROOT, check=False).returncode:
        failed.append("doc tests")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


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


def documented(packages: set[str]) -> list[str]:
    """Returns those of the packages whose manifests allow doc tests; `--doc` asks for all."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE,
                                         check=True).stdout)
    has_doc_tests = [package["name"] for package in metadata["packages"]
                     if any(target["doctest"] for target in package["targets"])]
    return sorted(packages.intersection(has_doc_tests))


def order(program: Program) -> tuple[int, str]:
    """Returns the place of a program: long ones first."""
    long = LONG_FIRST.index(program.package) if program.package in LONG_FIRST else len(LONG_FIRST)
    return long, program.target


if __name__ == "__main__":
    sys.exit(main())
