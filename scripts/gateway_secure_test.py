#!/usr/bin/env python3
"""Tests the S3 gateway with TLS on its endpoint, in front of a cluster that requires tokens.

Run with .venv-s3/bin/python, as gateway_test.py.
"""

import json
import os
import socket
import subprocess
import unittest
from typing import Any
from unittest import mock

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, SSLError
from gateway_fleet import Fleet

# The name that the certificates of a cluster are made for.
NAME = "sanderling"
LOOPBACK = socket.getaddrinfo


class SecureFleet(Fleet):
    """A fleet whose servers share a secret and a certificate; the gateway has a token alone."""

    def environment(self) -> dict[str, str]:
        at = self.directory
        if not (at / "secret").exists():
            plain = super().environment()
            for words in [("token", "secret", "--out", str(at / "secret")),
                          ("tls", "new", "--out", str(at / "tls"))]:
                subprocess.run([self.program, *words], env=plain, check=True, capture_output=True)
        return super().environment() | {
            "SANDERLING_SECRET_FILE": str(at / "secret"),
            "SANDERLING_TLS_CA": str(at / "tls/ca.pem"),
            "SANDERLING_TLS_CERT": str(at / "tls/node.pem"),
            "SANDERLING_TLS_KEY": str(at / "tls/node.key"),
            "SANDERLING_TOKEN_FILE": str(at / "token"),
        }

    def token(self, subtree: str) -> None:
        """Makes the token that is shown from now on."""
        (self.directory / "token").unlink(missing_ok=True)
        self.cli("token", "new", "--subtree", subtree, "--rights", "read,write", "--expires", "1h",
                 "--out", str(self.directory / "token"))

    def start_gateway(self, name: str, *flags: str) -> str:
        self.token("/data")
        keys = self.directory / "keys.json"
        keys.write_text(json.dumps({"keys": [{"access_key": "etl", "secret_key": "a secret"}]}))
        os.chmod(keys, 0o600)
        return super().start_gateway(name, "--keys", str(keys), *flags)


def resolved(host: str, *rest: Any, **named: Any) -> Any:
    """Finds the cluster's name on this machine."""
    return LOOPBACK("127.0.0.1" if host == NAME else host, *rest, **named)


class Secure(unittest.TestCase):
    """One cluster for all tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.fleet = SecureFleet()
        cls.names = mock.patch("socket.getaddrinfo", resolved)
        cls.names.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.names.stop()
        cls.fleet.stop()

    def client(self, secret: str = "a secret", authority: str = "tls/ca.pem") -> Any:
        port = self.fleet.address.rpartition(":")[2]
        path_style = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        return boto3.client(
            "s3", endpoint_url=f"https://{NAME}:{port}", region_name="us-east-1",
            aws_access_key_id="etl", aws_secret_access_key=secret, config=path_style,
            verify=str(self.fleet.directory / authority),
        )

    def test_bytes_travel_over_tls_and_only_where_the_token_allows(self) -> None:
        s3 = self.client()
        s3.create_bucket(Bucket="data")
        body = os.urandom(3 << 20)
        s3.put_object(Bucket="data", Key="a/b", Body=body)
        self.assertEqual(s3.get_object(Bucket="data", Key="a/b")["Body"].read(), body)
        with self.assertRaises(ClientError) as refused:
            s3.create_bucket(Bucket="elsewhere")
        self.assertEqual(refused.exception.response["Error"]["Code"], "AccessDenied")
        self.assertEqual(refused.exception.response["ResponseMetadata"]["HTTPStatusCode"], 403)
        self.assertNotIn("a secret", self.fleet.logs())

    def test_wrong_key_and_unknown_authority_are_refused(self) -> None:
        with self.assertRaises(ClientError) as refused:
            self.client(secret="another secret").list_buckets()
        self.assertEqual(refused.exception.response["Error"]["Code"], "SignatureDoesNotMatch")
        plain = Fleet.environment(self.fleet)
        other = self.fleet.directory / "other"
        subprocess.run([self.fleet.program, "tls", "new", "--out", str(other)], env=plain,
                       check=True, capture_output=True)
        with self.assertRaises(SSLError):
            self.client(authority="other/ca.pem").list_buckets()


if __name__ == "__main__":
    unittest.main(verbosity=2)
