"""A real cluster, small tables of TPC-DS, and a filesystem whose node leaves meanwhile."""

from __future__ import annotations

import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import sanderling
from sanderling.fs import SanderlingFileSystem

DRAM_BYTES = 128 << 20
DEADLINE_SECONDS = 60.0
SCALE = "0.05"
TABLES = ("store_sales", "item", "store")

_directories = count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[sanderling.Cluster]:
    with sanderling.Cluster.local(datanodes=3, dram_bytes=DRAM_BYTES) as cluster:
        yield cluster


@pytest.fixture
def own_cluster() -> Iterator[sanderling.Cluster]:
    """A cluster for a test that takes nodes away."""
    with sanderling.Cluster.local(datanodes=3, dram_bytes=DRAM_BYTES) as cluster:
        yield cluster


@pytest.fixture
def store(cluster: sanderling.Cluster) -> Iterator[sanderling.Store]:
    with cluster.store() as store:
        yield store


@pytest.fixture
def directory(store: sanderling.Store) -> Iterator[str]:
    """An empty directory that goes with its test."""
    path = f"/interop-{next(_directories)}"
    store.mkdir(path)
    yield path
    store.delete(path, recursive=True)


@pytest.fixture
def filesystem(cluster: sanderling.Cluster) -> SanderlingFileSystem:
    return SanderlingFileSystem(address=cluster.address)


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


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds and returns its value; fails at a deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {DEADLINE_SECONDS} s")
        time.sleep(0.01)
    return value
