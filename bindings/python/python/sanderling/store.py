"""The store, as a program sees it."""

from __future__ import annotations

import io
import json
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack, overload

from sanderling import _sanderling, arguments
from sanderling._sanderling import Buffer
from sanderling.arguments import (
    COUNT_MAX,
    STEP_BYTES,
    Objects,
    Progress,
    PutOptions,
    millis,
    text,
    whole,
)
from sanderling.credentials import shown
from sanderling.errors import Closed, NotADirectory, NotFound
from sanderling.facts import (
    Deleted,
    Entry,
    Event,
    Fsck,
    Job,
    JobAccount,
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
from sanderling.jobs import LEASE_SECONDS, JobScope, job_id
from sanderling.jobs import request as job_request
from sanderling.multifiles import Multifile
from sanderling.tables import Table

EVENTS_WAIT = 5.0
"""Seconds that one call waits for an event; the next one follows."""

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
    address: str | None = None,
    *,
    timeout: float | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
) -> Store:
    """Connects to a namenode, `host:port`; without one, to the one in SANDERLING_NAMENODE.

    `timeout` bounds every call, in seconds, retries included. A cluster that asks who calls wants
    a token, as text or in a file that is read again for every connection; `tls_ca` is the file of
    the authority that its certificates come from. Without them SANDERLING_TOKEN_FILE,
    SANDERLING_TOKEN and SANDERLING_TLS_CA say so.
    """
    address = address_of(address)
    limit = arguments.some_millis("timeout", timeout)
    native = _sanderling.Client(address, limit, shown(token, token_file, tls_ca))
    return Store(native, address, observer)


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
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Stat:
        """Writes a whole object from anything with a contiguous buffer, and returns its facts.

        The buffer is not copied on this side: it must not change until the call returns. An older
        object is replaced at once when the new one is complete. Options (see `PutOptions`):
        `replace=False` raises `Exists` instead; `if_absent` and `if_object` hold even against
        writers that end at the same time; `parents` makes missing directories; `ttl` is in seconds;
        `attributes` are small texts kept beside the bytes; `storage_class`, `affinity`,
        `delete_after_read`, `is_listed` and `kind="key_value"` say where and how it lives.
        `progress` is called with the bytes so far; an error that it raises gives the object up.
        """
        made = arguments.options(**options)
        progress = arguments.callback(progress)
        if progress is not None:
            return self._put_in_steps(text(path), data, made, progress)
        size = memoryview(data).nbytes if self._observer else 0
        return self._stat("write", size, self._client.put, text(path), data, made)

    @overload
    def put_many(
        self,
        objects: Objects,
        *,
        return_errors: Literal[False] = False,
        **options: Unpack[PutOptions],
    ) -> Stats: ...

    @overload
    def put_many(
        self, objects: Objects, *, return_errors: Literal[True], **options: Unpack[PutOptions]
    ) -> StatsOrErrors: ...

    def put_many(
        self, objects: Objects, *, return_errors: bool = False, **options: Unpack[PutOptions]
    ) -> Stats | StatsOrErrors:
        """Writes many whole objects, (path, data) each or a mapping, in one call.

        Small ones travel together. Options are those of `put`, for all of them. What became of
        each is returned in their order. If some fail the others are written all the same, and the
        first error is raised; with `return_errors` it has its place in the list instead.
        """
        named, made = arguments.named(objects), arguments.options(**options)
        size = sum(memoryview(data).nbytes for _, data in named) if self._observer else 0
        all_facts = self._timed("write", size, self._client.put_many, named, made)
        if not return_errors:
            arguments.raise_first(all_facts)
        return [each if isinstance(each, Exception) else Stat.of(each) for each in all_facts]

    def get(self, path: str, *, progress: Progress | None = None) -> Buffer:
        """Reads a whole object.

        `progress` is called with the bytes so far, every few MiB; the bytes are copied then.
        """
        progress = arguments.callback(progress)
        if progress is not None:
            return self._get_in_steps(text(path), progress)
        return self._timed("read", None, self._client.get, text(path))

    def get_into(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads into a writable, contiguous buffer, from `offset` of the object on.

        Returns how many bytes there were: fewer than the buffer has room for only at the object's
        end. Nothing is allocated for them: from the same host they are copied once, from the
        datanode's memory. After an error the buffer's content is anything.
        """
        start = whole("the offset", offset)
        size = memoryview(buffer).nbytes if self._observer else 0
        return self._timed("read", size, self._client.get_into, text(path), start, buffer)

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
        autocommit: bool = True,
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Any:
        """Opens an object as a file.

        Modes: `rb` reads; `wb` writes and replaces an older object when closed; `xb` refuses an
        existing one; `ab` appends. Without the `b`, the file is text. What is written is sealed by
        `close`; an exception in a `with` block gives it up. With `autocommit=False` only `commit()`
        seals it. Options of a new object are those of `put`, but for `replace`, which is the mode.
        `progress` is called with the bytes read or sent so far; an error that it raises gives a
        file up that is being written.
        """
        (kind, is_binary), progress = arguments.file_mode(mode), arguments.callback(progress)
        file: ObjectReader | ObjectWriter
        if kind == "r":
            file = self._reader(text(path), whole("buffer_bytes", buffer_bytes), progress)
        else:
            options["replace"] = kind == "w"
            made = arguments.options(**options)
            file = self._writer(text(path), kind, made, autocommit, progress)
        return file if is_binary else as_text(file, encoding, errors, newline)

    def multifile(self, path: str, *, create: bool = True) -> Multifile:
        """Returns a multifile: many writers write its parts, and it is read as one stream.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            self.mkdir(path, parents=True, kind="multifile")
        return Multifile(self, text(path))

    def table(self, path: str, *, create: bool = True) -> Table:
        """Returns a table, a mapping of names to bytes that all clients share.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            self.mkdir(path, parents=True, kind="table")
        return Table(self, text(path))

    def concat(
        self, parts: Iterable[str], target: str, **options: Unpack[PutOptions]
    ) -> Stat:
        """Makes one file of the blocks of others, in their order, and takes the others away.

        It is one step, and no byte is moved: for objects that many workers write. Parts are sealed
        files, put with `is_inline_allowed=False` but for the first. Of the options, `replace`,
        `if_absent`, `if_object`, `parents`, `is_listed`, `ttl` and `attributes` count.
        """
        paths = [text(part) for part in parts]
        made = arguments.options(**options)
        return self._stat("create", 0, self._client.concat, paths, text(target), made)

    def stat(self, path: str) -> Stat:
        """Returns facts about an object; raises `NotFound`."""
        return self._stat("lookup", 0, self._client.stat, text(path))

    def exists(self, path: str) -> bool:
        """Tells whether an object has this name."""
        try:
            self.stat(path)
        except (NotADirectory, NotFound):
            return False
        return True

    def list(self, path: str = "/", *, attributes: bool = False) -> Entries:
        """Lists a directory, multifile or table in the order of names.

        With `attributes`, each entry has what is kept beside its bytes.
        """
        raw = self._timed("lookup", 0, self._client.list, text(path), bool(attributes))
        return [Entry.of(each) for each in json.loads(raw)]

    def walk(self, path: str = "/") -> Iterator[tuple[str, Entries]]:
        """Yields (path, entries) of each directory in a subtree, the upper ones first."""
        entries = self.list(path)
        yield path, entries
        for entry in entries:
            if entry.is_container:
                yield from self.walk(f"{path.rstrip('/')}/{entry.name}")

    def delete(
        self, path: str, *, recursive: bool = False, if_object: int | None = None
    ) -> Deleted:
        """Deletes an object; a directory that holds something only when `recursive`.

        With `if_object`, raises `Changed` when another object has the name by now, and deletes
        nothing.
        """
        expected = arguments.some_whole("if_object", if_object)
        delete = self._client.delete
        return Deleted(*self._timed("delete", 0, delete, text(path), recursive, expected))

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

    def set_attributes(
        self, path: str, attributes: Mapping[str, str], *, if_object: int | None = None
    ) -> Stat:
        """Sets what is kept beside an object's bytes, in place of all that was.

        With `if_object`, raises `Changed` when another object has the name by now.
        """
        expected = arguments.some_whole("if_object", if_object)
        pairs = arguments.texts(attributes)
        return Stat.of(self._client.set_attributes(text(path), pairs, expected))

    def usage(self, path: str = "/") -> Usage:
        """Sums up what a subtree holds."""
        return Usage(*self._client.usage(text(path)))

    # Jobs

    def job(
        self,
        path: str,
        *,
        lifetime: float = LEASE_SECONDS,
        quota: int | None = None,
        names_max: int | None = None,
        attribute_bytes_max: int | None = None,
        expected_bytes: int | None = None,
        throughput: int | None = None,
        latency_sensitive: bool = False,
        delete_after_read: bool = False,
        keep_after: bool = False,
        recompute_per_mib: float | None = None,
        expected_reads: int | None = None,
    ) -> JobScope:
        """Makes a job: a subtree that goes when the `with` block is left or the program dies.

        Its lease is renewed in the background; `lifetime` is how long, in seconds, the subtree
        outlives a program that died. `quota` is in bytes: what passes it is refused with `Full`,
        and so is what passes `names_max` directories and objects, the subtree's root among them,
        or `attribute_bytes_max` bytes of attributes.
        `keep_after` keeps the subtree when the job ends; with `delete_after_read` each object goes
        with its first whole `get`. Hints: `expected_bytes` at the peak, `throughput` in bytes per
        second, `latency_sensitive`, and what leaves a dying node first: `recompute_per_mib`, the
        seconds of work that a MiB costs to compute again, and `expected_reads` of each byte.
        """
        request = job_request(
            path,
            lifetime,
            quota,
            names_max,
            attribute_bytes_max,
            expected_bytes,
            throughput,
            latency_sensitive,
            delete_after_read,
            keep_after,
            recompute_per_mib,
            expected_reads,
        )
        job = Job.of(json.loads(self._client.register_job(*request)))
        return JobScope(self, job, self._client.keep_job(job.job, request[1]))

    def register_job(
        self,
        path: str,
        *,
        lease: float = LEASE_SECONDS,
        quota_bytes: int | None = None,
        names_max: int | None = None,
        attribute_bytes_max: int | None = None,
        recompute_per_mib: float | None = None,
        expected_reads: int | None = None,
    ) -> Job:
        """Makes a job that the caller renews: it goes when its lease, in seconds, runs out.

        `job` renews by itself, and knows all hints. The limits are those of `job`.
        """
        request = job_request(
            path,
            lease,
            quota_bytes,
            names_max,
            attribute_bytes_max,
            None,
            None,
            False,
            False,
            False,
            recompute_per_mib,
            expected_reads,
        )
        return Job.of(json.loads(self._client.register_job(*request)))

    def job_account(self, job: int | Job) -> JobAccount:
        """Returns how many names and bytes of attributes a job holds, and may hold."""
        return JobAccount(*self._client.job_account(job_id(job)))

    def renew_job(self, job: int | Job) -> None:
        """Renews a job's lease."""
        self._client.renew_job(job_id(job))

    def end_job(self, job: int | Job) -> None:
        """Ends a job and deletes its subtree, unless it was to be kept."""
        self._client.end_job(job_id(job))

    def token(
        self, subtree: str, *, rights: Iterable[str], expires: float, subject: str = "python"
    ) -> str:
        """Returns a token for a subtree that allows no more than this client's own, nor longer.

        `rights` are some of `read`, `write`, `admin` and `metrics`; it ends `expires` seconds from
        now. Refused with `BadRequest` by a cluster that asks nobody who they are.
        """
        named, left = arguments.names(rights), millis("expires", expires)
        return self._client.token(text(subtree), named, left, subject)

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

    def follow(self, after: int | None = None, *, timeout: float | None = None) -> Iterator[Event]:
        """Yields events as they happen, and waits for the next one; Ctrl-C ends it.

        It begins behind the sequence `after`: pass that of the last event seen to go on where an
        earlier one ended, 0 for everything that is remembered; without it, only what happens from
        now on is told. It ends when nothing happened for `timeout` seconds.
        """
        left = arguments.some_millis("timeout", timeout)
        last = self._last_sequence() if after is None else whole("after", after)
        return self._follow(last, None if left is None else left / 1000)

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

    def _last_sequence(self) -> int:
        last = 0
        while events := self.events(last):
            last = events[-1].sequence
        return last

    def _follow(self, last: int, timeout: float | None) -> Iterator[Event]:
        heard = time.monotonic()
        while True:
            left = EVENTS_WAIT if timeout is None else timeout - (time.monotonic() - heard)
            events = self.events(last, wait=max(min(left, EVENTS_WAIT), 0.0))
            if not events and timeout is not None and left <= EVENTS_WAIT:
                return
            for event in events:
                last = event.sequence
                yield event
            if events:
                heard = time.monotonic()

    def _put_in_steps(
        self, path: str, data: Any, options: _sanderling.Options, progress: Progress
    ) -> Stat:
        view = _sanderling.Buffer(data)
        native = self._timed("create", 0, self._client.create, path, options)
        with ObjectWriter(native, path, "wb", self._timed, True, progress) as writer:
            for start in range(0, len(view), STEP_BYTES):
                writer.write(view[start : start + STEP_BYTES])
        assert writer.stat is not None
        return writer.stat

    def _get_in_steps(self, path: str, progress: Progress) -> Buffer:
        with self._reader(path, 0, progress) as reader:
            # Not bytearray: it would touch all of its memory once more.
            whole = memoryview(mmap.mmap(-1, reader.size) if reader.size else bytearray())
            for start in range(0, len(whole), STEP_BYTES):
                reader.readinto(whole[start : start + STEP_BYTES])
        if reader.stat.delete_after_read:
            self._client.delete_read(path, reader.stat.object)
        return _sanderling.Buffer(whole.toreadonly())

    @property
    def _client(self) -> _sanderling.Client:
        if self._native is None:
            raise Closed("the store is closed")
        return self._native

    def _reader(
        self, path: str, buffer_bytes: int, progress: Progress | None = None
    ) -> ObjectReader:
        native = self._timed("lookup", 0, self._client.reader, path)
        return ObjectReader(native, Stat.of(native.stat), self._timed, buffer_bytes, progress)

    def _writer(
        self,
        path: str,
        kind: str,
        options: _sanderling.Options,
        autocommit: bool,
        progress: Progress | None = None,
    ) -> ObjectWriter:
        if kind == "a":
            try:
                native = self._timed("create", 0, self._client.append, path)
            except NotFound:
                native = self._timed("create", 0, self._client.create, path, options)
        else:
            native = self._timed("create", 0, self._client.create, path, options)
        return ObjectWriter(native, path, f"{kind}b", self._timed, autocommit, progress)

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
