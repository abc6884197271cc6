"""Archives whose bytes depend on their content alone."""

import gzip
import hashlib
import tarfile
from pathlib import Path

from tree import epoch


def compress(content: bytes) -> bytes:
    """Returns the bytes as gzip makes them, without a name and a time."""
    return gzip.compress(content, compresslevel=9, mtime=0)


def pack(folder: Path, out: Path, prefix: str = "", owners: dict[str, int] | None = None) -> None:
    """Writes a folder as a tar archive, gzip'd if its name ends with gz.

    Entries are sorted, belong to root, or to the number that `owners` gives for a path and what is
    below it, and carry the moment of the commit.
    """
    moment = epoch()

    def settle(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        for path, owner in (owners or {}).items():
            if entry.name == path or entry.name.startswith(f"{path}/"):
                entry.uid = entry.gid = owner
        entry.uname = entry.gname = ""
        entry.mtime = moment
        return entry

    with out.open("wb") as raw:
        is_gzip = out.name.endswith("gz")
        sink = gzip.GzipFile("", "wb", 9, raw, mtime=0) if is_gzip else raw
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(folder.rglob("*")):
                name = f"{prefix}{path.relative_to(folder).as_posix()}"
                archive.add(path, name, recursive=False, filter=settle)
        if is_gzip:
            sink.close()


def sha256(path: Path) -> str:
    """Returns the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path) -> int:
    """Writes SHA256SUMS of all files of a folder, as `sha256sum -c` reads it; returns how many."""
    sums = folder / "SHA256SUMS"
    sums.unlink(missing_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    sums.write_text("".join(lines))
    return len(lines)
