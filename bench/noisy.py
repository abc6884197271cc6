#!/usr/bin/env python3
"""Measures what a tenant's small operations take beside tenants that take all they can get.

    bench/noisy.py --seconds 5 --hog usage,list

Starts a cluster of one namenode and some datanodes on loopback and runs `sanderling bench noisy`
on it, with the flags that this script does not define.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet import fleet
from world import ROOT, World


# Policy and priority of a thread, by its name.
POLICIES = {"hog": (os.SCHED_IDLE, 0), "tenant": (os.SCHED_RR, 1)}


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
            with subprocess.Popen(command) as running:
                while running.poll() is None:
                    schedule(running.pid)
                    time.sleep(0.02)
                return running.returncode


def schedule(process: int) -> None:
    """Schedules the threads of the measurement as if they ran on machines of their own.

    The tenant never waits for a processor, and hogs get only the time that is left. The first needs
    root; without it the tenant's figures include the kernel's time slices, some milliseconds.
    """
    for task in Path(f"/proc/{process}/task").glob("*"):
        try:
            name = (task / "comm").read_text().strip()
            policy, priority = POLICIES.get(name, (os.SCHED_OTHER, 0))
            if os.sched_getscheduler(int(task.name)) != policy:
                os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
        except OSError:
            continue  # The thread has ended, or this process may not.


if __name__ == "__main__":
    sys.exit(main())
