#!/usr/bin/env python3
"""Tests the page of a comparison, on one that is made up."""

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import report
import summary

NAMES = ["native", "decommission", "sanderling"]


def made_up(work: int = 3, rounds: int = 3) -> dict[str, Any]:
    """Returns a comparison in which Sanderling takes 0.9 of native's time, the last query 1.2.

    Rounds differ by a tenth for all modes, as when another program runs.
    """
    names = [f"q{number}" for number in range(1, work + 1)]
    runs, played = [], []

    def add(mode: str, trace: str, number: int, factor: float, at: float) -> float:
        for name in names:
            ratio = {"native": 1.0, "decommission": 1.05}.get(mode, 0.9)
            ratio = 1.2 if mode == "sanderling" and name == names[-1] else ratio
            seconds = (2.0 + len(name)) * ratio * (1 + number / 10) * factor
            failed = 2 if trace.startswith("executors") and mode == "native" else 0
            runs.append({"mode": mode, "trace": trace, "round": number, "work": name, "began": at,
                         "seconds": seconds, "problem": "",
                         "figures": {"tasks_failed": failed, "write_bytes": 1 << 20}})
            at += seconds
        return at

    at = 1000.0
    for number in range(rounds):
        for mode in NAMES:
            at = add(mode, "no-preemptions", number, 1.0, at)
    for trace, mode in [("datanodes-32", "sanderling"), *(("executors-32", one) for one in NAMES)]:
        began, at = at, add(mode, trace, 0, 1.1 * 1.25, at)
        quarter = (at - began) / 4
        taken = {"slot": 1, "noticed": began + quarter, "killed": began + quarter + 1,
                 "empty": began + quarter + 0.5 if mode == "sanderling" else None,
                 "replaced": began + 2 * quarter}
        played.append({"mode": mode, "trace": trace, "round": 0, "slots": 2, "began": began,
                       "ended": at, "taken": [taken], "moved": 5 << 20, "lost": 0,
                       "absent": quarter})
    return {
        "schema_version": 1, "date": "2026-01-02 03:04", "revision": "abc", "spark": "4.1.4",
        "machine": {"cores": 2, "cpu": "some", "memory_bytes": 1 << 33, "kernel": "6", "load": 1},
        "options": {"modes": NAMES, "traces": ["datanodes-32", "executors-32"], "workers": 2,
                    "cores": 1, "executor_memory": "1g", "datanodes": 4, "dram": "512MiB",
                    "scale": 1.0, "notice": 4.0},
        "work": names, "runs": runs, "played": played, "problems": [], "seconds": 60.0,
    }


