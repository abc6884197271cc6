"""Debian's packages that builds and tests need: installed on a machine that was made for them."""

import os
import re
import shutil
import subprocess

# `build-essential`, and no address of another source.
DEBIAN = re.compile(r"[a-z0-9][a-z0-9.+-]+")


def install(packages: list[str]) -> bool:
    """Installs packages, as root on Debian with CI set; elsewhere the caller names them.

    Returns whether all of them are there now.
    """
    known = sorted({name for text in packages for name in text.split() if DEBIAN.fullmatch(name)})
    is_made_for_it = os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get")
    if not known or not is_made_for_it:
        return False
    words = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends",
             "-oDPkg::Lock::Timeout=60", *known]
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    print(f"    installing {' '.join(known)}", flush=True)
    if subprocess.run(words, env=env, capture_output=True).returncode == 0:
        return True
    subprocess.run(["apt-get", "update", "-qq"], env=env, capture_output=True)
    return subprocess.run(words, env=env, capture_output=True).returncode == 0
