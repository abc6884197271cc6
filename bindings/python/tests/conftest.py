"""A real cluster for the tests: one namenode, three datanodes, each a process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count

import pytest
from cluster_fixtures import cluster, filesystem, own_cluster, store  # noqa: F401

import sanderling

DRAM_BYTES = 64 << 20

_directories = count()


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """There are no contexts of the user."""
    os.environ["SANDERLING_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def dram_bytes() -> int:
    """The memory of each datanode."""
    return DRAM_BYTES


@pytest.fixture
def directory(store: sanderling.Store) -> Iterator[str]:
    """An empty directory of the test's own. What is in it goes with the test."""
    path = f"/test-{next(_directories)}"
    store.mkdir(path)
    yield path
    with contextlib.suppress(sanderling.NotFound):
        store.delete(path, recursive=True)


def is_running(pid: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
