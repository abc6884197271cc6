"""Calls of one asyncio loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, cast

from sanderling import _sanderling
from sanderling.errors import Closed
from sanderling.files import Arguments, Result

class Calls:
    """Begins calls, and passes their results to the tasks that await them.

    The native half runs the calls. When results are there, it makes a pipe readable, once for all
    of them, and the loop takes them together.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue = _sanderling.CompletionQueue()
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._file = self.queue.fileno()
        self.is_closed = False
        # The loop keeps what it calls: that must not keep a store that is otherwise unreachable.
        self.loop.add_reader(self._file, _take_answers, weakref.ref(self))

    async def run(
        self,
        call: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call of the native half, which returns a call id instead of a result.

        If the awaiting task is cancelled, so is the call.
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
        """Passes the results that are there to the tasks that await them."""
        for call_id, has_failed, result in self.queue.take():
            future = self._awaited.pop(call_id, None)
            if future is None or future.done():
                continue
            if has_failed:
                future.set_exception(result)
            else:
                future.set_result(result)

    def close(self) -> None:
        """Cancels all calls: tasks that await one get `Closed`."""
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
