#!/usr/bin/env python3
"""Measures what a tenant's small operations take beside tenants that take all they can get.

    bench/noisy.py --seconds 5 --hog usage,list

Starts a cluster of one namenode and some datanodes on loopback and runs `sanderling bench noisy`
on it, with the flags that this script does not know.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from fleet import fleet
from world import ROOT, World


def main() -> int:
    """Runs it, and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    parser.add_argument("--datanodes", type=int, default=1)
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="sanderling-noisy-") as work:
        program = options.program.resolve()
        world = World(sanderling=program, peer=program, python=program, work=Path(work))
        with fleet(world, datanodes=options.datanodes, has_local_endpoint=True,
                   namenode_http="127.0.0.1:0") as made:
            command = [str(program), "--namenode", made.address, "bench", "noisy",
                       "--namenode-http", made.namenode_http, *flags]
            return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
