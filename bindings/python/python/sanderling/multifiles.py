"""Multifiles: many writers, read as one stream or part by part."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from sanderling.arguments import PutOptions
from sanderling.errors import Closed
from sanderling.facts import Deleted, Entry, Stat

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.files import ObjectReader, ObjectWriter, Timed
    from sanderling.store import Store

STREAM_BUFFER_BYTES = 256 << 10
"""What small reads of a stream are served from."""


class Multifile:
    """An object of many parts, each written by a writer of its own, wherever that runs.

    Made by `Store.multifile`. Parts are read in the order of their names. Many processes may write
    parts at the same time; each part appears when its writer is closed.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = path

    def __repr__(self) -> str:
        return f"<sanderling.Multifile {self.path}>"

    def __iter__(self) -> Iterator[tuple[str, Buffer]]:
        """Yields each part's name and bytes, in the order of names."""
        for part in self.parts():
            yield part.name, self.get(part.name)

    def part(self, name: str, **options: Unpack[PutOptions]) -> ObjectWriter:
        """Creates a part and returns its writer, a binary file.

        Raises `Exists` when there is a part of this name, unless `replace=True`. Options are those
        of `Store.put`.
        """
        mode = "wb" if options.pop("replace", False) else "xb"
        writer: ObjectWriter = self._store.open(self._path(name), mode, **options)
        return writer

    def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole part from anything with a contiguous buffer, as `Store.put` does."""
        return self._store.put(self._path(name), data, **options)

    def get(self, name: str) -> Buffer:
        """Reads a whole part."""
        return self._store.get(self._path(name))

    def open_part(self, name: str) -> ObjectReader:
        """Opens a part for reading, as a binary file."""
        reader: ObjectReader = self._store.open(self._path(name))
        return reader

    def parts(self) -> list[Entry]:
        """Lists the parts in the order of their names: `bytes`, `is_sealed` and so on of each."""
        return [part for part in self._store.list(self.path) if not part.is_container]

    def open(self, buffer_bytes: int = STREAM_BUFFER_BYTES) -> io.BufferedReader:
        """Opens all parts as one stream: a binary file that cannot seek.

        Parts created from now on are not in it. The next bytes are on their way while the caller
        works. A part that fails raises its error once; reading on goes on with the part after it.
        """
        native = self._store._client.stream(self.path)
        return io.BufferedReader(_Stream(native, self._store._timed), buffer_bytes)

    def delete(self) -> Deleted:
        """Deletes the multifile with all its parts."""
        return self._store.delete(self.path, recursive=True)

    def _path(self, name: str) -> str:
        return below(self.path, name)


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
