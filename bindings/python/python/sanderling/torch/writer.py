"""Writes checkpoints of `torch.distributed.checkpoint` into the store."""

from __future__ import annotations

import io
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter as Interface
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from sanderling.errors import (
    Changed,
    DataUnavailable,
    Exists,
    NotFound,
    SanderlingError,
    from_native,
)
from sanderling.store import Store
from sanderling.torch import layout
from sanderling.torch.layout import METADATA, Piece
from sanderling.torch.places import (
    STEP_BYTES,
    AtDirectory,
    Stores,
    join,
    newest_beside,
    split,
)

ATTEMPTS_MAX = 3
"""How often an object is written while nodes with bytes of it are killed."""


@dataclass
class Save:
    """What belongs to one save, as it was when the save began."""

    id: str
    stores: Stores
    path: str
    rank: int
    expected: int | None = None
    """The object of the metadata that is replaced; `None` without one."""
    leftovers: tuple[str, ...] = ()
    """Objects of earlier saves."""


class OfThread(threading.local):
    """What a thread has of a writer. torch makes each save in one thread, from its beginning on."""

    named: tuple[Stores, str] | None = None
    """The directory for the next save, if one was named in this thread."""
    save: Save | None = None
    """The save that began last."""


class StorageWriter(AtDirectory, Interface, BlockingAsyncStager):
    """Saves a state below a directory: `dcp.save(state, storage_writer=StorageWriter(...))`.

    Each rank writes one object, of a name that no other save uses, from the memory of its tensors;
    one that is not contiguous or on another device is copied, one at a time. The coordinator seals
    `.metadata` last, under two conditions: every object is there whole, without lost bytes, and the
    directory has the checkpoint that it had when the save began, or none. So an interrupted save
    left no checkpoint, can be repeated, and of two saves to one directory at the same time one
    fails. Objects of replaced and interrupted saves are deleted by the next save that succeeds
    there, but those that still wait for the store of a durable directory by a later one; one that
    lost bytes is deleted when its save fails. Saves by one writer may overlap, as those of
    `async_save`.

    `where` is a store, or an address as in `sanderling.connect`, also `None`; with an address
    each process connects itself. With `overwrite`, a checkpoint that is there already is replaced;
    else the save fails with `Exists` before anything is written. With `wait_durable`, the save ends
    when the store of the durable directory has the whole checkpoint, or fails with `TimeoutError`
    after `durable_timeout` seconds: it is sealed nevertheless.

    torch raises such a failure on every rank as its `CheckpointException`, a `BaseException` that
    `except Exception` does not catch, and has the error itself in `failures`, by the rank.
    """

    def __init__(
        self,
        where: Store | str | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        overwrite: bool = False,
        wait_durable: bool = False,
        durable_timeout: float | None = None,
    ) -> None:
        # Of `async_save`: the other stager of torch loses what marks a tensor as conjugate.
        BlockingAsyncStager.__init__(self)
        self._stores = Stores(where)
        self._overwrite = overwrite
        self._wait_durable = wait_durable
        self._durable_timeout = durable_timeout
        self._own = OfThread()
        self._is_path_given = path is not None
        if path is not None:
            self._stores, self._path = self._named(path)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._own = OfThread()

    # What torch calls, in this order.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins another save, in another directory if one is named. Others go on."""
        self._own.save = None
        if checkpoint_id is not None:
            self._own.named = self._named(checkpoint_id)
            # A save that was given the path of the writer may not have begun yet.
            if not self._is_path_given:
                self._stores, self._path = self._own.named

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Looks at what the directory has. Raises `Exists` if it may not be replaced."""
        if not kwargs.get("use_collectives", True):
            raise ValueError(
                "use_collectives=False writes metadata of each rank on its own: an interrupted "
                "save could be taken for a checkpoint. Save with use_collectives=True"
            )
        self._own.save = None
        stores, path = self._own.named or (self._stores, self._directory())
        self._own.named = None
        # Another save with this writer has other names.
        save = Save(uuid.uuid4().hex, stores, path, rank=kwargs.get("rank") or 0)
        if is_coordinator:
            self._prepare(save)
        self._own.save = save

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Returns the plan as it is: each rank names its object itself."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Returns the plans as they are."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes what this rank has, as one object, and seals it."""
        results: Future[list[WriteResult]] = Future()
        results.set_result(self._write(plan.items, planner) if plan.items else [])
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Seals the metadata, which makes it a checkpoint, and deletes what it replaces.

        Raises `DataUnavailable` if an object has lost bytes, and `NotFound` if one is not there.
        """
        save = self._current()
        pieces = {each.index: each.storage_data for one in results for each in one}
        metadata.storage_data = pieces
        metadata.storage_meta = self.storage_meta()
        store = save.stores.get()
        if sealed_metadata(store, save.path) != save.expected:
            raise Changed(
                f"another save to {save.path} was completed meanwhile, or its checkpoint was "
                "deleted: what it has now is left as it is; save to another directory, or again"
            )
        refuse_incomplete(store, save.path, pieces.values())
        place = join(save.path, METADATA)
        content = layout.encode(metadata, after=newest_beside(save.stores, save.path))
        if save.expected is None:
            store.put(place, content, if_absent=True)
        else:
            store.put(place, content, if_object=save.expected)
        for name in save.leftovers:
            delete_leftover(store, join(save.path, name))
        if self._wait_durable:
            store.wait_durable(save.path, timeout=self._durable_timeout)

    def storage_meta(self) -> StorageMeta | None:
        """Returns what torch's planner and logs show of this save."""
        save = self._own.save
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=save.id if save else None)

    # How it does so.

    def _named(self, path: str | os.PathLike[str]) -> tuple[Stores, str]:
        found = split(path)
        if found is None:
            return self._stores, os.fspath(path)
        address, path = found
        is_other = address is not None and address != self._stores.address
        return Stores(address) if is_other else self._stores, path

    def _directory(self) -> str:
        if self._own.save is not None:
            return self._own.save.path
        return self._own.named[1] if self._own.named else super()._directory()

    def _current(self) -> Save:
        assert self._own.save is not None, "torch sets a save up in the thread that makes it"
        return self._own.save

    def _prepare(self, save: Save) -> None:
        store, path = save.stores.get(), save.path
        store.mkdir(path, parents=True)
        save.expected = sealed_metadata(store, path)
        if save.expected is not None and not self._overwrite:
            raise Exists(
                f"{path} has a checkpoint: save to another directory, or pass overwrite=True"
            )
        if self._wait_durable and store.durability(path) is None:
            raise ValueError(
                f"{path} is in no durable directory, so there is nothing to wait for: "
                "make one with `sanderling fs mkdir DIR --durable STORE`, or save without "
                "wait_durable"
            )
        # Listed before the metadata is sealed: a save that begins later has none of these.
        save.leftovers = tuple(entry.name for entry in store.list(path) if is_ours(entry.name))

    def _write(self, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._write_once(items, planner, attempt)
            except DataUnavailable:
                # A node was killed with bytes of it. They are still in the tensors.
                if attempt == ATTEMPTS_MAX:
                    raise
        raise AssertionError("unreachable")

    def _write_once(
        self, items: list[WriteItem], planner: SavePlanner, attempt: int
    ) -> list[WriteResult]:
        save = self._current()
        name = f"rank-{save.rank}.{save.id[:12]}.{attempt}"
        results, offset = [], 0
        with save.stores.get().open(join(save.path, name), "xb") as file:
            for item in items:
                data, sizes, dtype = resolved(item, planner)
                for step in steps(data):
                    file.write(step)
                piece = Piece(name, offset, len(data), sizes, dtype)
                offset += len(data)
                results.append(WriteResult(item.index, len(data), piece))
        return results


def sealed_metadata(store: Store, path: str) -> int | None:
    """Returns the object that makes a directory a checkpoint; `None` if it is none."""
    try:
        return store.stat(join(path, METADATA)).object
    except NotFound:
        return None


def refuse_incomplete(store: Store, path: str, pieces: Iterable[Piece]) -> None:
    """Refuses a save of which an object is not there whole, and deletes those with lost bytes.

    These can never be read. In a durable directory they would stop the copying of all that follows.
    """
    lengths: dict[str, int] = {}
    for piece in pieces:
        lengths[piece.name] = max(lengths.get(piece.name, 0), piece.offset + piece.bytes)
    there = {entry.name: entry for entry in store.list(path)}
    lost = [name for name in lengths if name in there and there[name].lost_bytes > 0]
    for name in lost:
        delete_leftover(store, join(path, name))
    if lost:
        place = join(path, lost[0])
        first = there[lost[0]]
        message = (
            f"{place} has lost {first.lost_bytes} bytes with a node before the checkpoint was "
            "complete, so there is no checkpoint: save again"
        )
        raise from_native(
            "DataUnavailable", message, "recompute", None, place, (first.object, [])
        )
    for name, length in lengths.items():
        entry = there.get(name)
        if entry is None or not entry.is_sealed or entry.bytes != length:
            raise NotFound(
                f"{join(path, name)} is not there with the {length} bytes that were written, so "
                "there is no checkpoint: another process deleted or changed it; save again"
            )


def delete_leftover(store: Store, place: str) -> None:
    """Deletes an object of a save that failed or was replaced, unless it waits for its store.

    One that has lost bytes never gets there. What cannot go yet is left for the next save.
    """
    try:
        found = store.durability(place)
        if found is None or found.is_durable or store.stat(place).lost_bytes > 0:
            store.delete(place)
    except SanderlingError:
        pass


def is_ours(name: str) -> bool:
    """Returns whether a rank of some save gave this name."""
    return name.startswith("rank-")


def resolved(
    item: WriteItem, planner: SavePlanner
) -> tuple[memoryview, tuple[int, ...] | None, torch.dtype | None]:
    """Returns the bytes of an item, which live as long as the view; of a tensor its shape, too."""
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(data, io.BytesIO)
        return data.getbuffer(), None, None
    assert isinstance(data, torch.Tensor)
    layout.refuse_layout(item.index.fqn, data)
    tensor = layout.contiguous(data)
    return layout.view(tensor), tuple(tensor.size()), tensor.dtype


def steps(data: memoryview) -> Iterator[memoryview]:
    """Yields the bytes in pieces that a call's timeout is long enough for."""
    for offset in range(0, len(data), STEP_BYTES):
        yield data[offset : offset + STEP_BYTES]
