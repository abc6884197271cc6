"""A cluster with an S3 gateway, as processes, for the tests of the gateway."""

import contextlib
import hashlib
import hmac
import random
import re
import socket
import unittest
import urllib.parse
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster import SOON_SECONDS, Cluster

KEY = "sanderling"
# Bodies in chunks: without signatures, with a checksum behind them; with a signature for each.
UNSIGNED_CHUNKS = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def some_bytes(count: int) -> bytes:
    """Returns this many random bytes: the same ones for the same count."""
    return random.Random(count).randbytes(count)


class Signer:
    """Signs requests by hand, as SDKs do not: at any time, with bodies in chunks of any length."""

    def __init__(self, address: str, access: str = KEY, secret: str = KEY,
                 seconds_ago: int = 0) -> None:
        self.address, self.access, self.secret = address, access, secret
        at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        self.date = at.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.date[:8]}/us-east-1/s3/aws4_request"
        # The signature of the head, then that of each chunk.
        self.last = ""

    def sign(self, kind: str, *lines: str) -> str:
        """Signs the lines of a text."""
        signature = f"AWS4{self.secret}".encode()
        text = "\n".join([kind, self.date, self.scope, *lines])
        for word in [*self.scope.split("/"), text]:
            signature = hmac.new(signature, word.encode(), "sha256").digest()
        return signature.hex()

    def sign_request(self, *lines: str) -> str:
        """Signs the lines of a canonical request."""
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return self.sign("AWS4-HMAC-SHA256", digest)

    def url(self, method: str, path: str, expires: int) -> str:
        """Returns a presigned URL that is valid for so many seconds."""
        fields = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256",
                  "X-Amz-Credential": f"{self.access}/{self.scope}", "X-Amz-Date": self.date,
                  "X-Amz-Expires": str(expires), "X-Amz-SignedHeaders": "host"}
        query = urllib.parse.urlencode(fields, quote_via=urllib.parse.quote, safe="")
        host = f"host:{self.address}\n"
        signature = self.sign_request(method, path, query, host, "host", "UNSIGNED-PAYLOAD")
        return f"http://{self.address}{path}?{query}&X-Amz-Signature={signature}"

    def head(self, method: str, path: str, query: str, payload: str,
             headers: dict[str, str]) -> bytes:
        """Returns the head of a request, after whose answer the connection ends."""
        signed = {"host": self.address, "x-amz-content-sha256": payload, "x-amz-date": self.date}
        names = ";".join(signed)
        listed = "".join(f"{name}:{value}\n" for name, value in signed.items())
        self.last = self.sign_request(method, path, query, listed, names, payload)
        headers = headers | signed | {"connection": "close", "authorization":
            f"AWS4-HMAC-SHA256 Credential={self.access}/{self.scope}, "
            f"SignedHeaders={names}, Signature={self.last}"}
        target = f"{path}?{query}" if query else path
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def chunk(self, data: bytes) -> bytes:
        """Returns the next chunk with its signature."""
        empty, digest = hashlib.sha256(b"").hexdigest(), hashlib.sha256(data).hexdigest()
        self.last = self.sign("AWS4-HMAC-SHA256-PAYLOAD", self.last, empty, digest)
        return f"{len(data):x};chunk-signature={self.last}\r\n".encode() + data + b"\r\n"


def exchanged(address: str, pieces: Iterable[bytes]) -> tuple[int, str | None]:
    """Sends a request and returns the status of its answer, and its code if it is an error.

    The status is 0 if the gateway closed the connection while it was being sent.
    """
    host, port = address.rsplit(":", 1)
    answer = b""
    with socket.create_connection((host, int(port)), timeout=2 * SOON_SECONDS) as peer:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                peer.sendall(piece)
        with contextlib.suppress(ConnectionError):
            while piece := peer.recv(65536):
                answer += piece
    status = re.match(rb"HTTP/1.1 (\d+)", answer)
    code = re.search(rb"<Code>(.*?)</Code>", answer)
    return int(status[1]) if status else 0, code[1].decode() if code else None


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
