#!/usr/bin/env python3
"""Tests how mutants are written into a file, and what a run of tests finds of them."""

import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import mutants_build as build
import mutants_run as run

CODE = '''\
const LIMIT: u64 = 1 << 3;

/// Adds { to "fn".
#[must_use]
pub const fn add(a: [u8; 2], b: char) -> u8 {
    if b == '{' { a[0] + a[1] } else { 0 }
}

fn other<'a>(text: &'a str) -> bool {
    !text.is_empty()
}
'''


def mutant(
    number: int, replacement: str, span: tuple[int, int, int, int],
    function: tuple[int, int, int, int] | None,
) -> build.Mutant:
    """Returns a mutant of the code above."""
    return build.Mutant(number, f"mutant {number}", "a.rs", "a", span, function, replacement)


ADD = (3, 1, 7, 2)
OTHER = (9, 1, 11, 2)
MINUS = mutant(1, "-", (6, 24, 6, 25), ADD)
NOTHING = mutant(2, "1", (6, 5, 6, 43), ADD)
NOT = mutant(3, "", (10, 5, 10, 6), OTHER)


class BuildTest(unittest.TestCase):
    def test_each_mutant_is_a_branch_of_its_function(self) -> None:
        text, owners = build.dispatched(CODE, [MINUS, NOTHING, NOT], "is")
        words = " ".join(text.split())
        self.assertIn("pub fn add(a: [u8; 2], b: char) -> u8 { if is(1) { if b == '{' "
                      "{ a[0] - a[1] } else { 0 } } else if is(2) { 1 } else { if b == '{' "
                      "{ a[0] + a[1] }", words)
        self.assertIn("-> bool { if is(3) { text.is_empty() } else { !text.is_empty() } }", words)
        lines = text.splitlines()
        line = 1 + next(at for at, line in enumerate(lines) if "a[0] - a[1]" in line)
        self.assertEqual(owners[line], [MINUS])
        line = 1 + next(at for at, line in enumerate(lines) if "a[0] + a[1]" in line)
        self.assertEqual(owners[line], [MINUS, NOTHING])
        self.assertNotIn(1, owners)

    def test_constant_is_changed_in_place(self) -> None:
        shift = mutant(4, ">>", (1, 22, 1, 24), None)
        self.assertIn("= 1 >> 3;", build.mutated(CODE, shift, 0, len(CODE)))

    def test_function_inside_another_with_a_mutant_is_built_alone(self) -> None:
        inner = mutant(5, "0", (6, 5, 6, 6), (5, 1, 6, 9))
        self.assertTrue(build.nested(inner, [inner, MINUS]))
        self.assertFalse(build.nested(MINUS, [inner, MINUS, NOT]))


class RunTest(unittest.TestCase):
    def run_script(self, text: str, seconds: float = 60) -> str | None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "tests"
            path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{text}\n")
            path.chmod(0o700)
            return run.run(path, Path(directory), 7, seconds)

    def test_test_that_fails_ends_the_run_and_is_named(self) -> None:
        text = "print('test a::b ... ok\\ntest a::c ... FAILED', flush=True); time.sleep(60)"
        self.assertEqual(self.run_script(text), "a::c")

    def test_mutant_is_in_the_environment(self) -> None:
        self.assertIsNone(self.run_script(f"assert os.environ['{build.VARIABLE}'] == '7'"))

    def test_loop_and_crash_are_detected(self) -> None:
        self.assertEqual(self.run_script("time.sleep(60)", seconds=0.5), "timeout")
        self.assertEqual(self.run_script("os.abort()"), "abort")

    def detected(self, text: str) -> str | None:
        """Returns what detects mutant 7 if the tests are this program."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "tests"
            path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{text}\n")
            path.chmod(0o700)
            tests = run.Tests.__new__(run.Tests)
            tests.is_mutated, tests.flaky = False, {}
            tests.binaries = [("b tests", path, Path(directory))]
            limits = {"SECONDS_MIN": 4, "TIMES": 1, "SECONDS_UNKNOWN": 0}
            with mock.patch.multiple(run, **limits), mock.patch.dict(run.Tests.seconds):
                return tests.detect(replace(MINUS, file="crates/b/src/a.rs"))

    def test_what_is_left_out_is_there(self) -> None:
        for name in run.LEFT_OUT:
            crate, tests = name.split()
            self.assertTrue((build.ROOT / "crates" / crate / "tests" / f"{tests}.rs").is_file())

    def test_tests_that_are_late_without_a_mutant_too_detect_nothing(self) -> None:
        chosen = f"os.environ['{build.VARIABLE}'] == '1'"
        self.assertEqual(self.detected(f"time.sleep(60 * ({chosen}))"), "b tests: timeout")
        # The first run, with the mutant, and the second, without, are late; the third is not.
        counted = "open('runs', 'ab', 0).write(b'x'); runs = os.path.getsize('runs')"
        self.assertIsNone(self.detected(f"{counted}; time.sleep(60 * (runs < 3))"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
