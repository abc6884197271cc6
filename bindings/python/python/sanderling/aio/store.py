"""The store, for asyncio."""

from __future__ import annotations

import json
import mmap
import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from sanderling import _sanderling, arguments
from sanderling._sanderling import Buffer
from sanderling.aio.calls import Calls, Entered
from sanderling.aio.files import AsyncReader, AsyncWriter
from sanderling.aio.objects import AsyncJobScope, AsyncMultifile, AsyncTable
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
from sanderling.files import Arguments, Result
from sanderling.jobs import LEASE_SECONDS, JobRequest, job_id
from sanderling.jobs import request as job_request
from sanderling.store import (
    EVENTS_WAIT,
    Buffers,
    BuffersOrErrors,
    Entries,
    Events,
    Jobs,
    Nodes,
    Observer,
    Stats,
    StatsOrErrors,
    address_of,
)


def connect(
    address: str | None = None,
    *,
    timeout: float | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
) -> Entered[AsyncStore]:
    """Connects to a namenode, as `sanderling.connect` does.

    Await it, or enter it with `async with`, which closes the store in the end. The store belongs to
    the event loop in which it was connected.
    """
    limit = arguments.some_millis("timeout", timeout)
    credentials = shown(token, token_file, tls_ca)
    return Entered(_connect(address_of(address), limit, credentials, observer))


async def _connect(
    address: str,
    limit: int | None,
    credentials: _sanderling.Credentials | None,
    observer: Observer | None,
) -> AsyncStore:
    calls = Calls()
    try:
        # Returns a call id, as every call does here; its answer is the client.
        client = await calls.run(calls.queue.connect, address, limit, credentials)
    except BaseException:
        calls.close()
        raise
    return AsyncStore(client, calls, address, observer)


