#!/usr/bin/env python3
"""Runs the examples of docs/S3.md as they stand there, against a cluster of processes.

Run with .venv-s3/bin/python, and with .venv-s3fs/bin/python: each runs the examples whose programs
or packages it has.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from cluster import ROOT, SOON_SECONDS
from gateway_fleet import Fleet

BLOCKS = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:7670"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def examples() -> list[tuple[str, str]]:
    """Returns language and text of the examples with tools."""
    page = (ROOT / "docs/S3.md").read_text()
    section = page[page.index("## With your tool"):page.index("## Access keys")]
    return [(found[1], found[2]) for found in BLOCKS.finditer(section)]


def is_here(language: str, text: str) -> bool:
    """Returns whether this environment has what an example needs."""
    if language == "python":
        package = re.match(r"(?:import|from) (\w+)", text)
        return package is not None and importlib.util.find_spec(package[1]) is not None
    programs = re.findall(r"^(aws|s5cmd|rclone) ", text, re.MULTILINE)
    return all(shutil.which(program, path=PATH) for program in programs)


class Page(unittest.TestCase):
    """One cluster for all examples, in the order of the page."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet()
        cls.place = cls.fleet.directory / "place"
        (cls.place / "out").mkdir(parents=True)
        (cls.place / "out/a").write_bytes(b"a")
        (cls.place / "part.parquet").write_bytes(b"rows")
        cls.fleet.cli("fs", "mkdir", "-p", "/data")
        if importlib.util.find_spec("pyarrow"):
            import pyarrow as pa
            import pyarrow.parquet as pq
            pq.write_table(pa.table({"a": [1]}), cls.place / "part.parquet")
            cls.fleet.cli("fs", "put", str(cls.place / "part.parquet"), "/data")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()

    def test_examples_of_the_page_run(self) -> None:
        environment = self.fleet.client_environment() | {"PATH": PATH}
        ran = 0
        for language, text in examples():
            if not is_here(language, text):
                continue
            # The bucket is there for all examples, not for the one that makes it.
            text = text.replace(ADDRESS, self.fleet.address).replace("aws s3 mb s3://data\n", "")
            runner = [sys.executable, "-c"] if language == "python" else ["bash", "-euc"]
            done = subprocess.run([*runner, text], cwd=self.place, env=environment,
                                  capture_output=True, timeout=4 * SOON_SECONDS)
            self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout!r}{done.stderr!r}")
            ran += 1
        self.assertGreaterEqual(ran, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
