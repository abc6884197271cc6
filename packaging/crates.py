"""The crates of the Rust client, as `cargo package` makes and verifies them."""

import os
import shutil
from pathlib import Path

from tree import DIST, ROOT, epoch, run, version

# What an application is linked with, in the order in which one needs the other.
CRATES = ("sanderling-protocol", "sanderling-core", "sanderling-transport", "sanderling-client",
          "sanderling-object-store")
# A directory of its own: what was compiled of these crates is removed before each use.
TARGET = ROOT / "target" / "dist" / "crates"


def forget(home: Path, target: Path) -> None:
    """Removes what cargo keeps of these crates from an earlier run.

    cargo takes the others from a registry in the target directory, and takes for granted that a
    version in a registry never changes: it neither unpacks nor compiles it a second time.
    """
    # The name of a registry in a directory begins with the dash after the name of its host.
    for kind in ("src", "cache"):
        for crate in CRATES:
            for path in (home / "registry" / kind).glob(f"-*/{crate}-{version()}*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in target.glob("*/.fingerprint/sanderling-*"):
        shutil.rmtree(path)


def make() -> None:
    """Packs the crates. cargo builds each from its archive, with the others as from a registry."""
    forget(Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")), TARGET)
    words = [word for crate in CRATES for word in ("--package", crate)]
    without = {"RUSTFLAGS", "CFLAGS"}
    plain = {key: value for key, value in os.environ.items() if key not in without}
    run(["cargo", "package", "--quiet", "--locked", "--allow-dirty", *words],
        env=plain | {"CARGO_TARGET_DIR": str(TARGET), "SOURCE_DATE_EPOCH": str(epoch())})
    (DIST / "crates").mkdir(parents=True, exist_ok=True)
    for crate in CRATES:
        name = f"{crate}-{version()}.crate"
        shutil.copyfile(TARGET / "package" / name, DIST / "crates" / name)
