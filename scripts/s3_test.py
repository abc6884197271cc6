#!/usr/bin/env python3
"""Tests the object tier against an S3 server: moto, as a process, spoken to by real datanodes.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from cluster import SOON_SECONDS, program, until

BUCKET = "ephemeral"
PREFIX = "some/prefix"
SECRET = "a-secret-that-nobody-may-see"
FILE_BYTES = 512 << 10
FILES = 8


def content(number: int) -> bytes:
    """Returns the bytes of a file, which no other file has."""
    seed = hashlib.sha256(str(number).encode()).digest()
    return (seed * (FILE_BYTES // len(seed) + 1))[:FILE_BYTES]


class S3Tier(unittest.TestCase):
    """A fleet with little memory whose object tier is a bucket."""

    def setUp(self) -> None:
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = program()
        self.processes: dict[str, subprocess.Popen] = {}
        self.addCleanup(self.end_all)
        self.start_s3()
        self.namenode = "127.0.0.1:0"
        ready = self.start("namenode", "--listen", self.namenode, "--dir", self.path("catalog"))
        self.namenode = ready["address"]
        self.start("datanode", "--dram", "8MiB", name="n0")
        url = f"s3://{BUCKET}/{PREFIX}"
        for name in ["o0", "o1"]:
            self.start("datanode", "--dram", "64KiB", "--object", url, "--object-bytes", "64MiB",
                       name=name)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def start_s3(self) -> None:
        """Starts moto and makes the bucket."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = Path(sys.executable).parent / "moto_server"
        with open(self.path("moto.log"), "w") as log:
            command = [str(server), "-H", "127.0.0.1", "-p", str(port)]
            self.processes["moto"] = subprocess.Popen(command, stdout=log, stderr=log)
        self.endpoint = f"http://127.0.0.1:{port}"
        self.s3 = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="someone",
            aws_secret_access_key=SECRET, config=Config(retries={"max_attempts": 1}),
        )

        def is_made() -> bool:
            try:
                self.s3.create_bucket(Bucket=BUCKET)
            except Exception:  # it does not listen yet
                return False
            return True

        until("the S3 server answers", is_made)

    def environment(self) -> dict[str, str]:
        names = ["SANDERLING_TIMEOUT", "SANDERLING_LOG"]
        kept = {name: value for name, value in os.environ.items() if name not in names}
        return kept | {
            "NO_COLOR": "1",
            "SANDERLING_NAMENODE": self.namenode,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def start(self, role: str, *flags: str, name: str = "") -> dict[str, Any]:
        """Starts a server and waits until it serves."""
        name = name or role
        ready = self.directory / f"{name}.ready"
        command = [self.program, "-vv", role, *flags, "--exit-with-parent", "--ready-file",
                   str(ready)]
        command += ["--name", name] if role == "datanode" else ["--http", "none"]
        with open(self.path(f"{name}.log"), "w") as log:
            process = subprocess.Popen(command, env=self.environment(), stderr=log)
        self.processes[name] = process

        def serves() -> bool:
            if process.poll() is not None:
                raise AssertionError(Path(self.path(f"{name}.log")).read_text()[-2000:])
            return ready.exists()

        until(f"{name} serves", serves)
        return json.loads(ready.read_text())

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end_all(self) -> None:
        for name in list(self.processes):
            self.processes[name].send_signal(signal.SIGCONT)
            self.kill(name)

    def cli(self, *words: str, passes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess:
        ran = subprocess.run([self.program, *words], env=self.environment(), capture_output=True,
                             timeout=SOON_SECONDS + 30)
        self.assertIn(ran.returncode, passes, f"{words}: {ran.stderr.decode()}")
        return ran

    def nodes(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(self.cli("node", "ls", "--all", "--json").stdout)
        return {node["name"]: node for node in listed["nodes"]}

    def objects(self) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX).get("Contents", [])
        return [entry["Key"] for entry in found]

    def fill(self) -> None:
        """Stores files, all on the node that is then taken away with a notice."""
        self.cli("fs", "mkdir", "/data")
        for number in range(FILES):
            local = self.path(f"{number}")
            Path(local).write_bytes(content(number))
            self.cli("fs", "put", local, f"/data/{number}")
        self.cli("node", "notice", "n0", "--deadline", "200s", "--wait")
        self.kill("n0")
        self.gone("n0")

    def gone(self, name: str) -> None:
        until(f"{name} is gone", lambda: str(self.nodes()[name]["policy"]).lower() == "gone")

    def read(self, number: int, passes: tuple[int, ...] = (0,)) -> bytes | None:
        ran = self.cli("--timeout", "20s", "fs", "cat", f"/data/{number}", passes=passes)
        return ran.stdout if ran.returncode == 0 else None

    def assert_all_read(self) -> None:
        for number in range(FILES):
            self.assertEqual(self.read(number), content(number), f"/data/{number}")
        report = json.loads(self.cli("fsck", "--json").stdout)
        self.assertEqual(report["lost_blocks"], 0, report)

    def test_blocks_outlive_their_nodes_in_a_bucket(self) -> None:
        self.fill()
        self.assertEqual(len(self.objects()), FILES)
        self.assert_all_read()
        self.kill("o0")
        self.gone("o0")
        self.assert_all_read()
        self.cli("fs", "rm", "-r", "/data")
        until("the objects are deleted", lambda: not self.objects())
        for log in self.directory.glob("*.log"):
            self.assertNotIn(SECRET, log.read_text(), log.name)

    def test_store_that_lies_hangs_or_forgets_is_told_apart_from_data(self) -> None:
        self.fill()
        # A reader keeps what it fetched last: begin with nodes that have read nothing.
        damaged, missing = self.objects()[:2]
        whole = self.s3.get_object(Bucket=BUCKET, Key=damaged)["Body"].read()
        self.s3.put_object(Bucket=BUCKET, Key=damaged, Body=b"x" + whole[1:])
        self.s3.delete_object(Bucket=BUCKET, Key=missing)
        read = [self.read(number, passes=(0, 1, 4, 5, 124)) for number in range(FILES)]
        self.assertEqual(read.count(None), 2)
        for number, data in enumerate(read):
            self.assertIn(data, (None, content(number)), f"/data/{number}")
        # What was declared lost stays so, also when the object is put back.
        self.s3.put_object(Bucket=BUCKET, Key=damaged, Body=whole)
        back = [self.read(number, passes=(0, 1, 4, 5, 124)) for number in range(FILES)]
        self.assertEqual(back, read)
        report = json.loads(self.cli("fsck", "--json", passes=(5,)).stdout)
        self.assertGreaterEqual(report["lost_blocks"], 1, report)

        # What no node has fetched yet has to come from a store that hangs.
        self.start("datanode", "--dram", "64KiB", "--object", f"s3://{BUCKET}/{PREFIX}",
                   "--object-bytes", "64MiB", name="o2")
        for name in ["o0", "o1"]:
            self.cli("node", "notice", name, "--deadline", "200s", "--wait")
            self.kill(name)
            self.gone(name)
        self.processes["moto"].send_signal(signal.SIGSTOP)
        # A reader that hung would end with no code at all.
        self.assertIsNone(self.read(0, passes=(1, 4, 5, 124)))
        self.assertTrue(self.nodes()["o2"], "the node answers nobody")
        self.processes["moto"].send_signal(signal.SIGCONT)
        readable = next(number for number in range(FILES) if back[number] is not None)
        until("the store is back", lambda: self.read(readable, (0, 1, 4, 5, 124)) is not None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
