#!/usr/bin/env python3
"""Tests the S3 gateway with the programs that people use: the aws CLI, s5cmd and rclone.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import random
import subprocess
import sys
import unittest
from pathlib import Path

from cluster import SOON_SECONDS
from gateway_fleet import Fleet

MIB = 1 << 20
BIN = Path(sys.executable).parent


class Programs(unittest.TestCase):
    """One cluster for all programs, a bucket for each."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet(dram="256MiB")
        cls.tree = cls.fleet.directory / "tree"
        (cls.tree / "sub").mkdir(parents=True)
        # The large one goes up in parts, by each program's own rules.
        for name, count in [("empty", 0), ("small", 7), ("sub/middle", MIB + 1),
                            ("sub/large", 20 * MIB + 3), ("name with spaces & ü", 9)]:
            (cls.tree / name).write_bytes(random.Random(name).randbytes(count))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()

    def run_client(self, *words: str, fails: bool = False) -> str:
        program = BIN / words[0]
        environment = self.fleet.client_environment()
        ran = subprocess.run([str(program), *words[1:]], env=environment, capture_output=True,
                             timeout=4 * SOON_SECONDS)
        text = ran.stdout.decode() + ran.stderr.decode()
        self.assertEqual(ran.returncode != 0, fails, f"{words}: {text}")
        self.assertNotIn("panicked", text)
        return text

    def assert_back(self, name: str) -> None:
        """Compares what came back with what was sent."""
        back = self.fleet.directory / name
        for path in self.tree.rglob("*"):
            if path.is_file():
                copy = back / path.relative_to(self.tree)
                self.assertEqual(copy.read_bytes(), path.read_bytes(), copy)

    def test_aws(self) -> None:
        aws = ["aws", "s3"]
        self.run_client(*aws, "mb", "s3://aws")
        self.run_client(*aws, "cp", "--recursive", str(self.tree), "s3://aws/tree/")
        listed = self.run_client(*aws, "ls", "--recursive", "s3://aws/")
        self.assertIn("tree/name with spaces & ü", listed)
        self.assertIn(f"{20 * MIB + 3} tree/sub/large", listed)
        self.assertIn("PRE sub/", self.run_client(*aws, "ls", "s3://aws/tree/"))
        self.run_client(*aws, "cp", "--recursive", "s3://aws/tree/",
                        str(self.fleet.directory / "aws"))
        self.assert_back("aws")
        self.run_client(*aws, "cp", "s3://aws/tree/sub/large", "s3://aws/copied")
        synced = self.run_client(*aws, "sync", str(self.tree), "s3://aws/tree/")
        self.assertNotIn("upload:", synced)
        self.run_client(*aws, "mv", "s3://aws/copied", "s3://aws/moved")
        text = self.run_client(*aws, "cp", "s3://aws/none", "-", fails=True)
        self.assertIn("404", text)
        self.run_client(*aws, "rb", "s3://aws", fails=True)
        self.run_client(*aws, "rm", "--recursive", "s3://aws/")
        self.run_client(*aws, "rb", "s3://aws")

    def test_s5cmd(self) -> None:
        self.run_client("s5cmd", "mb", "s3://s5cmd")
        self.run_client("s5cmd", "cp", "--part-size", "5", f"{self.tree}/*", "s3://s5cmd/tree/")
        listed = self.run_client("s5cmd", "ls", "s3://s5cmd/tree/*")
        self.assertIn("sub/large", listed)
        self.run_client("s5cmd", "cp", "--part-size", "5", "s3://s5cmd/tree/*",
                        str(self.fleet.directory / "s5cmd") + "/")
        self.assert_back("s5cmd")
        self.assertIn("5 objects", self.run_client("s5cmd", "du", "s3://s5cmd/*"))
        self.run_client("s5cmd", "cp", "s3://s5cmd/tree/small", "s3://s5cmd/copy")
        self.run_client("s5cmd", "cat", "s3://s5cmd/none", fails=True)
        self.run_client("s5cmd", "rm", "s3://s5cmd/*")
        self.run_client("s5cmd", "rb", "s3://s5cmd")

    def test_rclone(self) -> None:
        remote = f":s3,provider=Other,env_auth,endpoint='{self.fleet.endpoint}'"
        remote += ",chunk_size=5Mi,upload_cutoff=5Mi"
        rclone = ["rclone", "--config", "", "--retries", "1"]
        self.run_client(*rclone, "mkdir", f"{remote}:rclone")
        self.run_client(*rclone, "copy", str(self.tree), f"{remote}:rclone/tree")
        # It compares sizes, its own times in the metadata and MD5 sums, from ETags or metadata.
        self.run_client(*rclone, "check", str(self.tree), f"{remote}:rclone/tree")
        self.run_client(*rclone, "copy", f"{remote}:rclone/tree",
                        str(self.fleet.directory / "rclone"))
        self.assert_back("rclone")
        again = self.run_client(*rclone, "-v", "copy", str(self.tree), f"{remote}:rclone/tree")
        self.assertNotIn("Copied", again)
        self.run_client(*rclone, "moveto", f"{remote}:rclone/tree/small", f"{remote}:rclone/moved")
        self.assertIn("7 moved", self.run_client(*rclone, "ls", f"{remote}:rclone"))
        self.run_client(*rclone, "ls", f"{remote}:no-such-bucket", fails=True)
        self.run_client(*rclone, "purge", f"{remote}:rclone")
        self.assertNotIn("rclone", self.run_client(*rclone, "lsd", f"{remote}:"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
