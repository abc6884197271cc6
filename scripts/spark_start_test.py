#!/usr/bin/env python3
"""Tests that an application that cannot shuffle on Sanderling prints the reason at its start.

One process for each case, as users see it. Run as scripts/spark_results_test.py is.
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

    def start(self, settings: dict[str, str], *classes: Path) -> str:
        """Starts an application that must not start, and returns the sentence that it prints."""
        command = [sys.executable, __file__, "--start",
                   json.dumps({"spark.shuffle.manager": SHUFFLE_MANAGER} | settings),
                   *map(str, classes or [spark_jar()])]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON_SECONDS)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        said = [line for line in ran.stdout.splitlines() if line.startswith("REFUSED ")]
        self.assertEqual(len(said), 1, ran.stdout + ran.stderr)
        return said[0]

    def test_no_address(self) -> None:
        with mock.patch.dict(os.environ, {"SANDERLING_NAMENODE": "127.0.0.1:1"}):
            self.assertIn("127.0.0.1:1 cannot be reached", self.start({}))

    def test_nobody_at_the_address(self) -> None:
        said = self.start({"spark.sanderling.address": "127.0.0.1:1"})
        self.assertRegex(said, r"127\.0\.0\.1:1 cannot be reached: connection refused")

    def test_an_address_that_is_none(self) -> None:
        self.assertIn("nowhere", self.start({"spark.sanderling.address": "nowhere"}))

    def test_a_refused_token(self) -> None:
        secret = self.directory / "secret"
        self.cluster.cli("token", "secret", "--out", str(secret))
        with Cluster(datanodes=0, flags=("--secret-file", str(secret))) as closed:
            said = self.start({"spark.sanderling.address": closed.address})
            self.assertRegex(said, r"(?i)token|credential")
            said = self.start({"spark.sanderling.address": closed.address,
                               "spark.sanderling.token": "made-up"})
            self.assertRegex(said, r"(?i)token|credential")
            self.assertNotIn("made-up", said)

    def test_a_spark_that_is_not_supported(self) -> None:
        place = self.directory / "old"
        place.mkdir()
        (place / VERSION_FILE).write_text("version=3.4.4\nuser=\nrevision=\nbranch=\ndate=\nurl=\n"
                                          "docroot=\n")
        said = self.start({"spark.sanderling.address": self.cluster.address}, place, spark_jar())
        self.assertIn("Spark 3.4.4 is not supported", said)

    def test_a_jar_without_its_native_library(self) -> None:
        bare = self.directory / "bare.jar"
        with zipfile.ZipFile(spark_jar()) as whole, zipfile.ZipFile(bare, "w") as made:
            for name in whole.namelist():
                if not name.endswith(LIBRARY):
                    made.writestr(name, whole.read(name))
        said = self.start({"spark.sanderling.address": self.cluster.address}, bare)
        self.assertRegex(said, r"(?i)native")

    def test_a_service_that_contradicts_it(self) -> None:
        said = self.start({"spark.sanderling.address": self.cluster.address,
                           "spark.shuffle.service.enabled": "true"})
        self.assertIn("spark.shuffle.service.enabled", said)


def start(settings: dict[str, str], *classes: str) -> None:
    """Is the application: prints the sentence of what kept it from starting."""
    from py4j.protocol import Py4JJavaError

    from spark_session import Application, launch
    launch(*map(Path, classes))
    try:
        Application(settings, "local[1]").stop()
    except Py4JJavaError as error:
        print("REFUSED", str(error.java_exception.getMessage()).replace("\n", " "), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--start"]:
        start(json.loads(sys.argv[2]), *sys.argv[3:])
    else:
        unittest.main(verbosity=2)
