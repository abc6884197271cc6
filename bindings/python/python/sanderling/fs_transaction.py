"""Transactions of the fsspec filesystem: files that appear together or not at all."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from fsspec.transaction import Transaction

from sanderling.errors import (
    Changed,
    Exists,
    IsADirectory,
    NotFound,
    Recovery,
    SanderlingError,
)

if TYPE_CHECKING:
    from sanderling.files import ObjectWriter
    from sanderling.fs import SanderlingFileSystem
    from sanderling.store import Store

HIDDEN = ".transaction-"
"""How the names begin under which files wait for the commit. Tools that read whole directories pass
over names with a leading dot."""

HIDDEN_SECONDS = 24 * 3600.0
"""The time to live of a file that waits for the commit, from its creation on: what a program leaves
that is killed in its commit is deleted by then. A transaction may last as long."""

GIVEN_UP_SECONDS = 1.0
"""The time to live of a file of a transaction that failed: what waits for the store of a durable
directory cannot be deleted before it is there."""

_COPY_BYTES = 8 << 20
"""Bytes in memory while an object is copied to be appended to."""


class StoreTransaction(Transaction):
    """Holds written files back until the end of the `with` block.

    They have no name and are not sealed before the commit: what a program that dies leaves behind
    goes with its lease. The commit seals all of them under hidden names, checks their targets, and
    waits until the stores of durable directories have the files, all of which can fail. Only then
    it gives them their names, which is a change of the catalog each.
    """

    def complete(self, commit: bool = True) -> None:
        """Gives all files their names, or gives all of them up.

        None appears if one cannot be sealed or its target is a directory, exists and must not, or
        is not as it was when it was copied to be appended to, or if the store of a durable
        directory does not have one within the time of a call; that error is raised.
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
        """Opens a file that will be called `path` after the commit.

        Refuses `if_object`: a rename cannot check it.
        """
        store, parent = self.fs.store, self.fs._parent(path)
        options = dict(options)
        if options.pop("if_object", None) is not None:
            raise NotImplementedError(
                f"{path}: a transaction cannot check if_object: write the file outside of it"
            )
        is_new = mode == "xb" or bool(options.pop("if_absent", False))
        if is_new and store.exists(path):
            raise Exists(f"{path} exists")
        is_kept = options.get("ttl") is None
        if is_kept:
            options["ttl"] = HIDDEN_SECONDS
        hidden = f"{parent.rstrip('/')}/{HIDDEN}{uuid.uuid4().hex}"
        file: Any = store.open(hidden, "wb", parents=True, autocommit=False, **options)
        file.target, file.replaces, file.is_kept = path, not is_new, is_kept
        file.appends_to = None
        file.is_wrapped = False
        if mode == "ab":
            file.appends_to = _copied(store, path, file)
            file.replaces = file.appends_to is not None
        writer: ObjectWriter = file
        return writer


def _copied(store: Store, path: str, file: ObjectWriter) -> tuple[int, int] | None:
    """Begins a file with the bytes of an object, and returns its number and its bytes; None if
    there is no object."""
    try:
        with store.open(path) as old:
            while data := old.read(_COPY_BYTES):
                file.write(data)
            return old.stat.object, old.size
    except NotFound:
        return None
    except BaseException:
        file.abort()
        raise


def _publish(fs: SanderlingFileSystem, waiting: list[Any]) -> None:
    try:
        for file in waiting:
            if file.is_wrapped and not file.closed:
                raise ValueError(f"{file.target} is still open: close it before the commit")
            file.close()
            file.commit()
        # A file that its own `with` block gave up is no part of it.
        waiting = [file for file in waiting if file.stat is not None]
        _check_all(fs.store, waiting)
        if _wait_for_stores(fs, waiting):
            # That took its time.
            _check_all(fs.store, waiting)
    except BaseException:
        _give_up(fs, waiting)
        raise
    renamed, replaced = _last_of_each_name(waiting)
    try:
        while renamed:
            _rename(fs, renamed[0])
            del renamed[0]
    finally:
        _give_up(fs, renamed + replaced)


def _rename(fs: SanderlingFileSystem, file: Any) -> None:
    if file.is_kept:
        # Not after the rename: a committed file must not end if this program does.
        fs.store.set_ttl(file.name, None)
    fs.store.rename(file.name, file.target, replace=file.replaces)
    fs.invalidate_cache(file.target)


def _last_of_each_name(waiting: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the files that get their names, and those that a later one of the name replaces.

    These are not renamed before: in a durable directory, a file cannot be replaced before its store
    has it.
    """
    last = {file.target: file for file in waiting}
    renamed = [file for file in waiting if last[file.target] is file]
    replaced = [file for file in waiting if last[file.target] is not file]
    for file in replaced:
        last[file.target].replaces &= file.replaces
    return renamed, replaced


def _wait_for_stores(fs: SanderlingFileSystem, waiting: list[Any]) -> bool:
    """Waits until the stores of durable directories have all files, as a rename requires, and the
    objects that they replace. Returns whether there are such directories.

    Raises `TimeoutError` if the store does not have one of them within the time of a call.
    """
    store = fs.store
    is_durable: dict[str, bool] = {}
    for file in waiting:
        parent = fs._parent(file.name)
        if parent not in is_durable:
            is_durable[parent] = store.durability(file.name) is not None
        if is_durable[parent]:
            store.wait_durable(file.name, timeout=store._call_seconds)
            with contextlib.suppress(NotFound):
                store.wait_durable(file.target, timeout=store._call_seconds)
    return any(is_durable.values())


def _check_all(store: Store, waiting: list[Any]) -> None:
    targets: set[str] = set()
    for file in waiting:
        _check(store, file, file.target in targets)
        targets.add(file.target)


def _check(store: Store, file: Any, is_target_twice: bool) -> None:
    """Refuses a target that the rename could not, or must not, replace."""
    try:
        found = store.stat(file.target)
    except NotFound:
        found = None
    if found is not None and found.is_container:
        raise IsADirectory(f"{file.target} is a directory")
    if not file.replaces and (found is not None or is_target_twice):
        raise Exists(f"{file.target} exists")
    if file.appends_to is not None:
        if found is None or (found.object, found.bytes) != file.appends_to:
            raise Changed(f"{file.target} changed after it was copied to be appended to")


def _give_up(fs: SanderlingFileSystem, waiting: list[Any]) -> None:
    """Leaves nothing of the files; what cannot be deleted now has no name, and goes soon."""
    for file in waiting:
        with contextlib.suppress(Exception):
            file.discard()
    is_late = False
    for file in waiting:
        with contextlib.suppress(Exception):
            if file.stat is None:
                continue
            fs.store.set_ttl(file.name, GIVEN_UP_SECONDS)
            try:
                # What waits for the same store would wait as long.
                if not is_late:
                    fs.store.delete(file.name)
            except SanderlingError as error:
                is_late = error.recovery == Recovery.RETRY_AFTER
