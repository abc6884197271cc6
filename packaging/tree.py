"""Where things are, which version they have, and how programs are built for other machines."""

import os
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "packaging"
DIST = Path(os.environ.get("DIST", ROOT / "dist")).absolute()
# Built apart from the usual target directory: the linker and the flags differ.
TARGET = ROOT / "target" / "dist"
WORK = TARGET / "work"
VENV = ROOT / ".venv-dist" / "bin"
TRIPLE = "x86_64-unknown-linux-gnu"
# The oldest glibc that the programs need: that of manylinux_2_28, RHEL 8 and Debian 10.
GLIBC = "2.28"
MACHINE = "linux-x86_64"
# cargo's words for the program, and for the native half of the Java client. The second names the
# program, too: then cargo takes the same features of what they share, and compiles it once.
PROGRAM = ("--package", "sanderling-cli", "--no-default-features")
NATIVE = (*PROGRAM, "--package", "sanderling-jni")


def project() -> dict[str, str]:
    """Returns what the metadata of every package has in common."""
    return tomllib.loads((HERE / "project.toml").read_text())


def version() -> str:
    """Returns the version of the workspace, which all packages have."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return manifest["workspace"]["package"]["version"]


def epoch() -> int:
    """Returns the moment that everything in the packages carries: that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True,
                           text=True)
    if shown.returncode:
        raise SystemExit("this is no git checkout: set SOURCE_DATE_EPOCH to the release's second")
    return int(shown.stdout)


def environment() -> dict[str, str]:
    """Returns the environment of every build: no path, time, locale or user of this machine."""
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True,
                             check=True).stdout.strip()
    # The standard library's sources, where the toolchain has them.
    maps = [(str(ROOT), "/sanderling"), (home, "/cargo"), (sysroot, "/rust")]
    flags = [f"--remap-path-prefix={path}={shown}" for path, shown in maps]
    # The objects of C, of which ring has some.
    c_flags = [f"-ffile-prefix-map={path}={shown}" for path, shown in maps]
    return os.environ | {
        "SOURCE_DATE_EPOCH": str(epoch()),
        "CARGO_TARGET_DIR": str(TARGET),
        "CARGO_INCREMENTAL": "0",
        "RUSTFLAGS": " ".join(flags),
        "CFLAGS": " ".join(c_flags),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PATH": f"{VENV}:{os.environ['PATH']}",
    }


def build_crate(*arguments: str) -> None:
    """Compiles a package of the workspace against the old glibc.

    Without the commit's moment, which no program carries: cargo would build C and what needs it
    anew after every commit.
    """
    without = {key: value for key, value in environment().items() if key != "SOURCE_DATE_EPOCH"}
    run(["cargo", "zigbuild", "--locked", "--release", "--target", f"{TRIPLE}.{GLIBC}",
         *arguments], env=without)


def run(command: list[str], **more) -> None:
    """Runs a command in the environment of builds; ends the program if it fails."""
    shown = " ".join(command)
    print(f"    {shown if len(shown) < 90 else shown[:87] + '...'}", flush=True)
    arguments = {"cwd": ROOT, "env": environment()} | more
    code = subprocess.run(command, **arguments).returncode
    if code:
        raise SystemExit(f"exit code {code}: {shown}")
