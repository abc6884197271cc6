"""Transactions of the fsspec filesystem: files that appear together or not at all."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from fsspec.transaction import Transaction

from sanderling.errors import Exists

if TYPE_CHECKING:
    from sanderling.files import ObjectWriter
    from sanderling.fs import SanderlingFileSystem

HIDDEN = ".transaction-"
"""How the names begin under which files wait for the commit. Tools that read whole directories pass
over names with a leading dot."""

_COPY_BYTES = 8 << 20
"""Bytes in memory while an object is copied to be appended to."""


class StoreTransaction(Transaction):
    """Holds written files back until the end of the `with` block.

    They are written under hidden names and not sealed before the commit: what a program that dies
    leaves behind goes with its lease. The commit seals all of them, which can fail, and only then
    gives them their names, which is a change of the catalog each.
    """

    def complete(self, commit: bool = True) -> None:
        """Gives all files their names, or gives all of them up.

        If one cannot be sealed, or exists and must not, none appears and its error is raised.
        """
        waiting = list(self.files)
        self.files.clear()
        fs = self.fs
        try:
            if commit:
                _publish(fs, waiting)
            else:
                _give_up(fs, waiting)
        finally:
            super().complete(commit=False)

    def stage(self, path: str, mode: str, options: dict[str, Any]) -> ObjectWriter:
        """Opens a file that will be called `path` after the commit."""
        store, parent = self.fs.store, self.fs._parent(path)
        if mode == "xb" and store.exists(path):
            raise Exists(f"{path} exists")
        hidden = f"{parent.rstrip('/')}/{HIDDEN}{uuid.uuid4().hex}"
        file: Any = store.open(hidden, "wb", parents=True, autocommit=False, **options)
        file.target, file.replaces = path, mode != "xb"
        if mode == "ab" and store.exists(path):
            with store.open(path) as old:
                while data := old.read(_COPY_BYTES):
                    file.write(data)
        writer: ObjectWriter = file
        return writer


def _publish(fs: SanderlingFileSystem, waiting: list[Any]) -> None:
    store = fs.store
    try:
        for file in waiting:
            file.close()
            file.commit()
        # A file that its own `with` block gave up is no part of it.
        waiting = [file for file in waiting if file.stat is not None]
        for file in waiting:
            if not file.replaces and store.exists(file.target):
                raise Exists(f"{file.target} exists")
    except BaseException:
        _give_up(fs, waiting)
        raise
    for index, file in enumerate(waiting):
        try:
            store.rename(file.name, file.target, replace=file.replaces)
        except BaseException:
            _give_up(fs, waiting[index:])
            raise
        fs.invalidate_cache(file.target)


def _give_up(fs: SanderlingFileSystem, waiting: list[Any]) -> None:
    """Leaves nothing of the files; what cannot be deleted now goes unnamed by anybody."""
    for file in waiting:
        with contextlib.suppress(Exception):
            file.discard()
        with contextlib.suppress(Exception):
            if file.stat is not None:
                fs.store.delete(file.name)
