"""Open objects, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import io
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from sanderling.arguments import Progress, pairs, whole
from sanderling.errors import Closed
from sanderling.metadata import Stat
from sanderling.files import WRITE_BUFFER_BYTES, Arguments, Result

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer

STREAM_BYTES = 1 << 20
"""What one step of iterating over an open object reads."""


class Run(Protocol):
    """Makes a call for data, and reports it to an observer: its kind and bytes come first."""

    async def __call__(
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


class AsyncReader:
    """Reads one object. It sees the bytes published when it was opened.

    Iterated over, it yields the rest of the object in pieces of 1 MiB.
    """

    def __init__(
        self, native: _sanderling.Reader, run: Run, progress: Progress | None = None
    ) -> None:
        self._native = native
        self._run = run
        self._progress = progress
        self._read_bytes = 0
        self._position = 0
        self.stat = Stat.of(native.stat)
        """The object's metadata as it was opened."""
        self.size = native.bytes
        """Its bytes."""
        self.name = self.stat.path
        self.closed = False

    async def __aenter__(self) -> AsyncReader:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        while self._position < self.size:
            length = min(STREAM_BYTES, self.size - self._position)
            piece = await self.view(self._position, length)
            self._position += length
            self._went_on(length)
            yield piece

    def tell(self) -> int:
        """Returns the offset of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the offset of the next read, and returns it. It sends no request."""
        self._check()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if start is None:
            raise ValueError(f"whence is {whence}: 0, 1 or 2 is wanted")
        self._position = whole("the position", start + offset)
        return self._position

    async def read(self, size: int | None = -1) -> bytes:
        """Reads up to `size` bytes, or all that are left, from the position on."""
        self._check()
        left = max(self.size - self._position, 0)
        count = left if size is None or size < 0 else min(size, left)
        if count == 0:
            return b""
        data = await self._run("read", count, self._native.read_range, self._position, count)
        self._position += len(data)
        self._went_on(len(data))
        return data

    async def readinto(self, buffer: Any) -> int:
        """Reads into a writable buffer from the position on; returns how many bytes there were.

        The buffer must not be used until this returns. After a cancelled read its content is
        undefined.
        """
        self._check()
        size = memoryview(buffer).nbytes
        count = await self._run("read", size, self._native.read_into, self._position, buffer)
        self._position += count
        self._went_on(count)
        return count

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Reads many ranges, (offset, bytes) each, in one call per datanode."""
        self._check()
        wanted = pairs(ranges)
        total = sum(length for _, length in wanted)
        return await self._run("read", total, self._native.read_ranges, wanted)

    async def view(self, offset: int = 0, length: int | None = None) -> Buffer:
        """Returns bytes from `offset`, to the end or `length` of them, without copying them."""
        self._check()
        start = whole("the offset", offset)
        size = max(self.size - start, 0) if length is None else whole("the length", length)
        return await self._run("read", size, self._native.view, start, size)

    async def close(self) -> None:
        """Lets the object go. Later reads raise `Closed`."""
        self.closed = True

    def _went_on(self, count: int) -> None:
        self._read_bytes += count
        if self._progress is not None and count:
            self._progress(self._read_bytes)

    def _check(self) -> None:
        if self.closed:
            raise Closed("the file is closed")


class AsyncWriter:
    """Writes one object, which appears, or replaces an older one, when it is closed.

    Left by an exception in an `async with` block, dropped without `close`, or cancelled in a write,
    it commits nothing. After a call that was cancelled, every further one but `abort` raises
    `Closed`. If that call was `close` or `commit`, the object may be sealed nevertheless.
    """

    def __init__(
        self,
        native: _sanderling.Writer,
        path: str,
        run: Run,
        autocommit: bool,
        progress: Progress | None = None,
    ) -> None:
        self._native = native
        self._run = run
        self._progress = progress
        self._sent_bytes = 0
        self._autocommit = autocommit
        self._buffer = bytearray()
        self._is_open = True
        self._was_given_up = False
        self._position = native.position
        self.name = path
        self.closed = False
        self.stat: Stat | None = None
        """The object's metadata, once it is sealed."""

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False) and self._autocommit:
            warnings.warn(f"{self.name} was dropped unclosed and discarded", ResourceWarning, 2)

    def tell(self) -> int:
        """Returns how many bytes the object will have, with those given so far."""
        return self._position

    async def write(self, data: Any) -> int:
        """Writes bytes at the end, and returns how many. They are copied."""
        self._check()
        view = memoryview(data).cast("B")
        if self._buffer and len(self._buffer) + len(view) > WRITE_BUFFER_BYTES:
            await self._send(self._take())
        if len(view) >= WRITE_BUFFER_BYTES:
            await self._send(view)
        else:
            self._buffer += view
        self._position += len(view)
        return len(view)

    def set_attribute(self, name: str, text: str) -> None:
        """Sets a text that is kept beside the bytes from the close on. It sends no request."""
        self._check()
        self._native.set_attribute(name, text)

    async def flush(self) -> None:
        """Sends what is buffered. In the modes xb and ab others can read it when this returns."""
        self._check()
        await self._send(self._take())
        await self._call("write", 0, self._native.flush)

    async def close(self) -> None:
        """Sends the rest and seals the object, unless it was opened with `autocommit=False`."""
        self._check_not_given_up()
        if self.closed:
            return
        self.closed = True
        try:
            await self._send(self._take())
            if self._autocommit:
                await self.commit()
        except BaseException:
            await self.abort()
            raise

    async def commit(self) -> None:
        """Seals the object. For writers opened with `autocommit=False`, after `close`."""
        self._check_not_given_up()
        if self._is_open:
            answer = await self._call("seal", 0, self._native.close)
            self.stat, self._is_open = Stat.of(answer), False

    async def abort(self) -> None:
        """Discards the object: nothing of it stays, and an older one of that name is untouched."""
        self.closed = True
        self._buffer.clear()
        if self._is_open:
            self._is_open = False
            await self._run("write", 0, self._native.abort)

    discard = abort

    def _take(self) -> bytes:
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def _send(self, data: Any) -> None:
        if not len(data):
            return
        await self._call("write", len(data), self._native.write, data)
        if self._progress is not None:
            self._sent_bytes += len(data)
            try:
                self._progress(self._sent_bytes)
            except BaseException:
                await self.abort()
                raise

    async def _call(
        self,
        kind: str,
        size: int,
        call: Callable[Arguments, Result],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call of the native writer, and gives the file up if it is cancelled.

        The call may have ended before that: then the writer has its bytes, and a caller that
        repeated it would write them twice.
        """
        try:
            return await self._run(kind, size, call, *given, **named)
        except asyncio.CancelledError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        self._was_given_up, self.closed, self._is_open = True, True, False
        self._buffer.clear()
        # It begins here, and no task awaits its end. If the store is closed, the lease ends.
        with contextlib.suppress(RuntimeError):
            self._native.abort()

    def _check(self) -> None:
        self._check_not_given_up()
        if self.closed or not self._is_open:
            raise Closed("the file is closed")

    def _check_not_given_up(self) -> None:
        if self._was_given_up:
            raise Closed(
                f"{self.name} was given up, because a call of its writer was cancelled: open it"
                " again, and write the whole"
            )
