#!/usr/bin/env python3
"""Tests the object tier and durable directories against an S3 server: moto, as a process.

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


class S3Fleet(unittest.TestCase):
    """A namenode beside an S3 server."""

    def setUp(self) -> None:
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = program()
        self.processes: dict[str, subprocess.Popen] = {}
        self.addCleanup(self.end_all)
        self.start_s3()
        self.namenode = "127.0.0.1:0"
        ready = self.start("namenode", "--listen", self.namenode, "--dir", self.path("catalog"))
        self.namenode = ready["address"]

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


class S3Tier(S3Fleet):
    """A fleet with little memory whose object tier is a bucket."""

    def setUp(self) -> None:
        super().setUp()
        self.start("datanode", "--dram", "8MiB", name="n0")
        url = f"s3://{BUCKET}/{PREFIX}"
        for name in ["o0", "o1"]:
            self.start("datanode", "--dram", "64KiB", "--object", url, "--object-bytes", "64MiB",
                       name=name)

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



class DurableBucket(S3Fleet):
    """A durable directory whose store is a bucket."""

    STORE = "results/run-7"

    def setUp(self) -> None:
        super().setUp()
        place = f"archive=s3://{BUCKET}/{self.STORE}"
        for name in ["d0", "d1"]:
            self.start("datanode", "--dram", "64MiB", "--durable", place, name=name)

        def is_made() -> bool:
            words = ["fs", "mkdir", "/out", "--durable", "archive"]
            ran = self.cli(*words, passes=(0, 1))
            reason = b"no datanode has a store"
            self.assertTrue(ran.returncode == 0 or reason in ran.stderr, ran.stderr)
            return ran.returncode == 0

        until("a datanode reports its store", is_made)

    def put(self, name: str, value: bytes, *flags: str) -> None:
        local = self.directory / "value"
        local.write_bytes(value)
        self.cli("fs", "put", "-p", *flags, str(local), f"/out/{name}")

    def stored(self) -> dict[str, bytes]:
        """Returns the objects of the store by their names, without what is the store's own."""
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=self.STORE).get("Contents", [])
        names = [entry["Key"].removeprefix(f"{self.STORE}/") for entry in found]
        return {
            name: self.s3.get_object(Bucket=BUCKET, Key=f"{self.STORE}/{name}")["Body"].read()
            for name in names if not name.startswith(".sanderling/")
        }

    def test_sealed_objects_lie_in_the_bucket_under_their_names(self) -> None:
        values = {"small": b"x" * 100, "empty": b"", "a b/c#?%": content(1)[:70_000],
                  "big": content(2) * 40}
        for name, value in values.items():
            self.put(name, value)
        self.cli("fs", "sync", "/out")
        self.assertEqual(self.stored(), values)
        # A newer version, a deletion and a rename follow.
        self.put("small", b"newer", "-f")
        self.cli("fs", "rm", "/out/empty")
        self.cli("fs", "mv", "/out/big", "/out/bigger")
        self.cli("fs", "sync", "/out")
        values["small"] = b"newer"
        values["bigger"] = values.pop("big")
        del values["empty"]
        self.assertEqual(self.stored(), values)
        self.assertNotIn(SECRET, self.cli("fs", "stat", "/out/small").stdout.decode())

    def test_bucket_that_hangs_or_dies_delays_the_copy_only(self) -> None:
        self.put("first", content(3))
        self.cli("fs", "sync", "/out")
        self.processes["moto"].send_signal(signal.SIGSTOP)
        self.put("second", content(4))
        self.put("third", content(5))
        ran = self.cli("fs", "sync", "/out", "--timeout", "2s", passes=(124,))
        self.assertIn(b"wait for the store archive", ran.stderr)
        read = self.cli("fs", "cat", "/out/second").stdout
        self.assertEqual(read, content(4))
        self.cli("node", "notice", "d0", "--deadline", "200s", "--wait")
        self.kill("d0")
        self.processes["moto"].send_signal(signal.SIGCONT)
        self.cli("fs", "sync", "/out", "--timeout", "90s")
        stored = self.stored()
        self.assertEqual(list(stored), ["first", "second", "third"])
        self.assertEqual(stored["third"], content(5))

    def test_another_cluster_adopts_the_bucket_when_it_has_settled(self) -> None:
        values = {"small": b"x" * 100, "empty": b"", "a/deep/one": content(1)[:70_000],
                  "big": content(2) * 40}
        for name, value in values.items():
            self.put(name, value)
        self.cli("fs", "sync", "/out")
        # What the earlier cluster has put into the bucket goes on without it.
        for name in ["d0", "d1", "namenode"]:
            self.kill(name)
        self.s3.put_object(Bucket=BUCKET, Key=f"{self.STORE}/by-hand", Body=b"foreign")
        values["by-hand"] = b"foreign"
        ready = self.start("namenode", "--listen", "127.0.0.1:0", "--dir", self.path("later"),
                           name="later")
        self.namenode = ready["address"]
        place = f"archive=s3://{BUCKET}/{self.STORE}"
        for name in ["e0", "e1"]:
            self.start("datanode", "--dram", "64MiB", "--durable", place, name=name)

        def is_adopted() -> bool:
            words = ["fs", "mkdir", "/in", "--durable", "archive", "--adopt"]
            ran = self.cli(*words, "--timeout", "80s", passes=(0, 1))
            reason = b"no datanode has a store"
            self.assertTrue(ran.returncode == 0 or reason in ran.stderr, ran.stderr)
            return ran.returncode == 0

        until("the bucket is adopted", is_adopted)
        for name, value in values.items():
            self.assertEqual(self.cli("fs", "cat", f"/in/{name}").stdout, value, name)
        self.cli("fs", "rm", "/in/small")
        self.cli("fs", "sync", "/in")
        del values["small"]
        self.assertEqual(self.stored(), values)

    def test_bucket_of_another_directory_is_not_written_to(self) -> None:
        self.put("ours", b"ours")
        self.cli("fs", "sync", "/out")
        owner = f"{self.STORE}/.sanderling/owner"
        body = b"cluster 1 directory 2\n"
        self.s3.put_object(Bucket=BUCKET, Key=owner, Body=body)
        for name in ["d0", "d1"]:
            self.kill(name)
            place = f"archive=s3://{BUCKET}/{self.STORE}"
            self.start("datanode", "--dram", "64MiB", "--durable", place, name=f"{name}-again")
        self.put("more", b"more")

        def is_stalled() -> bool:
            shown = self.cli("fs", "stat", "/out/more").stdout
            return b"it belongs to cluster 1 directory 2" in shown

        until("the directory is stalled", is_stalled)
        self.assertEqual(self.stored(), {"ours": b"ours"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
