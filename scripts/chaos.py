#!/usr/bin/env python3
"""Breaks real processes round by round and judges what is left: `make chaos`.

The rounds are a test of the command line's crate; this gives it its numbers. The same seed draws
the same faults; what is under way at that moment is the machine's own affair.
Exit code 0: every promise held in every round.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = "every_promise_holds_through_many_faults"


def main() -> int:
    """Runs the rounds of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500, help="rounds, each with one fault")
    parser.add_argument("--seed", type=int, default=1, help="what the faults are drawn from")
    parser.add_argument("--first", type=int, default=0, help="the first round's number")
    parser.add_argument("--sync", choices=["os", "always"], default="os",
                        help="the namenode's --sync")
    parser.add_argument("--only", default="",
                        help="draw from these faults alone: KillNamenode,FlipBlock")
    parser.add_argument("--release", action="store_true", help="optimized processes")
    options = parser.parse_args()
    names = ["rounds", "seed", "first", "sync", "only"]
    numbers = {f"SANDERLING_CHAOS_{name.upper()}": str(getattr(options, name)) for name in names}
    command = ["cargo", "test", "--locked", "--quiet", "--package", "sanderling-cli"]
    command += ["--release"] if options.release else []
    command += ["--test", "chaos_rounds", "--", "--ignored", "--exact", "--nocapture", TEST]
    return subprocess.run(command, cwd=ROOT, env=os.environ | numbers, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
