"""A cluster with an S3 gateway, as processes, for the tests of the gateway."""

import random
import unittest
from typing import Any

from cluster import Cluster

KEY = "sanderling"


def some_bytes(count: int) -> bytes:
    """Returns this many random bytes: the same ones for the same count."""
    return random.Random(count).randbytes(count)


class Fleet(Cluster):
    """A namenode, datanodes and a gateway. Everything ends with `stop`."""

    def __init__(self, datanodes: int = 2, dram: str = "192MiB", flags: tuple[str, ...] = (),
                 node_flags: tuple[str, ...] = ()) -> None:
        self.gateway_flags = flags
        super().__init__(datanodes, dram, node_flags=node_flags)

    def started(self) -> None:
        self.address = self.start_gateway("gateway", *self.gateway_flags)
        self.endpoint = f"http://{self.address}"

    def start_gateway(self, name: str, *flags: str) -> str:
        """Starts a gateway and returns its address."""
        ready = self.start(name, "gateway", "s3", "--listen", "127.0.0.1:0", "--http",
                           "127.0.0.1:0", *flags)
        self.http_address = str(ready["http_address"])
        return str(ready["address"])

    def client_environment(self) -> dict[str, str]:
        """Returns what clients find their way and their keys by."""
        return self.environment() | {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.directory),
        }


class BucketTest(unittest.TestCase):
    """One cluster for all tests of a class, which `setUpClass` starts, and a bucket for each."""

    fleet: Fleet
    # A client of boto3.
    s3: Any

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()

    def setUp(self) -> None:
        self.bucket = self.id().rsplit(".", 1)[-1].replace("_", "-")[-60:].strip("-")
        self.s3.create_bucket(Bucket=self.bucket)

    def put(self, key: str, body: bytes = b"x", **more: Any) -> Any:
        """Puts an object into the test's bucket and returns the answer."""
        return self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, **more)

    def keys(self, **query: Any) -> list[str]:
        """Returns the keys in the test's bucket."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, **query)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]
