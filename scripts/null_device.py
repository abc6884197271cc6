"""The device /dev/null, which a program that root runs may replace by a plain file."""

import os
import stat
from pathlib import Path


def null_device_is_whole() -> bool:
    """Returns whether /dev/null is a device.

    A program that root lets replace its output by a rename leaves a plain file there, and from then
    on every program that reads nothing reads what others threw away: cargo fails in odd places.
    """
    try:
        return stat.S_ISCHR(os.stat("/dev/null").st_mode)
    except FileNotFoundError:
        return False


def mend_null_device() -> None:
    """Makes the device /dev/null anew where this may: root in a container."""
    if os.geteuid() == 0:
        Path("/dev/null").unlink(missing_ok=True)
        os.mknod("/dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod("/dev/null", 0o666)
