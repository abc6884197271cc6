"""The store, as a program sees it."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, overload

from sanderling import _sanderling, arguments
from sanderling._sanderling import Buffer
from sanderling.arguments import COUNT_MAX, Objects, millis, text, whole
from sanderling.errors import Closed, NotFound
from sanderling.facts import (
    Deleted,
    Entry,
    Event,
    Fsck,
    Job,
    LossReport,
    Node,
    Stat,
    Usage,
)
from sanderling.files import (
    READ_BUFFER_BYTES,
    Arguments,
    ObjectReader,
    ObjectWriter,
    Result,
    as_text,
)

ADDRESS_VARIABLE = "SANDERLING_NAMENODE"
"""The environment variable that holds the namenode's address."""

# Inside the class, `list` is the method.
Buffers = list[Buffer]
BuffersOrErrors = list[Buffer | Exception]
Stats = list[Stat]
StatsOrErrors = list[Stat | Exception]
Entries = list[Entry]
Jobs = list[Job]
Nodes = list[Node]
Events = list[Event]

Observer = Callable[[str, int, float, float, BaseException | None], None]
"""Is told of every call for data: its kind (`read`, `write`, `create`, `seal`, `lookup`, `delete`),
its bytes, when it began (`time.monotonic`), how long it took in seconds, and its error."""


def connect(
    address: str | None = None, *, timeout: float | None = None, observer: Observer | None = None
) -> Store:
    """Connects to a namenode, `host:port`; without one, to the one in SANDERLING_NAMENODE.

    `timeout` bounds every call, in seconds, retries included.
    """
    address = address_of(address)
    return Store(_sanderling.Client(address, timeout), address, observer)


def address_of(address: str | None) -> str:
    """Returns the namenode's address, from the environment unless it is given.

    Raises `ValueError` when neither says where it is.
    """
    address = address or os.environ.get(ADDRESS_VARIABLE)
    if not address:
        raise ValueError(f"no namenode given: pass its address or set {ADDRESS_VARIABLE}")
    return address