class AsyncStore:
    """A connected client whose methods are awaited. Made by `sanderling.aio.connect`.

    Names, arguments, results and errors are those of `sanderling.Store`. A thousand calls are under
    way together at most; more wait their turn, and their `timeout` begins with it. A call that is
    cancelled is given up: what it was writing does not appear.
    """

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

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            warnings.warn(f"{self!r} was dropped unclosed", ResourceWarning, 2)

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncStore at {self.address}>"

    async def close(self) -> None:
        """Lets the connections go. Calls under way and later ones raise `Closed`."""
        self._native = None
        self._calls.close()

    # Objects

    async def put(
        self,
        path: str,
        data: Any,
        *,
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Stat:
        """Writes a whole object from anything with a contiguous buffer, as `Store.put` does.

        The buffer is not copied on this side: it must not change until the call returns.
        """
        made = arguments.options(**options)
        progress = arguments.callback(progress)
        if progress is not None:
            return await self._put_in_steps(text(path), data, made, progress)
        size = memoryview(data).nbytes if self._observer else 0
        return await self._stat("write", size, self._client.put, text(path), data, made)

    @overload
    async def put_many(
        self,
        objects: Objects,
        *,
        return_errors: Literal[False] = False,
        **options: Unpack[PutOptions],
    ) -> Stats: ...

    @overload
    async def put_many(
        self, objects: Objects, *, return_errors: Literal[True], **options: Unpack[PutOptions]
    ) -> StatsOrErrors: ...

    async def put_many(
        self, objects: Objects, *, return_errors: bool = False, **options: Unpack[PutOptions]
    ) -> Stats | StatsOrErrors:
        """Writes many whole objects in one call, as `Store.put_many` does."""
        pairs, made = arguments.named(objects), arguments.options(**options)
        size = sum(memoryview(data).nbytes for _, data in pairs) if self._observer else 0
        all_facts = await self._run("write", size, self._client.put_many, pairs, made)
        if not return_errors:
            arguments.raise_first(all_facts)
        return [each if isinstance(each, Exception) else Stat.of(each) for each in all_facts]

    async def get(self, path: str, *, progress: Progress | None = None) -> Buffer:
        """Reads a whole object.

        `progress` is called with the bytes so far, every few MiB; the bytes are copied then.
        """
        progress = arguments.callback(progress)
        if progress is not None:
            return await self._get_in_steps(text(path), progress)
        return await self._run("read", None, self._client.get, text(path))

    async def get_into(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads into a writable, contiguous buffer, from `offset` of the object on.

        Returns how many bytes there were. After an error, or a cancelled call, the buffer's content
        is anything.
        """
        start = whole("the offset", offset)
        size = memoryview(buffer).nbytes if self._observer else 0
        return await self._run("read", size, self._client.get_into, text(path), start, buffer)

    @overload
    async def get_many(
        self, paths: Iterable[str], *, return_errors: Literal[False] = False
    ) -> Buffers: ...

    @overload
    async def get_many(
        self, paths: Iterable[str], *, return_errors: Literal[True]
    ) -> BuffersOrErrors: ...

    async def get_many(
        self, paths: Iterable[str], *, return_errors: bool = False
    ) -> Buffers | BuffersOrErrors:
        """Reads many whole objects in one call, as `Store.get_many` does."""
        names = [text(path) for path in paths]
        found = await self._run("read", None, self._client.get_many, names)
        if not return_errors:
            arguments.raise_first(found)
        return found

    async def get_range(self, path: str, offset: int, length: int) -> Buffer:
        """Reads `length` bytes from `offset`; a range past the end is refused."""
        start, size = whole("the offset", offset), whole("the length", length)
        return await self._run("read", size, self._client.get_range, text(path), start, size)

    async def get_ranges(self, path: str, ranges: Iterable[tuple[int, int]]) -> Buffers:
        """Reads many ranges, (offset, bytes) each, in one call per datanode."""
        wanted = arguments.pairs(ranges)
        total = sum(length for _, length in wanted)
        return await self._run("read", total, self._client.get_ranges, text(path), wanted)

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

    async def multifile(self, path: str, *, create: bool = True) -> AsyncMultifile:
        """Returns a multifile: many writers write its parts, and it is read as one stream.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            await self.mkdir(path, parents=True, kind="multifile")
        return AsyncMultifile(self, text(path))

    async def table(self, path: str, *, create: bool = True) -> AsyncTable:
        """Returns a table: values by their names, which all clients share.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            await self.mkdir(path, parents=True, kind="table")
        return AsyncTable(self, text(path))

    async def concat(
        self, parts: Iterable[str], target: str, **options: Unpack[PutOptions]
    ) -> Stat:
        """Makes one file of the blocks of others, in one step, as `Store.concat` does."""
        paths = [text(part) for part in parts]
        made = arguments.options(**options)
        return await self._stat("create", 0, self._client.concat, paths, text(target), made)

    async def stat(self, path: str) -> Stat:
        """Returns facts about an object; raises `NotFound`."""
        return await self._stat("lookup", 0, self._client.stat, text(path))

    async def exists(self, path: str) -> bool:
        """Tells whether an object has this name."""
        try:
            await self.stat(path)
        except (NotADirectory, NotFound):
            return False
        return True

    async def list(self, path: str = "/", *, attributes: bool = False) -> Entries:
        """Lists a directory, multifile or table in the order of names.

        With `attributes`, each entry has what is kept beside its bytes.
        """
        raw = await self._run("lookup", 0, self._client.list, text(path), bool(attributes))
        return [Entry.of(each) for each in json.loads(raw)]

    async def walk(self, path: str = "/") -> AsyncIterator[tuple[str, Entries]]:
        """Yields (path, entries) of each directory in a subtree, the upper ones first."""
        to_list = [text(path)]
        while to_list:
            directory = to_list.pop()
            entries = await self.list(directory)
            yield directory, entries
            below = [entry.name for entry in entries if entry.is_container]
            to_list += [f"{directory.rstrip('/')}/{name}" for name in reversed(below)]

    async def delete(
        self, path: str, *, recursive: bool = False, if_object: int | None = None
    ) -> Deleted:
        """Deletes an object; a directory that holds something only when `recursive`.

        With `if_object`, raises `Changed` when another object has the name by now, and deletes
        nothing.
        """
        expected = arguments.some_whole("if_object", if_object)
        delete = self._client.delete
        return Deleted(*await self._run("delete", 0, delete, text(path), recursive, expected))

    async def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Moves an object, with everything in it, to another name at once."""
        await self._run("lookup", 0, self._client.rename, text(source), text(target), replace)

    async def mkdir(
        self, path: str, *, parents: bool = False, kind: str = "directory"
    ) -> Stat:
        """Makes a `directory`, `multifile` or `table`.

        `parents` makes missing directories above it and accepts that it exists already.
        """
        return await self._stat(
            "create", 0, self._client.make_directory, text(path), kind, parents
        )

    async def set_ttl(self, path: str, ttl: float | None) -> None:
        """Lets an object go in so many seconds from now; None keeps it."""
        left = arguments.some_millis("ttl", ttl)
        await self._calls.run(self._client.set_ttl, text(path), left)

    async def set_attributes(
        self, path: str, attributes: Mapping[str, str], *, if_object: int | None = None
    ) -> Stat:
        """Sets what is kept beside an object's bytes, in place of all that was.

        With `if_object`, raises `Changed` when another object has the name by now.
        """
        expected = arguments.some_whole("if_object", if_object)
        pairs = arguments.texts(attributes)
        facts = await self._calls.run(self._client.set_attributes, text(path), pairs, expected)
        return Stat.of(facts)

    async def usage(self, path: str = "/") -> Usage:
        """Sums up what a subtree holds."""
        return Usage(*await self._calls.run(self._client.usage, text(path)))

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
    ) -> Entered[AsyncJobScope]:
        """Makes a job, a subtree that goes when the `async with` block is left.

        Its arguments are those of `Store.job`.
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
        return Entered(self._job(request))

    async def register_job(
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
        """Makes a job that the caller renews: it goes when its lease, in seconds, runs out."""
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
        return Job.of(json.loads(await self._calls.run(self._client.register_job, *request)))

    async def job_account(self, job: int | Job) -> JobAccount:
        """Returns how many names and bytes of attributes a job holds, and may hold."""
        return JobAccount(*await self._calls.run(self._client.job_account, job_id(job)))

    async def renew_job(self, job: int | Job) -> None:
        """Renews a job's lease."""
        await self._calls.run(self._client.renew_job, job_id(job))

    async def end_job(self, job: int | Job) -> None:
        """Ends a job and deletes its subtree, unless it was to be kept."""
        await self._calls.run(self._client.end_job, job_id(job))

    async def token(
        self, subtree: str, *, rights: Iterable[str], expires: float, subject: str = "python"
    ) -> str:
        """Returns a token for a subtree that allows no more than this client's own, nor longer.

        See `Store.token`.
        """
        named, left = arguments.names(rights), millis("expires", expires)
        return await self._calls.run(self._client.token, text(subtree), named, left, subject)

    async def jobs(self) -> Jobs:
        """Lists the jobs."""
        return [Job.of(each) for each in json.loads(await self._calls.run(self._client.jobs))]

    # The cluster

    async def nodes(self, *, all: bool = False) -> Nodes:
        """Lists the datanodes; with `all` also those that are gone."""
        raw = await self._calls.run(self._client.nodes, bool(all))
        return [Node.of(each) for each in json.loads(raw)]

    async def notice(self, node: int | str, deadline_seconds: float, reason: str = "") -> Node:
        """Gives a node its notice: its data leaves before the deadline."""
        left = millis("deadline_seconds", deadline_seconds)
        raw = await self._calls.run(self._client.notice, str(node), left, reason)
        return Node.of(json.loads(raw))

    async def decommission(self, node: int | str, reason: str = "") -> Node:
        """Removes a node in order, without a deadline."""
        raw = await self._calls.run(self._client.decommission, str(node), reason)
        return Node.of(json.loads(raw))

    async def cancel(self, node: int | str) -> Node:
        """Takes a notice or decommission back."""
        return Node.of(json.loads(await self._calls.run(self._client.cancel, str(node))))

    async def events(self, after: int = 0, *, limit: int = 1000, wait: float = 0.0) -> Events:
        """Returns events after a sequence; waits up to `wait` seconds for the first."""
        after, most = whole("after", after), whole("limit", limit, COUNT_MAX)
        raw = await self._calls.run(self._client.events, after, most, millis("wait", wait))
        return [Event.of(each) for each in json.loads(raw)]

    async def follow(
        self, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncIterator[Event]:
        """Yields events as they happen, and waits for the next one, as `Store.follow` does."""
        bound = arguments.some_millis("timeout", timeout)
        most = None if bound is None else bound / 1000
        last = await self._last_sequence() if after is None else whole("after", after)
        heard = time.monotonic()
        while True:
            left = EVENTS_WAIT if most is None else most - (time.monotonic() - heard)
            events = await self.events(last, wait=max(min(left, EVENTS_WAIT), 0.0))
            if not events and most is not None and left <= EVENTS_WAIT:
                return
            for event in events:
                last = event.sequence
                yield event
            if events:
                heard = time.monotonic()

    async def report(self) -> LossReport:
        """Returns everything that was ever declared lost."""
        return LossReport.of(json.loads(await self._calls.run(self._client.report)))

    async def fsck(self) -> Fsck:
        """Checks the catalog against itself."""
        return Fsck(**json.loads(await self._calls.run(self._client.fsck)))

    def metrics(self) -> dict[str, float]:
        """Returns what this client went through: retries, moved blocks met, failed calls and the
        longest stall in seconds. Asks nobody, so it is not awaited."""
        return self._client.metrics()

    # Below

    @property
    def _client(self) -> _sanderling.Client:
        if self._native is None:
            raise Closed("the store is closed")
        return self._native

    async def _last_sequence(self) -> int:
        last = 0
        while events := await self.events(last):
            last = events[-1].sequence
        return last

    async def _job(self, request: JobRequest) -> AsyncJobScope:
        registered = self._calls.run(self._client.register_job, *request)
        job = Job.of(json.loads(await registered))
        return AsyncJobScope(self, job, self._client.keep_job(job.job, request[1]))

    async def _put_in_steps(
        self, path: str, data: Any, options: _sanderling.Options, progress: Progress
    ) -> Stat:
        view = _sanderling.Buffer(data)
        native = await self._run("create", 0, self._client.create, path, options)
        async with AsyncWriter(native, path, self._run, True, progress) as writer:
            for start in range(0, len(view), STEP_BYTES):
                await writer.write(view[start : start + STEP_BYTES])
        assert writer.stat is not None
        return writer.stat

    async def _get_in_steps(self, path: str, progress: Progress) -> Buffer:
        async with await self._reader(path, progress) as reader:
            whole = memoryview(mmap.mmap(-1, reader.size) if reader.size else bytearray())
            for start in range(0, len(whole), STEP_BYTES):
                await reader.readinto(whole[start : start + STEP_BYTES])
        if reader.stat.delete_after_read:
            await self._calls.run(self._client.delete_read, path, reader.stat.object)
        return _sanderling.Buffer(whole.toreadonly())

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
        if kind == "a":
            try:
                native = await self._run("create", 0, self._client.append, path)
            except NotFound:
                native = await self._run("create", 0, self._client.create, path, options)
        else:
            native = await self._run("create", 0, self._client.create, path, options)
        return AsyncWriter(native, path, self._run, autocommit, progress)

    async def _stat(
        self,
        kind: str,
        size: int,
        call: Callable[Arguments, _sanderling.ObjectFacts],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Stat:
        return Stat.of(await self._run(kind, size, call, *given, **named))

    async def _run(
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
