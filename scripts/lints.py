"""Lets one compilation also be the check of clippy, for test.py."""

import functools
import os
import subprocess
from pathlib import Path


@functools.cache
def lints_of_builds() -> dict[str, str]:
    """Returns the environment in which cargo compiles our crates with clippy's driver, if in CI.

    It compiles as the compiler does, and refuses what clippy finds: each crate is read once for
    both. Elsewhere a build by hand would compile all of them again.
    """
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True)
    driver = Path(found.stdout.strip()) / "bin" / "clippy-driver"
    if "CI" not in os.environ or not driver.is_file():
        return {}
    # As `cargo clippy -- -D warnings` passes it on.
    arguments = "".join(f"{one}__CLIPPY_HACKERY__" for one in ("-D", "warnings"))
    return {"RUSTC_WORKSPACE_WRAPPER": str(driver), "CLIPPY_ARGS": arguments}
