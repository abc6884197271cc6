"""The examples run, and keep their types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

CRAWLED = sum(len(f"<html>page {number}</html>") for number in range(2000))

PRINTED = {"shuffle.py": "'be': 3", "crawl.py": str(CRAWLED)}


@pytest.mark.parametrize("name", PRINTED)
def test_example_runs(name, cluster):
    command = [sys.executable, str(EXAMPLES / name), cluster.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert PRINTED[name] in ran.stdout


def test_examples_keep_their_types():
    flags = ["--strict", "--no-incremental", "--cache-dir=/dev/null", str(EXAMPLES)]
    command = [sys.executable, "-m", "mypy", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PRINTED)
