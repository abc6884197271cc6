"""The crates of the Rust client, as `cargo package` makes and verifies them."""

import os
import shutil

from tree import DIST, ROOT, epoch, run, version

# What an application is linked with, in the order in which one needs the other.
CRATES = ("sanderling-protocol", "sanderling-core", "sanderling-transport", "sanderling-client",
          "sanderling-object-store")
# The usual target directory: no compiled byte is in an archive, and what `cargo test` has compiled
# is not compiled again.
TARGET = ROOT / "target"


def make() -> None:
    """Packs the crates. cargo builds each from its archive, with the others as from a registry."""
    words = [word for crate in CRATES for word in ("--package", crate)]
    without = {"RUSTFLAGS", "CFLAGS"}
    plain = {key: value for key, value in os.environ.items() if key not in without}
    run(["cargo", "package", "--quiet", "--locked", "--allow-dirty", *words],
        env=plain | {"CARGO_TARGET_DIR": str(TARGET), "SOURCE_DATE_EPOCH": str(epoch())})
    (DIST / "crates").mkdir(parents=True, exist_ok=True)
    for crate in CRATES:
        name = f"{crate}-{version()}.crate"
        shutil.copyfile(TARGET / "package" / name, DIST / "crates" / name)