class Store:
    """A connected client. All threads may use one; Python's lock is free during every call."""

    def __init__(
        self, native: _sanderling.Client, address: str, observer: Observer | None = None
    ) -> None:
        self._native: _sanderling.Client | None = native
        self._observer = observer
        self.address = address

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sanderling.Store at {self.address}>"

    def close(self) -> None:
        """Lets the connections go. Later calls raise `Closed`."""
        self._native = None

    # Objects

    def put(
        self,
        path: str,
        data: Any,
        *,
        replace: bool = True,
        parents: bool = False,
        storage_class: str | None = None,
        ttl: float | None = None,
        delete_after_read: bool = False,
        is_listed: bool = True,
        affinity: str | None = None,
        kind: str = "file",
    ) -> Stat:
        """Writes a whole object from anything with a contiguous buffer.

        The buffer is not copied on this side: it must not change until the call returns.
        An older object is replaced at once when the new one is complete, or refused with `Exists`
        unless `replace`. `parents` makes missing directories; `ttl` is in seconds; `affinity` is an
        object's path to be near, or a host. `kind="key_value"` makes an entry of a table.
        """
        options = arguments.options(
            replace, parents, storage_class, ttl, delete_after_read, is_listed, affinity, kind
        )
        size = memoryview(data).nbytes if self._observer else 0
        return self._stat("write", size, self._client.put, text(path), data, options)

    @overload
    def put_many(
        self,
        objects: Objects,
        *,
        return_errors: Literal[False] = False,
        replace: bool = True,
        parents: bool = False,
        storage_class: str | None = None,
        ttl: float | None = None,
        is_listed: bool = True,
        affinity: str | None = None,
        kind: str = "file",
    ) -> Stats: ...

    @overload
    def put_many(
        self,
        objects: Objects,
        *,
        return_errors: Literal[True],
        replace: bool = True,
        parents: bool = False,
        storage_class: str | None = None,
        ttl: float | None = None,
        is_listed: bool = True,
        affinity: str | None = None,
        kind: str = "file",
    ) -> StatsOrErrors: ...

    def put_many(
        self,
        objects: Objects,
        *,
        return_errors: bool = False,
        replace: bool = True,
        parents: bool = False,
        storage_class: str | None = None,
        ttl: float | None = None,
        is_listed: bool = True,
        affinity: str | None = None,
        kind: str = "file",
    ) -> Stats | StatsOrErrors:
        """Writes many whole objects, (path, data) each or a mapping, in one call.

        Small ones travel together. Options are those of `put`, for all of them. What became of
        each is returned in their order. If some fail the others are written all the same, and the
        first error is raised; with `return_errors` it has its place in the list instead.
        """
        named = arguments.named(objects)
        options = arguments.options(
            replace, parents, storage_class, ttl, False, is_listed, affinity, kind
        )
        size = sum(memoryview(data).nbytes for _, data in named) if self._observer else 0
        all_facts = self._timed("write", size, self._client.put_many, named, options)
        if not return_errors:
            arguments.raise_first(all_facts)
        return [each if isinstance(each, Exception) else Stat.of(each) for each in all_facts]

    def get(self, path: str) -> Buffer:
        """Reads a whole object."""
        return self._timed("read", None, self._client.get, text(path))

    @overload
    def get_many(
        self, paths: Iterable[str], *, return_errors: Literal[False] = False
    ) -> Buffers: ...

    @overload
    def get_many(
        self, paths: Iterable[str], *, return_errors: Literal[True]
    ) -> BuffersOrErrors: ...

    def get_many(
        self, paths: Iterable[str], *, return_errors: bool = False
    ) -> Buffers | BuffersOrErrors:
        """Reads many whole objects in one call, and returns them in the order of their paths.

        Small ones come with the look-up, a hundred at once. If some cannot be read the first error
        is raised; with `return_errors` it has its place in the list instead.
        """
        names = [text(path) for path in paths]
        found = self._timed("read", None, self._client.get_many, names)
        if not return_errors:
            arguments.raise_first(found)
        return found

    def get_range(self, path: str, offset: int, length: int) -> Buffer:
        """Reads `length` bytes from `offset`; a range past the end is refused."""
        start, size = whole("the offset", offset), whole("the length", length)
        return self._timed("read", size, self._client.get_range, text(path), start, size)

    def get_ranges(self, path: str, ranges: Iterable[tuple[int, int]]) -> Buffers:
        """Reads many ranges, (offset, bytes) each, in one call per datanode."""
        wanted = arguments.pairs(ranges)
        total = sum(length for _, length in wanted)
        return self._timed("read", total, self._client.get_ranges, text(path), wanted)

    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        buffer_bytes: int = READ_BUFFER_BYTES,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        parents: bool = False,
        storage_class: str | None = None,
        ttl: float | None = None,
        autocommit: bool = True,
    ) -> Any:
        """Opens an object as a file.

        Modes: `rb` reads; `wb` writes and replaces an older object when closed; `xb` refuses an
        existing one; `ab` appends. Without the `b`, the file is text. What is written is sealed by
        `close`; an exception in a `with` block gives it up. With `autocommit=False` only `commit()`
        seals it.
        """
        kind = mode.replace("b", "").replace("t", "")
        file: ObjectReader | ObjectWriter
        if kind == "r":
            file = self._reader(text(path), buffer_bytes)
        elif kind in ("w", "x", "a"):
            options = arguments.options(
                kind == "w", parents, storage_class, ttl, False, True, None, "file"
            )
            file = self._writer(text(path), kind, options, autocommit)
        else:
            raise ValueError(f"mode {mode!r} is none of rb, wb, xb, ab, r, w, x, a")
        return file if "b" in mode else as_text(file, encoding, errors, newline)

    def stat(self, path: str) -> Stat:
        """Returns facts about an object; raises `NotFound`."""
        return self._stat("lookup", 0, self._client.stat, text(path))

    def exists(self, path: str) -> bool:
        """Tells whether an object has this name."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def list(self, path: str = "/") -> Entries:
        """Lists a directory, multifile or table in the order of names."""
        raw = self._timed("lookup", 0, self._client.list, text(path))
        return [Entry.of(each) for each in json.loads(raw)]

    def walk(self, path: str = "/") -> Iterator[tuple[str, Entries]]:
        """Yields (path, entries) of each directory in a subtree, the upper ones first."""
        entries = self.list(path)
        yield path, entries
        for entry in entries:
            if entry.is_container:
                yield from self.walk(f"{path.rstrip('/')}/{entry.name}")

    def delete(self, path: str, *, recursive: bool = False) -> Deleted:
        """Deletes an object; a directory that holds something only when `recursive`."""
        return Deleted(*self._timed("delete", 0, self._client.delete, text(path), recursive))

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Moves an object, with everything in it, to another name at once."""
        self._timed("lookup", 0, self._client.rename, text(source), text(target), replace)

    def mkdir(self, path: str, *, parents: bool = False, kind: str = "directory") -> Stat:
        """Makes a `directory`, `multifile` or `table`.

        `parents` makes missing directories above it and accepts that it exists already.
        """
        return self._stat("create", 0, self._client.make_directory, text(path), kind, parents)

    def set_ttl(self, path: str, ttl: float | None) -> None:
        """Lets an object go in so many seconds from now; None keeps it."""
        self._client.set_ttl(text(path), arguments.some_millis("ttl", ttl))

    def usage(self, path: str = "/") -> Usage:
        """Sums up what a subtree holds."""
        return Usage(**json.loads(self._client.usage(text(path))))

    # Jobs

    def register_job(
        self,
        path: str,
        *,
        lease: float = 60.0,
        quota_bytes: int | None = None,
        recompute_per_mib: float | None = None,
        expected_reads: int | None = None,
    ) -> Job:
        """Makes a subtree that goes when its lease, in seconds, is not renewed.

        Two hints say what leaves a dying node first: `recompute_per_mib`, the seconds of work
        that a MiB costs to compute again, and then `expected_reads`, how often it will be read.
        """
        raw = self._client.register_job(
            text(path),
            millis("lease", lease),
            arguments.some_whole("quota_bytes", quota_bytes),
            arguments.some_millis("recompute_per_mib", recompute_per_mib),
            arguments.some_whole("expected_reads", expected_reads, COUNT_MAX),
        )
        return Job.of(json.loads(raw))

    def renew_job(self, job: int) -> None:
        """Renews a job's lease."""
        self._client.renew_job(whole("the job", job))

    def end_job(self, job: int) -> None:
        """Ends a job and deletes its subtree."""
        self._client.end_job(whole("the job", job))

    def jobs(self) -> Jobs:
        """Lists the jobs."""
        return [Job.of(each) for each in json.loads(self._client.jobs())]

    # The cluster

    def nodes(self, *, all: bool = False) -> Nodes:
        """Lists the datanodes; with `all` also those that are gone."""
        return [Node.of(each) for each in json.loads(self._client.nodes(bool(all)))]

    def notice(self, node: int | str, deadline_seconds: float, reason: str = "") -> Node:
        """Gives a node its notice: its data leaves before the deadline."""
        left = millis("deadline_seconds", deadline_seconds)
        raw = self._client.notice(str(node), left, reason)
        return Node.of(json.loads(raw))

    def decommission(self, node: int | str, reason: str = "") -> Node:
        """Removes a node in order, without a deadline."""
        return Node.of(json.loads(self._client.decommission(str(node), reason)))

    def cancel(self, node: int | str) -> Node:
        """Takes a notice or decommission back."""
        return Node.of(json.loads(self._client.cancel(str(node))))

    def events(self, after: int = 0, *, limit: int = 1000, wait: float = 0.0) -> Events:
        """Returns events after a sequence; waits up to `wait` seconds for the first."""
        after, most = whole("after", after), whole("limit", limit, COUNT_MAX)
        raw = self._client.events(after, most, millis("wait", wait))
        return [Event.of(each) for each in json.loads(raw)]

    def report(self) -> LossReport:
        """Returns everything that was ever declared lost."""
        return LossReport.of(json.loads(self._client.report()))

    def fsck(self) -> Fsck:
        """Checks the catalog against itself."""
        return Fsck(**json.loads(self._client.fsck()))

    def metrics(self) -> dict[str, float]:
        """Returns what this client went through: retries, moved blocks met, failed calls and the
        longest stall in seconds."""
        return self._client.metrics()

    # Below

    @property
    def _client(self) -> _sanderling.Client:
        if self._native is None:
            raise Closed("the store is closed")
        return self._native

    def _reader(self, path: str, buffer_bytes: int) -> ObjectReader:
        native = self._timed("lookup", 0, self._client.reader, path)
        return ObjectReader(native, Stat.of(native.stat), self._timed, buffer_bytes)

    def _writer(
        self, path: str, kind: str, options: _sanderling.Options, autocommit: bool
    ) -> ObjectWriter:
        if kind == "a":
            try:
                native = self._timed("create", 0, self._client.append, path)
            except NotFound:
                native = self._timed("create", 0, self._client.create, path, options)
        else:
            native = self._timed("create", 0, self._client.create, path, options)
        return ObjectWriter(native, path, f"{kind}b", self._timed, autocommit)

    def _stat(
        self,
        kind: str,
        size: int,
        call: Callable[Arguments, _sanderling.ObjectFacts],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Stat:
        return Stat.of(self._timed(kind, size, call, *given, **named))

    def _timed(
        self,
        kind: str,
        size: int | None,
        call: Callable[Arguments, Result],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
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
