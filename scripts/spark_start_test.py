#!/usr/bin/env python3
"""Tests that an application that cannot shuffle on Sanderling prints the reason at its start.

In processes of their own, as users see it. Run as scripts/spark_results_test.py is.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from spark_cluster import SHUFFLE_MANAGER, SOON_SECONDS, Cluster, spark_jar

# Where Spark's own jars have their version.
VERSION_FILE = "spark-version-info.properties"
LIBRARY = "libsanderling_jni.so"


class StartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.own = tempfile.TemporaryDirectory()
        cls.directory = Path(cls.own.name)
        cls.addClassCleanup(cls.own.cleanup)
        cls.cluster = Cluster(datanodes=1, dram="64MiB")
        cls.addClassCleanup(cls.cluster.stop)

        secret = cls.directory / "secret"
        cls.cluster.cli("token", "secret", "--out", str(secret))
        cls.closed = Cluster(datanodes=0, flags=("--secret-file", str(secret)))
        cls.addClassCleanup(cls.closed.stop)

    def start(self, applications: list[dict[str, str]], *classes: Path) -> list[str]:
        """Starts applications that must not start, and returns the sentence that each prints.

        They start one after the other in one process, which takes most of the time.
        """
        manager = {"spark.shuffle.manager": SHUFFLE_MANAGER}
        command = [sys.executable, __file__, "--start",
                   json.dumps([manager | settings for settings in applications]),
                   *map(str, classes or [spark_jar()])]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON_SECONDS)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        refusals = [line for line in ran.stdout.splitlines() if line.startswith("REFUSED ")]
        self.assertEqual(len(refusals), len(applications), ran.stdout + ran.stderr)
        return refusals

    def test_settings_with_which_none_can_start(self) -> None:
        address = "spark.sanderling.address"
        with mock.patch.dict(os.environ, {"SANDERLING_NAMENODE": "127.0.0.1:1"}):
            unset, refused, malformed, no_token, wrong_token, service = self.start([
                {},
                {address: "127.0.0.1:1"},
                {address: "nowhere"},
                {address: self.closed.address},
                {address: self.closed.address, "spark.sanderling.token": "made-up"},
                {address: self.cluster.address, "spark.shuffle.service.enabled": "true"},
            ])
        self.assertIn("127.0.0.1:1 cannot be reached", unset)
        self.assertRegex(refused, r"127\.0\.0\.1:1 cannot be reached: connection refused")
        self.assertIn("nowhere", malformed)
        self.assertRegex(no_token, r"(?i)token|credential")
        self.assertRegex(wrong_token, r"(?i)token|credential")
        self.assertNotIn("made-up", wrong_token)
        self.assertIn("spark.shuffle.service.enabled", service)

    def test_a_spark_that_is_not_supported(self) -> None:
        place = self.directory / "old"
        place.mkdir()
        (place / VERSION_FILE).write_text("version=3.4.4\nuser=\nrevision=\nbranch=\ndate=\nurl=\n"
                                          "docroot=\n")
        [line] = self.start([{"spark.sanderling.address": self.cluster.address}], place,
                            spark_jar())
        self.assertIn("Spark 3.4.4 is not supported", line)

    def test_a_jar_without_its_native_library(self) -> None:
        bare = self.directory / "bare.jar"
        with zipfile.ZipFile(spark_jar()) as whole, zipfile.ZipFile(bare, "w") as made:
            for name in whole.namelist():
                if not name.endswith(LIBRARY):
                    made.writestr(name, whole.read(name))
        [line] = self.start([{"spark.sanderling.address": self.cluster.address}], bare)
        self.assertRegex(line, r"(?i)native")


def start(applications: list[dict[str, str]], *classes: str) -> None:
    """Is the applications: prints the sentence of what kept each from starting."""
    from py4j.protocol import Py4JJavaError

    from spark_session import Application, launch
    launch(*map(Path, classes))
    refused = 0
    for settings in applications:
        try:
            Application(settings, "local[1]").stop()
        except Py4JJavaError as error:
            print("REFUSED", str(error.java_exception.getMessage()).replace("\n", " "), flush=True)
            refused += 1
    sys.exit(1 if refused == len(applications) else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--start"]:
        start(json.loads(sys.argv[2]), *sys.argv[3:])
    else:
        unittest.main(verbosity=2)
