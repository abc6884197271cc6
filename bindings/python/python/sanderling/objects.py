# Made by bindings/python/synchronous.py from aio/objects.py: change that.
"""Multifiles, tables and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from sanderling.containers import Parts, Values
from sanderling.arguments import PutOptions, text
from sanderling.containers import below
from sanderling.errors import BadRequest, Closed
from sanderling.metadata import Deleted, Entry, Job, JobAccount, Stat, Usage

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.files import ObjectReader, ObjectWriter
    from sanderling.store import Store


class Multifile(Parts):
    """An object of many parts, each written by a writer of its own, wherever that runs.

    Made by `Store.multifile`. Parts are read in the order of their names. Many processes may
    write parts at the same time; each part appears when its writer is closed.
    """

    def __repr__(self) -> str:
        return f"<sanderling.Multifile {self.path}>"

    def part(self, name: str, **options: Unpack[PutOptions]) -> ObjectWriter:
        """Creates a part and returns its writer, which is entered with `with`.

        Raises `Exists` when there is a part of this name, unless `replace=True`. Options are those
        of `Store.put`.
        """
        mode = "wb" if options.pop("replace", False) else "xb"
        writer: ObjectWriter = self._store.open(below(self.path, name), mode, **options)
        return writer

    def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole part from anything with a contiguous buffer, as `Store.put` does."""
        return self._store.put(below(self.path, name), data, **options)

    def get(self, name: str) -> Buffer:
        """Reads a whole part."""
        return self._store.get(below(self.path, name))

    def open_part(self, name: str) -> ObjectReader:
        """Opens a part for reading, as a binary file."""
        reader: ObjectReader = self._store.open(below(self.path, name))
        return reader

    def parts(self) -> list[Entry]:
        """Lists the parts in the order of their names: `bytes`, `is_sealed` and so on of each."""
        entries = self._store.list(self.path)
        return [part for part in entries if not part.is_container]

    def delete(self) -> Deleted:
        """Deletes the multifile with all its parts."""
        return self._store.delete(self.path, recursive=True)


class Table(Values):
    """Values by their names, which every client of the cluster shares.

    Made by `Store.table`. A value is replaced at once: a reader sees the old or the new one.
    Keys are names, without slashes; values are anything with a contiguous buffer, and are returned
    as `Buffer`. Reading a key that does not exist raises `errors.NoSuchKey`, a `KeyError`. A
    `sanderling.Table` is a `collections.abc.MutableMapping`.
    """

    def __repr__(self) -> str:
        return f"<sanderling.Table {self.path}>"

    def put(self, key: str, value: Any, **options: Unpack[PutOptions]) -> Stat:
        """Sets a value; the last one put wins. Options are those of `Store.put`."""
        options["kind"] = "key_value"
        return self._store.put(below(self.path, key), value, **options)

    def put_many(self, values: Mapping[str, Any]) -> list[Stat]:
        """Sets many values in one call. Each is replaced at once, all of them are not."""
        named = {below(self.path, key): value for key, value in values.items()}
        return self._store.put_many(named, kind="key_value")

    def get_many(self, keys: list[str]) -> list[Buffer]:
        """Reads many values in one call, in the order of the keys. Raises the first error."""
        return self._store.get_many([below(self.path, key) for key in keys])

    def delete(self) -> Deleted:
        """Deletes the table with all its values."""
        return self._store.delete(self.path, recursive=True)


class JobScope:
    """A job while its program runs. Made by `Store.job`; it ends with its `with` block.

    Its lease is renewed in the background, without Python's lock. When the block is left, by an
    error too, or the program dies, its subtree is deleted; with `keep_after` it is kept.
    """

    def __init__(self, store: Store, job: Job, renewer: _sanderling.LeaseRenewer) -> None:
        self._store = store
        self._renewer: _sanderling.LeaseRenewer | None = renewer
        self.id = job.job
        """The job's id."""
        self.path = job.path
        """The root of its subtree."""
        self.info = job
        """The job as it was registered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<sanderling.JobScope {self.id} at {self.path}>"

    @property
    def is_alive(self) -> bool:
        """Whether the job has neither been ended nor lost its lease, as far as is known here."""
        return self._renewer is not None and not self._renewer.has_ended()

    def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole object of the job, as `Store.put` does, and missing directories."""
        self._check()
        options.setdefault("parents", True)
        return self._store.put(self.path_of(name), data, **options)

    def get(self, name: str) -> Buffer:
        """Reads a whole object of the job."""
        self._check()
        return self._store.get(self.path_of(name))

    def delete(self, name: str, *, recursive: bool = False) -> None:
        """Deletes an object of the job."""
        self._check()
        self._store.delete(self.path_of(name), recursive=recursive)

    def usage(self) -> Usage:
        """Sums up what the job holds."""
        self._check()
        return self._store.usage(self.path)

    def account(self) -> JobAccount:
        """Returns how many names and bytes of attributes the job holds, and may hold."""
        self._check()
        return self._store.job_account(self.id)

    def token(
        self,
        name: str = "",
        *,
        rights: Iterable[str] = ("read", "write"),
        expires: float = 3600.0,
    ) -> str:
        """Returns a token for the job's subtree, or a part of it, for a task.

        See `Store.token`.
        """
        self._check()
        path, subject = self.path_of(name) if name else self.path, f"job-{self.id}"
        return self._store.token(path, rights=rights, expires=expires, subject=subject)

    def path_of(self, name: str) -> str:
        """Returns the whole path of a name, such as `a/b`, in the job's subtree."""
        return f"{self.path.rstrip('/')}/{text(name)}"

    def end(self) -> None:
        """Ends the job now; a second time does nothing."""
        renewer, self._renewer = self._renewer, None
        if renewer is None:
            return
        renewer.stop()
        try:
            self._store.end_job(self.id)
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
