#!/usr/bin/env python3
"""Tests what becomes of Spark's shuffle when executors, drivers, datanodes and the namenode die.

Processes are real and die by SIGKILL; what Spark did about it is read from its event log. Run with
.venv-spark35/bin/python and .venv-spark43/bin/python, as scripts/spark_results_test.py is.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from collections.abc import Iterator
from typing import Any

from spark_cluster import SOON_SECONDS, Cluster, until
from spark_session import Application, Background, Standalone, event_log, launch

ONE = "local-cluster[1,1,1024]"
TWO = "local-cluster[2,1,1024]"
DATANODES = 3
MAPS = 12
REDUCES = 6
ROWS = 60
ROW_BYTES = 16 << 10
QUIET = {"spark.sql.adaptive.enabled": "false"}


def setUpModule() -> None:
    launch()


class Held:
    """A shuffle that is written once and can be read again and again: the outputs stay there."""

    def __init__(self, app: Application, maps: int = MAPS, pause_seconds: float = 0.0,
                 rows: int = ROWS) -> None:
        def made(index: int, _rows: Any) -> Iterator[tuple[int, bytes]]:
            # Nothing of this module: the workers of Python do not have it.
            time.sleep(pause_seconds)
            source = random.Random(index)
            for number in range(rows):
                yield number, source.randbytes(16 << 10)

        whole = app.context.parallelize(range(maps), maps).mapPartitionsWithIndex(made)
        self.shuffled = whole.partitionBy(REDUCES)
        self.expected = sorted(zlib.crc32(row) for index in range(maps)
                               for _, row in made_by(index, rows))

    def check(self) -> None:
        """Reads all rows and compares them with what the maps made."""
        found = self.shuffled.map(lambda row: zlib.crc32(row[1])).collect()
        if sorted(found) != self.expected:
            raise AssertionError(f"{len(found)} rows, which are not the {len(self.expected)} made")


def made_by(index: int, rows: int) -> Iterator[tuple[int, bytes]]:
    """Yields what map `index` makes, on this side."""
    source = random.Random(index)
    for number in range(rows):
        yield number, source.randbytes(ROW_BYTES)


def done_maps(app: Application) -> int:
    """Returns how many tasks of the stage that is at work have ended."""
    tracker = app.context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return max((stage.numCompletedTasks for stage in stages if stage), default=0)


def wait_for_caller(address: str) -> None:
    """Waits until a process connects to an address whose server has ended."""
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))) as listener:
        listener.settimeout(SOON_SECONDS)
        listener.accept()[0].close()


class Case(unittest.TestCase):
    def nothing_ran_again(self, account: event_log.Account) -> None:
        """Fails if a map's output had to be made a second time."""
        self.assertEqual(account.map_tasks_recomputed, 0, account.messages)
        self.assertEqual(account.tasks_resubmitted, 0, account.messages)
        self.assertEqual(account.fetch_failures, 0, account.messages)

    def nothing_failed(self, account: event_log.Account) -> None:
        """Fails if a task did."""
        self.nothing_ran_again(account)
        self.assertEqual(account.tasks_failed, 0, account.messages)
        self.assertEqual(account.stages_failed, 0, account.messages)

    def only_lost_maps_ran_again(self, account: event_log.Account, lost: set[int]) -> None:
        """Fails if a map ran again whose output the store did not lose."""
        needless = set(account.map_outputs_replaced) - lost
        self.assertEqual(needless, set(), account.messages)


class ExecutorTest(Case):
    def setUp(self) -> None:
        self.cluster = Cluster(datanodes=2, dram="192MiB")
        self.addCleanup(self.cluster.stop)

    def ours(self, settings: dict[str, str] | None = None, master: str = ONE) -> Application:
        return Application(QUIET | self.cluster.spark_settings() | (settings or {}), master)

    def test_outputs_outlive_an_executor_and_a_worker_costs_its_running_task_alone(self) -> None:
        with Standalone(("127.0.0.2", "127.0.0.3")) as workers, \
                self.ours(master=workers.master) as app:
            app.wait_for_executors(2)
            held = Held(app)
            held.check()
            app.kill_executor()
            held.check()
            account = app.account()
            self.assertGreaterEqual(account.executors_removed, 1)
            self.nothing_ran_again(account)

            app.wait_for_executors(2)
            among = Held(app, maps=8, pause_seconds=1.5)
            reading = Background(among.check)
            until("three maps are done", lambda: done_maps(app) >= 3)
            workers.kill("127.0.0.2")
            reading.result()
            account = app.account()
            self.nothing_ran_again(account)
            self.assertLessEqual(account.tasks_failed, 1, account.messages)

    def test_executors_that_are_given_back_cost_no_map(self) -> None:
        settings = {"spark.dynamicAllocation.enabled": "true",
                    "spark.dynamicAllocation.minExecutors": "0",
                    "spark.dynamicAllocation.initialExecutors": "1",
                    "spark.dynamicAllocation.maxExecutors": "1",
                    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
                    "spark.dynamicAllocation.executorIdleTimeout": "1s"}
        with self.ours(settings) as app:
            held = Held(app)
            held.check()
            app.wait_for_executors(0)
            held.check()
        account = app.stop()
        self.assertGreaterEqual(account.executors_removed, 1)
        self.nothing_failed(account)

    def test_a_driver_that_is_killed_leaves_nothing_behind_its_lease(self) -> None:
        settings = self.cluster.spark_settings() | {"spark.sanderling.lease": "3s"}
        with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as own:
            driver = subprocess.Popen([sys.executable, __file__, "--driver", json.dumps(settings)],
                                      stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                                      env=os.environ | {"TMPDIR": own})
            try:
                assert driver.stdout is not None
                self.assertEqual(driver.stdout.readline().strip(), b"shuffled")
                self.assertTrue(self.cluster.names("/spark"))
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                driver.stdout.close()
        until("the subtree is gone", lambda: not self.cluster.names("/spark"))


