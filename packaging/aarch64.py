#!/usr/bin/env python3
"""Builds the packages for aarch64 into dist-arm/: all of them, or those that are named.

docs/PACKAGES.md describes each package.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("DIST", str(Path(__file__).resolve().parent.parent / "dist-arm"))

import archives  # noqa: E402
import jars  # noqa: E402
import program  # noqa: E402
import tools  # noqa: E402
import wheels  # noqa: E402
from aarch64_tools import TRIPLE, MissingError, compiler, emulator  # noqa: E402
from tree import DIST, GLIBC, NATIVE, PROGRAM, ROOT, environment, run, version  # noqa: E402

MACHINE = "linux-aarch64"
# The compiler may be another one than that of target/dist, so nothing is shared with it.
BUILD = ROOT / "target" / "aarch64-build"


def cross_environment() -> dict[str, str]:
    """Returns the environment of builds for aarch64."""
    env = environment() | {"CARGO_TARGET_DIR": str(BUILD)}
    # As for x86-64: cargo would build C anew after every commit.
    del env["SOURCE_DATE_EPOCH"]
    if wrapper := compiler():
        env["RUSTC"] = str(wrapper)
    return env


def build(*arguments: str) -> Path:
    """Compiles a package of the workspace against the old glibc; returns where its output is."""
    run(["cargo", "zigbuild", "--locked", "--release", "--target", f"{TRIPLE}.{GLIBC}",
         *arguments], env=cross_environment())
    return BUILD / TRIPLE / "release"


def need(tool: str, packages: str) -> None:
    """Ends the build where a tool is missing, before anything is compiled."""
    if not shutil.which(tool):
        tools.install([packages])
    if not shutil.which(tool):
        raise MissingError(f"{tool} is missing: install {packages}")


def stripped(built: Path) -> Path:
    """Copies a program without its symbols; returns where."""
    out = BUILD / "stripped" / built.name
    program.place(built, out, 0o755)
    what = "--strip-unneeded" if out.suffix == ".so" else "--strip-all"
    run(["aarch64-linux-gnu-strip", what, str(out)])
    return out


def make_tarball() -> None:
    """Makes the archive of the program; the emulated program writes its manual pages."""
    words = tuple(emulator())
    built = build(*PROGRAM)
    program.make(MACHINE, stripped(built / "sanderling"), words)


def make_wheel() -> None:
    """Makes the wheel: one for every Python, so no Python of that machine is needed."""
    wheels.make_wheel(TRIPLE, cross_environment())


def make_jars() -> None:
    """Makes the jars with the native halves for both machines."""
    built = build(*NATIVE) / "libsanderling_jni.so"
    jars.make({MACHINE: stripped(built)})


# Tests of the Rust client that measure no time and kill nothing: programs, and their modules if not
# all of a program.
CLIENT_TESTS = {"conformance": (), "same_host": (), "shell": ("bad_input", "concat", "objects")}


def build_tests(names: Iterable[str]) -> dict[str, Path]:
    """Compiles tests of the Rust client, without optimization; returns the programs by name."""
    words = [word for name in names for word in ("--test", name)]
    command = ["cargo", "zigbuild", "--locked", "--target", f"{TRIPLE}.{GLIBC}",
               "--package", "sanderling-client", "--message-format", "json-render-diagnostics",
               *words]
    ran = subprocess.run(command, cwd=ROOT, env=cross_environment(), stdout=subprocess.PIPE,
                         check=True)
    artefacts = [json.loads(line) for line in ran.stdout.splitlines()]
    return {it["target"]["name"]: Path(it["executable"]) for it in artefacts
            if it.get("executable")}


KINDS = {"tarball": make_tarball, "wheel": make_wheel, "jars": make_jars}
# The exit code where the machine cannot have the compiler or a tool: nothing was found wrong.
SKIPPED = 77
# What must be installed, with the package of Debian that has it.
TOOLS = {
    "cargo": ("Rust 1.95, from https://rustup.rs", set(KINDS)),
    "aarch64-linux-gnu-strip": ("binutils-aarch64-linux-gnu", {"tarball", "jars"}),
    "mvn": ("maven", {"jars"}),
    "javac": ("default-jdk-headless", {"jars"}),
}


def main() -> int:
    """Builds what is named; returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kinds", nargs="*", help=f"only these of: {', '.join(KINDS)}")
    options = arguments.parse_args()
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        arguments.error(f"no package is called {unknown[0]}: {', '.join(KINDS)}")
    try:
        kinds = options.kinds or list(KINDS)
        for tool, (packages, users) in TOOLS.items():
            if users & set(kinds):
                need(tool, packages)
        if "tarball" in kinds:
            emulator()
        compiler()
        DIST.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            print(f"{kind} of sanderling {version()} for {MACHINE} ...", flush=True)
            KINDS[kind]()
    except MissingError as error:
        print(f"SKIPPED: no packages for {MACHINE}: {error}", file=sys.stderr)
        return SKIPPED
    print(f"{archives.write_sums(DIST)} files and SHA256SUMS in {DIST}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
