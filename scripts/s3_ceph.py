#!/usr/bin/env python3
"""Runs the S3 tests of Ceph against a gateway, and prints the reason of each failure.

The tests are not part of this repository: give a checkout of github.com/ceph/s3-tests, and run
with a Python that has its requirements.txt and pytest-timeout:

    python scripts/s3_ceph.py --checkout ../s3-tests

What the gateway does not do is known by its reasons (`REASONS`, and docs/S3.md): a test that fails
without one of them fails the run, as does a reason that no failed test has.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from gateway_fleet import Fleet

FILES = ("test_s3.py", "test_headers.py")

# Marks of tests of features that the gateway lacks (docs/S3.md): they are not run.
NOT_RUN = (
    "abac_test", "appendobject", "auth_aws2", "bucket_encryption", "bucket_logging",
    "bucket_policy", "cloud_restore", "cloud_transition", "delete_marker", "encryption",
    "iam_account", "iam_cross_account", "iam_role", "iam_tenant", "iam_user", "lifecycle",
    "lifecycle_expiration", "lifecycle_transition", "object_lock", "object_ownership", "s3select",
    "s3website", "sns", "sse_s3", "storage_class", "test_of_sts", "user_policy", "versioning",
    "webidentity_test",
)

# Why a test may fail, and what its name and message are like then. The first one counts.
REASONS: dict[str, str] = {
    "forms of browsers are not taken":
        r"test_post_object_.*",
    "objects have one version":
        r".*PutBucketVersioning.*|test_versioning_.*|test_versioned_.*",
    "objects are not locked":
        r"test_object_lock_.*",
    "there are no policies and no public access blocks":
        r".*(Policy|PublicAccessBlock).*|test_bucket_policy_.*",
    "there are no ACLs, and no requests without a signature":
        r".*Acl is not implemented.*|.*(Put|Get)(Bucket|Object)Acl.*|test_.*_acl(_.*|:.*)"
        r"|test_access_bucket_.*|test_.*(_anonymous|_anon_).*|test_object_raw_get(_bucket_acl|"
        r"_bucket_gone|_object_gone)?:.*|test_object_delete_key_bucket_gone:.*"
        r"|test_cors_origin_.*",
    "all access keys are of one owner":
        r"test_bucket_create_exists_nonowner:.*|test_object_copy_not_owned_.*"
        r"|test_list_buckets_paginated:.*",
    "no signature of version 2, no other date":
        r"test_cors_.*_v2:.*|test_.*_(date_and_amz_date|amz_date_and_no_date):.*",
    "a key that is another's prefix up to a slash is refused (KeyConflict)":
        r".*KeyConflict.*",
    "checksums of uploads in parts are compared and not kept":
        r"test_(get_)?multipart_.*(ChecksumAlgorithm|Checksum[A-Z0-9]+).*",
    "buckets have no tags, objects no torrent":
        r"test_set_bucket_tagging:.*|test_get_object_torrent:.*",
    "a body has a length":
        r"test_object_write_with_chunked_transfer_encoding:.*",
    "Ceph's own, and not of S3":
        r"test_account_usage:.*|test_head_bucket_usage:.*|test_bucket_head_extended:.*"
        r"|test_bucket_listv?2?_unordered:.*",
    "as of S3, where Ceph differs":
        # Codes, 501 for If-None-Match with a tag, encoded prefixes, RFC 2047, names, locations,
        # the order of tags, 409 for a bucket of one's own.
        r"test_put_excess_tags:.*|test_put_obj_with_tags:.*|test_(multipart_)?put_object_if.*"
        r"|test_bucket_list_prefix_unreadable:.*|test_object_set_get_unicode_metadata:.*"
        r"|test_bucket_create_naming_dns_.*|test_bucket_get_location:.*|test_object_raw_.*"
        r"|test_object_read_unreadable:.*|test_bucket_create_exists:.*"
        r"|test_bucket_recreate_.*",
    "the client puts the header right again before it sends it":
        r"test_(object|bucket)_create_bad_(authorization_(empty|none)|contentlength_none):.*",
    "an upload is completed with each part once":
        r"test_multipart_resend_first_finishes_last:.*",
}

SECTIONS = ("s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root")


def configure(directory: Path) -> Path:
    """Writes the keys of the gateway. Returns the file for it."""
    keys = [{"access_key": name.replace(" ", "-"), "secret_key": f"secret of {name}"}
            for name in SECTIONS]
    path = directory / "keys.json"
    path.write_text(json.dumps({"keys": keys}))
    path.chmod(0o600)
    return path


def write_config(directory: Path, address: str) -> Path:
    """Writes the configuration of the tests. Returns its file."""
    host, port = address.split(":")
    lines = ["[DEFAULT]", f"host = {host}", f"port = {port}", "is_secure = False",
             "ssl_verify = False", "[fixtures]", "bucket prefix = ceph-{random}-"]
    for name in SECTIONS:
        lines += [f"[{name}]", f"access_key = {name.replace(' ', '-')}",
                  f"secret_key = secret of {name}", "display_name = sanderling",
                  "user_id = sanderling", "email = sanderling@example.com", "tenant = sanderling",
                  "api_name = us-east-1"]
    path = directory / "s3tests.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def reason_of(line: str) -> str | None:
    """Returns why a test may fail, by its name and message."""
    for reason, pattern in REASONS.items():
        if re.fullmatch(pattern, line):
            return reason
    return None


def judge(results: Path) -> int:
    """Counts results by reason. Returns the exit code."""
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    unknown = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = str(case.get("name"))
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if case.find("skipped") is not None:
            counts["skipped"] += 1
        elif broken is None:
            counts["passed"] += 1
        else:
            line = f"{name}: {(str(broken.get('message')).splitlines() or [''])[0][:240]}"
            reason = reason_of(line)
            if reason is None:
                unknown.append(line)
            else:
                counts["failed for a known reason"] += 1
                reasons[reason].append(name)
    for reason in REASONS:
        print(f"{len(reasons[reason]):4} {reason}")
    for name, count in counts.items():
        print(f"{count:4} {name}")
    for line in unknown:
        print(f"not known: {line}")
    for reason in REASONS:
        if not reasons[reason]:
            print(f"no test fails any more because of: {reason}")
    return 1 if unknown or not all(reasons[reason] for reason in REASONS) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--checkout", type=Path, required=True, help="of github.com/ceph/s3-tests")
    parser.add_argument("--results", type=Path, help="where to keep pytest's results")
    parser.add_argument("--only", default="", help="run what matches this, as pytest -k has it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        keys = configure(directory)
        fleet = Fleet(2, "512MiB", flags=("--keys", str(keys)))
        try:
            results = (options.results or directory / "results.xml").absolute()
            config = write_config(directory, fleet.address)
            command = [
                sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider",
                "--timeout=120", f"--junitxml={results}", "-m", f"not ({' or '.join(NOT_RUN)})",
                *([f"-k={options.only}"] if options.only else []),
                *[f"s3tests/functional/{file}" for file in FILES],
            ]
            environment = os.environ | {"S3TEST_CONF": str(config), "AWS_MAX_ATTEMPTS": "1",
                                        "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run(command, cwd=options.checkout, env=environment, check=False)
            if not results.exists():
                print("the tests were not run")
                return 2
            return judge(results)
        finally:
            fleet.stop()


if __name__ == "__main__":
    sys.exit(main())
