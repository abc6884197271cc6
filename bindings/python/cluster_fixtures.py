"""Fixtures that the tests and the interop tests share: a real cluster and its store.

A conftest imports them, and has a fixture `dram_bytes` with the memory of each datanode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sanderling
from sanderling.fs import SanderlingFileSystem

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="session")
def cluster(dram_bytes: int) -> Iterator[sanderling.Cluster]:
    """One cluster for all tests that leave its nodes alone."""
    with sanderling.Cluster.local(datanodes=3, dram_bytes=dram_bytes) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(dram_bytes: int) -> Iterator[sanderling.Cluster]:
    """A cluster for a test that takes nodes away."""
    with sanderling.Cluster.local(datanodes=3, dram_bytes=dram_bytes) as cluster:
        yield cluster


@pytest.fixture
def store(cluster: sanderling.Cluster) -> Iterator[sanderling.Store]:
    with cluster.store() as store:
        yield store


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
