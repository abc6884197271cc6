"""A real cluster, small tables of TPC-DS, and a filesystem whose node leaves meanwhile."""

from __future__ import annotations

import subprocess
import sysconfig
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from cluster_fixtures import cluster, filesystem, own_cluster, store  # noqa: F401

import sanderling
from sanderling.fs import SanderlingFileSystem

DRAM_BYTES = 128 << 20
SCALE = "0.05"
TABLES = ("store_sales", "item", "store")

_directories = count()


@pytest.fixture(scope="session")
def dram_bytes() -> int:
    """The memory of each datanode."""
    return DRAM_BYTES


@pytest.fixture
def directory(store: sanderling.Store) -> Iterator[str]:
    """An empty directory that goes with its test."""
    path = f"/interop-{next(_directories)}"
    store.mkdir(path)
    yield path
    store.delete(path, recursive=True)


@pytest.fixture(scope="session")
def tpcds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with some tables of TPC-DS as Parquet files."""
    found = tmp_path_factory.mktemp("tpcds")
    tool = Path(sysconfig.get_path("scripts")) / "tpcgen-cli"
    command = [str(tool), "tpcds", "parquet", "--scale-factor", SCALE, "--output-dir", str(found)]
    subprocess.run([*command, f"--tables={','.join(TABLES)}"], check=True, timeout=600)
    return found


@pytest.fixture(scope="session")
def sales(tpcds: Path) -> pa.Table:
    """The table store_sales."""
    return pyarrow.parquet.read_table(tpcds / "store_sales.parquet")


def leaving(cluster: sanderling.Cluster, kind: str, after: int) -> SanderlingFileSystem:
    """Returns a filesystem that gives a node its notice in its so many-th call of a kind."""
    calls = count()
    given = threading.Event()

    def observe(which: str, *_: Any) -> None:
        if which == kind and next(calls) == after:
            cluster.notice(cluster.nodes()[0], deadline_seconds=30)
            given.set()

    filesystem = SanderlingFileSystem(store=cluster.store(observer=observe))
    filesystem.given = given
    return filesystem
