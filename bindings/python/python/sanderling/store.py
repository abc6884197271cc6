# Made by bindings/python/synchronous.py from aio/store.py: change that.
"""The store."""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Iterator, Callable, Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from sanderling import _sanderling, arguments
from sanderling._sanderling import Buffer
from sanderling.connection import Connection
from sanderling.objects import JobScope, Multifile, Table
from sanderling.arguments import (
    COUNT_MAX,
    EVENTS_WAIT,
    LEASE_SECONDS,
    STEP_BYTES,
    JobRequest,
    Objects,
    Progress,
    PutOptions,
    job_id,
    job_request,
    millis,
    text,
    whole,
)
from sanderling.errors import NotADirectory, NotFound
from sanderling.metadata import (
    Deleted,
    Durability,
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
from sanderling.files import Arguments

# How long `wait_durable` waits without a timeout.
DURABLE_SECONDS = 7 * 24 * 3600.0

# Inside the class, `list` is the method.
Buffers = list[Buffer]
BuffersOrErrors = list[Buffer | Exception]
Stats = list[Stat]
StatsOrErrors = list[Stat | Exception]
Entries = list[Entry]
Jobs = list[Job]
Nodes = list[Node]
Events = list[Event]


class Store(Connection):
    """A connected client. Made by `sanderling.connect`; its `with` block closes it.

    Python's lock is free during every call.
    """

    def close(self) -> None:
        """Closes the connections. Later calls raise `Closed`, as do those that asyncio awaits."""
        self._disconnect()

    # Objects

    def put(
        self,
        path: str,
        data: Any,
        *,
        progress: Progress | None = None,
        **options: Unpack[PutOptions],
    ) -> Stat:
        """Writes a whole object from anything with a contiguous buffer, and returns its metadata.

        The buffer is not copied on this side: it must not change until the call returns. An older
        object is replaced at once when the new one is complete. Options (see `PutOptions`):
        `replace=False` raises `Exists` instead; `if_absent` and `if_object` hold even against
        writers that end at the same time; `parents` makes missing directories; `ttl` is in seconds;
        `attributes` are small texts kept beside the bytes; `storage_class`, `affinity`,
        `delete_after_read`, `is_listed` and `kind="key_value"` set where and how it is kept.
        `progress` is called with the bytes so far; an error that it raises discards the object.
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

        Small ones travel together. Options are those of `put`, for all of them. Returns the
        metadata of each in their order. If some fail, the others are written all the same, and the
        first error is raised; with `return_errors`, each error is in the list at its object's
        place instead.
        """
        pairs, made = arguments.named(objects), arguments.options(**options)
        size = sum(memoryview(data).nbytes for _, data in pairs) if self._observer else 0
        answers = self._run("write", size, self._client.put_many, pairs, made)
        if not return_errors:
            arguments.raise_first(answers)
        return [each if isinstance(each, Exception) else Stat.of(each) for each in answers]

    def get(self, path: str, *, progress: Progress | None = None) -> Buffer:
        """Reads a whole object.

        `progress` is called with the bytes so far, every few MiB; the bytes are copied then.
        """
        progress = arguments.callback(progress)
        if progress is not None:
            return self._get_in_steps(text(path), progress)
        return self._run("read", None, self._client.get, text(path))

    def get_into(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads into a writable, contiguous buffer, from `offset` of the object on.

        Returns how many bytes there were: fewer than the buffer has room for only at the object's
        end. Nothing is allocated for them: from the same host they are copied once, from the
        datanode's memory. After an error or a cancelled call the buffer's content is undefined.
        """
        start = whole("the offset", offset)
        size = memoryview(buffer).nbytes if self._observer else 0
        return self._run("read", size, self._client.get_into, text(path), start, buffer)

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

        Small ones come with the look-up, a hundred at once. If some cannot be read, the first error
        is raised; with `return_errors`, each error is in the list at its path's place instead.
        """
        names = [text(path) for path in paths]
        found = self._run("read", None, self._client.get_many, names)
        if not return_errors:
            arguments.raise_first(found)
        return found

    def get_range(self, path: str, offset: int, length: int) -> Buffer:
        """Reads `length` bytes from `offset`; a range past the end is refused."""
        start, size = whole("the offset", offset), whole("the length", length)
        return self._run("read", size, self._client.get_range, text(path), start, size)

    def get_ranges(self, path: str, ranges: Iterable[tuple[int, int]]) -> Buffers:
        """Reads many ranges, (offset, bytes) each, in one call per datanode."""
        wanted = arguments.pairs(ranges)
        total = sum(length for _, length in wanted)
        return self._run("read", total, self._client.get_ranges, text(path), wanted)

    def multifile(self, path: str, *, create: bool = True) -> Multifile:
        """Returns a multifile: many writers write its parts, and it is read as one stream.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            self.mkdir(path, parents=True, kind="multifile")
        return Multifile(self, text(path))

    def table(self, path: str, *, create: bool = True) -> Table:
        """Returns a table: values by their names, which all clients share.

        It is made, with missing directories, unless `create=False`.
        """
        if create:
            self.mkdir(path, parents=True, kind="table")
        return Table(self, text(path))

    def concat(
        self, parts: Iterable[str], target: str, **options: Unpack[PutOptions]
    ) -> Stat:
        """Makes one file of the blocks of others, in their order, and removes the others.

        It is one step, and no byte is moved: for objects that many workers write. Parts are sealed
        files, put with `is_inline_allowed=False` but for the first. Of the options, `replace`,
        `if_absent`, `if_object`, `parents`, `is_listed`, `ttl` and `attributes` count.
        """
        paths = [text(part) for part in parts]
        made = arguments.options(**options)
        return self._stat("create", 0, self._client.concat, paths, text(target), made)

    def stat(self, path: str) -> Stat:
        """Returns the metadata of an object; raises `NotFound`."""
        return self._stat("lookup", 0, self._client.stat, text(path))

    def exists(self, path: str) -> bool:
        """Returns whether an object has this name."""
        try:
            self.stat(path)
        except (NotADirectory, NotFound):
            return False
        return True

    def list(self, path: str = "/", *, attributes: bool = False) -> Entries:
        """Lists a directory, multifile or table in the order of names.

        With `attributes`, each entry has the texts that are kept beside its bytes.
        """
        raw = self._run("lookup", 0, self._client.list, text(path), bool(attributes))
        return [Entry.of(each) for each in json.loads(raw)]

    def walk(self, path: str = "/") -> Iterator[tuple[str, Entries]]:
        """Yields (path, entries) of each directory in a subtree, the upper ones first."""
        to_list = [text(path)]
        while to_list:
            directory = to_list.pop()
            entries = self.list(directory)
            yield directory, entries
            below = [entry.name for entry in entries if entry.is_container]
            to_list += [f"{directory.rstrip('/')}/{name}" for name in reversed(below)]

    def delete(
        self, path: str, *, recursive: bool = False, if_object: int | None = None
    ) -> Deleted:
        """Deletes an object; a directory that is not empty only when `recursive`.

        With `if_object`, raises `Changed` when another object has the name by now, and deletes
        nothing. A durable directory, or the root of a job, is then deleted only when `recursive`.
        """
        expected = arguments.some_whole("if_object", if_object)
        delete = self._client.delete
        return Deleted(*self._run("delete", 0, delete, text(path), recursive, expected))

    def make_durable(
        self,
        path: str,
        store: str,
        *,
        parents: bool = False,
        backlog_max: int | None = None,
        adopt: bool = False,
    ) -> Stat:
        """Makes a directory of which everything that is sealed is copied to a store.

        Datanodes name their stores by `--durable NAME=URL`. While `backlog_max` bytes wait for the
        store, writers below the directory wait: 16 GiB by default. With `parents`, missing
        directories above are made, and the directory may have this store already: without
        `backlog_max` it keeps its bound. With `adopt`, what an earlier cluster left in the store
        becomes the directory's; `wait_durable` waits until it is there.
        """
        bound = arguments.some_whole("backlog_max", backlog_max)
        made = self._client.make_durable
        name, into = text(path), text(store)
        return self._stat("create", 0, made, name, into, parents, bound, adopt)

    def durability(self, path: str) -> Durability | None:
        """Returns how far an object or a directory is copied to its store.

        `None` outside of durable directories.
        """
        raw = json.loads(self._call(self._client.durability, text(path)))
        return None if raw is None else Durability.of(raw)

    def wait_durable(self, path: str, *, timeout: float | None = None) -> None:
        """Waits until the store has everything that was sealed at or below a path before.

        Raises `TimeoutError` after so many seconds, with what waits and why.
        """
        within = millis("timeout", DURABLE_SECONDS if timeout is None else timeout)
        left = json.loads(self._call(self._client.wait_durable, text(path), within))
        if left is not None:
            found = Durability.of(left)
            why = found.stalled or "it is slow"
            raise TimeoutError(
                f"{found.backlog_changes} changes of {found.directory} wait for the store "
                f"{found.store}: {why}"
            )

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Moves an object, with everything in it, to another name at once."""
        self._run("lookup", 0, self._client.rename, text(source), text(target), replace)

    def mkdir(
        self, path: str, *, parents: bool = False, kind: str = "directory"
    ) -> Stat:
        """Makes a `directory`, `multifile` or `table`.

        `parents` makes missing directories above it and accepts that it exists already.
        """
        return self._stat(
            "create", 0, self._client.make_directory, text(path), kind, parents
        )

    def set_ttl(self, path: str, ttl: float | None) -> None:
        """Deletes an object in so many seconds from now; None keeps it."""
        left = arguments.some_millis("ttl", ttl)
        self._call(self._client.set_ttl, text(path), left)

    def set_attributes(
        self, path: str, attributes: Mapping[str, str], *, if_object: int | None = None
    ) -> Stat:
        """Sets the texts kept beside an object's bytes, in place of all earlier ones.

        With `if_object`, raises `Changed` when another object has the name by now.
        """
        expected = arguments.some_whole("if_object", if_object)
        pairs = arguments.texts(attributes)
        answer = self._call(self._client.set_attributes, text(path), pairs, expected)
        return Stat.of(answer)

    def usage(self, path: str = "/") -> Usage:
        """Sums up what a subtree holds."""
        return Usage(*self._call(self._client.usage, text(path)))

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
        """Makes a job: a subtree that goes when its `with` block ends or the program dies.

        Its lease is renewed in the background; `lifetime` is how long, in seconds, the subtree
        outlives a program that died. Writes beyond `quota` bytes are refused with `Full`, and so
        are those beyond `names_max` directories and objects, the subtree's root among them, or
        `attribute_bytes_max` bytes of attributes. `keep_after` keeps the subtree when the job ends;
        with `delete_after_read`, the first whole `get` of an object deletes it. Two hints decide
        what leaves a dying node first: `recompute_per_mib`, the seconds of work that it costs to
        compute a MiB again, and `expected_reads` of each byte. Three are stored and shown, and
        decide nothing yet: `expected_bytes` at the peak, `throughput` in bytes per second, and
        `latency_sensitive`.
        """
        request = job_request(
            path,
            lifetime,
            quota=quota,
            names_max=names_max,
            attribute_bytes_max=attribute_bytes_max,
            expected_bytes=expected_bytes,
            throughput=throughput,
            latency_sensitive=latency_sensitive,
            delete_after_read=delete_after_read,
            keep_after=keep_after,
            recompute_per_mib=recompute_per_mib,
            expected_reads=expected_reads,
        )
        return self._job(request)

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
        """Makes a job that the caller renews: it ends when its lease, in seconds, runs out.

        `job` renews by itself, and takes all hints. The limits are those of `job`.
        """
        request = job_request(
            path,
            lease,
            quota=quota_bytes,
            names_max=names_max,
            attribute_bytes_max=attribute_bytes_max,
            recompute_per_mib=recompute_per_mib,
            expected_reads=expected_reads,
        )
        return Job.of(json.loads(self._call(self._client.register_job, *request)))

    def job_account(self, job: int | Job) -> JobAccount:
        """Returns how many names and bytes of attributes a job holds, and may hold."""
        return JobAccount(*self._call(self._client.job_account, job_id(job)))

    def renew_job(self, job: int | Job) -> None:
        """Renews a job's lease."""
        self._call(self._client.renew_job, job_id(job))

    def end_job(self, job: int | Job) -> None:
        """Ends a job and deletes its subtree, unless it is to be kept."""
        self._call(self._client.end_job, job_id(job))

    def token(
        self, subtree: str, *, rights: Iterable[str], expires: float, subject: str = "python"
    ) -> str:
        """Returns a token for a subtree that allows no more than this client's own, nor longer.

        `rights` are some of `read`, `write`, `admin` and `metrics`; it ends `expires` seconds from
        now. A cluster without access control refuses it with `BadRequest`.
        """
        named, left = arguments.names(rights), millis("expires", expires)
        return self._call(self._client.token, text(subtree), named, left, subject)

    def jobs(self) -> Jobs:
        """Lists the jobs."""
        return [Job.of(each) for each in json.loads(self._call(self._client.jobs))]

    # The cluster

    def nodes(self, *, all: bool = False) -> Nodes:
        """Lists the datanodes; with `all` also those that are gone."""
        raw = self._call(self._client.nodes, bool(all))
        return [Node.of(each) for each in json.loads(raw)]

    def notice(self, node: int | str, deadline_seconds: float, reason: str = "") -> Node:
        """Gives a node notice: its data leaves before the deadline, in seconds from now."""
        left = millis("deadline_seconds", deadline_seconds)
        raw = self._call(self._client.notice, str(node), left, reason)
        return Node.of(json.loads(raw))

    def decommission(self, node: int | str, reason: str = "") -> Node:
        """Removes a node in order, without a deadline."""
        raw = self._call(self._client.decommission, str(node), reason)
        return Node.of(json.loads(raw))

    def cancel(self, node: int | str) -> Node:
        """Cancels a notice or decommission."""
        return Node.of(json.loads(self._call(self._client.cancel, str(node))))

    def events(self, after: int = 0, *, limit: int = 1000, wait: float = 0.0) -> Events:
        """Returns events after a sequence; waits up to `wait` seconds for the first."""
        after, most = whole("after", after), whole("limit", limit, COUNT_MAX)
        raw = self._call(self._client.events, after, most, millis("wait", wait))
        return [Event.of(each) for each in json.loads(raw)]

    def follow(
        self, after: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Event]:
        """Yields events as they happen, and waits for the next one; Ctrl-C ends it.

        It begins behind the sequence `after`: that of the last event seen continues an earlier one,
        0 begins with the oldest event that is kept, and None with the next one. It ends when there
        was no event for `timeout` seconds.
        """
        left = arguments.some_millis("timeout", timeout)
        return self._follow(self._first(after), None if left is None else left / 1000)

    def report(self) -> LossReport:
        """Returns everything that was declared lost so far."""
        return LossReport.of(json.loads(self._call(self._client.report)))

    def fsck(self) -> Fsck:
        """Checks the catalog against itself."""
        return Fsck(**json.loads(self._call(self._client.fsck)))

    def metrics(self) -> dict[str, float]:
        """Returns what this client counted: retries, moved blocks, failed calls, bytes, and the
        longest stall in seconds. It sends no request."""
        return self._client.metrics()

    # Below

    def _first(self, after: int | None) -> int:
        """Returns the sequence of the last event that is not followed."""
        last = 0 if after is None else whole("after", after)
        while after is None and (events := self.events(last)):
            last = events[-1].sequence
        return last

    def _follow(self, first: int, timeout: float | None) -> Iterator[Event]:
        last, received_at = first, time.monotonic()
        while True:
            left = EVENTS_WAIT if timeout is None else timeout - (time.monotonic() - received_at)
            events = self.events(last, wait=max(min(left, EVENTS_WAIT), 0.0))
            if not events and timeout is not None and left <= EVENTS_WAIT:
                return
            for event in events:
                last = event.sequence
                yield event
            if events:
                received_at = time.monotonic()

    def _job(self, request: JobRequest) -> JobScope:
        job = Job.of(json.loads(self._call(self._client.register_job, *request)))
        return JobScope(self, job, self._client.keep_job(job.job, request[1]))

    def _put_in_steps(
        self, path: str, data: Any, options: _sanderling.Options, progress: Progress
    ) -> Stat:
        view = _sanderling.Buffer(data)
        with self._writer(path, "w", options, True, progress) as writer:
            for start in range(0, len(view), STEP_BYTES):
                writer.write(view[start : start + STEP_BYTES])
        assert writer.stat is not None
        return writer.stat

    def _get_in_steps(self, path: str, progress: Progress) -> Buffer:
        with self._reader(path, progress) as reader:
            # Not bytearray: it would touch all of its memory once more.
            whole = memoryview(mmap.mmap(-1, reader.size) if reader.size else bytearray())
            for start in range(0, len(whole), STEP_BYTES):
                reader.readinto(whole[start : start + STEP_BYTES])
        if reader.stat.delete_after_read:
            self._call(self._client.delete_read, path, reader.stat.object)
        return _sanderling.Buffer(whole.toreadonly())

    def _stat(
        self,
        kind: str,
        size: int,
        call: Callable[Arguments, _sanderling.ObjectMetadata],
        /,
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Stat:
        return Stat.of(self._run(kind, size, call, *given, **named))