class Figures(unittest.TestCase):
    """The figures are those of the rounds."""

    def test_ratios_compare_within_a_round(self) -> None:
        found = summary.ratios(made_up(), "sanderling")
        self.assertEqual([one.name for one in found], ["q1", "q2", "q3", "total"])
        self.assertAlmostEqual(found[0].median, 0.9)
        self.assertAlmostEqual(found[0].low, found[0].high)
        self.assertAlmostEqual(found[-1].median, 1.0)

    def test_warm_up_rounds_do_not_count(self) -> None:
        kept = made_up()
        for one in list(kept["runs"]):
            of = one["trace"], one["mode"], one["round"]
            if of == ("no-preemptions", "sanderling", 0):
                kept["runs"].append(one | {"round": -1, "seconds": 1e6})
        self.assertAlmostEqual(summary.ratios(kept, "sanderling")[-1].median, 1.0)

    def test_lost_capacity_is_distinguished_from_the_slowdown(self) -> None:
        found = {(one.mode, one.trace): one for one in summary.preempted(made_up())}
        taken = found["sanderling", "executors-32"]
        self.assertAlmostEqual(taken.slowdown, 0.25)
        # One of two workers was gone for a quarter of the time.
        self.assertAlmostEqual(taken.capacity_lost, 0.125)
        self.assertAlmostEqual(taken.beyond, 1.25 * 0.875 - 1)
        self.assertEqual(found["sanderling", "datanodes-32"].capacity_lost, 0.0)
        self.assertEqual(found["native", "executors-32"].figures["tasks_failed"], 6)

    def test_taken_datanodes_are_compared_with_the_round_beside_them(self) -> None:
        found = {(one.mode, one.trace): one for one in summary.preempted(made_up())}
        # A quarter above the median of the rounds, of which the first took a tenth less.
        self.assertAlmostEqual(found["sanderling", "datanodes-32"].slowdown, 1.1 * 1.25 - 1)

    def test_what_tasks_take_longer_in_new_executors_is_reported(self) -> None:
        kept = made_up()
        for one in kept["runs"]:
            is_taken = one["trace"] == "executors-32"
            # Executor 2 came for 1: its task takes three seconds, as no other one's did.
            stage = {"0": [1, 1.0], "2": [1, 3.0]} if is_taken else {"0": [1, 1.0], "1": [1, 1.0]}
            # A stage that no round without preemptions had does not count.
            again = [{"2": [1, 99.0]}] if is_taken and one["work"] == "q1" else []
            one["figures"]["stages"] = [{"0": [4, 8.0]}, stage, *again]
        found = {(one.mode, one.trace): one for one in summary.preempted(kept)}
        played = next(one for one in kept["played"] if one["trace"] == "executors-32"
                      and one["mode"] == "sanderling")
        seconds = 2 * (played["ended"] - played["began"])
        self.assertAlmostEqual(found["sanderling", "executors-32"].cold, (2 + 2) / seconds)
        self.assertEqual(found["sanderling", "datanodes-32"].cold, 0.0)

    def test_shuffled_bytes_are_those_of_one_round_of_each_mode(self) -> None:
        kept = made_up()
        again = [one for one in kept["runs"]
                 if one["mode"] == "native" and one["trace"] == "executors-32"]
        kept["runs"] += [one | {"round": 1} for one in again]
        played = [one for one in kept["played"] if one["mode"] == "native"]
        kept["played"] += [one | {"round": 1} for one in played]
        lines = [line.split() for line in report.text(kept).splitlines() if "executors-32" in line]
        shuffled = {line[0]: line[11] for line in lines if line[0] in NAMES}
        self.assertEqual(shuffled, dict.fromkeys(NAMES, "3.0"))

    def test_targets_that_are_missed_are_reported(self) -> None:
        verdicts = {what: reached for what, _, reached in summary.verdicts(made_up())}
        self.assertTrue(verdicts["total time over native at most 1.03"])
        self.assertFalse(verdicts["no query above 1.15"])


class Page(unittest.TestCase):
    """The page is one file that needs nothing else."""

    def test_page_and_copies_are_written(self) -> None:
        with tempfile.TemporaryDirectory() as made:
            directory = Path(made)
            page = report.write(made_up(), directory).read_text()
            self.assertIn("<script class=plot", page)
            for outside in ["http:", "https:", " src=", "url("]:
                self.assertNotIn(outside, page.replace("http://www.w3.org/2000/svg", ""))
            report.keep(made_up(), directory)
            self.assertIn("q3", (directory / "spark-2026-01-02.md").read_text())
            self.assertTrue((directory / "spark-2026-01-02.json").exists())

    def test_one_mode_alone_has_a_page(self) -> None:
        kept = made_up()
        kept["options"]["modes"] = ["sanderling"]
        kept["runs"] = [one for one in kept["runs"] if one["mode"] == "sanderling"]
        kept["played"] = [one for one in kept["played"] if one["mode"] == "sanderling"]
        with tempfile.TemporaryDirectory() as made:
            self.assertIn("datanode 2", report.write(kept, Path(made)).read_text())
        self.assertIn("datanodes-32", report.text(kept))


if __name__ == "__main__":
    unittest.main(verbosity=2)
