"""What multifiles and tables offer to asyncio alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sanderling.containers import KEYS_AT_ONCE, below, missing
from sanderling.errors import NotFound

if TYPE_CHECKING:
    from sanderling._sanderling import Buffer
    from sanderling.aio.store import AsyncStore

__all__: list[str] = []


class Parts:
    """The parts of a multifile as one stream."""

    def __init__(self, store: AsyncStore, path: str) -> None:
        self._store = store
        self.path = path

    async def stream(self) -> AsyncIterator[Buffer]:
        """Yields the bytes of all parts, one after the other, a few MiB at a time.

        Parts created from now on are not in it. A part that fails raises its error.
        """
        native = await self._store._call(self._store._client.stream, self.path)
        while (piece := await self._store._run("read", None, native.next)) is not None:
            if piece:
                yield piece


class Values:
    """The values of a table."""

    def __init__(self, store: AsyncStore, path: str) -> None:
        self._store = store
        self.path = path

    async def get(self, key: str) -> Buffer:
        """Returns a value; raises `errors.NoSuchKey`, which is a `KeyError`."""
        try:
            return await self._store.get(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    async def contains(self, key: str) -> bool:
        """Returns whether the key exists."""
        return await self._store.exists(below(self.path, key))

    async def keys(self) -> list[str]:
        """Lists the keys in their order."""
        return [entry.name for entry in await self._store.list(self.path)]

    async def items(self) -> AsyncIterator[tuple[str, Buffer]]:
        """Yields keys and values, and reads a thousand values per call."""
        keys = await self.keys()
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            paths = [below(self.path, key) for key in some]
            values = await self._store.get_many(paths, return_errors=True)
            for key, value in zip(some, values):
                # It was deleted after it was listed.
                if isinstance(value, NotFound):
                    continue
                if isinstance(value, Exception):
                    raise value
                yield key, value

    async def remove(self, key: str) -> None:
        """Deletes a value; raises `errors.NoSuchKey`."""
        try:
            await self._store.delete(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None
