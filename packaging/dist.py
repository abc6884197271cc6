#!/usr/bin/env python3
"""Builds the packages into dist/: all of them, or those that are named.

Every package carries the moment of the commit. docs/PACKAGES.md lists what was compared.
It also describes each.
"""

import argparse
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
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
# What is compiled, by the ends of its names in the packages: the program, and native libraries.
COMPILED = ("/bin/sanderling", ".so")


def main() -> int:
    """Builds what is named; returns the exit code."""
    load, began = os.getloadavg()[0], time.monotonic()
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
    took: dict[str, tuple[float, float]] = {}
    for number, kind in enumerate(kinds, 1):
        print(f"[{number}/{len(kinds)}] {kind} ...", flush=True)
        started, spent = time.monotonic(), processor_seconds()
        KINDS[kind]()
        took[kind] = time.monotonic() - started, processor_seconds() - spent
        print(f"[{number}/{len(kinds)}] {kind}: {took[kind][0]:.0f} s, "
              f"{took[kind][1]:.0f} s of processors", flush=True)
    count = archives.write_sums(DIST)
    print(f"{count} files and SHA256SUMS in {DIST}")
    took["all"] = time.monotonic() - began, processor_seconds()
    print(durations(took, load))
    return 0


def durations(took: dict[str, tuple[float, float]], load: float) -> str:
    """Returns a table of what each kind took, by the clock and of the processors."""
    rows = [f"{'':8} {'seconds':>8} {'of processors':>14}"]
    rows += [f"{kind:8} {clock:8.0f} {processors:14.0f}"
             for kind, (clock, processors) in took.items()]
    return "\n".join([*rows, f"load average of the minute before the start: {load:.2f}, on "
                      f"{os.cpu_count()} processors"])


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
    if not any(DIST.rglob("*")):
        print(f"dist: {DIST} has no packages to compare with: make dist", file=sys.stderr)
        return 2
    clone = TARGET / "again"
    shutil.rmtree(clone, ignore_errors=True)
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)])
    plain = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
    environment = plain | {"SOURCE_DATE_EPOCH": str(epoch()), "DIST": str(clone / "dist")}
    run([sys.executable, "packaging/dist.py", *kinds], cwd=clone, env=environment)
    return compare(DIST, clone / "dist", is_whole=set(kinds) == set(KINDS))


def compare(first: Path, second: Path, is_whole: bool) -> int:
    """Prints for every file, and what is compiled in it, whether it is equal; returns the code."""
    found = differences(first, second, is_whole)
    for name, is_equal in found.items():
        print(f"{'equal  ' if is_equal else 'differs'} {name}")
        for inside, is_same in differences_inside(first / name, second / name).items():
            if not is_same or f"/{inside}".endswith(COMPILED):
                print(f"{'equal  ' if is_same else 'differs'}     {inside}")
    print(f"{sum(found.values())} of {len(found)} files are equal")
    return 0 if found and all(found.values()) else 1


def differences(first: Path, second: Path, is_whole: bool) -> dict[str, bool]:
    """Returns for every file of two folders whether both have it with the same bytes.

    Unless both are whole, the first may have files that the second has not.
    """
    folders = (first, second) if is_whole else (second,)
    names = {path.relative_to(folder).as_posix() for folder in folders
             for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
    return {name: (first / name).is_file() and (second / name).is_file()
            and archives.sha256(first / name) == archives.sha256(second / name)
            for name in sorted(names)}


def differences_inside(first: Path, second: Path) -> dict[str, bool]:
    """Returns for every entry of two archives whether both have it with the same bytes."""
    if not (first.is_file() and second.is_file()):
        return {}
    one, other = entries(first), entries(second)
    return {name: one.get(name) == other.get(name) for name in sorted(one.keys() | other.keys())}


def entries(path: Path) -> dict[str, bytes]:
    """Returns the checksums of an archive's entries; none of a file that is no such archive."""
    if path.suffix in (".whl", ".jar"):
        with zipfile.ZipFile(path) as archive:
            return {name: hashlib.sha256(archive.read(name)).digest()
                    for name in archive.namelist()}
    if path.suffix in (".gz", ".crate"):
        with tarfile.open(path) as archive:
            return {entry.name: hashlib.file_digest(archive.extractfile(entry), "sha256").digest()
                    for entry in archive if entry.isfile()}
    return {}


if __name__ == "__main__":
    raise SystemExit(main())
