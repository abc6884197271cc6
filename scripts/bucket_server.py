"""Runs an S3 server with one bucket, for tests and measurements that have no S3 client themselves.

The server is moto, and the bucket is made with the aws CLI: both are in .venv-s3, which
`scripts/venv.sh s3` makes.
"""

import os
import socket
import subprocess
from pathlib import Path

from cluster import ROOT, until

BUCKET = "ephemeral"
PROGRAMS = ROOT / ".venv-s3" / "bin"
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
             "AWS_SECRET_ACCESS_KEY")


def is_installed() -> bool:
    """Returns whether the server can be started."""
    return all((PROGRAMS / name).exists() for name in ("moto_server", "aws"))


class BucketServer:
    """The server, as a process that ends with `stop`."""

    def __init__(self, log: Path, host: str = "127.0.0.1") -> None:
        with socket.socket() as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
        command = [str(PROGRAMS / "moto_server"), "-H", host, "-p", str(port)]
        with open(log, "w") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output)
        values = (f"http://{host}:{port}", "us-east-1", "us-east-1", "someone", "a-secret")
        self.environment = dict(zip(VARIABLES, values))
        try:
            until("the S3 server listens", lambda: listens(host, port))
            make = [str(PROGRAMS / "aws"), "s3api", "create-bucket", "--bucket", BUCKET]
            subprocess.run(make, env=os.environ | self.environment, check=True,
                           capture_output=True, timeout=60)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process; what it holds goes with it."""
        self.process.kill()
        self.process.wait()


def listens(host: str, port: int) -> bool:
    """Returns whether a process accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