class NativeTest(Case):
    """Shows that the tests of executors can fail. `make test` leaves it out."""

    def test_native_loses_outputs_with_the_executor_that_made_them(self) -> None:
        with Application(QUIET, TWO) as app:
            app.wait_for_executors(2)
            held = Held(app)
            held.check()
            app.kill_executor()
            held.check()
        account = app.stop()
        self.assertGreater(account.map_tasks_recomputed, 0)
        with self.assertRaises(AssertionError):
            self.only_lost_maps_ran_again(account, set())


class StoreTest(Case):
    """Breaks the store of one application, test after test: each begins with all datanodes."""

    cluster: Cluster
    app: Application
    started = DATANODES

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(DATANODES, "192MiB")
        cls.addClassCleanup(cls.cluster.stop)
        cls.app = Application(QUIET | cls.cluster.spark_settings(), TWO)
        cls.addClassCleanup(cls.app.stop)
        cls.app.wait_for_executors(2)

    def setUp(self) -> None:
        for _ in range(DATANODES - len(self.datanodes())):
            self.start_datanode()
        until("the store has its datanodes", lambda: sorted(
            name for name, node in self.cluster.nodes().items()
            if node["availability"] == "up") == sorted(self.datanodes()))
        self.app.account()

    def datanodes(self) -> list[str]:
        """Returns the names of the datanodes that run, oldest first."""
        return [name for name in self.cluster.processes if name != "namenode"]

    @classmethod
    def start_datanode(cls) -> None:
        """Starts one more datanode."""
        cls.cluster.start_datanode(f"n{cls.started}")
        cls.started += 1

    def test_datanodes_that_get_their_notice_cost_no_task(self) -> None:
        before = self.cluster.losses()["report"]["objects"]
        held = Held(self.app)
        held.check()
        reading = Background(lambda: [held.check() or Held(self.app, maps=6).check()
                                      for _ in range(4)])
        for name in self.datanodes()[:2]:
            self.start_datanode()
            self.cluster.notice(name)
        reading.result()
        held.check()
        self.nothing_failed(self.app.account())
        self.assertLessEqual(self.cluster.losses()["report"]["objects"], before)

    def test_a_datanode_that_is_killed_costs_the_maps_that_it_held(self) -> None:
        _, second, third = self.datanodes()
        held = Held(self.app)
        held.check()
        self.cluster.kill(second)
        held.check()
        held.check()
        self.start_datanode()
        self.cluster.kill(third)
        held.check()
        lost = until("the store's loss report", self.cluster.lost_map_outputs)
        account = self.app.account()
        self.assertTrue(account.map_outputs_replaced, account.messages)
        self.only_lost_maps_ran_again(account, lost)

    def test_a_datanode_that_is_killed_among_the_maps_is_no_hang_and_no_wrong_row(self) -> None:
        held = Held(self.app, maps=16, pause_seconds=0.5)
        reading = Background(held.check)
        until("four maps are done", lambda: done_maps(self.app) >= 4)
        self.cluster.kill(self.datanodes()[0])
        reading.result()
        account = self.app.account()
        self.only_lost_maps_ran_again(account, self.cluster.lost_map_outputs())

    def test_a_namenode_that_comes_back_was_hardly_missed(self) -> None:
        held = Held(self.app)
        held.check()
        reading = Background(lambda: [held.check() or Held(self.app, maps=6).check()
                                      for _ in range(3)])
        self.cluster.kill("namenode")
        wait_for_caller(self.cluster.address)
        self.cluster.start_namenode()
        reading.result()
        held.check()
        self.nothing_ran_again(self.app.account())


class FullStoreTest(unittest.TestCase):
    def test_a_full_store_ends_the_job_with_a_clear_error(self) -> None:
        with Cluster(datanodes=1, dram="16MiB") as cluster, \
                Application(QUIET | cluster.spark_settings(), "local[2]") as app:
            # Twelve maps of 4 MB each.
            reading = Background(Held(app, rows=256).check)
            with self.assertRaises(Exception) as raised:
                reading.result()
        self.assertNotIsInstance(raised.exception, AssertionError)
        self.assertRegex(str(raised.exception), r"(?i)no room|full|capacity")


def drive(settings: dict[str, str]) -> None:
    """Is the driver that gets killed: shuffles, prints that, and waits for its end."""
    launch(role="-driver")
    app = Application(QUIET | settings, "local[2]")
    Held(app).check()
    print("shuffled", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--driver"]:
        drive(json.loads(sys.argv[2]))
    else:
        unittest.main(verbosity=2)
