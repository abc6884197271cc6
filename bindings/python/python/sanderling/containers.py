"""What multifiles and tables offer beside what they share with those of asyncio."""

from __future__ import annotations

import io
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any

from sanderling.errors import Closed, NoSuchKey, NotFound

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.files import Timed
    from sanderling.store import Store

__all__ = ["KEYS_AT_ONCE", "STREAM_BUFFER_BYTES"]

STREAM_BUFFER_BYTES = 256 << 10
"""What small reads of a stream are served from."""

KEYS_AT_ONCE = 1000
"""Values that iterating over a table reads in one call."""


class Parts:
    """The parts of a multifile, one by one and as one stream."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = path

    def __iter__(self) -> Iterator[tuple[str, Buffer]]:
        """Yields each part's name and bytes, in the order of names."""
        for part in self._store.list(self.path):
            if not part.is_container:
                yield part.name, self._store.get(below(self.path, part.name))

    def open(self, buffer_bytes: int = STREAM_BUFFER_BYTES) -> io.BufferedReader:
        """Opens all parts as one stream: a binary file that cannot seek.

        Parts created from now on are not in it. The next bytes are fetched while the caller
        works. A part that fails raises its error once; reading on goes on with the part after it.
        """
        native = self._store._client.stream(self.path)
        return io.BufferedReader(_Stream(native, self._store._run), buffer_bytes)


class Values(MutableMapping[str, Any]):
    """The values of a table as a mapping."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = path

    def __getitem__(self, key: str) -> Buffer:
        try:
            return self._store.get(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    def __setitem__(self, key: str, value: Any) -> None:
        self._store.put(below(self.path, key), value, kind="key_value")

    def __delitem__(self, key: str) -> None:
        try:
            self._store.delete(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(key) and "/" not in key and self._has(key)

    def __iter__(self) -> Iterator[str]:
        """Yields the keys in their order."""
        return (entry.name for entry in self._store.list(self.path))

    def __len__(self) -> int:
        return self._store.stat(self.path).entries

    def items(self) -> ItemsView[str, Buffer]:
        """Returns keys and values. Iterating reads a thousand values per call."""
        return _Items(self)

    def values(self) -> ValuesView[Buffer]:
        """Returns the values. Iterating reads a thousand per call."""
        return _Values(self)

    def _has(self, key: str) -> bool:
        return self._store.exists(below(self.path, key))

    def _pairs(self) -> Iterator[tuple[str, Buffer]]:
        keys = list(self)
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            paths = [below(self.path, key) for key in some]
            for key, value in zip(some, self._store.get_many(paths, return_errors=True)):
                # It was deleted after it was listed.
                if isinstance(value, NotFound):
                    continue
                if isinstance(value, Exception):
                    raise value
                yield key, value


class _Items(ItemsView[str, Any]):
    _mapping: Values

    def __iter__(self) -> Iterator[tuple[str, Buffer]]:
        return self._mapping._pairs()


class _Values(ValuesView[Any]):
    _mapping: Values

    def __iter__(self) -> Iterator[Buffer]:
        return (value for _, value in self._mapping._pairs())


def missing(key: str, error: NotFound) -> NoSuchKey:
    """Returns the error of a key that does not exist."""
    no_key = NoSuchKey(str(error))
    no_key.kind, no_key.recovery, no_key.path = error.kind, error.recovery, error.path
    no_key.errno, no_key.key = error.errno, key
    return no_key


class _Stream(io.RawIOBase):
    """The bytes of all parts, as they come."""

    def __init__(self, native: _sanderling.Stream, timed: Timed) -> None:
        self._native: _sanderling.Stream | None = native
        self._timed = timed
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self._native is None:
            raise Closed("the stream is closed")
        if not self._piece:
            found = self._timed("read", None, self._next)
            if not found:
                return 0
            self._piece = memoryview(found)
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._piece))
        view[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def close(self) -> None:
        self._native = None
        self._piece = memoryview(b"")
        super().close()

    def _next(self) -> Buffer | bytes:
        assert self._native is not None
        # A part may be empty; the stream is not at its end then.
        while (piece := self._native.next()) is not None:
            if piece:
                return piece
        return b""


def below(path: str, name: str) -> str:
    """Returns the path of a name in a directory; raises `TypeError` or `ValueError`."""
    if not isinstance(name, str):
        raise TypeError(f"a name is str, not {type(name).__name__}")
    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name: it is empty or has a slash")
    return f"{path.rstrip('/')}/{name}"
