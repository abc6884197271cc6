"""Connecting, and how a connected store makes its calls.

`sanderling.aio.connection` has the same for asyncio. What is built on the two is written once, in
`sanderling.aio`; `python3 bindings/python/synchronous.py` makes `sanderling.store` and
`sanderling.objects` from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, Unpack

from sanderling import _sanderling, arguments, spans
from sanderling.arguments import Progress, PutOptions, text, whole
from sanderling.credentials import resolve
from sanderling.errors import Closed, NotFound
from sanderling.metadata import Stat
from sanderling.files import (
    READ_BUFFER_BYTES,
    Arguments,
    ObjectReader,
    ObjectWriter,
    Result,
    as_text,
)

if TYPE_CHECKING:
    from sanderling.store import Store

__all__ = ["Observer", "connect"]

CALL_SECONDS = 10.0
"""How long a call may take without a `timeout`: what the native half takes then."""

Observer = Callable[[str, int, float, float, BaseException | None], None]
"""Is called after every call for data with its kind (`read`, `write`, `create`, `seal`, `lookup`,
`delete`), its bytes, when it began (`time.monotonic`), how long it took in seconds, and its error.
"""


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
) -> Store:
    """Connects to a namenode: `host:port`, `host`, or the cluster of a `context`.

    Without both, to the one in SANDERLING_NAMENODE, that of the context in SANDERLING_CONTEXT or
    of the current context (`sanderling context use`), or 127.0.0.1:7600.

    `timeout` bounds every call, in seconds, retries included. A cluster with access control needs
    a token, as text or in a file that is read again for every connection; `tls_ca` is the file of
    the authority that its certificates come from, `tls_name` the name that they are made for. The
    defaults of the four are the variables SANDERLING_TOKEN, SANDERLING_TOKEN_FILE,
    SANDERLING_TLS_CA and SANDERLING_TLS_NAME, then what the context has. All threads may use one
    store.

    `otlp` is the address of an OpenTelemetry collector, `http://HOST[:PORT][/PATH]`, to which this
    process exports its spans from then on: each call of every store is a trace, with the spans of
    the servers that record theirs. Its default is the variable SANDERLING_OTLP; without both, none
    are recorded.
    """
    from sanderling.store import Store

    place = resolve(address, context, token, token_file, tls_ca, tls_name)
    limit = arguments.some_millis("timeout", timeout)
    spans.export(otlp)
    native = _sanderling.Client(place.address, limit, place.shown())
    call_seconds = CALL_SECONDS if limit is None else limit / 1000
    return Store(native, place.address, observer, call_seconds)


class Connection:
    """What a store is built on."""

    def __init__(
        self,
        native: _sanderling.Client,
        address: str,
        observer: Observer | None = None,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._native: _sanderling.Client | None = native
        self._observer = observer
        self._call_seconds = call_seconds
        self.address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._disconnect()

    def __repr__(self) -> str:
        return f"<sanderling.Store at {self.address}>"

    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        buffer_bytes: int = READ_BUFFER_BYTES,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        autocommit: bool = True,
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Any:
        """Opens an object as a file.

        Modes: `rb` reads; `wb` writes and replaces an older object when closed; `xb` refuses an
        existing one; `ab` appends. Without the `b`, the file is text. `close` seals what was
        written; an exception in a `with` block discards it. With `autocommit=False` only `commit()`
        seals it. Options of a new object are those of `put`, but for `replace`, which is the mode.
        `progress` is called with the bytes read or sent so far; an error that it raises discards a
        file that is being written.
        """
        (kind, is_binary), progress = arguments.file_mode(mode), arguments.callback(progress)
        file: ObjectReader | ObjectWriter
        if kind == "r":
            file = self._reader(text(path), progress, whole("buffer_bytes", buffer_bytes))
        else:
            options["replace"] = kind == "w"
            made = arguments.options(**options)
            file = self._writer(text(path), kind, made, autocommit, progress)
        return file if is_binary else as_text(file, encoding, errors, newline)

    def _disconnect(self) -> None:
        self._native = None

    @property
    def _client(self) -> _sanderling.Client:
        if self._native is None:
            raise Closed("the store is closed")
        return self._native

    def _reader(
        self, path: str, progress: Progress | None, buffer_bytes: int = 0
    ) -> ObjectReader:
        native = self._run("lookup", 0, self._client.reader, path)
        return ObjectReader(native, Stat.of(native.stat), self._run, buffer_bytes, progress)

    def _writer(
        self,
        path: str,
        kind: str,
        options: _sanderling.Options,
        autocommit: bool,
        progress: Progress | None,
    ) -> ObjectWriter:
        native = None
        if kind == "a":
            with contextlib.suppress(NotFound):
                native = self._run("create", 0, self._client.append, path)
        if native is None:
            native = self._run("create", 0, self._client.create, path, options)
        return ObjectWriter(native, path, f"{kind}b", self._run, autocommit, progress)

    def _call(
        self,
        call: Callable[Arguments, Result],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Makes a call that no observer is called for."""
        return call(*given, **named)

    def _run(
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
            return call(*given, **named)
        began = time.monotonic()
        error = None
        try:
            result = call(*given, **named)
            return result
        except BaseException as caught:
            error = caught
            raise
        finally:
            if size is None:
                size = 0 if error else arguments.bytes_of(result)
            observer(kind, size, began, time.monotonic() - began, error)
