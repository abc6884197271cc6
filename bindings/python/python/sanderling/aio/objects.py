"""Multifiles, tables and jobs, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from sanderling.aio.calls import Entered
from sanderling.arguments import PutOptions, text
from sanderling.errors import BadRequest, Closed, NotFound
from sanderling.facts import Deleted, Entry, Job, JobAccount, Stat, Usage
from sanderling.multifiles import below
from sanderling.tables import KEYS_AT_ONCE, missing

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.aio.files import AsyncReader, AsyncWriter
    from sanderling.aio.store import AsyncStore


class AsyncMultifile:
    """An object of many parts, each written by a writer of its own, wherever that runs.

    Made by `AsyncStore.multifile`. Parts are read in the order of their names.
    """

    def __init__(self, store: AsyncStore, path: str) -> None:
        self._store = store
        self.path = path

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncMultifile {self.path}>"

    def part(self, name: str, **options: Unpack[PutOptions]) -> Entered[AsyncWriter]:
        """Creates a part: await its writer, or enter it with `async with`.

        Raises `Exists` when there is a part of this name, unless `replace=True`.
        """
        mode = "wb" if options.pop("replace", False) else "xb"
        return self._store.open(below(self.path, name), mode, **options)

    async def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole part from anything with a contiguous buffer, as `put` does."""
        return await self._store.put(below(self.path, name), data, **options)

    async def get(self, name: str) -> Buffer:
        """Reads a whole part."""
        return await self._store.get(below(self.path, name))

    def open_part(self, name: str) -> Entered[AsyncReader]:
        """Opens a part for reading."""
        return self._store.open(below(self.path, name))

    async def parts(self) -> list[Entry]:
        """Lists the parts in the order of their names."""
        entries = await self._store.list(self.path)
        return [part for part in entries if not part.is_container]

    async def stream(self) -> AsyncIterator[Buffer]:
        """Yields the bytes of all parts, one after the other, a few MiB at a time.

        Parts created from now on are not in it. A part that fails raises its error.
        """
        native = await self._store._calls.run(self._store._client.stream, self.path)
        while (piece := await self._store._run("read", None, native.next)) is not None:
            if piece:
                yield piece

    async def delete(self) -> Deleted:
        """Deletes the multifile with all its parts."""
        return await self._store.delete(self.path, recursive=True)


class AsyncTable:
    """Values by their names, which every client of the cluster shares.

    Made by `AsyncStore.table`. A value is replaced at once. Keys are names, without slashes.
    """

    def __init__(self, store: AsyncStore, path: str) -> None:
        self._store = store
        self.path = path

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncTable {self.path}>"

    async def get(self, key: str) -> Buffer:
        """Returns a value; raises `errors.NoSuchKey`, which is a `KeyError`."""
        try:
            return await self._store.get(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    async def put(self, key: str, value: Any, **options: Unpack[PutOptions]) -> Stat:
        """Sets a value; the last one put wins. Options are those of `AsyncStore.put`."""
        options["kind"] = "key_value"
        return await self._store.put(below(self.path, key), value, **options)

    async def put_many(self, values: Mapping[str, Any]) -> list[Stat]:
        """Sets many values in one call. Each is replaced at once, all of them are not."""
        named = {below(self.path, key): value for key, value in values.items()}
        return await self._store.put_many(named, kind="key_value")

    async def get_many(self, keys: list[str]) -> list[Buffer]:
        """Reads many values in one call, in the order of the keys. Raises the first error."""
        return await self._store.get_many([below(self.path, key) for key in keys])

    async def contains(self, key: str) -> bool:
        """Tells whether there is such a key."""
        return await self._store.exists(below(self.path, key))

    async def keys(self) -> list[str]:
        """Lists the keys in their order."""
        return [entry.name for entry in await self._store.list(self.path)]

    async def items(self) -> AsyncIterator[tuple[str, Buffer]]:
        """Yields keys and values, and reads a thousand values per call."""
        keys = await self.keys()
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            paths = [below(self.path, key) for key in some]
            values = await self._store.get_many(paths, return_errors=True)
            for key, value in zip(some, values):
                # It went after it was listed.
                if isinstance(value, NotFound):
                    continue
                if isinstance(value, Exception):
                    raise value
                yield key, value

    async def remove(self, key: str) -> None:
        """Deletes a value; raises `errors.NoSuchKey`."""
        try:
            await self._store.delete(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    async def delete(self) -> Deleted:
        """Deletes the table with all its values."""
        return await self._store.delete(self.path, recursive=True)


class AsyncJobScope:
    """A job while its program runs. Made by `AsyncStore.job`; left, it ends.

    Its lease is renewed in the background, also while the loop is busy. When the `async with` block
    is left, or the program dies, the subtree goes; with `keep_after` it stays.
    """

    def __init__(self, store: AsyncStore, job: Job, renewer: _sanderling.LeaseRenewer) -> None:
        self._store = store
        self._renewer: _sanderling.LeaseRenewer | None = renewer
        self.id = job.job
        """The job's id."""
        self.path = job.path
        """The root of its subtree."""
        self.info = job
        """The job as it was registered."""

    async def __aenter__(self) -> AsyncJobScope:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.end()

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncJobScope {self.id} at {self.path}>"

    @property
    def is_alive(self) -> bool:
        """Whether the job has neither been ended nor lost its lease, as far as is known here."""
        return self._renewer is not None and not self._renewer.has_ended()

    async def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole object of the job; missing directories are made."""
        self._check()
        options.setdefault("parents", True)
        return await self._store.put(self.path_of(name), data, **options)

    async def get(self, name: str) -> Buffer:
        """Reads a whole object of the job."""
        self._check()
        return await self._store.get(self.path_of(name))

    async def delete(self, name: str, *, recursive: bool = False) -> None:
        """Deletes an object of the job."""
        self._check()
        await self._store.delete(self.path_of(name), recursive=recursive)

    async def usage(self) -> Usage:
        """Sums up what the job holds."""
        self._check()
        return await self._store.usage(self.path)

    async def account(self) -> JobAccount:
        """Returns how many names and bytes of attributes the job holds, and may hold."""
        self._check()
        return await self._store.job_account(self.id)

    async def token(
        self,
        name: str = "",
        *,
        rights: Iterable[str] = ("read", "write"),
        expires: float = 3600.0,
    ) -> str:
        """Returns a token for the job's subtree, or a part of it, to hand to a task."""
        self._check()
        path, subject = self.path_of(name) if name else self.path, f"job-{self.id}"
        return await self._store.token(path, rights=rights, expires=expires, subject=subject)

    def path_of(self, name: str) -> str:
        """Returns the whole path of a name, such as `a/b`, in the job's subtree."""
        return f"{self.path.rstrip('/')}/{text(name)}"

    async def end(self) -> None:
        """Ends the job now; a second time does nothing."""
        renewer, self._renewer = self._renewer, None
        if renewer is None:
            return
        renewer.stop()
        try:
            await self._store.end_job(self.id)
        except BadRequest as error:
            # Its lease has ended, or somebody else was first.
            if error.kind != "UnknownJob":
                raise

    deregister = end

    def detach(self) -> Job:
        """Leaves the job to somebody else, who renews it within its lifetime (`renew_job`)."""
        self._check()
        assert self._renewer is not None
        self._renewer.stop()
        self._renewer = None
        return self.info

    def _check(self) -> None:
        if self._renewer is None:
            raise Closed("the job was ended")
