#!/usr/bin/env python3
"""Tests what the S3 gateway does when something goes wrong: lost data, dead servers, slow, broken
and hostile clients, wrong keys.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import base64
import hashlib
import json
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
import zlib
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ResponseStreamingError
from cluster import SOON_SECONDS, until
from gateway_fleet import KEY, SIGNED_CHUNKS, UNSIGNED_CHUNKS, Fleet, Signer, exchanged, some_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MIB = 1 << 20
SECRET = "a-secret-that-nobody-may-see"
# Nothing is written beside the tests, and a busy machine is no failure.
PATIENT: dict[str, Any] = {"deadline": None, "database": None,
                           "suppress_health_check": list(HealthCheck)}


def client(endpoint: str, access: str = KEY, secret: str = KEY, attempts: int = 1,
           silence: float = SOON_SECONDS) -> Any:
    retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=access,
        aws_secret_access_key=secret, config=Config(
            retries=retries, read_timeout=silence, signature_version="s3v4"),
    )


def refused(call: Any, **arguments: Any) -> tuple[str, int, int]:
    """Returns code, status and number of repetitions of a call that fails."""
    try:
        call(**arguments)
    except ClientError as error:
        meta = error.response["ResponseMetadata"]
        return error.response["Error"]["Code"], meta["HTTPStatusCode"], meta["RetryAttempts"]
    raise AssertionError(f"{call} was answered")


def refused_within_a_second(call: Any, **arguments: Any) -> tuple[str, int, int]:
    """Does the same again until it takes less than a second: if a machine stands still for longer,
    the gateway answers a copy with status 200 before its end."""
    limit = time.monotonic() + SOON_SECONDS
    while True:
        began = time.monotonic()
        answer = refused(call, **arguments)
        if time.monotonic() - began < 1:
            return answer
        if time.monotonic() > limit:
            raise AssertionError(f"{call} takes a second: {answer}")


class Faults(unittest.TestCase):
    """A cluster for each test: they break it."""

    def fleet(self, **options: Any) -> Fleet:
        fleet = Fleet(**options)
        self.addCleanup(fleet.stop)
        self.s3 = client(fleet.endpoint)
        return fleet

    def test_lost_data_is_reported_once_and_not_requested_again(self) -> None:
        fleet = self.fleet(datanodes=1)
        self.s3.create_bucket(Bucket="lost")
        self.s3.put_object(Bucket="lost", Key="small", Body=b"in the catalog")
        self.s3.put_object(Bucket="lost", Key="k", Body=bytes(3 * MIB))
        fleet.kill("n0")
        until("the node is gone", lambda: fleet.nodes()["n0"]["policy"] == "gone")
        patient = client(fleet.endpoint, attempts=5)
        answer = refused(patient.get_object, Bucket="lost", Key="k")
        self.assertEqual(answer, ("DataUnavailable", 410, 0))
        small = self.s3.get_object(Bucket="lost", Key="small")["Body"].read()
        self.assertEqual(small, b"in the catalog")
        self.s3.delete_object(Bucket="lost", Key="k")
        self.assertEqual(self.s3.list_objects_v2(Bucket="lost")["KeyCount"], 1)

    def test_namenode_that_does_not_answer_is_a_503(self) -> None:
        fleet = self.fleet(datanodes=1)
        self.s3.create_bucket(Bucket="away")
        self.s3.put_object(Bucket="away", Key="k", Body=b"here")
        fleet.pause("namenode")
        code, status, _ = refused(self.s3.get_object, Bucket="away", Key="k")
        self.assertEqual((code, status), ("ServiceUnavailable", 503))
        fleet.resume("namenode")
        patient = client(fleet.endpoint, attempts=5)
        self.assertEqual(patient.get_object(Bucket="away", Key="k")["Body"].read(), b"here")

    def test_reads_and_writes_go_on_while_a_node_leaves(self) -> None:
        fleet = self.fleet(datanodes=1)
        self.s3.create_bucket(Bucket="moving")
        body = some_bytes(24 * MIB)
        self.s3.put_object(Bucket="moving", Key="k", Body=body)
        fleet.start_datanode("n1")
        leaves = threading.Thread(target=fleet.cli, args=[
            "node", "notice", "n0", "--deadline", "200s", "--wait"])
        stream = self.s3.get_object(Bucket="moving", Key="k")["Body"]
        read = stream.read(MIB)
        leaves.start()
        number = 0
        while leaves.is_alive():
            self.s3.put_object(Bucket="moving", Key=f"{number % 4}", Body=some_bytes(MIB + 1))
            got = self.s3.get_object(Bucket="moving", Key=f"{number % 4}")["Body"].read()
            self.assertEqual(got, some_bytes(MIB + 1))
            number += 1
        leaves.join()
        read += stream.read()
        self.assertEqual(read, body)
        fleet.kill("n0")
        self.assertEqual(self.s3.get_object(Bucket="moving", Key="k")["Body"].read(), body)

    def test_long_copies_are_not_silent_for_four_seconds(self) -> None:
        # What is copied leaves the datanode in 6 s.
        fleet = self.fleet(datanodes=1, node_flags=("--egress-limit", "512KiB"))
        self.s3.create_bucket(Bucket="slow")
        tag = self.s3.put_object(Bucket="slow", Key="k", Body=some_bytes(3 * MIB))["ETag"]
        self.s3.put_object(Bucket="slow", Key="short", Body=b"short")
        hasty = client(fleet.endpoint, silence=4)
        source = {"Bucket": "slow", "Key": "k"}
        began = time.monotonic()
        copied = hasty.copy_object(Bucket="slow", Key="copy", CopySource=source)
        self.assertGreater(time.monotonic() - began, 4)
        self.assertEqual(copied["CopyObjectResult"]["ETag"], tag)
        self.assertIn("x-amz-request-id", copied["ResponseMetadata"]["HTTPHeaders"])
        head = self.s3.head_object(Bucket="slow", Key="copy")
        self.assertEqual((head["ContentLength"], head["ETag"]), (3 * MIB, tag))
        begun = hasty.create_multipart_upload(Bucket="slow", Key="parts")
        began = time.monotonic()
        part = hasty.upload_part_copy(Bucket="slow", Key="parts", UploadId=begun["UploadId"],
                                      PartNumber=1, CopySource=source)
        self.assertGreater(time.monotonic() - began, 4)
        self.assertEqual(part["CopyPartResult"]["ETag"], tag)
        # The bucket is looked up when the second block has come. Then the answer has begun.
        late = refused(hasty.copy_object, Bucket="missing", Key="k", CopySource=source)
        self.assertEqual(late[0], "NoSuchBucket")
        self.assertNotEqual(late[1], 404)
        short = {"Bucket": "slow", "Key": "short"}
        soon = refused_within_a_second(hasty.copy_object, Bucket="missing", Key="k",
                                       CopySource=short)
        self.assertEqual(soon, ("NoSuchBucket", 404, 0))
        missing = refused(hasty.copy_object, Bucket="slow", Key="new",
                          CopySource={"Bucket": "slow", "Key": "missing"})
        self.assertEqual(missing, ("NoSuchKey", 404, 0))

    def test_killed_node_costs_what_was_on_it_and_no_more(self) -> None:
        fleet = self.fleet(datanodes=2)
        self.s3.create_bucket(Bucket="killed")
        for number in range(8):
            self.s3.put_object(Bucket="killed", Key=f"{number}", Body=some_bytes(MIB + number))
        fleet.kill("n0")
        patient = client(fleet.endpoint, attempts=5)
        for number in range(8):
            # A read that finds the node dead waits until it is known what is lost.
            try:
                got = patient.get_object(Bucket="killed", Key=f"{number}")["Body"].read()
                self.assertEqual(got, some_bytes(MIB + number))
            except ClientError as error:
                self.assertEqual(error.response["Error"]["Code"], "DataUnavailable")
            except ResponseStreamingError:
                # The first block was there: the answer is broken off at the second.
                again = refused(client(fleet.endpoint).get_object, Bucket="killed",
                                Key=f"{number}", Range=f"bytes={MIB}-")
                self.assertEqual(again[:2], ("DataUnavailable", 410))
            patient.put_object(Bucket="killed", Key=f"{number}", Body=b"again")
            again = patient.get_object(Bucket="killed", Key=f"{number}")["Body"].read()
            self.assertEqual(again, b"again")

    def connect(self, fleet: Fleet) -> socket.socket:
        host, port = fleet.address.rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), timeout=2 * SOON_SECONDS)
        self.addCleanup(peer.close)
        return peer

    def signed(self, fleet: Fleet, what: str, key: str, length: int = 0) -> bytes:
        """Returns the head of a request for a key of the bucket `faults`."""
        url = self.s3.generate_presigned_url(what, {"Bucket": "faults", "Key": key})
        method = {"put_object": "PUT", "get_object": "GET"}[what]
        path = url.removeprefix(fleet.endpoint)
        return (f"{method} {path} HTTP/1.1\r\nhost: {fleet.address}\r\n"
                f"content-length: {length}\r\n\r\n").encode()

    def test_slow_and_vanishing_clients_leave_nothing_behind(self) -> None:
        fleet = self.fleet(datanodes=1, flags=("--silence", "1s", "--connections", "4"))
        self.s3.create_bucket(Bucket="faults")
        old = some_bytes(5 * MIB)
        self.s3.put_object(Bucket="faults", Key="k", Body=old)
        with self.connect(fleet) as gone:
            gone.sendall(self.signed(fleet, "put_object", "k", 8 * MIB) + bytes(4 * MIB))
        with self.connect(fleet) as gone:
            gone.sendall(self.signed(fleet, "put_object", "new", 8 * MIB) + bytes(4 * MIB))
        with self.connect(fleet) as gone:
            gone.sendall(self.signed(fleet, "put_object", "p/q/k", 8 * MIB) + bytes(4 * MIB))
        # More of them than there are connections: no other client would be served if they stayed.
        # Each sends a request at once: a connection without one would make room for the next.
        slow: list[socket.socket] = []
        for number in range(6):
            peer = self.connect(fleet)
            slow.append(peer)
            if number % 2:
                peer.sendall(self.signed(fleet, "put_object", "k", 3 * MIB) + bytes(2 * MIB))
            else:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.sendall(self.signed(fleet, "get_object", "k"))
        answer = slow[1].recv(4096)
        self.assertIn(b"400 Bad Request", answer)
        self.assertIn(b"RequestTimeout", answer)
        patient = client(fleet.endpoint, attempts=5)
        self.assertEqual(patient.get_object(Bucket="faults", Key="k")["Body"].read(), old)
        self.assertEqual(patient.list_objects_v2(Bucket="faults")["KeyCount"], 1)
        # The blocks of what was given up are free again.
        def is_free() -> bool:
            fsck = json.loads(fleet.cli("fsck", "--json"))
            return int(fsck["bytes"]) == len(old)
        until("what was given up is gone", is_free)
        # No prefix stays without a key, nor a directory with a name that a key may have.
        listed: dict[str, Any] = {"Bucket": "faults", "Delimiter": "/"}
        until("no prefix is listed",
              lambda: "CommonPrefixes" not in patient.list_objects_v2(**listed))
        patient.put_object(Bucket="faults", Key="p", Body=b"a key")

    def peak(self, fleet: Fleet, name: str) -> int:
        """Returns the most bytes of memory that a server has had so far."""
        status = Path(f"/proc/{fleet.processes[name].pid}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["VmHWM"].split()[0]) << 10

    def chunked(self, signer: Signer, target: tuple[str, str, str], pieces: Iterator[bytes],
                length: int, announced: int, trailer: bytes) -> Iterator[bytes]:
        """Returns a request whose body is one chunk without a signature."""
        line, end = f"{length:x}\r\n".encode(), b"\r\n0\r\n" + trailer + b"\r\n\r\n"
        head = signer.head(*target, UNSIGNED_CHUNKS, {
            "content-encoding": "aws-chunked", "x-amz-trailer": "x-amz-checksum-crc32",
            "x-amz-decoded-content-length": str(announced),
            "content-length": str(len(line) + length + len(end))})
        return chain([head, line], pieces, [end])

    def test_chunk_of_any_length_takes_little_memory(self) -> None:
        # The memory of a datanode that the gateway maps would count as the gateway's.
        fleet = self.fleet(datanodes=1, dram="384MiB", node_flags=("--local-socket", "none"))
        self.s3.create_bucket(Bucket="faults")
        self.s3.put_object(Bucket="faults", Key="small", Body=some_bytes(8 * MIB))
        count, block = 256, some_bytes(MIB)

        def blocks() -> Iterator[bytes]:
            return (number.to_bytes(4, "big") + block[4:] for number in range(count))

        checksum, digest = 0, hashlib.sha256()
        for piece in blocks():
            checksum = zlib.crc32(piece, checksum)
            digest.update(piece)
        trailer = b"x-amz-checksum-crc32:" + base64.b64encode(checksum.to_bytes(4, "big"))
        before = self.peak(fleet, "gateway")
        request = self.chunked(Signer(fleet.address), ("PUT", "/faults/long", ""),
                               blocks(), count * MIB, count * MIB, trailer)
        self.assertEqual(exchanged(fleet.address, request), (200, None))
        self.assertLess(self.peak(fleet, "gateway") - before, 64 * MIB)
        stored, stream = hashlib.sha256(), self.s3.get_object(Bucket="faults", Key="long")["Body"]
        for piece in stream.iter_chunks(MIB):
            stored.update(piece)
        self.assertEqual(stored.digest(), digest.digest())

    def test_xml_in_one_chunk_takes_little_memory(self) -> None:
        fleet = self.fleet(datanodes=1)
        self.s3.create_bucket(Bucket="faults")
        keys = fleet.directory / "keys.json"
        keys.write_text(json.dumps({"keys": [
            {"access_key": "reader", "secret_key": SECRET, "rights": "read"}]}))
        keys.chmod(0o600)
        address = str(fleet.start("keyed", "gateway", "s3", "--listen", "127.0.0.1:0", "--http",
                                  "none", "--keys", str(keys))["address"])
        client(f"http://{address}", "reader", SECRET).list_objects_v2(Bucket="faults")
        before = self.peak(fleet, "keyed")
        # Of the long one the gateway does not wait for the end: its answer may get lost.
        too_long = (400, "MaxMessageLengthExceeded")
        for count, announced, answers in [(12, 12 * MIB, [too_long]), (12, 10, [too_long]),
                                          (256, 256 * MIB, [too_long, (0, None)]),
                                          (256, 10, [too_long, (0, None)])]:
            signer = Signer(address, "reader", SECRET)
            request = self.chunked(signer, ("POST", "/faults", "delete="),
                                   repeat(bytes(MIB), count), count * MIB, announced, b"")
            self.assertIn(exchanged(address, request), answers, (count, announced))
            self.assertLess(self.peak(fleet, "keyed") - before, 64 * MIB)

    def test_signed_chunks_are_checked_and_have_a_bound(self) -> None:
        fleet = self.fleet(datanodes=1)
        self.s3.create_bucket(Bucket="faults")
        data = some_bytes(5 * MIB)

        def head(signer: Signer, length: int) -> bytes:
            return signer.head("PUT", "/faults/k", "", SIGNED_CHUNKS, {
                "content-encoding": "aws-chunked", "content-length": str(length),
                "x-amz-decoded-content-length": str(len(data))})

        signer = Signer(fleet.address)
        head(signer, 0)
        body = signer.chunk(data) + signer.chunk(b"")
        self.assertEqual(exchanged(fleet.address, [head(signer, len(body)), body]), (200, None))
        got = self.s3.get_object(Bucket="faults", Key="k")["Body"].read()
        self.assertEqual(got, data)
        other = body.replace(data[-9:], b"nine byte", 1)
        answer = exchanged(fleet.address, [head(signer, len(body)), other])
        self.assertEqual(answer, (403, "SignatureDoesNotMatch"))
        # All of it would have to be in memory before its signature is checked.
        line = f"{16 * MIB + 1:x};chunk-signature={'0' * 64}\r\n".encode()
        answer = exchanged(fleet.address, [head(signer, 17 * MIB), line])
        self.assertEqual(answer, (400, "InvalidRequest"))

    def test_keys_bound_what_a_caller_may_do(self) -> None:
        fleet = self.fleet(datanodes=1)
        keys = fleet.directory / "keys.json"
        keys.write_text(json.dumps({"keys": [
            {"access_key": "all", "secret_key": SECRET},
            {"access_key": "reader", "secret_key": SECRET, "rights": "read", "buckets": ["one"]},
            {"access_key": "part", "secret_key": SECRET, "buckets": ["one"], "prefix": "p/"},
        ]}))
        words = ["gateway", "s3", "--listen", "127.0.0.1:0", "--http", "none", "--keys", str(keys)]

        def fails() -> str:
            ran = subprocess.run([fleet.program, *words], env=fleet.environment(),
                                 capture_output=True, timeout=2 * SOON_SECONDS)
            self.assertNotEqual(ran.returncode, 0)
            return ran.stderr.decode()

        keys.chmod(0o644)
        self.assertIn("chmod 600", fails())
        keys.chmod(0o600)
        address = fleet.start("keyed", *words)["address"]
        endpoint = f"http://{address}"
        whole = client(endpoint, "all", SECRET)
        whole.create_bucket(Bucket="one")
        whole.create_bucket(Bucket="two")
        whole.put_object(Bucket="one", Key="k", Body=b"1")
        whole.put_object(Bucket="one", Key="p/k", Body=b"2")
        reader, part = client(endpoint, "reader", SECRET), client(endpoint, "part", SECRET)
        denied = ("AccessDenied", 403, 0)
        self.assertEqual(reader.get_object(Bucket="one", Key="k")["Body"].read(), b"1")
        self.assertEqual([it["Name"] for it in reader.list_buckets()["Buckets"]], ["one"])
        for call in [reader.put_object, reader.delete_object]:
            self.assertEqual(refused(call, Bucket="one", Key="k"), denied)
        self.assertEqual(refused(reader.get_object, Bucket="two", Key="k"), denied)
        self.assertEqual(part.get_object(Bucket="one", Key="p/k")["Body"].read(), b"2")
        part.put_object(Bucket="one", Key="p/new", Body=b"3")
        self.assertEqual(refused(part.get_object, Bucket="one", Key="k"), denied)
        self.assertEqual(refused(part.list_objects_v2, Bucket="one"), denied)
        self.assertEqual(part.list_objects_v2(Bucket="one", Prefix="p/")["KeyCount"], 2)
        self.assertEqual(refused(part.copy_object, Bucket="one", Key="p/c",
                                 CopySource={"Bucket": "one", "Key": "k"}), denied)
        deleted = part.delete_objects(Bucket="one", Delete={"Objects": [{"Key": "k"}]})
        self.assertEqual(deleted["Errors"][0]["Code"], "AccessDenied")
        self.assertEqual(refused(part.delete_bucket, Bucket="one"), denied)
        wrong = refused(client(endpoint, "all", "wrong secret").list_buckets)
        self.assertEqual(wrong[:2], ("SignatureDoesNotMatch", 403))
        unknown = refused(client(endpoint, "nobody", SECRET).list_buckets)
        self.assertEqual(unknown[:2], ("InvalidAccessKeyId", 403))
        self.assertNotIn(SECRET, fleet.logs())

    def test_keys_are_read_again_without_a_restart(self) -> None:
        fleet = self.fleet(datanodes=1)
        keys = fleet.directory / "keys.json"

        def put(*access: str, mode: int = 0o600, text: str = "", **more: str) -> None:
            listed = [{"access_key": each, "secret_key": SECRET} | more for each in access]
            later = fleet.directory / "keys.next"
            later.write_text(text or json.dumps({"keys": listed}))
            later.chmod(mode)
            later.rename(keys)

        put("first")
        words = ["gateway", "s3", "--listen", "127.0.0.1:0", "--http", "none", "--keys", str(keys)]
        endpoint = f"http://{fleet.start('keyed', *words)['address']}"
        first, second = client(endpoint, "first", SECRET), client(endpoint, "second", SECRET)
        first.create_bucket(Bucket="one")
        unknown = ("InvalidAccessKeyId", 403, 0)
        self.assertEqual(refused(second.list_buckets), unknown)
        url = first.generate_presigned_url("list_buckets")
        put("first", "second", rights="read")
        second.list_buckets()
        self.assertEqual(refused(first.create_bucket, Bucket="two"), ("AccessDenied", 403, 0))
        put("second")
        # On the connection that is open, and by a URL that was signed before.
        self.assertEqual(refused(first.list_buckets), unknown)
        with self.assertRaises(urllib.error.HTTPError) as gone:
            urllib.request.urlopen(url)
        self.assertEqual(gone.exception.code, 403)
        second.create_bucket(Bucket="two")
        log = fleet.directory / "keyed.log"
        for damage, count in [({"text": "{"}, 1), ({"text": '{"keys": []}'}, 2),
                              ({"mode": 0o644}, 3)]:
            put("first", **damage)
            second.list_buckets()
            self.assertEqual(refused(first.list_buckets), unknown)
            seen = [line for line in log.read_text().splitlines()
                    if "access keys stay the ones before" in line]
            self.assertEqual(len(seen), count, damage)
            self.assertTrue("ERROR" in seen[-1] and "keys.json" in seen[-1], seen)
        keys.unlink()
        second.list_buckets()
        put("first")
        first.list_buckets()
        self.assertEqual(refused(second.list_buckets), unknown)
        self.assertNotIn(SECRET, fleet.logs())

    def test_beyond_loopback_it_needs_keys_and_tls(self) -> None:
        fleet = self.fleet(datanodes=1)
        words = [fleet.program, "gateway", "s3", "--listen", "0.0.0.0:0", "--http", "none"]
        ran = subprocess.run(words, env=fleet.environment(), capture_output=True,
                             timeout=2 * SOON_SECONDS)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("--keys FILE", ran.stderr.decode())
        keys = fleet.directory / "keys.json"
        keys.write_text(json.dumps({"keys": [{"access_key": "a", "secret_key": SECRET}]}))
        keys.chmod(0o600)
        ran = subprocess.run([*words, "--keys", str(keys)], env=fleet.environment(),
                             capture_output=True, timeout=2 * SOON_SECONDS)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("--tls-cert", ran.stderr.decode())


class Garbage(unittest.TestCase):
    """Whatever is sent is answered in S3's words or not at all, and the next one is served."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet(datanodes=1, flags=("--silence", "2s"))
        cls.s3 = client(cls.fleet.endpoint)
        cls.s3.create_bucket(Bucket="faults")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()

    def send(self, request: bytes) -> bytes:
        """Sends bytes and returns all that comes back until the server closes."""
        host, port = self.fleet.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=2 * SOON_SECONDS) as peer:
            answer = b""
            try:
                peer.sendall(request)
                peer.shutdown(socket.SHUT_WR)
                while piece := peer.recv(65536):
                    answer += piece
            except ConnectionError:
                pass
            return answer

    def judge(self, answer: bytes, is_head: bool = False) -> None:
        if not answer:
            return
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        self.assertNotEqual(status, 500, answer[:2000])
        self.assertNotIn(b"panicked", answer)
        if status >= 400 and body and not is_head and b"application/xml" in head.lower():
            root = xml.fromstring(body)
            self.assertEqual(root.tag, "Error")
            self.assertTrue(root.findtext("Code"))

    @settings(max_examples=150, **PATIENT)
    @given(st.binary(max_size=300))
    def test_bytes(self, garbage: bytes) -> None:
        self.judge(self.send(garbage))

    @settings(max_examples=300, **PATIENT)
    @given(
        st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS"]),
        st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"),
                max_size=60),
        st.lists(st.tuples(
            st.sampled_from(["range", "x-amz-copy-source", "x-amz-date", "content-md5", "if-match",
                             "x-amz-content-sha256", "x-amz-decoded-content-length", "expires",
                             "authorization", "content-encoding", "x-amz-tagging", "content-type",
                             "x-amz-trailer", "x-amz-meta-a", "if-modified-since"]),
            st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)), max_size=4),
        st.binary(max_size=200), st.booleans(),
    )
    def test_requests(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes,
                      is_signed: bool) -> None:
        target = f"/faults/{path}"
        if is_signed:
            # What is not signed goes no further than the check of its signature.
            verb = {"GET": "get_object", "PUT": "put_object", "DELETE": "delete_object"}
            what = verb.get(method, "head_object")
            method = method if method in verb else "HEAD"
            url = self.s3.generate_presigned_url(what, {"Bucket": "faults", "Key": path or "k"})
            target = url.removeprefix(self.fleet.endpoint)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = (f"{method} {target} HTTP/1.1\r\nhost: {self.fleet.address}\r\n{lines}"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n")
        self.judge(self.send(head.encode() + body), method == "HEAD")

    @settings(max_examples=150, **PATIENT)
    @given(st.sampled_from(["delete", "uploadId=0" * 4, "tagging", "uploads"]),
           st.one_of(st.binary(max_size=200),
                     st.sampled_from([b"<Delete>", b"<Delete><Object/></Delete>",
                                      b"<CompleteMultipartUpload><Part/></CompleteMultipartUpload>",
                                      b"<!DOCTYPE a [<!ENTITY b 'c'>]><Delete>&b;</Delete>"])))
    def test_bodies_of_xml(self, query: str, body: bytes) -> None:
        def call() -> None:
            try:
                where = {"Bucket": "faults", "Key": "k"}
                if query == "delete":
                    self.s3.delete_objects(Bucket="faults", Delete={"Objects": [{"Key": "k"}]})
                elif query == "tagging":
                    self.s3.put_object_tagging(Tagging={"TagSet": []}, **where)
                else:
                    self.s3.complete_multipart_upload(UploadId="0" * 32, MultipartUpload={
                        "Parts": [{"PartNumber": 1, "ETag": "x"}]}, **where)
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                self.assertNotEqual(status, 500, error)
                self.assertTrue(error.response["Error"]["Code"])

        def replace(params: dict[str, Any], **_: Any) -> None:
            params["body"] = body

        events = self.s3.meta.events
        events.register("before-call.s3", replace)
        try:
            call()
        finally:
            events.unregister("before-call.s3", replace)

    def tearDown(self) -> None:
        self.assertIsNone(self.fleet.processes["gateway"].poll(), "the gateway has ended")
        self.s3.put_object(Bucket="faults", Key="still", Body=b"here")
        self.assertEqual(self.s3.get_object(Bucket="faults", Key="still")["Body"].read(), b"here")
        self.assertNotIn("panicked", self.fleet.logs())


if __name__ == "__main__":
    unittest.main(verbosity=2)
