#!/usr/bin/env python3
"""Tests that a stream of Spark goes on from a checkpoint in a durable directory.

Run as scripts/spark_results_test.py is.
"""

import collections
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import pyspark

from cluster import ROOT
from spark_cluster import Cluster, built_jar, hadoop_jar, until

# A JVM starts twice, and each batch waits for the store several times.
STREAM_SECONDS = 400.0
FILES_BEFORE = 2
FILES = 5
ROWS = 50
KEYS = 7


class StreamTest(unittest.TestCase):
    def setUp(self) -> None:
        own = tempfile.TemporaryDirectory(prefix="sanderling-stream-")
        self.addCleanup(own.cleanup)
        self.own = Path(own.name)
        for name in ("input", "output", "archive"):
            (self.own / name).mkdir()
        self.cluster = self.started()
        self.make_durable()
        self.expected: collections.Counter[str] = collections.Counter()
        self.files = 0

    def started(self) -> Cluster:
        """Returns a cluster whose datanodes reach the archive."""
        store = ("--durable", f"archive=file://{self.own}/archive")
        cluster = Cluster(datanodes=2, dram="192MiB", node_flags=store)
        self.addCleanup(cluster.stop)
        return cluster

    def add_files(self, count: int) -> None:
        """Adds files of rows to the input, each complete at once."""
        for self.files in range(self.files + 1, self.files + count + 1):
            keys = [f"k{(self.files * row) % KEYS}" for row in range(ROWS)]
            self.expected.update(keys)
            new = self.own / f"{self.files}.new"
            new.write_text("".join(f"{key},{row}\n" for row, key in enumerate(keys)))
            os.replace(new, self.own / "input" / f"{self.files}.csv")

    def start(self, path: str, *words: str, by_python: bool = False) -> subprocess.Popen[bytes]:
        """Starts the stream in a process group of its own.

        By spark-submit, whose process becomes the JVM; or by Python, which starts the JVM.
        """
        home = Path(pyspark.__file__).parent
        jars = ",".join(map(str, [built_jar("client"), hadoop_jar()]))
        flags = ["--master", "local[2]", "--jars", jars, "--conf", "spark.ui.enabled=false",
                 "--conf", f"spark.local.dir={self.own}"]
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                                    "PYSPARK_PYTHON": sys.executable,
                                    "PYSPARK_SUBMIT_ARGS": shlex.join([*flags, "pyspark-shell"])}
        starter = [sys.executable] if by_python else [str(home / "bin/spark-submit"), *flags]
        command = [*starter, str(ROOT / "scripts/spark_stream.py"),
                   "--input", str(self.own / "input"), "--output", str(self.own / "output"),
                   "--checkpoint", f"sanderling://{self.cluster.address}{path}", *words]
        with open(self.own / "stream.log", "ab") as log:
            stream = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log, start_new_session=True)
        self.addCleanup(self.kill, stream)
        return stream

    def kill(self, stream: subprocess.Popen[bytes]) -> None:
        """Kills the driver and its JVM with SIGKILL."""
        if stream.poll() is None:
            os.killpg(stream.pid, signal.SIGKILL)
            stream.wait()

    def batches(self) -> list[int]:
        """Returns the batches that have counts."""
        return sorted(int(each.stem.removeprefix("counts-"))
                      for each in (self.own / "output").glob("counts-*.json"))

    def counts(self) -> dict[str, int]:
        """Returns the counts of the last batch."""
        place = self.own / "output" / f"counts-{self.batches()[-1]}.json"
        return dict(json.loads(place.read_text()))

    def finish(self, path: str) -> None:
        """Runs the stream until it has counted all of the input."""
        self.ends_well(self.start(path, "--available-now"))

    def ends_well(self, stream: subprocess.Popen[bytes]) -> None:
        """Waits for the end of a stream, which must be without an error."""
        until("the stream ends", lambda: stream.poll() is not None, seconds=STREAM_SECONDS)
        self.assertEqual(stream.returncode, 0, self.log()[-4000:])

    def log(self) -> str:
        """Returns what the streams have printed so far."""
        return (self.own / "stream.log").read_text()

    def until_runs(self, what: str, stream: subprocess.Popen[bytes],
                   condition: Callable[[], bool]) -> None:
        """Waits until a condition holds, while the stream runs."""

        def holds() -> bool:
            self.assertIsNone(stream.poll(), self.log()[-4000:])
            return condition()

        until(what, holds, seconds=STREAM_SECONDS)

    def killed(self, path: str, after: int) -> None:
        """Runs the stream and kills it in the middle, after a batch."""
        stream = self.start(path)
        self.until_runs(f"the counts of batch {after}", stream, lambda: after in self.batches())
        self.kill(stream)

    def test_stream_goes_on_in_another_cluster_and_after_its_death(self) -> None:
        """Spark takes most of the time to start, so that one stream goes through both."""
        self.add_files(FILES_BEFORE)
        self.finish("/stream/counts")
        self.move()
        done = self.forget()
        self.add_files(FILES)
        self.killed("/stream/counts", after=done[-1] + 2)
        self.assertGreater(self.batches()[0], done[-1], "it went on from the copy")

        done = self.forget()
        self.assertLess(done[-1] + 1, FILES_BEFORE + FILES, "it was killed before the end")
        self.add_files(1)
        self.finish("/stream/counts")
        self.assertEqual(self.counts(), dict(self.expected))
        # One file is one batch: what was counted before was not counted again.
        self.assertGreaterEqual(self.batches()[0], done[-1])
        self.assertEqual(self.batches()[-1] + 1, FILES_BEFORE + FILES + 1)

    def test_stream_that_gets_sigterm_waits_for_the_store_and_goes_on_by_adoption(self) -> None:
        """The store is away for a moment, so that the stream has something to wait for."""
        self.add_files(FILES_BEFORE)
        stream = self.start("/stream/counts", "--durable-timeout", "120", by_python=True)
        last = FILES_BEFORE - 1
        commits = "/stream/counts/commits"
        self.until_runs("all batches are committed", stream,
                        lambda: str(last) in self.cluster.names(commits))
        self.cluster.cli("fs", "sync", "/stream")
        archive, away = self.own / "archive", self.own / "away"
        archive.rename(away)
        (self.own / "note").write_bytes(bytes(1000))
        self.cluster.cli("fs", "put", str(self.own / "note"), "/stream/counts/note")
        # Python alone gets it, as the first process of a container does.
        os.kill(stream.pid, signal.SIGTERM)
        self.until_runs("the query has stopped", stream,
                        lambda: "the query has stopped" in self.log())
        away.rename(archive)
        self.ends_well(stream)
        self.cluster.stop()
        self.assertTrue((archive / "counts/note").exists(), "it has waited for the store")

        done = self.forget()
        self.assertEqual(done[-1], last)
        self.cluster = self.started()
        self.make_durable("--adopt")
        self.add_files(1)
        self.finish("/stream/counts")
        self.assertEqual(self.counts(), dict(self.expected))
        # One file is one batch: what was counted before was not counted again.
        self.assertEqual(self.batches(), [last + 1])

    def make_durable(self, *flags: str) -> None:
        """Makes the durable directory as soon as a datanode reports its store."""

        def is_made() -> bool:
            words = ["fs", "mkdir", "/stream", "--durable", "archive", *flags]
            ran = self.cluster.run(*words, passes=(0, 1))
            reason = b"no datanode has a store"
            self.assertTrue(ran.returncode == 0 or reason in ran.stderr, ran.stderr)
            return ran.returncode == 0

        until("/stream is made", is_made)

    def move(self) -> None:
        """Ends the cluster and starts another one with what its store has."""
        self.cluster.cli("fs", "sync", "/stream")
        self.cluster.stop()
        copied = self.own / "archive" / "counts"
        names = [each.name for each in copied.rglob("*") if each.is_file()]
        self.assertIn("metadata", names)
        self.assertFalse([name for name in names if ".tmp" in name], "no temporary file is left")
        # A store has one directory: the next cluster has another one.
        (self.own / "archive").rename(self.own / "before")
        (self.own / "archive").mkdir()
        self.cluster = self.started()
        self.make_durable()
        self.cluster.cli("fs", "put", "-r", str(self.own / "before/counts"), "/stream")

    def forget(self) -> list[int]:
        """Removes all counts and returns their batches."""
        done = self.batches()
        for batch in done:
            (self.own / "output" / f"counts-{batch}.json").unlink()
        return done


if __name__ == "__main__":
    unittest.main(verbosity=2)
