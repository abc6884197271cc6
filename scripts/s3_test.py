#!/usr/bin/env python3
"""Tests the object tier and durable directories against an S3 server: moto, as a process.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import hashlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import boto3
from botocore.config import Config
from cluster import Cluster, until

BUCKET = "ephemeral"
PREFIX = "some/prefix"
SECRET = "a-secret-that-nobody-may-see"
FILE_BYTES = 512 << 10
FILES = 8


def content(number: int) -> bytes:
    """Returns the bytes of a file, which no other file has."""
    seed = hashlib.sha256(str(number).encode()).digest()
    return (seed * (FILE_BYTES // len(seed) + 1))[:FILE_BYTES]


class S3Server:
    """moto, as a process that ends with `kill`."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = Path(sys.executable).parent / "moto_server"
        command = [str(server), "-H", "127.0.0.1", "-p", str(port)]
        with open(log, "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.endpoint = f"http://127.0.0.1:{port}"
        self.client = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="someone",
            aws_secret_access_key=SECRET, config=Config(retries={"max_attempts": 1}),
        )

    def is_made(self, bucket: str) -> bool:
        """Makes a bucket; returns false while the server does not listen yet."""
        try:
            self.client.create_bucket(Bucket=bucket)
        except Exception:
            return False
        return True

    def pause(self) -> None:
        """Stops the process: its connections stay open and nothing answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the stopped process go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()


class S3Cluster(Cluster):
    """A namenode, and the datanodes that a test starts, which find the S3 server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        # The logs have every request: they must not have the secret.
        super().__init__(datanodes=0, flags=("-vv",), node_flags=("-vv",))

    def environment(self) -> dict[str, str]:
        """Returns the environment of servers and commands, with the S3 server's address and key."""
        return super().environment() | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


class S3Test(unittest.TestCase):
    """A namenode beside an S3 server."""

    def setUp(self) -> None:
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.server = S3Server(self.directory / "moto.log")
        self.addCleanup(self.server.kill)
        self.s3 = self.server.client
        until("the S3 server answers", lambda: self.server.is_made(BUCKET))
        self.start_cluster()

    def start_cluster(self) -> None:
        """Starts a namenode with an empty catalog; the test's commands go to it."""
        self.cluster = self.enterContext(S3Cluster(self.server.endpoint))

    def make_durable(self, path: str, *flags: str) -> None:
        """Makes a durable directory as soon as a datanode reports its store."""

        def is_made() -> bool:
            words = ["fs", "mkdir", path, "--durable", "archive", *flags]
            ran = self.cluster.run(*words, passes=(0, 1))
            reason = b"no datanode has a store"
            self.assertTrue(ran.returncode == 0 or reason in ran.stderr, ran.stderr)
            return ran.returncode == 0

        until(f"{path} is made", is_made)


class S3Tier(S3Test):
    """A fleet with little memory whose object tier is a bucket."""

    def setUp(self) -> None:
        super().setUp()
        self.cluster.start_datanode("n0", dram="8MiB")
        for name in ["o0", "o1"]:
            self.start_with_bucket(name)

    def start_with_bucket(self, name: str) -> None:
        """Starts a datanode whose object tier is the bucket."""
        url = f"s3://{BUCKET}/{PREFIX}"
        self.cluster.start_datanode(name, "--object", url, "--object-bytes", "64MiB", dram="64KiB")

    def fill(self) -> None:
        """Stores files, all on the node that is then taken away with a notice."""
        self.cluster.cli("fs", "mkdir", "/data")
        for number in range(FILES):
            local = self.directory / f"{number}"
            local.write_bytes(content(number))
            self.cluster.cli("fs", "put", str(local), f"/data/{number}")
        self.take_away("n0")

    def take_away(self, name: str) -> None:
        """Gives a node its notice, kills it when it is empty, and waits until it is gone."""
        self.cluster.notice(name, "200s")
        self.wait_until_gone(name)

    def wait_until_gone(self, name: str) -> None:
        """Waits until the namenode has removed a node."""
        until(f"{name} is gone", lambda: self.cluster.nodes()[name]["policy"] == "gone")

    def objects(self) -> list[str]:
        """Returns the keys of the tier's objects in the bucket."""
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX).get("Contents", [])
        return [entry["Key"] for entry in found]

    def read(self, number: int, passes: tuple[int, ...] = (0,)) -> bytes | None:
        """Reads a file with a command; returns nothing if that fails with a code of `passes`."""
        words = ["--timeout", "20s", "fs", "cat", f"/data/{number}"]
        ran = self.cluster.run(*words, passes=passes)
        return ran.stdout if ran.returncode == 0 else None

    def assert_all_read(self) -> None:
        """Fails unless every file has its bytes and no block is lost."""
        for number in range(FILES):
            self.assertEqual(self.read(number), content(number), f"/data/{number}")
        report = json.loads(self.cluster.cli("fsck", "--json"))
        self.assertEqual(report["lost_blocks"], 0, report)

    def test_blocks_outlive_their_nodes_in_a_bucket(self) -> None:
        self.fill()
        self.assertEqual(len(self.objects()), FILES)
        self.assert_all_read()
        self.cluster.kill("o0")
        self.wait_until_gone("o0")
        self.assert_all_read()
        self.cluster.cli("fs", "rm", "-r", "/data")
        until("the objects are deleted", lambda: not self.objects())
        self.assertNotIn(SECRET, self.cluster.logs())

    def test_store_that_lies_hangs_or_forgets_is_distinguished_from_data(self) -> None:
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
        report = json.loads(self.cluster.cli("fsck", "--json", passes=(5,)))
        self.assertGreaterEqual(report["lost_blocks"], 1, report)

        # What no node has fetched yet has to come from a store that hangs.
        self.start_with_bucket("o2")
        for name in ["o0", "o1"]:
            self.take_away(name)
        self.server.pause()
        # A reader that hung would end with no code at all.
        self.assertIsNone(self.read(0, passes=(1, 4, 5, 124)))
        self.assertTrue(self.cluster.nodes()["o2"], "the node does not answer")
        self.server.resume()
        readable = next(number for number in range(FILES) if back[number] is not None)
        until("the store is back", lambda: self.read(readable, (0, 1, 4, 5, 124)) is not None)


