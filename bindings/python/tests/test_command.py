"""The command `sanderling` as the wheel brings it: the product's commands, and no others."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def sanderling(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the wheel's command."""
    command = [sys.executable, "-m", "sanderling", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "write", "--size", "1MiB"],
        ["bench", "--help"],
        ["lab", "figure6", "--spot", "0.5"],
        ["sim", "--seed", "7"],
        ["mock-metadata"],
    ],
)
def test_command_that_measures_names_the_build_that_has_it(words: list[str]) -> None:
    ran = sanderling(*words)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert f"this build of sanderling has no {words[0]}" in ran.stderr
    line = " ".join(["target/release/sanderling", *words])
    assert f"next:  make build in a checkout of the repository, then {line}\n" in ran.stderr
    error = json.loads(sanderling("--json", *words).stderr)["error"]
    assert error["kind"] == "NotInThisBuild"


def test_help_lists_what_is_there_and_what_is_not() -> None:
    ran = sanderling("--help")
    assert ran.returncode == 0
    listed = [line.split()[0] for line in ran.stdout.splitlines() if line.startswith("  ")
              and line.split()[0].islower()]
    assert {"local", "fs", "node", "namenode"} <= set(listed)
    assert not {"bench", "lab", "sim", "mock-metadata"} & set(listed)
    assert "Not in this build: bench, sim, lab, mock-metadata." in ran.stdout
