#!/usr/bin/env python3
"""Tests the S3 gateway with s3fs, pyarrow and Polars.

Run with .venv-s3fs/bin/python, which scripts/venv.sh s3fs makes. The program is SANDERLING_BIN,
else the one in .venv, else the one that cargo built.
"""

import os
import random
import time
import unittest
from typing import Any

import polars
import pyarrow
import pyarrow.dataset
import s3fs
from gateway_fleet import KEY, Fleet
from pyarrow import fs, parquet

MIB = 1 << 20


def arrow_file_system(fleet: Fleet) -> Any:
    """Returns pyarrow's file system with the timeouts that it has by itself."""
    return fs.S3FileSystem(access_key=KEY, secret_key=KEY, scheme="http", region="us-east-1",
                           endpoint_override=fleet.address, allow_bucket_creation=True,
                           allow_bucket_deletion=True)


class Libraries(unittest.TestCase):
    """One cluster for all libraries, a bucket for each."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet(dram="256MiB")
        os.environ.update(cls.fleet.client_environment())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()

    def table(self, rows: int = 200_000) -> Any:
        draw = random.Random(rows)
        return pyarrow.table({
            "id": range(rows),
            "part": [row % 4 for row in range(rows)],
            "value": [draw.random() for _ in range(rows)],
        })

    def test_s3fs(self) -> None:
        s3 = s3fs.S3FileSystem(key=KEY, secret=KEY, endpoint_url=self.fleet.endpoint)
        s3.mkdir("s3fs")
        body = random.Random(1).randbytes(12 * MIB + 5)
        with s3.open("s3fs/dir/large", "wb", block_size=5 * MIB) as file:
            file.write(body)
        s3.pipe("s3fs/dir/small", b"small")
        with s3.open("s3fs/dir/large", "rb", block_size=MIB) as file:
            file.seek(5 * MIB - 1)
            self.assertEqual(file.read(3), body[5 * MIB - 1:5 * MIB + 2])
        self.assertEqual(s3.cat("s3fs/dir/large"), body)
        self.assertEqual(sorted(s3.ls("s3fs/dir")), ["s3fs/dir/large", "s3fs/dir/small"])
        self.assertEqual(s3.info("s3fs/dir/large")["size"], len(body))
        self.assertTrue(s3.isdir("s3fs/dir"))
        s3.copy("s3fs/dir/small", "s3fs/copy")
        s3.mv("s3fs/copy", "s3fs/moved")
        self.assertEqual(s3.cat("s3fs/moved"), b"small")
        self.assertFalse(s3.exists("s3fs/copy"))
        with self.assertRaises(FileNotFoundError):
            s3.cat("s3fs/none")
        s3.rm("s3fs", recursive=True)
        s3.invalidate_cache()
        self.assertNotIn("s3fs", s3.ls(""))

    def test_pyarrow(self) -> None:
        s3 = arrow_file_system(self.fleet)
        s3.create_dir("pyarrow/tables")
        table = self.table()
        parquet.write_table(table, "pyarrow/tables/one.parquet", filesystem=s3)
        read = parquet.read_table("pyarrow/tables/one.parquet", filesystem=s3, columns=["value"])
        self.assertEqual(read, table.select(["value"]))
        pyarrow.dataset.write_dataset(table, "pyarrow/parts", filesystem=s3, format="parquet",
                                      partitioning=["part"])
        parts = pyarrow.dataset.dataset("pyarrow/parts", filesystem=s3, format="parquet",
                                        partitioning=["part"])
        self.assertEqual(parts.count_rows(), table.num_rows)
        third = parts.to_table(filter=pyarrow.dataset.field("part") == 3)
        self.assertEqual(third.num_rows, 50_000)
        found = s3.get_file_info(fs.FileSelector("pyarrow", recursive=True))
        self.assertIn("pyarrow/tables/one.parquet", [info.path for info in found])
        with s3.open_output_stream("pyarrow/stream") as stream:
            for _ in range(13):
                stream.write(bytes(MIB))
        self.assertEqual(s3.get_file_info("pyarrow/stream").size, 13 * MIB)
        s3.copy_file("pyarrow/stream", "pyarrow/copy")
        s3.move("pyarrow/copy", "pyarrow/moved")
        with self.assertRaises(FileNotFoundError):
            s3.open_input_file("pyarrow/none")
        s3.delete_dir("pyarrow")
        self.assertEqual(s3.get_file_info("pyarrow").type, fs.FileType.NotFound)

    def test_pyarrow_waits_for_a_long_copy_with_its_own_timeout(self) -> None:
        # What is copied leaves the datanode in 6 s. pyarrow gives up after 3 s of silence.
        fleet = Fleet(datanodes=1, node_flags=("--egress-limit", "512KiB"))
        self.addCleanup(fleet.stop)
        s3 = arrow_file_system(fleet)
        s3.create_dir("slow")
        with s3.open_output_stream("slow/from") as stream:
            stream.write(bytes(3 * MIB))
        began = time.monotonic()
        s3.copy_file("slow/from", "slow/to")
        self.assertGreater(time.monotonic() - began, 3)
        self.assertEqual(s3.get_file_info("slow/to").size, 3 * MIB)
        # The bucket is looked up when the second block has come. Then the answer has begun.
        with self.assertRaisesRegex(OSError, "NO_SUCH_BUCKET|NoSuchBucket"):
            s3.copy_file("slow/from", "missing/to")

    def test_polars(self) -> None:
        s3 = s3fs.S3FileSystem(key=KEY, secret=KEY, endpoint_url=self.fleet.endpoint)
        s3.mkdir("polars")
        options = {
            "aws_endpoint_url": self.fleet.endpoint,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": KEY,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
        frame = polars.from_arrow(self.table())
        frame.write_parquet("s3://polars/a.parquet", storage_options=options)
        frame.lazy().sink_parquet("s3://polars/b.parquet", storage_options=options)
        scan = polars.scan_parquet("s3://polars/*.parquet", storage_options=options)
        total = scan.filter(polars.col("part") == 1).select(polars.len()).collect().item()
        self.assertEqual(total, 100_000)
        with self.assertRaises(Exception) as missing:
            polars.scan_parquet("s3://polars/none.parquet", storage_options=options).collect()
        self.assertNotIn("panick", str(missing.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
