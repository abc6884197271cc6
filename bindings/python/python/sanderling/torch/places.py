"""Where checkpoints are: a directory of a store, or what a durable directory's store has of it."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from sanderling import _sanderling
from sanderling.connection import connect
from sanderling.errors import (
    DataUnavailable,
    NotADirectory,
    NotAllowed,
    NotFound,
    TimedOut,
    Unreachable,
)
from sanderling.extras import missing
from sanderling.metadata import Entry
from sanderling.store import Store
from sanderling.torch.layout import HEAD_BYTES, METADATA, sealed_at

TIMEOUT_SECONDS = 60.0
"""How long a call takes at most when only an address is given."""

STEP_BYTES = 64 << 20
"""What one call reads or writes at most: each has the whole of the timeout."""

BESIDE_SECONDS = 2.0
"""How long a save looks at the checkpoints beside it before it seals its own. Chosen, not measured:
a look takes milliseconds, and a machine that is to end has 30 s for the whole save."""

BESIDE_CALL_SECONDS = 1.0
"""How long one call of that look takes at most, so that a read that hangs leaves time for others.
Chosen, not measured."""


class File(Protocol):
    """An open object."""

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer. Raises `EOFError` where the object ends before."""

    def close(self) -> None:
        """Frees what it holds."""


class Place(Protocol):
    """Reads the objects of a directory."""

    def read(self, path: str) -> Any:
        """Returns a whole object. Raises `FileNotFoundError`."""

    def open(self, path: str) -> File:
        """Opens an object. Raises `FileNotFoundError`."""

    def ages(self, directory: str) -> Iterator[tuple[Any, str]]:
        """Yields for each checkpoint below a directory what orders them, and its path."""


class Stores:
    """The store of a process: connected again after a fork, and after a pickle."""

    def __init__(self, given: Store | str | None) -> None:
        self._given = given if isinstance(given, Store) else None
        self._pid = os.getpid()
        self.address = given.address if isinstance(given, Store) else given

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": None, "_pid": 0, "address": self.address}

    def get(self) -> Store:
        """Returns the store of this process."""
        if self._given is None or self._pid != os.getpid():
            self._given = connect(self.address, timeout=TIMEOUT_SECONDS)
            self._pid = os.getpid()
        return self._given


class AtDirectory:
    """What a reader and a writer have in common: the directory of the checkpoint."""

    _path: str | None = None

    @property
    def checkpoint_id(self) -> str:
        """The directory of the checkpoint."""
        return self._directory()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns whether a name can be that of a checkpoint here."""
        text = os.fspath(checkpoint_id)
        return text.startswith("/") or split(text) is not None

    def _directory(self) -> str:
        if self._path is None:
            kind = type(self).__name__
            raise ValueError(f"the checkpoint has no path: give {kind} one, or checkpoint_id")
        return self._path


class ObjectFile:
    """An object of the store."""

    def __init__(self, store: Store, path: str) -> None:
        self._file = store.open(path, buffer_bytes=0)

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer, from the datanode's memory where it is on this machine."""
        self._file.seek(offset)
        fill(self._file, buffer)

    def close(self) -> None:
        """Closes the object."""
        self._file.close()


