"""A real cluster for the tests: one namenode, three datanodes, each a process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import sanderling
from sanderling.fs import SanderlingFileSystem

DRAM_BYTES = 64 << 20

DEADLINE_SECONDS = 60.0

_directories = count()


@pytest.fixture(scope="session", autouse=True)
def no_contexts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """There are no contexts of the user."""
    os.environ["SANDERLING_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[sanderling.Cluster]:
    """One cluster for all tests that leave its nodes alone."""
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
    """An empty directory of the test's own. What is in it goes with the test."""
    path = f"/test-{next(_directories)}"
    store.mkdir(path)
    yield path
    with contextlib.suppress(sanderling.NotFound):
        store.delete(path, recursive=True)


@pytest.fixture
def filesystem(cluster: sanderling.Cluster) -> SanderlingFileSystem:
    return SanderlingFileSystem(address=cluster.address)


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds and returns its value; fails at a deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {DEADLINE_SECONDS} s")
        time.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
