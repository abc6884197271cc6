#!/usr/bin/env python3
"""Tests what S3's clients are used to beyond its operations: errors, ranges, XML, names, parts.

Run with .venv-s3/bin/python, as gateway_test.py.
"""

import base64
import hashlib
import http.client
import re
import unittest
import urllib.parse
import zlib
from typing import Any

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cluster import until
from gateway_fleet import (
    KEY,
    UNSIGNED_CHUNKS,
    BucketTest,
    Fleet,
    Signer,
    exchanged,
    some_bytes,
)
from gateway_test import MIB, client, refusal

EMOJI = "\N{GRINNING FACE}"


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()

    def field(self, name: str) -> str | None:
        """Returns the text of an element of an XML body."""
        found = re.search(rf"<{name}>(.*?)</{name}>".encode(), self.body, re.DOTALL)
        return found[1].decode() if found else None


class Habits(BucketTest):
    """What clients do beyond the operations."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet()
        cls.s3 = client(cls.fleet.endpoint)

    def unsigned(self, method: str, path: str, headers: dict[str, str] | None = None,
                 body: bytes = b"") -> Answer:
        peer = http.client.HTTPConnection(self.fleet.address, timeout=60)
        try:
            peer.request(method, path, body, headers or {})
            return Answer(peer.getresponse())
        finally:
            peer.close()

    def send(self, method: str, path: str, headers: dict[str, str] | None = None,
             body: bytes = b"") -> Answer:
        """Sends a signed request below the bucket as it is."""
        path = f"/{self.bucket}{path}"
        request = AWSRequest(method=method, url=self.fleet.endpoint + path, data=body,
                             headers=headers or {})
        S3SigV4Auth(Credentials(KEY, KEY), "s3", "us-east-1").add_auth(request)
        return self.unsigned(method, path, dict(request.headers.items()), body)

    def url(self, operation: str, **more: Any) -> str:
        sign = client(self.fleet.endpoint, signature_version="s3v4").generate_presigned_url
        return str(sign(operation, {"Bucket": self.bucket, "Key": "k"} | more))

    def test_xml_may_name_every_character(self) -> None:
        key = f"{EMOJI}&<{EMOJI}"
        for name in [key, "plain", "in cdata & more", "\x01control"]:
            self.put(name)
        number = f"&#{ord(EMOJI)};"
        tags = ("<Tagging><TagSet><Tag><Key>mood</Key>"
                f"<Value>{number}</Value></Tag></TagSet></Tagging>")
        # Tags have no such characters in S3, but the store takes what UTF-8 can write.
        path = "/" + urllib.parse.quote(key)
        self.assertEqual(self.send("PUT", f"{path}?tagging", body=tags.encode()).status, 200)
        got = self.s3.get_object_tagging(Bucket=self.bucket, Key=key)["TagSet"]
        self.assertEqual(got, [{"Key": "mood", "Value": EMOJI}])
        names = [f"&#x{ord(EMOJI):X};&amp;&lt;{number}", "<![CDATA[in cdata & more]]>",
                 "&#x1;control"]
        objects = "".join(f"<Object><Key>{name}</Key></Object>" for name in names)
        body = f"<Delete><!-- <![CDATA[ --><Quiet>true</Quiet>{objects}</Delete>".encode()
        answer = self.send("POST", "/?delete", body=body)
        self.assertEqual((answer.status, answer.field("Error")), (200, None), answer.body)
        self.assertEqual(self.keys(), ["plain"])
        for wrong in [b"&#x110000;", b"&#xD800;", b"&#0;", b"&unknown;", b"&#;", b"<![CDATA[x"]:
            body = b"<Delete><Object><Key>plain" + wrong + b"</Key></Object></Delete>"
            answer = self.send("POST", "/?delete", body=body)
            self.assertEqual((answer.status, answer.field("Code")), (400, "MalformedXML"), wrong)
        self.assertEqual(self.keys(), ["plain"])

    def test_body_of_a_request_is_what_was_signed(self) -> None:
        self.put("kept")
        body = b"<Delete><Object><Key>kept</Key></Object></Delete>"
        path = f"/{self.bucket}?delete"
        request = AWSRequest(method="POST", url=self.fleet.endpoint + path, data=body)
        S3SigV4Auth(Credentials(KEY, KEY), "s3", "us-east-1").add_auth(request)
        headers = dict(request.headers.items())
        other = body.replace(b"<Object>", b" <Object>")
        answer = self.unsigned("POST", path, headers, other)
        self.assertEqual((answer.status, answer.field("Code")),
                         (400, "XAmzContentSHA256Mismatch"))
        self.assertEqual(self.unsigned("POST", path, {}, body).status, 403)
        wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
        answer = self.send("POST", "?delete", {"Content-MD5": wrong}, body)
        self.assertEqual((answer.status, answer.field("Code")), (400, "BadDigest"))
        self.assertEqual(self.keys(), ["kept"])

    def put_chunks(self, data: bytes, announced: str, *behind: str,
                   **before: str) -> tuple[int, str | None]:
        """Puts bytes in chunks without signatures, with checksums before and behind them."""
        body = f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n"
        body += "".join(f"{line}\r\n" for line in [*behind, ""]).encode()
        sums = {f"x-amz-checksum-{name}": text for name, text in before.items()}
        head = Signer(self.fleet.address).head("PUT", f"/{self.bucket}/k", "", UNSIGNED_CHUNKS, {
            "content-encoding": "aws-chunked", "content-length": str(len(body)),
            "x-amz-decoded-content-length": str(len(data)), "x-amz-trailer": announced} | sums)
        return exchanged(self.fleet.address, [head, body])

    def test_checksums_behind_the_body_are_compared(self) -> None:
        data, right = b"some bytes", (200, None)
        crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        sha = base64.b64encode(hashlib.sha256(data).digest()).decode()
        wrong, bad, unknown = "AAAAAA==", (400, "BadDigest"), (400, "InvalidRequest")
        for name in ["x-amz-checksum-crc32", "X-Amz-Checksum-Crc32", "X-AMZ-CHECKSUM-CRC32"]:
            self.assertEqual(self.put_chunks(data, name, f"{name}:{crc}"), right, name)
            self.assertEqual(self.put_chunks(b"other", name, f"{name}:{crc}"), bad, name)
            self.assertEqual(self.put_chunks(data, name, f"{name}:{wrong}"), bad, name)
            self.assertEqual(self.put_chunks(data, name), bad, name)
        both = ["x-amz-checksum-crc32", "x-amz-checksum-sha256"]
        for announced in [",".join(both), " , ".join(both)]:
            for sums, answer in [((crc, sha), right), ((wrong, sha), bad), ((crc, wrong), bad)]:
                lines = [f"{name}:{text}" for name, text in zip(both, sums, strict=True)]
                self.assertEqual(self.put_chunks(data, announced, *lines), answer, sums)
            self.assertEqual(self.put_chunks(data, announced, f"{both[0]}:{crc}"), bad)
        name = both[0]
        for before, behind, answer in [(crc, crc, right), (crc, wrong, bad), (wrong, crc, bad)]:
            put = self.put_chunks(data, name, f"{name}:{behind}", crc32=before)
            self.assertEqual(put, answer, (before, behind))
        # Another trailer is no checksum, and a checksum that is none is compared with nothing.
        self.assertEqual(self.put_chunks(data, "x-amz-meta-a", "x-amz-meta-a:b"), right)
        other = "x-amz-checksum-md4"
        self.assertEqual(self.put_chunks(data, other, f"{other}:{wrong}"), unknown)
        both_names = f"{name},{other}"
        answer = self.put_chunks(data, both_names, f"{name}:{crc}", f"{other}:{wrong}")
        self.assertEqual(answer, unknown)
        self.assertEqual(self.put_chunks(data, name, f"{name}:{crc}", md4=wrong), unknown)
        self.assertEqual(self.s3.get_object(Bucket=self.bucket, Key="k")["Body"].read(), data)

    def delete_in_chunks(self, body: bytes, announced: str, *behind: str) -> tuple[int, str | None]:
        """Sends a DeleteObjects in one chunk without a signature, with trailers behind it."""
        chunks = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n"
        chunks += "".join(f"{line}\r\n" for line in [*behind, ""]).encode()
        head = Signer(self.fleet.address).head(
            "POST", f"/{self.bucket}", "delete=", UNSIGNED_CHUNKS, {
                "content-encoding": "aws-chunked", "content-length": str(len(chunks)),
                "x-amz-decoded-content-length": str(len(body)), "x-amz-trailer": announced})
        return exchanged(self.fleet.address, [head, chunks])

    def test_checksums_of_xml_are_compared(self) -> None:
        body = b"<Delete><Object><Key>k</Key></Object></Delete>"
        tags = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
        wrong = "AAAAAA=="
        for method, path, text in [("POST", "?delete", body), ("PUT", "/k?tagging", tags)]:
            self.put("k")
            crc = base64.b64encode(zlib.crc32(text).to_bytes(4, "big")).decode()
            sha = base64.b64encode(hashlib.sha256(text).digest()).decode()
            for name, sum_, code in [
                    ("crc32", wrong, "BadDigest"), ("sha256", wrong, "BadDigest"),
                    ("sha256", crc, "BadDigest"), ("md4", wrong, "InvalidRequest")]:
                answer = self.send(method, path, {f"x-amz-checksum-{name}": sum_}, text)
                self.assertEqual((answer.status, answer.field("Code")), (400, code), name)
            self.assertEqual(self.keys(), ["k"])
            self.assertEqual(self.s3.get_object_tagging(Bucket=self.bucket, Key="k")["TagSet"], [])
            sums = {"x-amz-checksum-crc32": crc, "x-amz-checksum-sha256": sha}
            answer = self.send(method, path, sums, text)
            self.assertEqual((answer.status, answer.field("Code")), (200, None), answer.body)
        self.put("k")
        name = "x-amz-checksum-crc32"
        crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        for behind in [[f"{name}:{wrong}"], []]:
            self.assertEqual(self.delete_in_chunks(body, name, *behind), (400, "BadDigest"))
        self.assertEqual(self.keys(), ["k"])
        self.assertEqual(self.delete_in_chunks(body, name, f"{name}:{crc}"), (200, None))
        self.assertEqual(self.keys(), [])
        # The checksums of a completion are those of its object.
        data = b"some bytes"
        crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k",
                                                ChecksumAlgorithm="CRC32",
                                                ChecksumType="FULL_OBJECT")
        place = {"Bucket": self.bucket, "Key": "k", "UploadId": begun["UploadId"]}
        part = self.s3.upload_part(**place, PartNumber=1, Body=data, ChecksumCRC32=crc)
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        self.s3.complete_multipart_upload(**place, ChecksumCRC32=crc,
                                          MultipartUpload={"Parts": parts})
        self.assertEqual(self.s3.get_object(Bucket=self.bucket, Key="k")["Body"].read(), data)

    def test_xml_over_the_limit_is_refused(self) -> None:
        body = b"<Delete>" + b" " * (9 * MIB) + b"</Delete>"
        for method, path in [("POST", "/?delete"), ("PUT", "/k?tagging"), ("PUT", ""),
                             ("POST", "/k?uploadId=" + "0" * 32)]:
            answer = self.send(method, path, body=body)
            self.assertEqual((answer.status, answer.field("Code")),
                             (400, "MaxMessageLengthExceeded"), path)
        answer = self.send("POST", "/?delete", body=b"<Delete>")
        self.assertEqual((answer.status, answer.field("Code")), (400, "MalformedXML"))

    def test_download_goes_on_only_with_the_same_object(self) -> None:
        tag = self.put("k", b"0123456789")["ETag"]
        date = self.send("HEAD", "/k").headers["last-modified"]
        for condition, status in [
            (tag, 206), (date, 200), ('"other"', 200), (f"W/{tag}", 200), ("nonsense", 200),
            ("Mon, 01 Jan 2001 00:00:00 GMT", 200), ("Fri, 01 Jan 2100 00:00:00 GMT", 200),
        ]:
            headers = {"Range": "bytes=5-", "If-Range": condition}
            answer = self.send("GET", "/k", headers)
            body = b"56789" if status == 206 else b"0123456789"
            self.assertEqual((answer.status, answer.body), (status, body), condition)
        behind = {"Range": "bytes=99-", "If-Range": '"other"'}
        self.assertEqual(self.send("GET", "/k", behind).status, 200)
        self.assertEqual(self.send("GET", "/k", {"If-Range": '"other"'}).status, 200)

    def test_download_does_not_go_on_with_an_object_of_the_same_second(self) -> None:
        def put(body: bytes) -> str:
            self.put("k", body)
            return self.send("HEAD", "/k").headers["last-modified"]

        until("both are of one second", lambda: put(b"the first") == put(b"another!!"))
        date = self.send("HEAD", "/k").headers["last-modified"]
        answer = self.send("GET", "/k", {"Range": "bytes=4-", "If-Range": date})
        self.assertEqual((answer.status, answer.body), (200, b"another!!"))

    def test_range_that_is_none_is_ignored(self) -> None:
        self.put("k", b"0123456789")
        self.put("empty", b"")
        for text in ["bytes=5-2", "bytes=x-y", "bytes=0-1,3-4", "bits=0-1", "0-1", "bytes=", "-",
                     "bytes=-", "bytes=+1-2", "bytes=1-2;"]:
            for method in ["GET", "HEAD"]:
                answer = self.send(method, "/k", {"Range": text})
                self.assertEqual((answer.status, answer.headers["content-length"]), (200, "10"),
                                 (method, text))
                self.assertNotIn("content-range", answer.headers)
        huge = "9" * 30
        for text, body in [("bytes=8-" + huge, b"89"), ("bytes=-" + huge, b"0123456789"),
                           ("bytes=2-2", b"2"), ("Bytes= 2-3", b"23"), ("bytes=08-9", b"89")]:
            answer = self.send("GET", "/k", {"Range": text})
            self.assertEqual((answer.status, answer.body), (206, body), text)
        for key, text in [("k", "bytes=10-"), ("k", "bytes=-0"), ("k", f"bytes={huge}-"),
                          ("k", f"bytes=40-{huge}"), ("empty", "bytes=40-50"),
                          ("empty", "bytes=0-"), ("empty", "bytes=-5")]:
            answer = self.send("GET", f"/{key}", {"Range": text})
            self.assertEqual((answer.status, answer.field("Code")), (416, "InvalidRange"),
                             (key, text))
            size = 10 if key == "k" else 0
            self.assertEqual(answer.headers["content-range"], f"bytes */{size}")
            self.assertEqual(self.send("HEAD", f"/{key}", {"Range": text}).status, 416)
        self.assertEqual(self.unsigned("GET", f"/{self.bucket}/k", {"Range": "x"}).status, 403)
        # Of a presigned URL the range is not signed.
        url = self.url("get_object").removeprefix(self.fleet.endpoint)
        answer = self.unsigned("GET", url, {"Range": "bytes=0-1,3-4"})
        self.assertEqual((answer.status, answer.body), (200, b"0123456789"))

    def test_conditions_of_writes_hold_or_are_refused(self) -> None:
        tag = self.put("k", b"four")["ETag"]
        when = self.s3.head_object(Bucket=self.bucket, Key="k")["LastModified"]
        date = self.send("HEAD", "/k").headers["last-modified"]
        old = "Mon, 01 Jan 2001 00:00:00 GMT"
        for headers in [{"If-None-Match": "*"}, {"If-None-Match": tag},
                        {"If-Modified-Since": old}, {"If-Unmodified-Since": old},
                        {"If-Range": tag}]:
            for method, path in [("DELETE", "/k"), ("DELETE", "/k?tagging"), ("DELETE", ""),
                                 ("PUT", "/k?tagging")]:
                answer = self.send(method, path, headers)
                self.assertEqual((answer.status, answer.field("Code")), (501, "NotImplemented"),
                                 (method, path, headers))
        for headers in [{"If-Modified-Since": old}, {"If-Unmodified-Since": old}]:
            self.assertEqual(self.send("PUT", "/k", headers, b"new").status, 501)
        for headers in [{"If-Match": '"other"'}, {"x-amz-if-match-size": "5"},
                        {"x-amz-if-match-last-modified-time": old},
                        {"If-Match": tag, "x-amz-if-match-size": "5"}]:
            answer = self.send("DELETE", "/k", headers)
            self.assertEqual((answer.status, answer.field("Code")), (412, "PreconditionFailed"),
                             headers)
        many = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": [
            {"Key": "k", "Size": 5}, {"Key": "k", "ETag": '"other"'}]})
        codes = [error["Code"] for error in many["Errors"]]
        self.assertEqual(codes, ["PreconditionFailed"] * 2)
        self.assertEqual(self.keys(), ["k"])
        right = {"x-amz-if-match-size": "4", "x-amz-if-match-last-modified-time": date}
        self.assertEqual(self.send("DELETE", "/k", right | {"If-Match": tag}).status, 204)
        # What is not there is deleted.
        self.assertEqual(self.send("DELETE", "/k", {"If-Match": '"other"'}).status, 204)
        self.put("k", b"four")
        many = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": [
            {"Key": "k", "Size": 4, "ETag": tag}]})
        self.assertNotIn("Errors", many)
        self.assertEqual(self.keys(), [])
        self.assertIsNotNone(when)

    def test_directory_is_no_key(self) -> None:
        self.put("dir/key")
        self.fleet.cli("fs", "mkdir", "-p", f"/{self.bucket}/empty/inside")
        for key in ["dir", "dir/", "empty", "empty/", "empty/inside", "empty/inside/", "none"]:
            self.assertEqual(self.send("DELETE", f"/{key}").status, 204, key)
            answer = self.s3.delete_objects(
                Bucket=self.bucket, Delete={"Objects": [{"Key": key}]})
            self.assertNotIn("Errors", answer, key)
        self.assertEqual(self.keys(), ["dir/key"])
        self.assertIn("inside", self.fleet.cli("fs", "ls", f"/{self.bucket}/empty"))
        # One that no other interface made goes with its last key, as before.
        self.s3.delete_object(Bucket=self.bucket, Key="dir/key")
        self.assertNotIn("dir", self.fleet.cli("fs", "ls", f"/{self.bucket}"))

    def test_every_answer_has_an_id_and_every_error_its_code(self) -> None:
        self.put("k")
        ids = set()
        for answer in [self.send("GET", "/k"), self.send("HEAD", "/none"),
                       self.send("PUT", "/other", body=b"x"), self.send("DELETE", "/other"),
                       self.unsigned("OPTIONS", f"/{self.bucket}/k"),
                       self.unsigned("GET", "/"), self.unsigned("BREW", "/")]:
            self.assertRegex(answer.headers["x-amz-request-id"], r"^[0-9A-F]{16}$")
            ids.add(answer.headers["x-amz-request-id"])
        self.assertEqual(len(ids), 7)
        for method, path, headers, code in [
            ("GET", "/none%20%3C&amp", {}, "NoSuchKey"),
            ("GET", "/k", {"Range": "bytes=9-"}, "InvalidRange"),
            ("GET", "?acl", {}, "NotImplemented"),
            ("GET", "?list-type=2&max-keys=-1", {}, "InvalidArgument"),
            ("PUT", "/k", {"Content-MD5": "nonsense"}, "InvalidDigest"),
            ("PUT", "/k?partNumber=1&uploadId=x", {}, "NoSuchUpload"),
            ("PUT", "/k", {"If-None-Match": "*"}, "PreconditionFailed"),
        ]:
            answer = self.send(method, path, headers)
            self.assertEqual(answer.field("Code"), code, answer.body)
            self.assertEqual(answer.field("RequestId"), answer.headers["x-amz-request-id"])
            resource = f"/{self.bucket}{path.split('?')[0]}".replace("&", "&amp;")
            self.assertEqual(answer.field("Resource"), resource)
            self.assertTrue(answer.field("Message"), code)
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = self.unsigned("POST", f"/{self.bucket}", form, b"--x--")
        self.assertEqual(answer.field("RequestId"), answer.headers["x-amz-request-id"])
        # Nothing that the client sends becomes an id.
        answer = self.send("GET", "/none", {"x-amz-request-id": "FORGED"})
        self.assertNotIn(b"FORGED", answer.body)
        self.assertNotEqual(answer.headers["x-amz-request-id"], "FORGED")

    def test_answer_can_be_found_in_the_log(self) -> None:
        fleet = Fleet(1, flags=("-v",))
        self.addCleanup(fleet.stop)
        s3 = client(fleet.endpoint)
        s3.create_bucket(Bucket="logged")
        given = s3.head_bucket(Bucket="logged")["ResponseMetadata"]["RequestId"]
        # A thread of its own writes the log.
        until("the line of the answer", lambda: given in fleet.logs())

    def test_parts_can_be_read_one_by_one(self) -> None:
        begun = self.s3.create_multipart_upload(
            Bucket=self.bucket, Key="big", ChecksumAlgorithm="CRC32")
        upload = {"Bucket": self.bucket, "Key": "big", "UploadId": begun["UploadId"]}
        bodies = {1: some_bytes(5 * MIB), 2: some_bytes(5 * MIB), 7: some_bytes(9)}
        parts = []
        for number, body in bodies.items():
            put = self.s3.upload_part(PartNumber=number, Body=body, ChecksumAlgorithm="CRC32",
                                      **upload)
            parts.append({"PartNumber": number, "ETag": put["ETag"],
                          "ChecksumCRC32": put["ChecksumCRC32"]})
        done = self.s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        where = {"Bucket": self.bucket, "Key": "big"}
        total = sum(map(len, bodies.values()))
        self.assertNotIn("PartsCount", self.s3.head_object(**where))
        for number, body in bodies.items():
            got = self.s3.get_object(PartNumber=number, **where)
            self.assertEqual((got["Body"].read(), got["PartsCount"]), (body, 3))
            self.assertEqual(got["ResponseMetadata"]["HTTPStatusCode"], 206)
            head = self.s3.head_object(PartNumber=number, **where)
            self.assertEqual((head["ContentLength"], head["PartsCount"]), (len(body), 3))
            self.assertEqual(head["ETag"], done["ETag"])
        first = self.s3.get_object(PartNumber=2, **where)["ContentRange"]
        self.assertEqual(first, f"bytes {5 * MIB}-{10 * MIB - 1}/{total}")
        for number in [3, 8, 10_000]:
            wrong = refusal(self.s3.get_object, PartNumber=number, **where)
            self.assertEqual(wrong, ("InvalidPart", 400))
        both = refusal(self.s3.get_object, PartNumber=1, Range="bytes=0-1", **where)
        self.assertEqual(both, ("InvalidRequest", 400))
        for number in [0, 10_001]:
            wrong = refusal(self.s3.get_object, PartNumber=number, **where)
            self.assertEqual(wrong, ("InvalidArgument", 400))
        shown = self.s3.get_object_attributes(ObjectAttributes=[
            "ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"], **where)
        self.assertEqual((shown["ETag"], shown["ObjectSize"]), (done["ETag"].strip('"'), total))
        self.assertEqual(shown["StorageClass"], "STANDARD")
        self.assertEqual(shown["ObjectParts"]["TotalPartsCount"], 3)
        sizes = {it["PartNumber"]: it["Size"] for it in shown["ObjectParts"]["Parts"]}
        self.assertEqual(sizes, {number: len(body) for number, body in bodies.items()})
        page = self.s3.get_object_attributes(
            ObjectAttributes=["ObjectParts"], MaxParts=1, PartNumberMarker=1, **where)
        self.assertEqual([it["PartNumber"] for it in page["ObjectParts"]["Parts"]], [2])
        self.assertTrue(page["ObjectParts"]["IsTruncated"])
        self.assertEqual(page["ObjectParts"]["NextPartNumberMarker"], 2)
        self.assertNotIn("ETag", page)

    def test_object_in_one_piece_has_one_part(self) -> None:
        self.put("k", b"body", ChecksumAlgorithm="SHA256", Tagging="a=1&b=2")
        where = {"Bucket": self.bucket, "Key": "k"}
        got = self.s3.get_object(PartNumber=1, **where)
        self.assertEqual(got["Body"].read(), b"body")
        self.assertNotIn("PartsCount", got)
        self.assertEqual(refusal(self.s3.get_object, PartNumber=2, **where), ("InvalidPart", 400))
        self.put("empty", b"")
        empty = self.s3.get_object(Bucket=self.bucket, Key="empty", PartNumber=1)
        self.assertEqual(empty["Body"].read(), b"")
        for call in ["GET", "HEAD"]:
            self.assertEqual(self.send(call, "/k").headers["x-amz-tagging-count"], "2")
        shown = self.s3.get_object_attributes(
            ObjectAttributes=["ObjectParts", "Checksum", "ObjectSize"], **where)
        self.assertNotIn("ObjectParts", shown)
        self.assertEqual(shown["ObjectSize"], 4)
        digest = base64.b64encode(hashlib.sha256(b"body").digest()).decode()
        self.assertEqual(shown["Checksum"]["ChecksumSHA256"], digest)
        # A client that does not request checksums gets none.
        self.assertNotIn("x-amz-checksum-sha256", self.send("GET", "/k").headers)
        asked = self.send("GET", "/k", {"x-amz-checksum-mode": "ENABLED"})
        self.assertEqual(asked.headers["x-amz-checksum-sha256"], digest)
        empty = self.send("PUT", "/k", {"Content-MD5": ""}, b"x")
        self.assertEqual((empty.status, empty.field("Code")), (400, "InvalidDigest"))
        missing = {"Bucket": self.bucket, "Key": "none", "ObjectAttributes": ["ETag"]}
        self.assertEqual(refusal(self.s3.get_object_attributes, **missing), ("NoSuchKey", 404))
        wrong = self.send("GET", "/k?attributes", {"x-amz-object-attributes": "Colour"})
        self.assertEqual((wrong.status, wrong.field("Code")), (400, "InvalidArgument"))

    def test_listing_is_xml_whatever_the_keys_are(self) -> None:
        keys = ["\x01a", "b\x1fc", "d\re", "f\ng\th", "h\x7fi", "\ufffe", "<&>'\""]
        for key in keys:
            self.put(key)
        self.assertEqual(self.keys(), sorted(keys, key=str.encode))
        listed = self.send("GET", "?list-type=2").body
        self.assertIn(b"<Key>&#x1;a</Key>", listed)
        self.assertIn(b"<Key>b&#x1F;c</Key>", listed)
        self.assertIn(b"<Key>d&#xD;e</Key>", listed)
        self.assertIsNone(re.search(rb"[\x00-\x08\x0b-\x1f]", listed))
        self.assertNotIn("\ufffe".encode(), listed)
        bare = self.send("GET", "?list-type=2&delimiter=&continuation-token=")
        self.assertEqual((bare.status, bare.field("Delimiter")), (200, None))
        url = self.send("GET", "?list-type=2&encoding-type=url").body
        self.assertIn(b"<Key>%01a</Key>", url)
        # Bytes of objects stay what they are, also when their type is XML.
        body = b"<a>\x01\r</a>"
        self.put("xml", body, ContentType="application/xml")
        self.assertEqual(self.send("GET", "/xml").body, body)
        # An error names the resource, which may hold any of them.
        answer = self.send("GET", "/none%01%0D")
        self.assertEqual(answer.field("Code"), "NoSuchKey")

    def test_names_of_buckets_are_those_of_s3(self) -> None:
        bad = ["ab", "a" * 64, "Upper", "under_score", "-front", "back-", ".front", "back.",
               "a..b", "192.168.5.4", "xn--abc", "sthree-abc", "abc-s3alias", "abc--ol-s3",
               "abc.mrap", "abc--x-s3", "sp%20ace", "%C3%BCml", "%21%21%21"]
        for name in bad:
            request = AWSRequest(method="PUT", url=f"{self.fleet.endpoint}/{name}")
            S3SigV4Auth(Credentials(KEY, KEY), "s3", "us-east-1").add_auth(request)
            answer = self.unsigned("PUT", f"/{name}", dict(request.headers.items()))
            self.assertEqual((answer.status, answer.field("Code")), (400, "InvalidBucketName"),
                             name)
        for name in ["abc", "a" * 63, "1a2", "a.b-c.d", "192.168.5.4.5"]:
            self.s3.create_bucket(Bucket=name)
        # A directory with another name is a bucket that another interface made.
        self.fleet.cli("fs", "mkdir", "/Made_Elsewhere")
        listed = [bucket["Name"] for bucket in self.s3.list_buckets()["Buckets"]]
        self.assertIn("Made_Elsewhere", listed)

    def test_promise_in_a_url_is_refused_too(self) -> None:
        where = {"Bucket": self.bucket, "Key": "k"}
        for flags, code in [
            ({"ServerSideEncryption": "AES256"}, "NotImplemented"),
            ({"ObjectLockLegalHoldStatus": "ON"}, "NotImplemented"),
            ({"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": "2100-01-01"},
             "NotImplemented"),
            ({"ExpectedBucketOwner": "111122223333"}, "AccessDenied"),
        ]:
            # As it is signed, a client has to send the header; the URL has it, too.
            url = self.url("put_object", **flags)
            answer = self.sent_presigned(url)
            self.assertEqual(answer.field("Code"), code, flags)
        fields = {"X-Amz-Server-Side-Encryption": "AES256", "x-amz-object-lock-mode": "GOVERNANCE"}
        for name, value in fields.items():
            answer = self.send("PUT", f"/k?{urllib.parse.urlencode({name: value})}", body=b"x")
            self.assertEqual((answer.status, answer.field("Code")), (501, "NotImplemented"), name)
        self.assertEqual(self.sent_presigned(self.url("put_object")).status, 200)
        self.assertEqual(self.s3.get_object(**where)["Body"].read(), b"by url")

    def presigned(self, method: str, path: str, header: str = "") -> str:
        """Returns a signed path with its query below the bucket, as it is given."""
        request = AWSRequest(method=method, url=f"{self.fleet.endpoint}/{self.bucket}{path}",
                             headers={header: "x"} if header else {})
        S3SigV4QueryAuth(Credentials(KEY, KEY), "s3", "us-east-1").add_auth(request)
        return str(request.url).removeprefix(self.fleet.endpoint)

    def test_promise_that_is_a_field_of_a_signed_url_is_refused(self) -> None:
        # Some clients move headers into the query before they sign it.
        for name, value, answered in [
            ("X-Amz-Server-Side-Encryption", "AES256", (501, "NotImplemented")),
            ("x-amz-server-side-encryption-aws-kms-key-id", "key", (501, "NotImplemented")),
            ("X%2DAmz-Object-Lock-Mode", "GOVERNANCE", (501, "NotImplemented")),
            ("X-Amz-Object-Lock-Legal-Hold", "ON", (501, "NotImplemented")),
            ("X-Amz-Expected-Bucket-Owner", "111122223333", (403, "AccessDenied")),
            ("X-Amz-Expected-Bucket-Owner", KEY, (200, None)),
            ("X-Amz-Meta-Lock", "x-amz-object-lock-mode", (200, None)),
        ]:
            answer = self.unsigned("PUT", self.presigned("PUT", f"/k?{name}={value}"), {}, b"x")
            self.assertEqual((answer.status, answer.field("Code")), answered, name)
            self.assertEqual(self.keys(), ["k"] if answer.status == 200 else [], name)
            self.s3.delete_object(Bucket=self.bucket, Key="k")

    def test_signature_without_the_host_is_refused(self) -> None:
        self.put("k", b"body")

        def signed(auth: Any, method: str, path: str) -> AWSRequest:
            signer = auth(Credentials(KEY, KEY), "s3", "us-east-1")
            every = signer.headers_to_sign

            def without_host(request: AWSRequest) -> Any:
                found = every(request)
                del found["host"]
                return found

            signer.headers_to_sign = without_host
            request = AWSRequest(method=method, url=f"{self.fleet.endpoint}/{self.bucket}{path}",
                                 headers={"X-Amz-Meta-A": "b"})
            signer.add_auth(request)
            return request

        for method in ["GET", "PUT"]:
            request = signed(S3SigV4Auth, method, "/k")
            headers = dict(request.headers.items())
            self.assertIn("SignedHeaders=x-amz-", headers["Authorization"])
            by_header = self.unsigned(method, f"/{self.bucket}/k", headers)
            url = str(signed(S3SigV4QueryAuth, method, "/k").url)
            self.assertIn("X-Amz-SignedHeaders=x-amz-meta-a&", url)
            path = url.removeprefix(self.fleet.endpoint)
            by_url = self.unsigned(method, path, {"X-Amz-Meta-A": "b"})
            for answer in [by_header, by_url]:
                self.assertEqual((answer.status, answer.field("Code")), (403, "AccessDenied"))
                self.assertIn(b"does not cover the header host", answer.body)
        # The signatures are right: with the host in them both are answered.
        self.assertEqual(self.send("GET", "/k", {"X-Amz-Meta-A": "b"}).body, b"body")
        path = self.presigned("GET", "/k", "X-Amz-Meta-A")
        self.assertEqual(self.unsigned("GET", path, {"X-Amz-Meta-A": "x"}).body, b"body")

    def sent_presigned(self, url: str) -> Answer:
        """Puts to a URL, with the headers that it signs."""
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        signed = [it for it in query.get("X-Amz-SignedHeaders", "").split(";") if it != "host"]
        values = {"x-amz-server-side-encryption": "AES256", "x-amz-object-lock-legal-hold": "ON",
                  "x-amz-object-lock-mode": "COMPLIANCE",
                  "x-amz-object-lock-retain-until-date": "2100-01-01T00:00:00Z",
                  "x-amz-expected-bucket-owner": "111122223333"}
        headers = {name: values[name] for name in signed if name in values}
        return self.unsigned("PUT", f"{parts.path}?{parts.query}", headers, b"by url")


    def preflight(self, origin: str, method: str, headers: str = "") -> Answer:
        asked = {"Origin": origin, "Access-Control-Request-Method": method}
        if headers:
            asked["Access-Control-Request-Headers"] = headers
        return self.unsigned("OPTIONS", f"/{self.bucket}/k", asked)

    def test_pages_of_other_sites_may_do_what_the_bucket_allows(self) -> None:
        self.put("k", b"body")
        here, there = "https://app.example", "https://evil.test"

        def allowed(answer: Answer) -> list[str]:
            return [name for name in answer.headers if name.startswith("access-control-")]

        # Nothing, until a rule allows it; and the same for a bucket that is not there.
        for path in [f"/{self.bucket}/k", "/not-there/k", "/"]:
            answer = self.unsigned("OPTIONS", path, {"Origin": here,
                                                     "Access-Control-Request-Method": "GET"})
            self.assertEqual((answer.status, answer.field("Code")), (403, "AccessForbidden"))
            self.assertEqual(allowed(answer), [])
        self.assertEqual(allowed(self.send("GET", "/k", {"Origin": here})), [])
        # Nor does a page with the public key read or write.
        self.assertEqual(self.send("GET", "/k", {"Origin": here}).status, 403)
        missing = ("NoSuchCORSConfiguration", 404)
        self.assertEqual(refusal(self.s3.get_bucket_cors, Bucket=self.bucket), missing)
        rules = [
            {"ID": "all", "AllowedOrigins": ["https://*.example"], "AllowedMethods": ["GET", "PUT"],
             "AllowedHeaders": ["x-amz-*", "Authorization"], "ExposeHeaders": ["ETag"],
             "MaxAgeSeconds": 600},
            {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]},
        ]
        self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration={"CORSRules": rules})
        self.assertEqual(self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"], rules)
        self.assertEqual(self.keys(), ["k"])
        answer = self.preflight(here, "PUT", "X-Amz-Date, authorization")
        self.assertEqual(answer.status, 200)
        for name, text in {"origin": here, "methods": "GET, PUT", "credentials": "true",
                           "headers": "x-amz-date, authorization"}.items():
            self.assertEqual(answer.headers[f"access-control-allow-{name}"], text)
        self.assertEqual(answer.headers["access-control-max-age"], "600")
        self.assertIn("Origin", answer.headers["vary"])
        for refused in [self.preflight(here, "DELETE"), self.preflight(there, "GET"),
                        self.preflight(here, "GET", "x-other"), self.preflight("null", "GET")]:
            self.assertEqual((refused.status, refused.field("Code")), (403, "AccessForbidden"))
            self.assertEqual(allowed(refused), [])
        public = self.preflight(there, "HEAD")
        self.assertEqual(public.headers["access-control-allow-origin"], "*")
        self.assertNotIn("access-control-allow-credentials", public.headers)
        for headers in [{}, {"Origin": here}, {"Access-Control-Request-Method": "GET"}]:
            answer = self.unsigned("OPTIONS", f"/{self.bucket}/k", headers)
            self.assertEqual((answer.status, answer.field("Code")), (400, "BadRequest"))
        got = self.send("GET", "/k", {"Origin": here})
        self.assertEqual((got.body, got.headers["access-control-allow-origin"]), (b"body", here))
        self.assertEqual(got.headers["access-control-expose-headers"], "ETag")
        # An error can be read by the page, too; a page of another site reads nothing.
        self.assertEqual(self.send("GET", "/no", {"Origin": here})
                         .headers["access-control-allow-origin"], here)
        self.assertEqual(self.unsigned("GET", f"/{self.bucket}/k", {"Origin": here}).status, 403)
        self.assertEqual(allowed(self.send("GET", "/k", {"Origin": there})), [])
        for wrong in [{"AllowedOrigins": ["*.*"], "AllowedMethods": ["GET"]},
                      {"AllowedOrigins": ["*"], "AllowedMethods": ["BREW"]},
                      {"AllowedOrigins": ["a\r\nb"], "AllowedMethods": ["GET"]}]:
            answered = refusal(self.s3.put_bucket_cors, Bucket=self.bucket,
                               CORSConfiguration={"CORSRules": [wrong]})
            self.assertEqual(answered, ("InvalidRequest", 400))
        self.s3.delete_bucket_cors(Bucket=self.bucket)
        self.assertEqual(refusal(self.s3.get_bucket_cors, Bucket=self.bucket), missing)
        self.assertEqual(self.preflight(here, "GET").status, 403)
        # The rules are no key, and go with the bucket.
        self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration={"CORSRules": rules})
        self.s3.delete_object(Bucket=self.bucket, Key="k")
        self.s3.delete_bucket(Bucket=self.bucket)
        self.s3.create_bucket(Bucket=self.bucket)
        self.assertEqual(refusal(self.s3.get_bucket_cors, Bucket=self.bucket), missing)

    def test_page_of_another_site_cannot_use_the_public_key(self) -> None:
        self.put("k")

        # What a page can make a browser send without a preflight: a POST of text to a signed URL.
        def signed(host: str) -> str:
            request = AWSRequest(method="POST", url=f"http://{host}/{self.bucket}?delete")
            S3SigV4QueryAuth(Credentials(KEY, KEY), "s3", "us-east-1").add_auth(request)
            return str(request.url).removeprefix(f"http://{host}")

        # The second name was made to lead here: to a browser the page is of this site.
        body = b"<Delete><Object><Key>k</Key></Object></Delete>"
        own, evil = self.fleet.address, "evil.test:7670"
        for host, headers in [(own, {"Origin": "https://evil.test"}), (own, {"Origin": "null"}),
                              (evil, {"Origin": f"http://{evil}"}), (evil, {})]:
            headers = headers | {"Host": host, "Content-Type": "text/plain"}
            answer = self.unsigned("POST", signed(host), headers, body)
            self.assertEqual((answer.status, answer.field("Code")), (403, "AccessDenied"))
        self.assertEqual(self.keys(), ["k"])
        answer = self.unsigned("POST", signed(own), {}, body)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(self.keys(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
