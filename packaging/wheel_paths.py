"""Removes the directory of the build from the bill of materials inside a wheel.

maturin names each crate of this repository by its path, so two builds in different directories
would differ, and the wheel would show where it was built.
"""

import base64
import hashlib
import zipfile
from pathlib import Path

# What stands for the directory of the build, as in the program (`tree.environment`).
IN_PLACE = "/sanderling"


def relocate(wheel: Path, root: Path) -> None:
    """Replaces the directory `root` in the bills of a wheel, and their lines in its record."""
    new = wheel.with_name(f"{wheel.name}.new")
    changed = {}
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(new, "w") as out:
        for info in archive.infolist():
            content = archive.read(info)
            if "/sboms/" in info.filename:
                content = content.replace(f"file://{root}/".encode(),
                                          f"file://{IN_PLACE}/".encode())
                changed[info.filename] = content
            elif info.filename.endswith(".dist-info/RECORD"):
                content = recorded(content.decode(), changed).encode()
            out.writestr(info, content)
    new.replace(wheel)


def recorded(record: str, changed: dict[str, bytes]) -> str:
    """Returns a record with the checksums and lengths of files that were changed."""
    lines = []
    for line in record.splitlines():
        name = line.partition(",")[0]
        if name in changed:
            digest = base64.urlsafe_b64encode(hashlib.sha256(changed[name]).digest())
            line = f"{name},sha256={digest.decode().rstrip('=')},{len(changed[name])}"
        lines.append(line)
    return "\n".join(lines) + "\n"