class StorePlace:
    """Directories of a store."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def read(self, path: str) -> Any:
        """Returns a whole object."""
        return self._stores.get().get(path)

    def open(self, path: str) -> File:
        """Opens an object."""
        return ObjectFile(self._stores.get(), path)

    def ages(self, directory: str) -> Iterator[tuple[Any, str]]:
        """Yields checkpoints; a later one was sealed later, by the clocks of the coordinators.

        Objects that were adopted or put have the order of their names. So the greater object is
        the later one only among checkpoints of the same time.
        """
        store = self._stores.get()
        for entry in store.list(directory):
            path = join(directory, entry.name)
            if (found := age(store, path)) is not None:
                yield found, path


class CopiedFile:
    """A file that another filesystem has."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer."""
        self._file.seek(offset)
        fill(self._file, buffer)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class CopyPlace:
    """What the store of a durable directory has, read by fsspec without a cluster."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError as error:
            raise missing(f"reading {url}", "fsspec", error) from None
        self._fs, self._root = url_to_fs(url)

    def read(self, path: str) -> Any:
        """Returns a whole file."""
        return self._fs.cat_file(self._at(path))

    def open(self, path: str) -> File:
        """Opens a file."""
        return CopiedFile(self._fs.open(self._at(path), "rb"))

    def ages(self, directory: str) -> Iterator[tuple[Any, str]]:
        """Yields checkpoints; a later one was sealed later, by the clocks of the coordinators."""
        self._fs.invalidate_cache()
        for found in self._fs.ls(self._at(directory), detail=False):
            path = join(directory, found.rstrip("/").rpartition("/")[2])
            try:
                # By their names: s3fs has another parameter before them.
                head = self._fs.cat_file(self._at(join(path, METADATA)), start=0, end=HEAD_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if (moment := sealed_at(head)) is not None:
                yield moment, path

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path.strip('/')}"


def place(given: Store | str | None) -> Place:
    """Returns the place that a store, an address or a URL means."""
    if isinstance(given, str) and "://" in given:
        return CopyPlace(given)
    return StorePlace(Stores(given))


def split(identifier: str | os.PathLike[str]) -> tuple[str | None, str] | None:
    """Returns the address, if any, and the path of a `sanderling://` URL; `None` of another."""
    text = os.fspath(identifier)
    return _sanderling.split_url(text) if text.startswith("sanderling://") else None


def join(directory: str, name: str) -> str:
    """Returns the path of a name in a directory."""
    return f"{directory.rstrip('/')}/{name}"


def fill(file: Any, buffer: memoryview) -> None:
    """Reads until the buffer is full, in steps that a call's timeout is long enough for."""
    done = 0
    while done < len(buffer):
        count = file.readinto(buffer[done : done + STEP_BYTES])
        if not count:
            raise EOFError(f"{getattr(file, 'name', 'the object')} ends {len(buffer) - done} "
                           "bytes too early: it is not the one that was written; "
                           "load an older checkpoint")
        done += count


def age(store: Store, path: str) -> tuple[int, int] | None:
    """Returns when the checkpoint of a directory was sealed, and the object of its metadata.

    `None` if the directory has none, or none that can be loaded.
    """
    place, head = join(path, METADATA), bytearray(HEAD_BYTES)
    try:
        found = store.stat(place)
        if found.is_container or found.bytes < HEAD_BYTES:
            return None
        store.get_into(place, head)
    except (NotFound, NotADirectory):
        return None
    except DataUnavailable:
        warnings.warn(f"{path} is passed over: bytes of {METADATA} are lost, so it cannot "
                      "be loaded; delete it", RuntimeWarning)
        return None
    moment = sealed_at(bytes(head))
    return None if moment is None else (moment, found.object)


def newest_beside(stores: Stores, path: str) -> int:
    """Returns the time of the newest checkpoint in the directory of a path; 0 without one.

    A checkpoint that cannot be read now is passed over, and a directory that a token does not cover
    fails no save. The look ends after about `BESIDE_SECONDS`, whatever hangs; it begins with the
    directories that were made last.
    """
    parent = path.rstrip("/").rpartition("/")[0] or "/"
    store, until = stores.get(), time.monotonic() + BESIDE_SECONDS
    entries: list[Entry] = []
    with contextlib.suppress(NotAllowed, TimedOut, Unreachable):
        entries = hurried(store, BESIDE_SECONDS).list(parent)
    newest = 0
    for entry in sorted(entries, key=lambda entry: entry.object, reverse=True):
        left = until - time.monotonic()
        if left <= 0:
            break
        with contextlib.suppress(NotAllowed, TimedOut, Unreachable):
            found = age(hurried(store, min(left, BESIDE_CALL_SECONDS)), join(parent, entry.name))
            newest = max(newest, found[0] if found else 0)
    return newest


def hurried(store: Store, seconds: float) -> Store:
    """Returns a store on the same connections, whose calls take at most so many seconds."""
    native = store._client.within(max(1, int(seconds * 1000)))
    return Store(native, store.address, store._observer, seconds)


def latest(given: Store | str | None, directory: str) -> str | None:
    """Returns the path of the newest checkpoint in a directory, or `None` without one.

    A checkpoint is a directory in it whose metadata is sealed; what an interrupted save left is
    passed over. The newest is the one that was sealed last: its time is that of the rank's clock,
    or later than that of each checkpoint which the directory had, whatever the clock showed.
    `given` is a store, an address, or the URL of a durable directory's store. Of several ranks one
    decides and sends the others its answer: a rank that calls this later may get another one.
    """
    try:
        found = list(place(given).ages(directory))
    except (FileNotFoundError, NotADirectory):
        return None
    return max(found)[1] if found else None
