#!/usr/bin/env python3
"""Tests how executions are divided among fuzz targets, and how the log of a run is read."""

import argparse
import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fuzz
from fuzz_plan import Plan, Slice

LOG = """\
#2 INITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb
#65536 pulse  cov: 61 ft: 130 corp: 9/60b lim: 652 exec/s: 32768 rss: 33Mb
#70000 NEW    cov: 62 ft: 131 corp: 10/62b lim: 661 exec/s: 31000 rss: 33Mb L: 2/7 MS: 1 EraseBytes-
"""
STATS = """\
Done 90001 runs in 3 second(s)
stat::number_of_executed_units: 90001
stat::average_exec_per_sec:     30000
stat::slowest_unit_time_sec:    1
"""


def slice_of(executions: int, seconds: float, has_finding: bool = False) -> Slice:
    """Returns a slice of that size."""
    return Slice(executions, seconds, 5, 6, 0, has_finding)


class PlanTest(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = Path(place.name) / "plan.json"

    def plan(self, total: int = 1000, floor: int = 100) -> Plan:
        """Opens the plan of two targets."""
        return Plan(self.file, ["fast", "slow"], total, floor)

    def test_floor_of_each_target_comes_before_the_total(self) -> None:
        plan = self.plan()
        plan.end("fast", slice_of(5000, 1.0), "a")
        self.assertEqual(plan.next(), "slow")
        self.assertFalse(plan.is_whole())
        plan.end("slow", slice_of(100, 9.0), "a")
        self.assertIsNone(plan.next())
        self.assertTrue(plan.is_whole())

    def test_time_beyond_the_floor_is_divided_equally(self) -> None:
        plan = self.plan()
        plan.end("fast", slice_of(600, 1.0), "a")
        plan.end("slow", slice_of(100, 2.0), "a")
        self.assertEqual(plan.next(), "fast")
        plan.end("fast", slice_of(200, 2.0), "a")
        self.assertEqual(plan.next(), "slow")

    def test_two_workers_run_two_targets(self) -> None:
        plan = self.plan()
        self.assertEqual({plan.next(), plan.next()}, {"fast", "slow"})
        self.assertIsNone(plan.next())

    def test_interrupted_plan_continues_with_what_its_slices_did(self) -> None:
        plan = self.plan()
        plan.end("fast", slice_of(600, 1.0), "a")
        self.assertEqual(plan.next(), "slow")
        again = self.plan()
        self.assertEqual(again.done(), 600)
        again.end("fast", slice_of(1, 1.0), "b")
        self.assertEqual(self.plan().targets["fast"].commits, ["a", "b"])

    def test_target_with_a_finding_is_not_run_again_and_the_plan_is_not_whole(self) -> None:
        plan = self.plan()
        plan.end("fast", slice_of(2000, 1.0, has_finding=True), "a")
        plan.end("slow", slice_of(2000, 1.0), "a")
        self.assertFalse(plan.is_whole())
        plan = self.plan(total=9000)
        self.assertEqual(plan.next(), "slow")
        self.assertIsNone(plan.next())


class CarryOutTest(unittest.TestCase):
    """Workers on programs that print the log of a run and end."""

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = Path(place.name)
        (self.root / "log").write_text(LOG + STATS)
        for name in ["fast", "slow", "bad"]:
            program = self.root / name
            code = 77 if name == "bad" else 0
            program.write_text(f"#!/bin/sh\ncat {self.root}/log\nexit {code}\n")
            program.chmod(0o755)

    def carry_out(self, names: list[str], executions: int | None) -> tuple[int, str]:
        """Returns the exit code and what was printed."""
        options = argparse.Namespace(
            executions=executions, floor=None, jobs=2, minutes=1, seconds=1, keep=False,
            show=executions is None)
        with contextlib.ExitStack() as stack:
            for name, value in [("BUILT", self.root), ("LOGS", self.root)]:
                stack.enter_context(mock.patch.object(fuzz, name, value))
            stack.enter_context(mock.patch.object(fuzz, "build", lambda _: self.root))
            printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            return fuzz.carry_out(names, options), printed.getvalue()

    def test_workers_end_when_the_plan_is_whole_and_it_goes_on_later(self) -> None:
        code, printed = self.carry_out(["fast", "slow"], 500_000)
        self.assertEqual(code, 0)
        self.assertRegex(printed, r"fast +\d+ +\d+ +62 +131 ")
        done = Plan(self.root / "plan.json", ["fast", "slow"], 1, 1).done()
        self.assertTrue(500_000 <= done <= 700_000, done)
        code, _ = self.carry_out(["fast", "slow"], 1_000_000)
        self.assertEqual(code, 0)
        self.assertIn(" executions, at least 0 each", self.carry_out(["fast", "slow"], None)[1])

    def test_finding_ends_its_target_alone_and_is_an_error(self) -> None:
        code, printed = self.carry_out(["fast", "bad"], 500_000)
        self.assertEqual(code, 1)
        self.assertRegex(printed, r"bad +90001 .*FOUND")
        done = Plan(self.root / "plan.json", ["fast", "bad"], 1, 1).targets
        self.assertEqual(done["bad"].executions, 90001)
        self.assertGreaterEqual(done["fast"].executions, 400_000)


class LogTest(unittest.TestCase):
    def test_whole_log_has_the_final_numbers(self) -> None:
        done = fuzz.read_log(LOG + STATS, 3.0, 0)
        self.assertEqual(done, Slice(90001, 3.0, 62, 131, 1, False))

    def test_log_of_a_killed_run_counts_what_it_shows(self) -> None:
        done = fuzz.read_log(LOG, 3.0, 0)
        self.assertEqual((done.executions, done.edges), (70000, 62))

    def test_exit_code_of_a_finding_is_one(self) -> None:
        self.assertTrue(fuzz.read_log(LOG + STATS, 3.0, 77).has_finding)


if __name__ == "__main__":
    unittest.main()
