"""The Python package: a wheel for glibc 2.28 and later, and the source that builds one."""

import os
import sys

import sbom
import wheel_paths
from tree import DIST, GLIBC, ROOT, TRIPLE, VENV, environment, run, version

MANIFEST = "bindings/python/Cargo.toml"
# WHEEL_PROFILE=release shares its crates with the program: made sooner, and larger.
PROFILE = os.environ.get("WHEEL_PROFILE", "wheel")


def write_licences() -> None:
    """Writes the licences of what the module is linked with to where pyproject.toml has them."""
    run([sys.executable, "scripts/licences.py", "write", "sanderling-python",
         "bindings/python/THIRD-PARTY.txt"])


def make_wheel(triple: str = TRIPLE, env: dict[str, str] | None = None) -> None:
    """Makes the wheel. The measuring commands are not in it: their package is the source.

    The environment is that of builds, unless the wheel is for another machine.
    """
    write_licences()
    tag = "manylinux_" + GLIBC.replace(".", "_")
    run([str(VENV / "maturin"), "build", "--quiet", "--locked", "--zig", "--target", triple,
         "--compatibility", tag, "--profile", PROFILE, "--compression-level", "9",
         "--manifest-path", MANIFEST, "--interpreter", str(VENV / "python"), "--out", str(DIST)],
        env=env or environment())
    for wheel in DIST.glob(f"sanderling-{version()}-*_{triple.partition('-')[0]}.whl"):
        wheel_paths.relocate(wheel, ROOT)
        run([str(VENV / "python"), "packaging/recompress.py", str(wheel)])
    name = f"sanderling-{version()}-py"
    sbom.write(DIST / f"{name}.cdx.json", "sanderling-python", "sanderling-python", "library")


def make_sdist() -> None:
    """Makes the source package."""
    write_licences()
    run([str(VENV / "maturin"), "sdist", "--manifest-path", MANIFEST, "--out",
         str(DIST)], cwd=ROOT)
