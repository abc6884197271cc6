#!/usr/bin/env python3
"""Runs conformance/semantics.toml through the S3 gateway with boto3.

Run with .venv-s3/bin/python, which scripts/venv.sh s3 makes. The program is SANDERLING_BIN, else
the one in .venv, else the one that cargo built.
"""

import asyncio
import sys
import unittest
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from gateway_fleet import KEY, Fleet

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))

from table import SEMANTICS, WRONG, Got, Refused, Step, fields, run, word_of  # noqa: E402

NAME = "s3"
BUCKET = "conformance-s3"
NOTHING_THERE = ("NoSuchKey", "404")


class Calls:
    """The steps as requests. Errors are those of docs/ERRORS.md where S3's mean the same."""

    def __init__(self, endpoint: str) -> None:
        self.s3 = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEY,
            aws_secret_access_key=KEY, config=Config(retries={"total_max_attempts": 1}),
        )
        self.s3.create_bucket(Bucket=BUCKET)
        self.tags: dict[str, str] = {}

    async def begin(self, _root: str) -> None:
        self.tags.clear()

    async def pause(self) -> None:
        await asyncio.sleep(0.1)

    async def call(self, step: Step) -> Got:
        bucket, _, key = step.words[0].removeprefix("/").partition("/")
        assert bucket == BUCKET, step.text
        try:
            got: Got = getattr(self, step.verb)(step, {"Bucket": BUCKET, "Key": key})
        except ClientError as error:
            raise Refused(self.name_of(error.response["Error"]["Code"], step)) from error
        return got

    def name_of(self, code: str, step: Step) -> str:
        """Returns the store's name of an error, or S3's where that is wider or another."""
        if code in NOTHING_THERE:
            return "NotFound"
        if code == "PreconditionFailed":
            return "Exists" if step.options["if"] == "absent" else "Changed"
        return code

    def put(self, step: Step, where: dict[str, str]) -> Got:
        given: dict[str, Any] = {"Body": step.data(), "Metadata": step.attributes()}
        if (wanted := step.options.get("if")) is not None:
            given |= {"IfNoneMatch": "*"} if wanted == "absent" else {"IfMatch": self.tags[wanted]}
        answer = self.s3.put_object(**where, **given)
        self.tags[step.options.get("as", "")] = answer["ETag"]
        return self.stat(step, where)

    def get(self, step: Step, where: dict[str, str]) -> Got:
        given = {}
        if len(step.words) > 1:
            offset, length = step.ranges()[0]
            given["Range"] = f"bytes={offset}-{offset + length - 1}"
        return bytes(self.s3.get_object(**where, **given)["Body"].read())

    def stat(self, _step: Step, where: dict[str, str]) -> Got:
        head = self.s3.head_object(**where)
        attributes = {f"attr.{name}": text for name, text in head["Metadata"].items()}
        return attributes | fields(bytes=head["ContentLength"], attributes=len(attributes))

    def exists(self, step: Step, where: dict[str, str]) -> Got:
        try:
            self.stat(step, where)
        except ClientError as error:
            if error.response["Error"]["Code"] in NOTHING_THERE:
                return word_of(False)
            raise
        return word_of(True)

    def list(self, _step: Step, where: dict[str, str]) -> Got:
        prefix = where["Key"] + "/"
        page = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix, Delimiter="/")
        names = [entry["Key"] for entry in page.get("Contents", [])]
        names += [entry["Prefix"][:-1] for entry in page.get("CommonPrefixes", [])]
        return sorted(name.removeprefix(prefix) for name in names)

    def delete(self, step: Step, where: dict[str, str]) -> Got:
        wanted = step.options.get("if")
        given = {} if wanted is None else {"IfMatch": self.tags[wanted]}
        self.s3.delete_object(**where, **given)


class Conformance(unittest.TestCase):
    """One cluster with a gateway for the table and for the wrong cases."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = Fleet()
        cls.calls = Calls(cls.fleet.endpoint)
        cls.report = ""

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fleet.stop()
        print(cls.report)

    def test_gateway_answers_as_the_table_requires(self) -> None:
        report = asyncio.run(run(SEMANTICS, NAME, self.calls))
        type(self).report = str(report)
        report.check()

    def test_wrong_cases_fail(self) -> None:
        asyncio.run(run(WRONG, NAME, self.calls)).check_all_fail()


if __name__ == "__main__":
    unittest.main(verbosity=2)
