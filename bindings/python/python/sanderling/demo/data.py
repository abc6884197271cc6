"""The tables: generated once, then kept in the cache directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from sanderling import SanderlingError, Store

TABLES_DIRECTORY = "/tpcds"

_COPY_BYTES = 4 << 20


class MissingTool(Exception):
    """Something that the demo needs is not installed."""


def generate(scale: float, cache: Path) -> list[Path]:
    """Returns the tables' Parquet files, made by tpcgen-cli if they are not there."""
    directory = cache / f"scale-{scale:g}"
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = [_tpcgen(), "tpcds", "parquet", "--scale-factor", f"{scale:g}"]
        command += ["--output-dir", str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingTool(f"tpcgen-cli failed: {done.stderr.strip()[-500:]}")
        (directory / "complete").touch()
    return sorted(directory.glob("*.parquet"))


def load(store: Store, tables: list[Path]) -> int:
    """Copies the tables into the store and returns their bytes."""
    store.mkdir(TABLES_DIRECTORY, parents=True)
    total = 0
    for table in tables:
        with table.open("rb") as source, store.open(table_path(table), "wb") as target:
            while data := source.read(_COPY_BYTES):
                target.write(data)
                total += len(data)
    return total


def differing(store: Store, tables: list[Path]) -> list[str]:
    """Reads every table back and returns a problem for each that differs from its local file."""
    problems = []
    for table in tables:
        try:
            if not _is_same(store, table):
                problems.append(f"{table.name} differs from the local file")
        except SanderlingError as error:
            problems.append(f"{table.name}: {type(error).__name__}: {error}")
    return problems


def table_path(table: Path) -> str:
    """Returns a table's path in the store."""
    return f"{TABLES_DIRECTORY}/{table.name}"


def _is_same(store: Store, table: Path) -> bool:
    with table.open("rb") as local, store.open(table_path(table)) as remote:
        while True:
            wanted, found = local.read(_COPY_BYTES), remote.read(_COPY_BYTES)
            if wanted != found:
                return False
            if not wanted:
                return True


def _tpcgen() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "tpcgen-cli"
    found = str(beside) if beside.exists() else shutil.which("tpcgen-cli")
    if not found:
        raise MissingTool(
            f"tpcgen-cli is not installed: {sys.executable} -m pip install 'sanderling[demo]'"
        )
    return found
