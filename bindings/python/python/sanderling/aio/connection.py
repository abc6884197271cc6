"""Connecting, and how a connected store of asyncio makes its calls."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, Unpack

from sanderling import _sanderling, arguments, spans
from sanderling.aio.calls import Calls
from sanderling.aio.entered import Entered
from sanderling.aio.files import AsyncReader, AsyncWriter
from sanderling.arguments import Progress, PutOptions, text
from sanderling.connection import Observer
from sanderling.credentials import resolve
from sanderling.errors import Closed, NotFound
from sanderling.files import Arguments, Result

if TYPE_CHECKING:
    from sanderling.aio.store import AsyncStore

__all__ = ["connect"]


def connect(
    address: str | None = None,
    *,
    context: str | None = None,
    timeout: float | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_name: str | None = None,
    otlp: str | None = None,
    observer: Observer | None = None,
) -> Entered[AsyncStore]:
    """Connects to a namenode, as `sanderling.connect` does.

    Await it, or enter it with `async with`, which closes the store in the end. The store belongs to
    the event loop in which it was connected. A thousand of its calls are in flight together at
    most; more wait their turn, and their `timeout` begins with it. When a task is cancelled, so is
    the call that it awaits: what it was writing does not appear.
    """
    limit = arguments.some_millis("timeout", timeout)
    place = resolve(address, context, token, token_file, tls_ca, tls_name)
    spans.export(otlp)
    return Entered(_connect(place.address, limit, place.shown(), observer))


async def _connect(
    address: str,
    limit: int | None,
    credentials: _sanderling.Credentials | None,
    observer: Observer | None,
) -> AsyncStore:
    from sanderling.aio.store import AsyncStore

    calls = Calls()
    try:
        # Returns a call id, as every call does here; its result is the client.
        client = await calls.run(calls.queue.connect, address, limit, credentials)
    except BaseException:
        calls.close()
        raise
    return AsyncStore(client, calls, address, observer)


class Connection:
    """What a store is built on."""

    def __init__(
        self,
        native: _sanderling.Client,
        calls: Calls,
        address: str,
        observer: Observer | None = None,
    ) -> None:
        self._native: _sanderling.Client | None = native
        self._calls = calls
        self._observer = observer
        self.address = address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._disconnect()

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            warnings.warn(f"{self!r} was dropped unclosed", ResourceWarning, 2)

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncStore at {self.address}>"

    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        autocommit: bool = True,
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Entered[Any]:
        """Opens an object as a file: await it, or enter it with `async with`.

        Modes: `rb` reads; `wb` writes and replaces an older object when closed; `xb` refuses an
        existing one; `ab` appends. Returns an `AsyncReader` or `AsyncWriter`. Options and
        `progress` are those of `Store.open`.
        """
        (kind, is_binary), progress = arguments.file_mode(mode), arguments.callback(progress)
        if not is_binary:
            raise ValueError(f"mode {mode!r} is none of rb, wb, xb, ab")
        if kind == "r":
            return Entered(self._reader(text(path), progress))
        options["replace"] = kind == "w"
        made = arguments.options(**options)
        return Entered(self._writer(text(path), kind, made, autocommit, progress))

    def _disconnect(self) -> None:
        self._native = None
        self._calls.close()

    @property
    def _client(self) -> _sanderling.Client:
        if self._native is None:
            raise Closed("the store is closed")
        return self._native

    async def _reader(self, path: str, progress: Progress | None) -> AsyncReader:
        native = await self._run("lookup", 0, self._client.reader, path)
        return AsyncReader(native, self._run, progress)

    async def _writer(
        self,
        path: str,
        kind: str,
        options: _sanderling.Options,
        autocommit: bool,
        progress: Progress | None,
    ) -> AsyncWriter:
        native = None
        if kind == "a":
            with contextlib.suppress(NotFound):
                native = await self._run("create", 0, self._client.append, path)
        if native is None:
            native = await self._run("create", 0, self._client.create, path, options)
        return AsyncWriter(native, path, self._run, autocommit, progress)

    async def _call(
        self,
        call: Callable[Arguments, Result],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call that no observer is called for."""
        return await self._calls.run(call, *given, **named)

    async def _run(
        self,
        kind: str,
        size: int | None,
        call: Callable[Arguments, Result],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call for data; without a size, its bytes are those of the result."""
        observer = self._observer
        if observer is None:
            return await self._calls.run(call, *given, **named)
        began = time.monotonic()
        error = None
        try:
            result = await self._calls.run(call, *given, **named)
            return result
        except BaseException as caught:
            error = caught
            raise
        finally:
            if size is None:
                size = 0 if error else arguments.bytes_of(result)
            observer(kind, size, began, time.monotonic() - began, error)
