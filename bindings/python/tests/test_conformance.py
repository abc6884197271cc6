"""conformance/semantics.toml through the package, fsspec and HTTP, on one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from conformance_calls import AsyncFiles, Calls, Files, Http, ManyCalls
from table import SEMANTICS, WRONG, run

import sanderling
import sanderling.aio
from sanderling.fs import SanderlingFileSystem

DRAM_BYTES = 64 << 20


@pytest.fixture(scope="module")
def nodes() -> Iterator[sanderling.Cluster]:
    """A cluster of its own: cases take nodes away and give them back."""
    with sanderling.Cluster.local(datanodes=3, dram_bytes=DRAM_BYTES) as cluster:
        yield cluster


@pytest.fixture
def both(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Any], Awaitable[None]]:
    """Runs the table, and the wrong cases, which must all fail."""

    async def run_both(name: str, interface: Any) -> None:
        report = await run(SEMANTICS, name, interface)
        with capsys.disabled():
            print(f"\n{report}")
        report.check()
        (await run(WRONG, name, interface)).check_all_fail()

    return run_both


def test_store_answers_as_the_table_requires(nodes, both):
    with nodes.store() as store:
        asyncio.run(both("python", Calls(store)))


def test_calls_of_many_objects_answer_as_the_table_requires(nodes, both):
    with nodes.store() as store:
        asyncio.run(both("many", ManyCalls(store)))


def test_store_for_asyncio_answers_as_the_table_requires(nodes, both):
    async def main() -> None:
        async with sanderling.aio.connect(nodes.address) as store:
            await both("asyncio", Calls(store))

    asyncio.run(main())


def test_filesystem_answers_as_the_table_requires(nodes, both):
    asyncio.run(both("fsspec", Files(SanderlingFileSystem(address=nodes.address))))


def test_coroutines_of_the_filesystem_answer_as_the_table_requires(nodes, both):
    async def main() -> None:
        fs = SanderlingFileSystem(address=nodes.address, asynchronous=True)
        await both("fsspec_async", AsyncFiles(fs))

    asyncio.run(main())


def test_http_answers_as_the_table_requires(nodes, both):
    asyncio.run(both("http", Http(nodes)))
