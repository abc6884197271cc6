#!/usr/bin/env python3
"""Tests how figures are judged and shown, and runs one row for real where iperf3 is installed."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import compare
import page
import table
from goal import Goal, Outcome, Sample, Unavailable, outcomes_of, record_of_row
from image_receiver import SOCKET, receiver
from peers.packages import install
from rows import ROWS
from world import ROOT, World

AT_LEAST = Goal("reads / peer", 0.8)
AT_MOST = Goal("latency / peer", 1.25, is_limit=True)


def outcome(goal: Goal, *values: float, why_not: str = "") -> Outcome:
    """Makes an outcome of rounds with these values."""
    return Outcome(1, goal, [Sample(value, value, 1.0, "us") for value in values], why_not)


class Judged(unittest.TestCase):
    """Results of rounds for a goal."""

    def test_median_of_the_rounds_is_judged(self) -> None:
        self.assertTrue(outcome(AT_LEAST, 0.1, 0.9, 0.81).is_reached)
        self.assertFalse(outcome(AT_LEAST, 0.1, 0.7, 5.0).is_reached)
        self.assertTrue(outcome(AT_MOST, 9.0, 1.25, 0.2).is_reached)
        self.assertFalse(outcome(AT_MOST, 1.3, 1.3, 0.1).is_reached)

    def test_record_has_median_and_spread(self) -> None:
        record = outcome(AT_LEAST, 0.5, 2.0, 1.0).record()
        self.assertEqual((record["ratio"], record["min"], record["max"]), (1.0, 0.5, 2.0))
        self.assertEqual((record["target"], record["reached"]), (0.8, True))
        self.assertEqual([one["value"] for one in record["rounds"]], [0.5, 2.0, 1.0])

    def test_row_that_was_cut_short_is_not_reached_and_has_the_reason(self) -> None:
        record = outcome(AT_LEAST, 2.0, why_not="redis-server is not there").record()
        self.assertFalse(record["reached"])
        self.assertIsNone(record["ratio"])
        self.assertEqual(record["why_not"], "redis-server is not there")

    def test_row_of_two_goals_is_as_good_as_the_worse(self) -> None:
        good, bad = outcome(AT_LEAST, 8.0), outcome(AT_MOST, 5.0)
        record = record_of_row([good, bad])
        self.assertEqual((record["name"], record["reached"]), (AT_MOST.name, False))
        self.assertEqual([goal["reached"] for goal in record["goals"]], [True, False])
        self.assertTrue(record_of_row([good, outcome(AT_MOST, 0.5)])["reached"])

    def test_records_are_read_back_as_they_were(self) -> None:
        made = [outcome(AT_LEAST, 0.5, 2.0), outcome(AT_MOST, why_not="no fio here")]
        self.assertEqual(outcomes_of([record_of_row([one]) for one in made]), made)
        self.assertEqual(outcomes_of([record_of_row(made)]), made)

    def test_peer_that_measured_nothing_is_no_ratio(self) -> None:
        self.assertEqual(Sample.ratio(3.0, 2.0, "us").value, 1.5)
        with self.assertRaises(Unavailable):
            Sample.ratio(3.0, 0.0, "us")

    def test_sides_take_turns_in_being_first(self) -> None:
        world = World(*[Path()] * 4)
        order: list[str] = []
        for world.round in range(3):
            both = world.both(lambda: order.append("ours"), lambda: order.append("peer"))
            self.assertEqual(both, (None, None))
        self.assertEqual(order, ["ours", "peer", "peer", "ours", "ours", "peer"])


class Shown(unittest.TestCase):
    """The table and the page."""

    def test_table_names_a_row_that_was_not_run_with_the_reason(self) -> None:
        shown = table.text([outcome(AT_LEAST, 1.0), outcome(AT_MOST, why_not="no fio here")])
        self.assertIn("not run", shown)
        self.assertIn("row 1 (latency / peer) was not run: no fio here", shown)
        self.assertIn(">= 0.80", shown)

    def test_all_columns_of_markdown_are_there(self) -> None:
        lines = table.markdown([outcome(AT_LEAST, 1.0)]).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual({line.count("|") for line in lines}, {len(table.HEAD) + 1})

    def test_better_is_to_the_right_whichever_way_a_goal_points(self) -> None:
        least, most = outcome(AT_LEAST, 1.6).record(), outcome(AT_MOST, 0.625).record()
        self.assertAlmostEqual(page.factor(least, 1.6), 2.0)
        self.assertAlmostEqual(page.factor(most, 0.625), 2.0)

    def test_page_needs_nothing_from_elsewhere(self) -> None:
        rows = [outcome(AT_LEAST, 1.0).record(), outcome(AT_MOST, why_not="<no> fio").record()]
        described = {"cores": 2, "cpu": "a", "memory_bytes": 1, "kernel": "b", "load": 0}
        description = described | {"peers": {}}
        text = page.html({"date": "today", "machine": description, "rows": rows})
        html.parser.HTMLParser().feed(text)
        for outside in ["http:", "https:", " src=", "@import", "url("]:
            self.assertNotIn(outside, text.replace("http://www.w3.org/2000/svg", ""))
        [spec] = re.findall(r'<script class=plot type="application/json">(.*?)</script>', text)
        [spread, dot] = json.loads(spec)["panels"][0]["marks"][1:3]
        self.assertEqual((len(spread["points"]), len(dot["points"])), (2, 1))
        self.assertIn("&lt;no&gt; fio", text)


class Rows(unittest.TestCase):
    """The list of rows."""

    def test_every_number_is_there_once(self) -> None:
        self.assertEqual([row.number for row in ROWS], list(range(1, 20)))

    def test_rows_are_asked_for_by_number_and_range(self) -> None:
        self.assertEqual(compare.numbers("1,4-6,19"), [1, 4, 5, 6, 19])


class Images(unittest.TestCase):
    """The receiver with which restores of tasks are compared."""

    def test_images_are_served_and_others_are_reported_absent(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            image = os.urandom(3 << 20)
            (Path(place) / "pages-1.img").write_bytes(image)
            with receiver(Path(place)), socket.socket(socket.AF_UNIX) as criu:
                criu.connect(str(Path(place) / SOCKET))
                self.assertFalse(self.exists(criu, b"seccomp.img"))
                self.assertTrue(self.exists(criu, b"pages-1.img"))
                read, written = os.pipe()
                socket.send_fds(criu, [bytes(1)], [written])
                os.close(written)
                with open(read, "rb") as pipe:
                    self.assertEqual(pipe.read(), image)

    def test_request_that_names_no_image_is_reported(self) -> None:
        with tempfile.TemporaryDirectory() as place, self.assertRaises(Unavailable):
            with receiver(Path(place)), socket.socket(socket.AF_UNIX) as criu:
                criu.connect(str(Path(place) / SOCKET))
                criu.sendall((3).to_bytes(4, "little") + b"abc")

    def test_receiver_ends_without_a_connection(self) -> None:
        with tempfile.TemporaryDirectory() as place, receiver(Path(place)):
            self.assertTrue((Path(place) / SOCKET).exists())

    def exists(self, criu: socket.socket, name: bytes) -> bool:
        """Requests an image as CRIU does."""
        message = bytes([0x0A, len(name)]) + name
        criu.sendall(len(message).to_bytes(4, "little") + message)
        return criu.recv(6, socket.MSG_WAITALL)[-1] == 1


class Run(unittest.TestCase):
    """One row for real."""

    def test_row_1_runs_and_is_written(self) -> None:
        program = sanderling()
        install({"iperf3"})
        if not shutil.which("iperf3"):
            self.skipTest("iperf3 is not installed: apt-get install iperf3")
        if not program:
            self.skipTest("sanderling is not built: make build")
        with tempfile.TemporaryDirectory() as out:
            words = ["--rows", "1", "--rounds", "1", "--quick", "--no-build", "--no-install"]
            words += ["--sanderling", program, "--out", out]
            command = [sys.executable, str(ROOT / "bench" / "compare.py"), *words]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            [file] = Path(out).glob("*.json")
            [row] = json.loads(file.read_text())["rows"]
            self.assertEqual((row["row"], row["quick"]), (1, True))
            self.assertGreater(row["ratio"], 0)
            self.assertIn("<script class=plot", file.with_suffix(".html").read_text())


def sanderling() -> str | None:
    """Returns a program that is built, if there is one."""
    built = ["target/release/sanderling", "target/debug/sanderling"]
    found = [os.environ.get("SANDERLING_BIN", ""), *(str(ROOT / path) for path in built)]
    return next((path for path in found if path and Path(path).exists()), None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
