#!/usr/bin/env python3
"""Builds the packages into dist/: all of them, or those that are named.

Every package carries the moment of the commit. docs/PACKAGES.md lists what was compared.
It also describes each.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import archives
import crates
import debian
import image
import jars
import program
import tools
import wheels
from tree import DIST, ROOT, TARGET, VENV, epoch, run, version

KINDS = {
    "tarball": program.make,
    "debian": debian.make,
    "image": image.make,
    "wheel": wheels.make_wheel,
    "sdist": wheels.make_sdist,
    "jars": jars.make,
    "crates": crates.make,
}
# What must be installed, with the package of Debian that has it. scripts/venv.sh brings the rest.
TOOLS = {
    "cargo": ("Rust 1.95, from https://rustup.rs", set(KINDS)),
    "cc": ("build-essential", set(KINDS) - {"sdist"}),
    "strip": ("binutils", {"tarball", "debian", "image", "jars"}),
    "readelf": ("binutils", {"image"}),
    "dpkg-deb": ("dpkg-dev", {"debian"}),
    "umoci": ("umoci", {"image"}),
    "mvn": ("maven", {"jars"}),
    "javac": ("default-jdk-headless", {"jars"}),
}


def main() -> int:
    """Builds what is named; returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kinds", nargs="*", help=f"only these of: {', '.join(KINDS)}")
    arguments.add_argument("--check-reproducible", action="store_true",
                           help="build the commit again in another directory, and compare")
    options = arguments.parse_args()
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        arguments.error(f"no package is called {unknown[0]}: {', '.join(KINDS)}")
    kinds = options.kinds or list(KINDS)
    tools.install([package for tool, (package, users) in TOOLS.items()
                   if users & set(kinds) and not shutil.which(tool)])
    lacks = missing(kinds)
    if lacks:
        print("dist: " + "\n      ".join(lacks), file=sys.stderr)
        return 2
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout
    if options.check_reproducible:
        if changed:
            arguments.error("the checkout has changes that are in no commit: commit them first")
        return check_reproducible(kinds)
    if not (VENV / "cargo-zigbuild").exists():
        run(["scripts/venv.sh", "dist"])
    if not options.kinds:
        shutil.rmtree(DIST, ignore_errors=True)
    if changed:
        print("the checkout has changes that are in no commit: the packages are no commit's")
    DIST.mkdir(parents=True, exist_ok=True)
    print(f"sanderling {version()}, SOURCE_DATE_EPOCH {epoch()}")
    for number, kind in enumerate(kinds, 1):
        print(f"[{number}/{len(kinds)}] {kind} ...", flush=True)
        started, spent = time.monotonic(), processor_seconds()
        KINDS[kind]()
        print(f"[{number}/{len(kinds)}] {kind}: {time.monotonic() - started:.0f} s, "
              f"{processor_seconds() - spent:.0f} s of processors", flush=True)
    count = archives.write_sums(DIST)
    print(f"{count} files and SHA256SUMS in {DIST}")
    return 0


def missing(kinds: list[str]) -> list[str]:
    """Returns a line for each tool that these packages need and that is not installed."""
    lacks = [f"{tool} is missing, for {', '.join(sorted(users & set(kinds)))}: install {package}"
             for tool, (package, users) in TOOLS.items()
             if users & set(kinds) and not shutil.which(tool)]
    if "image" in kinds and not image.CERTIFICATES.is_dir():
        lacks.append(f"{image.CERTIFICATES} is missing, for image: install ca-certificates")
    return lacks


def processor_seconds() -> float:
    """Returns what all processes that were started and have ended took of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_reproducible(kinds: list[str]) -> int:
    """Builds the commit in a clone elsewhere, with nothing compiled; returns 1 if a file differs.

    The packages of the first build are those in dist/.
    """
    clone = TARGET / "again"
    shutil.rmtree(clone, ignore_errors=True)
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)])
    plain = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
    environment = plain | {"SOURCE_DATE_EPOCH": str(epoch()), "DIST": str(clone / "dist")}
    run([sys.executable, "packaging/dist.py", *kinds], cwd=clone, env=environment)
    found = differences(DIST, clone / "dist")
    for name, is_equal in found.items():
        print(f"{'equal  ' if is_equal else 'differs'} {name}")
    return 0 if found and all(found.values()) else 1


def differences(first: Path, second: Path) -> dict[str, bool]:
    """Returns for every file of the second folder whether the first has the same bytes."""
    names = sorted(path.relative_to(second).as_posix() for path in second.rglob("*")
                   if path.is_file() and path.name != "SHA256SUMS")
    return {name: (first / name).is_file()
            and archives.sha256(first / name) == archives.sha256(second / name)
            for name in names}


if __name__ == "__main__":
    raise SystemExit(main())
