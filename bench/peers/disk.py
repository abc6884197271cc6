"""fio, and a bound on the page cache that holds for both sides."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from goal import Unavailable
from peers import packages
from world import run

CGROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def little_cache(limit_bytes: int) -> Iterator[list[str]]:
    """Yields words before a command that keep it, with its page cache, within so much memory.

    A file that is larger is then read from the disk, however often it is read.
    Raises `Unavailable` where no control group can be made.
    """
    is_first = (CGROUPS / "memory").is_dir()
    parent = CGROUPS / "memory" if is_first else CGROUPS
    limit = "memory.limit_in_bytes" if is_first else "memory.max"
    group = parent / f"sanderling-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_bytes))
    except OSError as error:
        raise Unavailable(f"the page cache cannot be bounded: {error}: run as root") from error
    try:
        script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        yield ["sh", "-c", script, "sh"]
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


@contextlib.contextmanager
def file_of(path: Path, size: int) -> Iterator[Path]:
    """Makes a file that fio can read."""
    piece = os.urandom(1 << 20)
    try:
        with open(path, "wb") as file:
            for _ in range(size >> 20):
                file.write(piece)
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def read_bytes_per_second(prefix: list[str], path: Path, depth: int, seconds: int) -> float:
    """Reads a file from begin to end in blocks of 1 MiB, past the page cache, again and again."""
    job = ["--name=read", f"--filename={path}", "--rw=read", "--bs=1M", "--ioengine=libaio"]
    job += [f"--iodepth={depth}", "--direct=1", "--time_based", f"--runtime={seconds}"]
    text = run([*prefix, packages.program("fio"), *job, "--output-format=json"])
    # It may print remarks before the document.
    return json.loads(text[text.index("{") :])["jobs"][0]["read"]["bw_bytes"]
