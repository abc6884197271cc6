"""Multifiles, tables and jobs, for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from sanderling.aio.containers import Parts, Values
from sanderling.aio.entered import Entered
from sanderling.arguments import PutOptions, text
from sanderling.containers import below
from sanderling.errors import BadRequest, Closed
from sanderling.metadata import Deleted, Entry, Job, JobAccount, Stat, Usage

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.aio.files import AsyncReader, AsyncWriter
    from sanderling.aio.store import AsyncStore


class AsyncMultifile(Parts):
    """An object of many parts, each written by a writer of its own, wherever that runs.

    Made by `AsyncStore.multifile`. Parts are read in the order of their names. Many processes may
    write parts at the same time; each part appears when its writer is closed.
    """

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncMultifile {self.path}>"

    def part(self, name: str, **options: Unpack[PutOptions]) -> Entered[AsyncWriter]:
        """Creates a part and returns its writer, which is entered with `async with`.

        Raises `Exists` when there is a part of this name, unless `replace=True`. Options are those
        of `AsyncStore.put`.
        """
        mode = "wb" if options.pop("replace", False) else "xb"
        writer: Entered[AsyncWriter] = self._store.open(below(self.path, name), mode, **options)
        return writer

    async def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole part from anything with a contiguous buffer, as `AsyncStore.put` does."""
        return await self._store.put(below(self.path, name), data, **options)

    async def get(self, name: str) -> Buffer:
        """Reads a whole part."""
        return await self._store.get(below(self.path, name))

    def open_part(self, name: str) -> Entered[AsyncReader]:
        """Opens a part for reading, as a binary file."""
        reader: Entered[AsyncReader] = self._store.open(below(self.path, name))
        return reader

    async def parts(self) -> list[Entry]:
        """Lists the parts in the order of their names: `bytes`, `is_sealed` and so on of each."""
        entries = await self._store.list(self.path)
        return [part for part in entries if not part.is_container]

    async def delete(self) -> Deleted:
        """Deletes the multifile with all its parts."""
        return await self._store.delete(self.path, recursive=True)


class AsyncTable(Values):
    """Values by their names, which every client of the cluster shares.

    Made by `AsyncStore.table`. A value is replaced at once: a reader sees the old or the new one.
    Keys are names, without slashes; values are anything with a contiguous buffer, and are returned
    as `Buffer`. Reading a key that does not exist raises `errors.NoSuchKey`, a `KeyError`. A
    `sanderling.Table` is a `collections.abc.MutableMapping`.
    """

    def __repr__(self) -> str:
        return f"<sanderling.aio.AsyncTable {self.path}>"

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

    async def delete(self) -> Deleted:
        """Deletes the table with all its values."""
        return await self._store.delete(self.path, recursive=True)


class AsyncJobScope:
    """A job while its program runs. Made by `AsyncStore.job`; it ends with its `async with` block.

    Its lease is renewed in the background, without Python's lock. When the block is left, by an
    error too, or the program dies, its subtree is deleted; with `keep_after` it is kept.
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

    async def __aenter__(self) -> Self:
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
        """Writes a whole object of the job, as `AsyncStore.put` does, and missing directories."""
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
        """Returns a token for the job's subtree, or a part of it, for a task.

        See `AsyncStore.token`.
        """
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
            # Its lease has ended, or another program ended it.
            if error.kind != "UnknownJob":
                raise

    deregister = end

    def detach(self) -> Job:
        """Stops renewing: another program renews the job within its lifetime (`renew_job`)."""
        self._check()
        assert self._renewer is not None
        self._renewer.stop()
        self._renewer = None
        return self.info

    def _check(self) -> None:
        if self._renewer is None:
            raise Closed("the job was ended")
