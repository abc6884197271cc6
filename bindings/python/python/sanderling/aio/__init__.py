"""Sanderling for asyncio: the same store, whose methods are awaited.

    import sanderling.aio

    async with sanderling.aio.connect("127.0.0.1:7600") as store:
        await store.put("/hello", b"world")
        assert await store.get("/hello") == b"world"

Thousands of calls may be under way at once: no thread waits for any of them. A call whose task is
cancelled is given up, and nothing half-written stays.
"""

from sanderling.aio.connection import connect
from sanderling.aio.files import AsyncReader, AsyncWriter
from sanderling.aio.objects import AsyncJobScope, AsyncMultifile, AsyncTable
from sanderling.aio.store import AsyncStore

__all__ = [
    "AsyncJobScope",
    "AsyncMultifile",
    "AsyncReader",
    "AsyncStore",
    "AsyncTable",
    "AsyncWriter",
    "connect",
]
