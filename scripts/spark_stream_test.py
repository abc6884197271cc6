#!/usr/bin/env python3
"""Tests that a stream of Spark goes on from a checkpoint in a durable directory.

Run as scripts/spark_results_test.py is.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
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
        self.cluster.cli("fs", "mkdir", "/stream", "--durable", "archive")
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

    def start(self, path: str, *words: str) -> subprocess.Popen[bytes]:
        """Starts the stream in a process group of its own."""
        home = Path(pyspark.__file__).parent
        jars = ",".join(map(str, [built_jar("client"), hadoop_jar()]))
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                                    "PYSPARK_PYTHON": sys.executable}
        command = [str(home / "bin/spark-submit"), "--master", "local[2]", "--jars", jars,
                   "--conf", "spark.ui.enabled=false",
                   "--conf", f"spark.local.dir={self.own}",
                   str(ROOT / "scripts/spark_stream.py"), "--input", str(self.own / "input"),
                   "--output", str(self.own / "output"),
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
        stream = self.start(path, "--available-now")
        until("the stream ends", lambda: stream.poll() is not None, seconds=STREAM_SECONDS)
        self.assertEqual(stream.returncode, 0, (self.own / "stream.log").read_text()[-4000:])

    def killed(self, path: str, after: int) -> None:
        """Runs the stream and kills it in the middle, after a batch."""
        stream = self.start(path)

        def is_there() -> bool:
            self.assertIsNone(stream.poll(), (self.own / "stream.log").read_text()[-4000:])
            return after in self.batches()

        until(f"the counts of batch {after}", is_there, seconds=STREAM_SECONDS)
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
        self.cluster.cli("fs", "mkdir", "/stream", "--durable", "archive")
        self.cluster.cli("fs", "put", "-r", str(self.own / "before/counts"), "/stream")

    def forget(self) -> list[int]:
        """Removes all counts and returns their batches."""
        done = self.batches()
        for batch in done:
            (self.own / "output" / f"counts-{batch}.json").unlink()
        return done


if __name__ == "__main__":
    unittest.main(verbosity=2)
