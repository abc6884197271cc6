#!/usr/bin/env python3
"""Tests the S3 gateway with boto3 against a cluster of processes.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import base64
import hashlib
import http.client
import unittest
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from cluster import until
from gateway_fleet import KEY, BucketTest, Fleet, Signer, some_bytes

MIB = 1 << 20


def client(endpoint: str, access: str = KEY, secret: str = KEY, **config: Any) -> Any:
    """Returns a client that tries once, so that answers are seen as they are."""
    retries = {"total_max_attempts": 1}
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=access,
        aws_secret_access_key=secret, config=Config(**({"retries": retries} | config)),
    )


def refusal(call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
    """Returns code and status of a call that fails."""
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError(f"{call} was answered")


def cut_at_slash(key: str, prefix: str) -> str:
    """Returns a key up to its first slash behind the prefix."""
    return key[:key.find("/", len(prefix)) + 1] or key


class GatewayTest(BucketTest):
    """The operations of S3."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet(flags=("--domain", "s3.test"))
        cls.s3 = client(cls.fleet.endpoint)

    def get(self, key: str, **more: Any) -> bytes:
        return bytes(self.s3.get_object(Bucket=self.bucket, Key=key, **more)["Body"].read())

    def test_buckets_come_and_go(self) -> None:
        names = [bucket["Name"] for bucket in self.s3.list_buckets()["Buckets"]]
        self.assertIn(self.bucket, names)
        self.s3.head_bucket(Bucket=self.bucket)
        self.assertIsNone(self.s3.get_bucket_location(Bucket=self.bucket)["LocationConstraint"])
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=self.bucket))
        again = refusal(self.s3.create_bucket, Bucket=self.bucket)
        self.assertEqual(again, ("BucketAlreadyOwnedByYou", 409))
        self.put("a/b/c")
        full = refusal(self.s3.delete_bucket, Bucket=self.bucket)
        self.assertEqual(full, ("BucketNotEmpty", 409))
        self.s3.delete_object(Bucket=self.bucket, Key="a/b/c")
        self.s3.create_multipart_upload(Bucket=self.bucket, Key="unfinished")
        self.fleet.cli("fs", "mkdir", "-p", f"/{self.bucket}/made/elsewhere")
        self.s3.delete_bucket(Bucket=self.bucket)
        for call in [self.s3.list_objects_v2, self.s3.delete_bucket]:
            self.assertEqual(refusal(call, Bucket=self.bucket), ("NoSuchBucket", 404))
        for call in [self.s3.get_object, self.s3.delete_object, self.s3.create_multipart_upload]:
            self.assertEqual(refusal(call, Bucket=self.bucket, Key="k"), ("NoSuchBucket", 404))
        self.assertEqual(refusal(self.put, key="k"), ("NoSuchBucket", 404))
        self.assertEqual(refusal(self.put, key="k", body=bytes(3 * MIB)), ("NoSuchBucket", 404))

    def test_objects_are_what_was_put(self) -> None:
        for count in [0, 1, 511, 513, MIB, MIB + 1, 5 * MIB + 7]:
            body = some_bytes(count)
            put = self.put(f"deep/{count}", body, ContentType="text/plain", Metadata={"a": "b"},
                           CacheControl="no-cache")
            self.assertEqual(put["ETag"].strip('"'), hashlib.md5(body).hexdigest())
            got = self.s3.get_object(Bucket=self.bucket, Key=f"deep/{count}")
            self.assertEqual(got["Body"].read(), body)
            self.assertEqual((got["ContentType"], got["Metadata"]), ("text/plain", {"a": "b"}))
            head = self.s3.head_object(Bucket=self.bucket, Key=f"deep/{count}")
            self.assertEqual((head["ContentLength"], head["ETag"]), (count, put["ETag"]))
            self.assertEqual(head["CacheControl"], "no-cache")
        self.assertEqual(self.get(f"deep/{MIB}", Range="bytes=-3"), some_bytes(MIB)[-3:])
        whole = some_bytes(5 * MIB + 7)
        for first, last in [(0, 0), (MIB - 1, MIB), (3 * MIB, 5 * MIB + 6), (5, 4 * MIB)]:
            part = self.get(f"deep/{len(whole)}", Range=f"bytes={first}-{last}")
            self.assertEqual(part, whole[first:last + 1])
        behind = refusal(self.get, key="deep/1", Range="bytes=1-")
        self.assertEqual(behind, ("InvalidRange", 416))
        self.assertEqual(refusal(self.get, key="none"), ("NoSuchKey", 404))
        self.assertEqual(refusal(self.get, key="deep"), ("NoSuchKey", 404))
        self.assertEqual(refusal(self.put, key="deep"), ("KeyConflict", 409))
        self.assertEqual(refusal(self.put, key="deep/1/2"), ("KeyConflict", 409))
        self.assertEqual(refusal(self.put, key="deep/1/"), ("KeyConflict", 409))
        self.assertEqual(refusal(self.put, key="x" * 1025), ("KeyTooLongError", 400))
        changed = self.s3.get_object(Bucket=self.bucket, Key="deep/1", ResponseContentType="a/b")
        self.assertEqual(changed["ContentType"], "a/b")

    def test_every_interface_sees_the_same(self) -> None:
        self.put("dir/from-s3", b"from s3")
        path = f"/{self.bucket}/dir/from-s3"
        self.assertEqual(self.fleet.cli("fs", "cat", path), "from s3")
        local = self.fleet.directory / "local"
        local.write_bytes(b"from the shell")
        self.fleet.cli("fs", "put", str(local), f"/{self.bucket}/dir/from-shell")
        self.assertEqual(self.get("dir/from-shell"), b"from the shell")
        tag = self.s3.head_object(Bucket=self.bucket, Key="dir/from-shell")["ETag"]
        self.assertIn("-", tag)
        self.assertEqual(self.keys(), ["dir/from-s3", "dir/from-shell"])

    def test_conditions_hold(self) -> None:
        tag = self.put("k", b"1", IfNoneMatch="*")["ETag"]
        failed = ("PreconditionFailed", 412)
        self.assertEqual(refusal(self.put, key="k", body=b"2", IfNoneMatch="*"), failed)
        self.assertEqual(refusal(self.put, key="k", body=b"2", IfMatch='"other"'), failed)
        self.assertEqual(refusal(self.put, key="no", body=b"2", IfMatch=tag), ("NoSuchKey", 404))
        self.assertEqual(refusal(self.get, key="k", IfMatch='"other"'), failed)
        self.assertEqual(refusal(self.get, key="k", IfNoneMatch=tag), ("304", 304))
        since = self.s3.head_object(Bucket=self.bucket, Key="k")["LastModified"]
        self.assertEqual(refusal(self.get, key="k", IfModifiedSince=since), ("304", 304))
        self.assertEqual(self.get("k", IfUnmodifiedSince=since), b"1")
        self.put("k", b"2", IfMatch=tag)
        self.assertEqual(self.get("k", IfMatch='"' + hashlib.md5(b"2").hexdigest() + '"'), b"2")

    def test_deletion_with_a_condition_spares_what_is_put_meanwhile(self) -> None:
        one = partial(self.s3.delete_object, Bucket=self.bucket)
        many = partial(self.s3.delete_objects, Bucket=self.bucket)
        both = [lambda key, tag: one(Key=key, IfMatch=tag),
                lambda key, tag: many(Delete={"Objects": [{"Key": key, "ETag": tag}]})]
        spared = 0
        with ThreadPoolExecutor(2) as pool:
            for number in range(200):
                key, new = f"k{number % 3}", b"new %d" % number
                tag = self.put(key, b"old %d" % number)["ETag"]
                deletion = pool.submit(both[number % 2], key, tag)
                put = pool.submit(self.put, key, new)
                put.result()
                try:
                    deletion.result()
                except ClientError as error:
                    self.assertEqual(error.response["Error"]["Code"], "PreconditionFailed")
                    spared += 1
                # Whichever came first, the condition does not hold for the new object.
                self.assertEqual(self.get(key), new)
        self.assertGreater(spared, 0, "no deletion came second")

    def test_listing_is_that_of_s3(self) -> None:
        keys = ["a.b", "a/x", "a0", "a//b", "a/y/", "b/", "/z", ".", "../c", "%!e", "%25", "é/ü",
                "x" * 255, "x" * 256, "x" * 900, "a!", "a-b/c", "a/y/z", "a b+c&d"]
        for key in keys:
            self.put(key, key.encode())
        keys.sort(key=str.encode)
        for key in keys:
            self.assertEqual(self.get(key), key.encode())

        def expected(prefix: str, delimiter: str) -> list[str]:
            found: list[str] = []
            for key in keys:
                cut = key.find(delimiter, len(prefix)) if delimiter else -1
                item = key if cut < 0 else key[:cut + len(delimiter)]
                if key.startswith(prefix) and item not in found:
                    found.append(item)
            return found

        for kind in ["list_objects_v2", "list_objects"]:
            for prefix in ["", "a", "a/", "x", "%", ".", "none"]:
                for delimiter in ["", "/", "a", "//"]:
                    for size in [1, 3, 1000]:
                        found: list[str] = []
                        pages = self.s3.get_paginator(kind).paginate(
                            Bucket=self.bucket, Prefix=prefix, Delimiter=delimiter,
                            PaginationConfig={"PageSize": size})
                        for page in pages:
                            items = [entry["Key"] for entry in page.get("Contents", [])]
                            items += [it["Prefix"] for it in page.get("CommonPrefixes", [])]
                            found += sorted(items, key=str.encode)
                        what = (kind, prefix, delimiter, size)
                        self.assertEqual(found, expected(prefix, delimiter), what)
        self.assertEqual(self.keys(StartAfter="a/x"), keys[keys.index("a/x") + 1:])
        wrong = refusal(self.s3.list_objects_v2, Bucket=self.bucket, ContinuationToken="00")
        self.assertEqual(wrong, ("InvalidArgument", 400))
        versions = self.s3.list_object_versions(Bucket=self.bucket)["Versions"]
        self.assertEqual([it["Key"] for it in versions], keys)
        deleted = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": [
            {"Key": it["Key"], "VersionId": it["VersionId"]} for it in versions]})
        self.assertEqual((len(deleted["Deleted"]), deleted.get("Errors")), (len(keys), None))
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Delimiter="/")
        self.assertEqual((listed["KeyCount"], listed.get("CommonPrefixes")), (0, None))
        self.assertEqual(self.fleet.cli("fs", "ls", f"/{self.bucket}").strip(), "")

    def test_listing_starts_inside_of_a_common_prefix(self) -> None:
        keys = ["p/a", "p/q/r/s", "p/q/s", "p/z/1", "p/z/2/3", "p/zz", "p0", "q/1", "q/2/3", "r"]
        for key in keys:
            self.put(key, b"")
        for prefix in ["", "p", "p/", "p/z"]:
            for after in [*keys, "p/", "p/m", "p/z/", "p/z/2/", "p/z/9", "q/", "q/z"]:
                rolled = [cut_at_slash(key, prefix) for key in keys
                          if key.startswith(prefix) and key > after]
                for size in [1, 1000]:
                    found = self.listed("list_objects_v2", size, Prefix=prefix, StartAfter=after)
                    self.assertEqual(found, list(dict.fromkeys(rolled)), (prefix, after, size))
                    # A marker that is a common prefix stands for all of it.
                    left = [item for item in dict.fromkeys(rolled) if item != after]
                    found = self.listed("list_objects", size, Prefix=prefix, Marker=after)
                    self.assertEqual(found, left, (prefix, after, size))

    def listed(self, kind: str, size: int, **arguments: Any) -> list[str]:
        """Lists keys and common prefixes up to a slash, in pages of that size."""
        found: list[str] = []
        again = "StartAfter" if kind == "list_objects_v2" else "Marker"
        while True:
            page = getattr(self.s3, kind)(
                Bucket=self.bucket, Delimiter="/", MaxKeys=size, **arguments)
            items = [entry["Key"] for entry in page.get("Contents", [])]
            items += [it["Prefix"] for it in page.get("CommonPrefixes", [])]
            found += sorted(items, key=str.encode)
            if not page["IsTruncated"]:
                return found
            arguments.pop(again, None)
            if kind == "list_objects_v2":
                arguments["ContinuationToken"] = page["NextContinuationToken"]
            else:
                arguments["Marker"] = page["NextMarker"]

    def test_upload_in_parts_becomes_one_object(self) -> None:
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="big", ContentType="a/b")
        upload = {"Bucket": self.bucket, "Key": "big", "UploadId": begun["UploadId"]}
        bodies = [some_bytes(5 * MIB + 1), some_bytes(5 * MIB), some_bytes(9)]
        self.put("source", bodies[1] + b"more")
        tags = []
        for number, body in [(1, b"replaced"), (1, bodies[0]), (7, bodies[2])]:
            tags.append(self.s3.upload_part(PartNumber=number, Body=body, **upload)["ETag"])
        copied = self.s3.upload_part_copy(
            PartNumber=3, CopySource={"Bucket": self.bucket, "Key": "source"},
            CopySourceRange=f"bytes=0-{5 * MIB - 1}", **upload)["CopyPartResult"]["ETag"]
        listed = self.s3.list_parts(MaxParts=2, **upload)
        self.assertEqual([part["PartNumber"] for part in listed["Parts"]], [1, 3])
        self.assertTrue(listed["IsTruncated"])
        self.assertEqual(self.keys(), ["source"])
        open_uploads = self.s3.list_multipart_uploads(Bucket=self.bucket)["Uploads"]
        self.assertEqual([it["Key"] for it in open_uploads], ["big"])
        parts = [{"PartNumber": number, "ETag": tag}
                 for number, tag in [(1, tags[1]), (3, copied), (7, tags[2])]]
        complete = self.s3.complete_multipart_upload
        for wrong, code in [(parts[::-1], "InvalidPartOrder"),
                            ([{"PartNumber": 2, "ETag": copied}], "InvalidPart"),
                            ([{"PartNumber": 1, "ETag": copied}], "InvalidPart")]:
            answer = refusal(complete, MultipartUpload={"Parts": wrong}, **upload)
            self.assertEqual(answer, (code, 400))
        done = complete(MultipartUpload={"Parts": parts}, **upload)
        digest = hashlib.md5(b"".join(hashlib.md5(body).digest() for body in bodies)).hexdigest()
        self.assertEqual(done["ETag"].strip('"'), f"{digest}-3")
        # An answer that got lost is requested again.
        self.assertEqual(complete(MultipartUpload={"Parts": parts}, **upload)["ETag"], done["ETag"])
        got = self.s3.get_object(Bucket=self.bucket, Key="big")
        self.assertEqual((got["Body"].read(), got["ContentType"]), (b"".join(bodies), "a/b"))
        across = self.get("big", Range=f"bytes={5 * MIB - 9}-{5 * MIB + 9}")
        self.assertEqual(across, b"".join(bodies)[5 * MIB - 9:5 * MIB + 10])
        # With other metadata it is the same object still: an answer may get lost for longer.
        self.s3.copy_object(Bucket=self.bucket, Key="big", MetadataDirective="REPLACE",
                            CopySource={"Bucket": self.bucket, "Key": "big"}, Metadata={"a": "b"})
        self.assertEqual(complete(MultipartUpload={"Parts": parts}, **upload)["ETag"], done["ETag"])
        self.assertNotIn("Uploads", self.s3.list_multipart_uploads(Bucket=self.bucket))
        late = refusal(self.s3.upload_part, PartNumber=1, Body=b"x", **upload)
        self.assertEqual(late, ("NoSuchUpload", 404))

    def test_upload_is_given_up_or_has_parts_too_small(self) -> None:
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")
        upload = {"Bucket": self.bucket, "Key": "k", "UploadId": begun["UploadId"]}
        tags = [self.s3.upload_part(PartNumber=number, Body=b"small", **upload)["ETag"]
                for number in [1, 2]]
        parts = [{"PartNumber": number + 1, "ETag": tag} for number, tag in enumerate(tags)]
        small = refusal(self.s3.complete_multipart_upload, MultipartUpload={"Parts": parts},
                        **upload)
        self.assertEqual(small, ("EntityTooSmall", 400))
        other = {**upload, "Key": "other"}
        self.assertEqual(refusal(self.s3.list_parts, **other), ("NoSuchUpload", 404))
        # Nor is a part of it replaced under another key, which the caller's token may be for.
        self.put("source", b"source")
        source = {"Bucket": self.bucket, "Key": "source"}
        for call, flags in [(self.s3.upload_part, {"Body": b"x"}),
                            (self.s3.upload_part_copy, {"CopySource": source})]:
            answer = refusal(call, PartNumber=1, **flags, **other)
            self.assertEqual(answer, ("NoSuchUpload", 404))
        self.s3.delete_object(**source)
        for number in [0, 10_001]:
            wrong = refusal(self.s3.upload_part, PartNumber=number, Body=b"x", **upload)
            self.assertEqual(wrong, ("InvalidArgument", 400))
        self.s3.abort_multipart_upload(**upload)
        self.assertEqual(refusal(self.s3.abort_multipart_upload, **upload), ("NoSuchUpload", 404))
        self.assertEqual(self.keys(), [])
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="empty")
        upload = {"Bucket": self.bucket, "Key": "empty", "UploadId": begun["UploadId"]}
        tag = self.s3.upload_part(PartNumber=1, Body=b"", **upload)["ETag"]
        self.s3.complete_multipart_upload(
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]}, **upload)
        self.assertEqual(self.get("empty"), b"")

    def test_checksums_of_parts_together_are_compared(self) -> None:
        begun = self.s3.create_multipart_upload(
            Bucket=self.bucket, Key="sums", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
        upload = {"Bucket": self.bucket, "Key": "sums", "UploadId": begun["UploadId"]}
        bodies = [some_bytes(5 * MIB), some_bytes(77)]
        parts = []
        for number, body in enumerate(bodies, 1):
            part = self.s3.upload_part(
                PartNumber=number, Body=body, ChecksumAlgorithm="CRC32", **upload)
            parts.append({"PartNumber": number, "ETag": part["ETag"],
                          "ChecksumCRC32": part["ChecksumCRC32"]})
        whole = zlib.crc32(b"".join(bodies)).to_bytes(4, "big")
        of_parts = b"".join(base64.b64decode(part["ChecksumCRC32"]) for part in parts)
        composite = zlib.crc32(of_parts).to_bytes(4, "big")
        right = [base64.b64encode(whole).decode(), base64.b64encode(composite).decode() + "-2"]
        complete = self.s3.complete_multipart_upload
        swapped = [{**parts[0], "ChecksumCRC32": parts[1]["ChecksumCRC32"]}, parts[1]]
        self.assertEqual(refusal(complete, MultipartUpload={"Parts": swapped}, **upload),
                         ("InvalidPart", 400))
        for wrong in ["AAAAAA==", "AAAAAA==-2", right[1][:-1] + "3"]:
            answer = refusal(complete, MultipartUpload={"Parts": parts}, ChecksumCRC32=wrong,
                             **upload)
            self.assertEqual(answer, ("BadDigest", 400))
        complete(MultipartUpload={"Parts": parts}, ChecksumCRC32=right[0], **upload)
        self.assertEqual(self.get("sums"), b"".join(bodies))
        # The other kind, of an upload that is requested again because its answer got lost.
        complete(MultipartUpload={"Parts": parts}, ChecksumCRC32=right[1], **upload)

    def test_copies_keep_or_replace_metadata_and_tags(self) -> None:
        body = some_bytes(3 * MIB + 5)
        put = self.put("from", body, Metadata={"a": "1"}, Tagging="t=1", ContentType="a/b")
        source = {"Bucket": self.bucket, "Key": "from"}
        copy = self.s3.copy_object
        done = copy(Bucket=self.bucket, Key="to/kept", CopySource=source)
        self.assertEqual(done["CopyObjectResult"]["ETag"], put["ETag"])
        head = self.s3.head_object(Bucket=self.bucket, Key="to/kept")
        self.assertEqual((head["Metadata"], head["ContentType"]), ({"a": "1"}, "a/b"))
        self.assertEqual(self.get("to/kept"), body)
        tags = self.s3.get_object_tagging(Bucket=self.bucket, Key="to/kept")["TagSet"]
        self.assertEqual(tags, [{"Key": "t", "Value": "1"}])
        itself = refusal(copy, Bucket=self.bucket, Key="from", CopySource=source)
        self.assertEqual(itself, ("InvalidRequest", 400))
        copy(Bucket=self.bucket, Key="from", CopySource=source, MetadataDirective="REPLACE",
             Metadata={"b": "2"})
        head = self.s3.head_object(Bucket=self.bucket, Key="from")
        self.assertEqual((head["Metadata"], head["ETag"]), ({"b": "2"}, put["ETag"]))
        failed = refusal(copy, Bucket=self.bucket, Key="no", CopySource=source,
                         CopySourceIfNoneMatch=put["ETag"])
        self.assertEqual(failed, ("PreconditionFailed", 412))
        missing = {"Bucket": self.bucket, "Key": "missing"}
        self.assertEqual(refusal(copy, Bucket=self.bucket, Key="no", CopySource=missing),
                         ("NoSuchKey", 404))

    def test_tags_are_kept(self) -> None:
        self.put("k", Tagging="a=1&b=%26")
        where = {"Bucket": self.bucket, "Key": "k"}
        tags = self.s3.get_object_tagging(**where)["TagSet"]
        self.assertEqual(tags, [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "&"}])
        self.s3.put_object_tagging(Tagging={"TagSet": [{"Key": "c", "Value": ""}]}, **where)
        self.assertEqual(self.s3.get_object_tagging(**where)["TagSet"], [{"Key": "c", "Value": ""}])
        self.assertEqual(self.s3.get_object(**where)["TagCount"], 1)
        self.s3.delete_object_tagging(**where)
        self.assertEqual(self.s3.get_object_tagging(**where)["TagSet"], [])
        twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
        wrong = refusal(self.s3.put_object_tagging, Tagging=twice, **where)
        self.assertEqual(wrong, ("InvalidTag", 400))

    def test_digests_are_checked(self) -> None:
        md5 = refusal(self.put, key="k", body=b"x", ContentMD5="XUFAKrxLKna5cZ2REBfFkg==")
        self.assertEqual(md5, ("BadDigest", 400))
        crc = refusal(self.put, key="k", body=b"x", ChecksumCRC32="NhCmhg==")
        self.assertEqual(crc, ("BadDigest", 400))
        large = refusal(self.put, key="k", body=bytes(3 * MIB), ChecksumCRC32="NhCmhg==")
        self.assertEqual(large, ("BadDigest", 400))
        self.assertEqual(self.keys(), [])
        self.no_directory_stays("p/q/k", "BadDigest", bytes(3 * MIB), ChecksumCRC32="NhCmhg==")
        self.no_directory_stays("p/q/k", "MetadataTooLarge", b"x", CacheControl="x" * 9000)
        for algorithm in ["CRC32", "SHA1", "SHA256"]:
            put = self.put("k", b"hello", ChecksumAlgorithm=algorithm)
            got = self.s3.get_object(Bucket=self.bucket, Key="k", ChecksumMode="ENABLED")
            name = f"Checksum{algorithm}"
            self.assertEqual((got["Body"].read(), got[name]), (b"hello", put[name]))

    def no_directory_stays(self, key: str, code: str, body: bytes, **more: Any) -> None:
        """Puts what is refused, under a key whose directories are not there yet."""
        self.assertEqual(refusal(self.put, key=key, body=body, **more), (code, 400))
        until("no prefix without a key is listed", lambda: "CommonPrefixes" not in
              self.s3.list_objects_v2(Bucket=self.bucket, Delimiter="/"))
        above = key.split("/")[0]
        self.put(above, b"a key")
        self.s3.delete_object(Bucket=self.bucket, Key=above)

    def test_presigned_urls_work_until_they_expire(self) -> None:
        where = {"Bucket": self.bucket, "Key": "k"}
        sign = client(self.fleet.endpoint, signature_version="s3v4").generate_presigned_url
        put = urllib.request.Request(sign("put_object", where), data=b"by url", method="PUT")
        urllib.request.urlopen(put).close()
        url = sign("get_object", where)
        with urllib.request.urlopen(url) as answer:
            self.assertEqual(answer.read(), b"by url")
        with self.assertRaises(urllib.error.HTTPError) as changed:
            urllib.request.urlopen(url.replace("/k?", "/other?"))
        self.assertEqual(changed.exception.code, 403)
        self.assertIn(b"SignatureDoesNotMatch", changed.exception.read())
        # One that was signed a while ago, one that has expired, and one of a clock that is ahead.
        path = f"/{self.bucket}/k"
        with urllib.request.urlopen(
                Signer(self.fleet.address, seconds_ago=60).url("GET", path, 3600)) as answer:
            self.assertEqual(answer.read(), b"by url")
        for seconds_ago, expires, code in [(3600, 60, b"AccessDenied"),
                                           (-3600, 7200, b"RequestTimeTooSkewed")]:
            url = Signer(self.fleet.address, seconds_ago=seconds_ago).url("GET", path, expires)
            with self.assertRaises(urllib.error.HTTPError) as late:
                urllib.request.urlopen(url)
            self.assertEqual(late.exception.code, 403)
            self.assertIn(code, late.exception.read())
        # What S3 has given up, or never allowed.
        for url, code in [
            (sign("get_object", where, ExpiresIn=604_801), b"AuthorizationQueryParametersError"),
            (client(self.fleet.endpoint, signature_version="s3").generate_presigned_url(
                "get_object", where), b"InvalidRequest"),
        ]:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url)
            self.assertEqual(refused.exception.code, 400)
            self.assertIn(code, refused.exception.read())

    def test_connection_ends_when_expect_continue_was_not_honoured(self) -> None:
        sign = client(self.fleet.endpoint, signature_version="s3v4").generate_presigned_url
        url = sign("put_object", {"Bucket": self.bucket, "Key": "k"})
        path = url.removeprefix(self.fleet.endpoint)
        # The aws CLI 1 keeps the status line of such an answer for the connection's next one.
        for body, then in [(b"bytes", None), (b"", "close")]:
            peer = http.client.HTTPConnection(self.fleet.address)
            headers = {"Expect": "100-continue", "Content-Length": str(len(body))}
            peer.request("PUT", path, body or None, headers)
            answer = peer.getresponse()
            self.assertEqual((answer.status, answer.getheader("connection")), (200, then), body)
            peer.close()
            self.assertEqual(self.get("k"), body)

    def test_bucket_may_stand_in_the_host_name(self) -> None:
        self.put("k", b"hosted")
        port = self.fleet.address.rsplit(":", 1)[1]
        virtual = client(f"http://s3.test:{port}", signature_version="s3v4",
                         s3={"addressing_style": "virtual"})
        url = virtual.generate_presigned_url("get_object", {"Bucket": self.bucket, "Key": "k"})
        host = f"{self.bucket}.s3.test:{port}"
        self.assertIn(host, url)
        url = url.replace(host, self.fleet.address)
        asked = urllib.request.Request(url, headers={"Host": host})
        with urllib.request.urlopen(asked) as answer:
            self.assertEqual(answer.read(), b"hosted")

    def test_promise_that_is_not_kept_is_refused(self) -> None:
        where = {"Bucket": self.bucket, "Key": "k"}
        for flags, answer in [
            ({"ServerSideEncryption": "AES256"}, ("NotImplemented", 501)),
            ({"ObjectLockLegalHoldStatus": "ON"}, ("NotImplemented", 501)),
            ({"ExpectedBucketOwner": "111122223333"}, ("AccessDenied", 403)),
        ]:
            self.assertEqual(refusal(self.s3.put_object, Body=b"x", **where, **flags), answer)
        begun = refusal(self.s3.create_multipart_upload, ServerSideEncryption="aws:kms", **where)
        self.assertEqual(begun, ("NotImplemented", 501))
        self.assertEqual(self.keys(), [])
        self.s3.put_object(Body=b"x", ExpectedBucketOwner="sanderling", **where)

    def test_what_is_not_there_has_its_error_code(self) -> None:
        acl = refusal(self.s3.get_bucket_acl, Bucket=self.bucket)
        self.assertEqual(acl, ("NotImplemented", 501))
        versions = refusal(self.s3.put_bucket_versioning, Bucket=self.bucket,
                           VersioningConfiguration={"Status": "Enabled"})
        self.assertEqual(versions, ("NotImplemented", 501))
        key = refusal(self.put, key="k", SSECustomerKey="0" * 32, SSECustomerAlgorithm="AES256")
        self.assertEqual(key, ("NotImplemented", 501))
        other = refusal(self.get, key="k", VersionId="other")
        self.assertEqual(other, ("NoSuchVersion", 404))

    def test_metrics_count_its_requests(self) -> None:
        self.put("k", b"counted")
        with urllib.request.urlopen(f"http://{self.fleet.http_address}/metrics") as answer:
            text = answer.read().decode()
        put = r'sanderling_gateway_answers_total\{method="PUT",status="200"\} [1-9]'
        self.assertRegex(text, put)
        with urllib.request.urlopen(f"http://{self.fleet.http_address}/healthz") as answer:
            self.assertIn(b"gateway", answer.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
