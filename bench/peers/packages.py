"""Installs the peers from the ordinary package registries: Debian's and PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from goal import Unavailable
from world import ROOT

INSTALL_SECONDS_MAX = 900.0
BUILT = ROOT / "target" / "bench"
RAY = BUILT / "ray"
RAY_PACKAGES = ["ray==2.60.0", "numpy==2.4.6"]


@dataclass(frozen=True)
class Package:
    """A program and the Debian package that has it."""

    program: str
    package: str
    version: list[str]


PACKAGES = {
    "iperf3": Package("iperf3", "iperf3", ["--version"]),
    "redis": Package("redis-server", "redis-server", ["--version"]),
    "memcached": Package("memcached", "memcached", ["--version"]),
    "fio": Package("fio", "fio", ["--version"]),
}


def program(name: str) -> str:
    """Returns the path of a peer's program.

    Raises `Unavailable` when it is not installed and could not be.
    """
    package = PACKAGES[name]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = shutil.which(package.program, path=path)
    if not found:
        raise Unavailable(f"{package.program} is not there: apt-get install {package.package}")
    return found


def install(names: set[str]) -> None:
    """Installs what is missing, as far as this user may; its user reports when it is missing."""
    missing = [PACKAGES[name].package for name in sorted(names & set(PACKAGES)) if is_missing(name)]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        note(f"installing {' '.join(missing)}")
        # Run level 1 keeps Debian's scripts from starting the servers.
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        words = ["install", "-y", "-qq", "--no-install-recommends", *missing]
        if not ran(["apt-get", *words], quiet):
            ran(["apt-get", "update", "-qq"], quiet)
            ran(["apt-get", *words], quiet)
    if "ray" in names:
        install_ray()


def install_ray() -> None:
    """Installs Ray into an environment of its own under target/."""
    stamp = RAY / ".installed"
    if stamp.exists() and stamp.read_text() == " ".join(RAY_PACKAGES):
        return
    note(f"installing {' '.join(RAY_PACKAGES)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    python = str(RAY / "bin" / "python")
    if not Path(python).exists() and not ran([sys.executable, "-m", "venv", str(RAY)]):
        return
    words = ["install", "--quiet", "--disable-pip-version-check", *RAY_PACKAGES]
    if ran([python, "-m", "pip", *words]):
        stamp.write_text(" ".join(RAY_PACKAGES))


def ray_python() -> str:
    """Returns the Python that has Ray.

    Raises `Unavailable` when it could not be installed.
    """
    if not (RAY / ".installed").exists():
        raise Unavailable(f"ray could not be installed: pip install {' '.join(RAY_PACKAGES)}")
    return str(RAY / "bin" / "python")


def versions(names: set[str]) -> dict[str, str]:
    """Returns the version of each peer that is there."""
    found = {"ray": RAY_PACKAGES[0].partition("==")[2]} if "ray" in names else {}
    for name in sorted(names & set(PACKAGES)):
        if not is_missing(name):
            words = [program(name), *PACKAGES[name].version]
            printed = subprocess.run(words, capture_output=True, text=True)
            number = re.search(r"\d+\.\d+(\.\d+)?", printed.stdout)
            found[name] = number.group() if number else "unknown"
    return found


def is_missing(name: str) -> bool:
    try:
        return not program(name)
    except Unavailable:
        return True


def ran(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Runs an installer; returns whether it succeeded, and shows the end of its output if not."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=INSTALL_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        note(f"{command[0]}: {error}")
        return False
    if done.returncode:
        note(f"{command[0]}: {done.stderr.strip()[-300:]}")
    return done.returncode == 0


def note(what: str) -> None:
    """Prints progress to stderr."""
    print(what, file=sys.stderr, flush=True)
