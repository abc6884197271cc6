"""Calls of one asyncio loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar, cast

from sanderling import _sanderling
from sanderling.errors import Closed
from sanderling.files import Arguments, Result

T = TypeVar("T")


class Entered(Awaitable[T], Generic[T]):
    """What is awaited, or entered with `async with`, which closes it in the end."""

    def __init__(self, made: Awaitable[T]) -> None:
        self._made = made
        self._entered: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._made.__await__()

    async def __aenter__(self) -> T:
        self._entered = await self._made
        await self._entered.__aenter__()
        return cast(T, self._entered)

    async def __aexit__(self, *error: Any) -> None:
        await self._entered.__aexit__(*error)


class Calls:
    """Begins calls, and gives their answers to those who await them.

    The native half runs the calls. When answers are there it makes a pipe readable, once for all of
    them, and the loop takes them together.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue = _sanderling.CompletionQueue()
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._file = self.queue.fileno()
        self.is_closed = False
        # The loop keeps what it calls: a store that everybody forgot must not live on for that.
        self.loop.add_reader(self._file, _take_answers, weakref.ref(self))

    async def run(
        self,
        call: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call of the native half, which returns a call id where types say a result.

        Cancelled, it gives the call up.
        """
        if self.is_closed:
            raise Closed("the store is closed")
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("this store belongs to another event loop: connect in this one")
        call_id = cast(int, call(*arguments, **named))
        future: asyncio.Future[Result] = self.loop.create_future()
        self._awaited[call_id] = future
        try:
            return await future
        except asyncio.CancelledError:
            if self._awaited.pop(call_id, None) is not None:
                self.queue.cancel(call_id)
            raise

    def take_answers(self) -> None:
        """Gives the answers that are there to those who await them."""
        for call_id, has_failed, result in self.queue.take():
            future = self._awaited.pop(call_id, None)
            if future is None or future.done():
                continue
            if has_failed:
                future.set_exception(result)
            else:
                future.set_result(result)

    def close(self) -> None:
        """Gives up all calls: those who await one get `Closed`."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self.loop.is_closed():
            self.loop.remove_reader(self._file)
        awaited, self._awaited = self._awaited, {}
        for future in awaited.values():
            if not future.done():
                future.set_exception(Closed("the store was closed"))
        self.queue.close()


def _take_answers(calls: weakref.ref[Calls]) -> None:
    if (here := calls()) is not None:
        here.take_answers()
