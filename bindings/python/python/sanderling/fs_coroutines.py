"""The asynchronous half of the fsspec filesystem.

What data engines call thousands of at once (`_info`, `_exists`, `_cat_file`, `_pipe_file`) goes to
`sanderling.aio`, which needs no thread; the rest runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fsspec.asyn import AsyncFileSystem

from sanderling import aio
from sanderling.errors import Closed, NotADirectory, NotFound

if TYPE_CHECKING:
    from sanderling.aio import AsyncStore
    from sanderling.aio.entered import Entered
    from sanderling.metadata import Stat
    from sanderling.store import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Coroutines(AsyncFileSystem):
    """Awaits the filesystem's calls. Any number of event loops may use one filesystem: each has a
    connected store of its own, which goes when the loop is closed and another one connects.
    """

    # The synchronous methods are there by themselves: a call does not go through another thread.
    mirror_sync_methods = False

    if TYPE_CHECKING:
        # Implemented by the synchronous half.
        _shown: dict[str, Any]
        _of_loops: dict[asyncio.AbstractEventLoop, asyncio.Future[AsyncStore]]

        @property
        def store(self) -> Store: ...

        @staticmethod
        def _info_of(stat: Stat) -> dict[str, Any]: ...

        @staticmethod
        def _put_options(options: dict[str, Any]) -> dict[str, Any]: ...

        def _remove(self, path: Any, recursive: bool, maxdepth: int | None) -> None: ...

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        stat = await (await self._connected()).stat(self._strip_protocol(path))
        return self._info_of(stat)

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        return await _away(self.ls, path, detail, **options)

    async def _exists(self, path: str, **options: Any) -> bool:
        try:
            await self._info(path)
        except (NotADirectory, NotFound):
            return False
        return True

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Any:
        return await _away(self.find, path, maxdepth, withdirs, **options)

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, **options: Any
    ) -> Any:
        return await _away(self.du, path, total, maxdepth, **options)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        store, path = await self._connected(), self._strip_protocol(path)
        if start is None and end is None:
            return bytes(await store.get(path))
        async with store.open(path) as reader:
            begin, stop, _ = slice(start, end).indices(reader.size)
            return bytes(await reader.view(begin, max(stop - begin, 0)))

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        return await _away(self.cat, path, recursive, on_error, **options)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        return await _away(
            self.cat_ranges, paths, starts, ends, max_gap, on_error=on_error, **options
        )

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **options: Any
    ) -> None:
        if self._intrans:
            await _away(self.pipe_file, path, value, mode=mode, **options)
            return
        store, path = await self._connected(), self._strip_protocol(path)
        put = self._put_options(options)
        await store.put(path, value, replace=mode != "create", parents=True, **put)
        self.invalidate_cache(path)

    async def _pipe(
        self, path: Any, value: Any = None, batch_size: int | None = None, **options: Any
    ) -> None:
        await _away(self.pipe, path, value, **options)

    async def _connected(self) -> AsyncStore:
        """Returns the running loop's store, connected at its first use."""
        loop, stores = asyncio.get_running_loop(), self._of_loops
        made = stores.get(loop)
        if made is None:
            for each in [each for each in list(stores) if each.is_closed()]:
                _let_go(stores.pop(each, None))
            store = self.store
            connecting = aio.connect(store.address, observer=store._observer, **self._shown)
            made = stores[loop] = asyncio.ensure_future(_entered(connecting))
        try:
            # One caller's cancellation is not the others'.
            return await asyncio.shield(made)
        except Exception:
            stores.pop(loop, None)
            raise

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", **options: Any
    ) -> None:
        await _away(self.put_file, lpath, rpath, mode=mode, **options)

    async def _get_file(self, rpath: str, lpath: Any, **options: Any) -> None:
        await _away(self.get_file, rpath, lpath, **options)

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        await _away(self.cp_file, path1, path2, **options)

    async def _mv_file(self, path1: str, path2: str, **options: Any) -> None:
        await _away(self.mv_file, path1, path2, **options)

    async def _rm_file(self, path: str, **options: Any) -> None:
        await _away(self.rm_file, path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        await _away(self._remove, path, recursive, maxdepth)

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        await _away(self.mkdir, path, create_parents, **options)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await _away(self.makedirs, path, exist_ok)

    async def _rmdir(self, path: str) -> None:
        await _away(self.rmdir, path)

    async def _touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        await _away(self.touch, path, truncate, **options)

    async def _mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        await _away(self.mv, path1, path2, recursive, maxdepth)

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> AsyncFile:
        """Opens a file whose `read`, `write`, `seek` and `close` are awaited."""
        return AsyncFile(await _away(self.open, path, mode, **options))


class AsyncFile:
    """An open object whose calls are awaited. `async with` closes it; an exception gives up what
    was written.

    A call that is cancelled ends in its thread nevertheless, so the position is not known any more:
    later calls raise `Closed`, and `close` discards what was written before it does.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self._was_given_up = False

    def tell(self) -> int:
        """Returns the position in bytes."""
        self._check()
        position: int = self.file.tell()
        return position

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self.file.closed)

    async def read(self, length: int = -1) -> bytes:
        """Reads so many bytes, or all that are left."""
        data: bytes = await self._call(self.file.read, length)
        return data

    async def write(self, data: Any) -> int:
        """Writes anything with a contiguous buffer."""
        count: int = await self._call(self.file.write, data)
        return count

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to another position of a file opened for reading."""
        position: int = await self._call(self.file.seek, offset, whence)
        return position

    async def flush(self, force: bool = False) -> None:
        """Sends what is buffered. In the modes xb and ab others can read it when this returns."""
        await self._call(self.file.flush)

    async def close(self) -> None:
        """Closes the file; what was written is sealed."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(self, kind: Any, *rest: Any) -> None:
        if not self._was_given_up:
            await self._call(self.file.__exit__, kind, *rest)
            return
        is_written = self.file.writable()
        await _away(self.file.__exit__, asyncio.CancelledError, None, None)
        if is_written and kind is None:
            self._check()

    async def _call(
        self,
        call: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        self._check()
        try:
            return await _away(call, *arguments, **named)
        except asyncio.CancelledError:
            self._was_given_up = True
            raise

    def _check(self) -> None:
        if self._was_given_up:
            raise Closed("the file was given up, because a call of it was cancelled: open it again")


def _let_go(made: asyncio.Future[AsyncStore] | None) -> None:
    """Closes the store of a loop that is closed: nothing can be awaited there any more."""
    if made is not None and made.done() and not made.cancelled() and not made.exception():
        store = made.result()
        store._native = None
        store._calls.close()


async def _entered(connecting: Entered[AsyncStore]) -> AsyncStore:
    return await connecting


async def _away(
    call: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    return await asyncio.to_thread(call, *arguments, **named)