class DurableBucket(S3Test):
    """A durable directory whose store is a bucket."""

    STORE = "results/run-7"

    def setUp(self) -> None:
        super().setUp()
        self.start_datanodes("d0", "d1")
        self.make_durable("/out")

    def start_datanodes(self, *names: str) -> None:
        """Starts datanodes with the bucket as their store."""
        place = f"archive=s3://{BUCKET}/{self.STORE}"
        for name in names:
            self.cluster.start_datanode(name, "--durable", place, dram="64MiB")

    def put(self, name: str, value: bytes, *flags: str) -> None:
        """Puts an object into the durable directory."""
        local = self.directory / "value"
        local.write_bytes(value)
        self.cluster.cli("fs", "put", "-p", *flags, str(local), f"/out/{name}")

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
        self.cluster.cli("fs", "sync", "/out")
        self.assertEqual(self.stored(), values)
        # A newer version, a deletion and a rename follow.
        self.put("small", b"newer", "-f")
        self.cluster.cli("fs", "rm", "/out/empty")
        self.cluster.cli("fs", "mv", "/out/big", "/out/bigger")
        self.cluster.cli("fs", "sync", "/out")
        values["small"] = b"newer"
        values["bigger"] = values.pop("big")
        del values["empty"]
        self.assertEqual(self.stored(), values)
        self.assertNotIn(SECRET, self.cluster.cli("fs", "stat", "/out/small"))

    def test_bucket_that_hangs_or_dies_delays_the_copy_only(self) -> None:
        self.put("first", content(3))
        self.cluster.cli("fs", "sync", "/out")
        self.server.pause()
        self.put("second", content(4))
        self.put("third", content(5))
        ran = self.cluster.run("fs", "sync", "/out", "--timeout", "2s", passes=(124,))
        self.assertIn(b"wait for the store archive", ran.stderr)
        read = self.cluster.run("fs", "cat", "/out/second").stdout
        self.assertEqual(read, content(4))
        self.cluster.notice("d0", "200s")
        self.server.resume()
        self.cluster.cli("fs", "sync", "/out", "--timeout", "90s")
        stored = self.stored()
        self.assertEqual(list(stored), ["first", "second", "third"])
        self.assertEqual(stored["third"], content(5))

    def test_another_cluster_adopts_the_bucket_when_it_has_settled(self) -> None:
        values = {"small": b"x" * 100, "empty": b"", "a/deep/one": content(1)[:70_000],
                  "big": content(2) * 40}
        for name, value in values.items():
            self.put(name, value)
        self.cluster.cli("fs", "sync", "/out")
        # What the earlier cluster has put into the bucket goes on without it.
        for name in ["d0", "d1", "namenode"]:
            self.cluster.kill(name)
        self.s3.put_object(Bucket=BUCKET, Key=f"{self.STORE}/by-hand", Body=b"foreign")
        values["by-hand"] = b"foreign"
        self.start_cluster()
        self.start_datanodes("e0", "e1")
        self.make_durable("/in", "--adopt", "--timeout", "80s")
        for name, value in values.items():
            read = self.cluster.run("fs", "cat", f"/in/{name}").stdout
            self.assertEqual(read, value, name)
        self.cluster.cli("fs", "rm", "/in/small")
        self.cluster.cli("fs", "sync", "/in")
        del values["small"]
        self.assertEqual(self.stored(), values)

    def test_bucket_of_another_directory_is_not_written_to(self) -> None:
        self.put("ours", b"ours")
        self.cluster.cli("fs", "sync", "/out")
        owner = f"{self.STORE}/.sanderling/owner"
        body = b"cluster 1 directory 2\n"
        self.s3.put_object(Bucket=BUCKET, Key=owner, Body=body)
        for name in ["d0", "d1"]:
            self.cluster.kill(name)
            self.start_datanodes(f"{name}-again")
        self.put("more", b"more")

        def is_stalled() -> bool:
            shown = self.cluster.cli("fs", "stat", "/out/more")
            return "it belongs to cluster 1 directory 2" in shown

        until("the directory is stalled", is_stalled)
        self.assertEqual(self.stored(), {"ours": b"ours"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
