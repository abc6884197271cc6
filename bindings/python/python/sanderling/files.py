"""File objects over the store's objects."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from sanderling.arguments import Progress, pairs, whole
from sanderling.errors import Closed
from sanderling.metadata import Stat

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer

READ_BUFFER_BYTES = 64 << 10
"""What a small read fetches: lines and headers come from memory, and a Parquet footer's neighbours
cost no more than the round trip itself."""

WRITE_BUFFER_BYTES = 256 << 10
"""Small writes are gathered to this size; larger ones go through as they are."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Timed(Protocol):
    """Makes a call for data, and reports it to an observer: its kind and bytes come first."""

    def __call__(
        self,
        kind: str,
        size: int | None,
        call: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Returns what the call returns."""
        ...


class ObjectReader(io.BufferedIOBase):
    """Reads one object. It sees the bytes published when it was opened.

    Reads of `buffer_bytes` and more fetch exactly those bytes; smaller ones fill a buffer.
    """

    def __init__(
        self,
        native: _sanderling.Reader,
        stat: Stat,
        timed: Timed,
        buffer_bytes: int,
        progress: Progress | None = None,
    ) -> None:
        self._native = native
        self._timed = timed
        self._buffer_bytes = buffer_bytes
        self._progress = progress
        self._read_bytes = 0
        self._buffer = b""
        self._buffer_at = 0
        self._position = 0
        self.stat = stat
        self.size = native.bytes
        self.name = stat.path
        self.mode = "rb"

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position in bytes."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Sets the position, by its distance in bytes from `whence`, and returns it."""
        self._check()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if start is None:
            raise ValueError(f"whence is {whence}: 0, 1 or 2 is wanted")
        self._position = whole("the position", start + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads so many bytes, or all that are left. Raises `DataUnavailable`."""
        self._check()
        left = max(self.size - self._position, 0)
        size = left if size is None or size < 0 else min(size, left)
        data = self._bytes_at(self._position, size)
        self._position += len(data)
        self._went_on(len(data))
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """Reads so many bytes, or as many as the buffer holds, with one call."""
        return self.read(self._buffer_bytes or READ_BUFFER_BYTES if size < 0 else size)

    def readinto(self, buffer: Any, /) -> int:
        """Reads into a writable buffer from the position on, and returns how many bytes.

        Large reads go to their place at once; after an error the buffer's content is undefined.
        """
        self._check()
        view = memoryview(buffer).cast("B")
        if len(view) < self._buffer_bytes:
            data = self.read(len(view))
            view[: len(data)] = data
            return len(data)
        view = view[: max(self.size - self._position, 0)]
        count = self._timed("read", len(view), self._native.read_into, self._position, view)
        self._position += count
        self._went_on(count)
        return count

    readinto1 = readinto

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Reads many ranges, (offset, bytes) each, in one call per datanode."""
        self._check()
        wanted = pairs(ranges)
        total = sum(length for _, length in wanted)
        return self._timed("read", total, self._native.read_ranges, wanted)

    def view(self, offset: int = 0, length: int | None = None) -> Buffer:
        """Returns bytes from `offset`, to the end or `length` of them, without copying them.

        It uses neither the position nor the file's own buffer, and does not look the object's name
        up again: for many reads of one object this is the fastest.
        """
        self._check()
        start = whole("the offset", offset)
        size = max(self.size - start, 0) if length is None else whole("the length", length)
        return self._timed("read", size, self._native.view, start, size)

    def close(self) -> None:
        """Closes the file; does nothing the second time."""
        self._buffer = b""
        super().close()

    def _bytes_at(self, offset: int, size: int) -> bytes:
        if size == 0:
            return b""
        if size >= self._buffer_bytes:
            return self._timed("read", size, self._native.read_range, offset, size)
        start = offset - self._buffer_at
        if start < 0 or start + size > len(self._buffer):
            fetched = min(self._buffer_bytes, self.size - offset)
            self._buffer = self._timed("read", fetched, self._native.read_range, offset, fetched)
            self._buffer_at = offset
            start = 0
        return self._buffer[start : start + size]

    def _went_on(self, count: int) -> None:
        self._read_bytes += count
        if self._progress is not None and count:
            self._progress(self._read_bytes)

    def _check(self) -> None:
        if self.closed:
            raise Closed("the file is closed")


class ObjectWriter(io.BufferedIOBase):
    """Writes one object, which appears, or replaces an older one, when it is closed.

    Left by an exception in a `with` block, or dropped without `close`, it commits nothing.
    """

    def __init__(
        self,
        native: _sanderling.Writer,
        path: str,
        mode: str,
        timed: Timed,
        autocommit: bool,
        progress: Progress | None = None,
    ) -> None:
        self._native = native
        self._timed = timed
        self._progress = progress
        self._sent_bytes = 0
        self._buffer = bytearray()
        self._autocommit = autocommit
        self._is_open = True
        self._position = native.position
        self.name = path
        self.mode = mode
        self.stat: Stat | None = None
        self.after_end: Callable[[], None] | None = None
        """Is called once the object is sealed or discarded."""

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position in bytes."""
        return self._position

    def write(self, data: Any, /) -> int:
        """Takes anything with a contiguous buffer, and returns its length in bytes."""
        self._check()
        view = memoryview(data).cast("B")
        if self._buffer and len(self._buffer) + len(view) > WRITE_BUFFER_BYTES:
            self._send(self._take())
        if len(view) >= WRITE_BUFFER_BYTES:
            self._send(view)
        else:
            self._buffer += view
        self._position += len(view)
        return len(view)

    def set_attribute(self, name: str, text: str) -> None:
        """Sets a text that is kept beside the bytes from the close on."""
        self._check()
        self._native.set_attribute(name, text)

    def flush(self) -> None:
        """Sends what is buffered. In the modes xb and ab others can read it when this returns."""
        if self._is_open and not self.closed:
            self._send(self._take())
            self._timed("write", 0, self._native.flush)

    def close(self) -> None:
        """Sends the rest and seals the object."""
        if self.closed:
            return
        try:
            if self._is_open:
                self._send(self._take())
                if self._autocommit:
                    self.commit()
        except BaseException:
            self.abort()
            raise
        finally:
            self._mark_closed()

    def commit(self) -> None:
        """Seals the object. For writers opened with `autocommit=False`, after `close`."""
        if self._is_open:
            try:
                self.stat = Stat.of(self._timed("seal", 0, self._native.close))
            finally:
                self._ended()
            self._is_open = False

    def abort(self) -> None:
        """Discards the object: nothing of it stays, and an older one of that name is untouched."""
        if self._is_open:
            self._is_open = False
            self._buffer.clear()
            try:
                self._native.abort()
            finally:
                self._ended()
        self._mark_closed()

    discard = abort

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False) and self._autocommit:
            abort_dropped(self)

    def _dealloc_warn(self, _source: object) -> None:
        # Wrappers of `io` call this when they are dropped unclosed, before they close this file:
        # those of other packages, too, such as the text files of `fsspec.open`.
        if self._is_open and not self.closed:
            abort_dropped(self)

    def _ended(self) -> None:
        if self.after_end is not None:
            self.after_end()

    def _take(self) -> bytes:
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _send(self, data: Any) -> None:
        if not len(data):
            return
        self._timed("write", len(data), self._native.write, data)
        if self._progress is not None:
            self._sent_bytes += len(data)
            try:
                self._progress(self._sent_bytes)
            except BaseException:
                self.abort()
                raise

    def _mark_closed(self) -> None:
        # The base class's close() would flush: whatever has to be sent has been sent.
        self._buffer.clear()
        if not self.closed:
            is_open, self._is_open = self._is_open, False
            super().close()
            self._is_open = is_open

    def _check(self) -> None:
        if self.closed or not self._is_open:
            raise Closed("the file is closed")


class Abortable(Protocol):
    """A file that is written, or discarded as a whole."""

    name: str

    def abort(self) -> None:
        """Discards the object."""
        ...


def abort_dropped(file: Abortable) -> None:
    """Aborts a writer that was dropped unclosed, and warns of that."""
    # First: the warning may be an error.
    with contextlib.suppress(Exception):  # No caller is left, and the lease ends by itself.
        file.abort()
    warnings.warn(f"{file.name} was dropped unclosed and discarded", ResourceWarning, 3)


class _TextWriter(io.TextIOWrapper):
    """Text over an `ObjectWriter`; an exception in its `with` block commits nothing either."""

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.buffer.abort()  # type: ignore[attr-defined]
        super().__exit__(kind, *rest)

    def __del__(self) -> None:
        # The base class would close the file, which seals what was written so far.
        if not self.closed:
            abort_dropped(self.buffer)  # type: ignore[arg-type]


def as_text(
    file: ObjectReader | ObjectWriter,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> io.TextIOWrapper:
    """Wraps a binary file for text."""
    kind = _TextWriter if file.writable() else io.TextIOWrapper
    return kind(file, encoding or "utf-8", errors, newline)
