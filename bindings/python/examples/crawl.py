"""Thousands of small objects with asyncio: written, read and followed by one thread.

    python crawl.py [namenode's address]
"""

from __future__ import annotations

import asyncio
import sys

import sanderling
import sanderling.aio

PAGES = 2000


async def fetch(number: int) -> bytes:
    """Stands for a download."""
    await asyncio.sleep(0)
    return f"<html>page {number}</html>".encode()


async def run(address: str) -> int:
    """Keeps the pages for a minute, and returns how many bytes they have."""
    async with sanderling.aio.connect(address) as store:

        async def keep(number: int) -> None:
            path = f"/crawl/{number % 100}/{number}"
            await store.put(path, await fetch(number), parents=True, ttl=60)

        await asyncio.gather(*(keep(number) for number in range(PAGES)))
        total = 0
        async for path, entries in store.walk("/crawl"):
            names = [f"{path}/{entry.name}" for entry in entries if not entry.is_container]
            total += sum(len(page) for page in await store.get_many(names))
        await store.delete("/crawl", recursive=True)
        return total


def main() -> None:
    """Runs on a cluster that is there, or on one of its own."""
    if len(sys.argv) > 1:
        print(asyncio.run(run(sys.argv[1])))
    else:
        with sanderling.Cluster.local(datanodes=1, dram_bytes=64 << 20) as cluster:
            print(asyncio.run(run(cluster.address)))


if __name__ == "__main__":
    main()
