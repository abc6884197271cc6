#!/usr/bin/env python3
"""Uses each package of dist-arm/ on an emulated aarch64 machine, beside this machine's kernel.

Needs the packages (`make dist-arm`), qemu, and what each test names. A test whose tool is missing
is skipped with the reason; a package that is missing fails its test.
"""

import os
import shlex
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("DIST", str(HERE.parent / "dist-arm"))

import aarch64_tools  # noqa: E402
import dist_test  # noqa: E402
from aarch64 import MACHINE  # noqa: E402
from dist_test import VERSION, needs, package, run  # noqa: E402
from tree import ROOT  # noqa: E402


class Case(dist_test.Case):
    """A test with a directory of its own and an emulator."""

    def setUp(self):
        super().setUp()
        try:
            self.emulator = aarch64_tools.emulator()
        except aarch64_tools.MissingError as error:
            self.skipTest(str(error))

    def emulated(self, name: str, *words: str | Path) -> Path:
        """Writes a script that runs a program of aarch64 with its first arguments.

        The kernel may know nothing of such programs, so what the program starts is the script.
        """
        script = self.place / name
        command = shlex.join(str(word) for word in (*self.emulator, *words))
        script.write_text(f"#!/bin/sh\nexport SANDERLING_EXE={shlex.quote(str(script))}\n"
                          f'exec {command} "$@"\n')
        script.chmod(0o755)
        return script

    def program(self) -> Path:
        """Unpacks the archive; returns the program, as this machine can start it."""
        run("tar", "-xzf", package(f"sanderling-*-{MACHINE}.tar.gz"), "-C", self.place)
        (built,) = self.place.glob("*/bin/sanderling")
        return self.emulated("sanderling", built)


class TarballTest(Case):
    """The archive of the program."""

    def test_serves_and_drains(self):
        program = self.program()
        self.assertEqual(f"sanderling {VERSION}", run(program, "--version").stdout.strip())
        self.use(program)

    @needs("readelf", "binutils")
    def test_is_of_aarch64_and_needs_glibc_2_28_at_most(self):
        self.program()
        (built,) = self.place.glob("*/bin/sanderling")
        self.assertIn("AArch64", run("readelf", "--file-header", built).stdout)
        found = {tuple(map(int, word.removeprefix("GLIBC_").split(".")))
                 for word in run("readelf", "--version-info", built).stdout.split()
                 if word.startswith("GLIBC_2")}
        self.assertLessEqual(max(found)[:2], (2, 28))
        for name in (str(Path.home()).encode() + b"/", str(ROOT).encode()):
            self.assertNotIn(name, built.read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
