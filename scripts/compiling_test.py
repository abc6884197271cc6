#!/usr/bin/env python3
"""Tests how a build's progress is shown."""

import subprocess
import sys
import unittest
from pathlib import Path

import compiling

SCRIPT = Path(__file__).parent / "compiling.py"
# What cargo writes: a bar that it rewrites, steps, and a warning of its own.
CARGO = r"""
import sys
sys.stderr.write("   Compiling serde v1.0\n\x1b[1m    Building\x1b[0m [=>    ] 1/4: serde\r")
sys.stderr.write("    Building [===>  ] 4/4: cli\r")
sys.stderr.write("error[E0308]: mismatched types\n")
sys.exit(int(sys.argv[1]))
"""


class CompilingTest(unittest.TestCase):
    def test_line_has_the_count_the_time_and_an_estimate(self) -> None:
        self.assertEqual(compiling.line(0, 0, 3.0), "compiling, 3 s")
        self.assertEqual(compiling.line(4, 200, 5.0), "compiling: crate 4 of 200, 5 s")
        text = compiling.line(100, 200, 90.0)
        count = "compiling: crate 100 of 200, 1 min 30 s"
        self.assertRegex(text, rf"^{count}, about \d+ min \d+ s left$")
        self.assertLess(len(text), 80)

    def test_estimate_falls_to_nothing(self) -> None:
        parts = [compiling.estimate(done, 200, done**compiling.POWER) for done in range(20, 200)]
        self.assertEqual(parts, sorted(parts, reverse=True))
        self.assertIsNone(compiling.estimate(200, 200, 60.0))

    def test_bar_of_cargo_is_read_and_its_code_is_returned(self) -> None:
        done = self.run_script(["-c", CARGO, "0"])
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^compiled 4 crates in \d+ s\n$")

    def test_command_that_fails_shows_why(self) -> None:
        done = self.run_script(["-c", CARGO, "101"])
        self.assertEqual((done.returncode, done.stderr), (101, "error[E0308]: mismatched types\n"))

    def run_script(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), sys.executable, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
