"""Writes checkpoints of `torch.distributed.checkpoint` into the store."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter as Interface
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from sanderling.errors import DataUnavailable, Exists, NotFound, SanderlingError
from sanderling.store import Store
from sanderling.torch import layout
from sanderling.torch.layout import METADATA, Piece
from sanderling.torch.places import STEP_BYTES, AtDirectory, Stores, join

ATTEMPTS_MAX = 3
"""How often an object is written while nodes with bytes of it are killed."""


class StorageWriter(AtDirectory, Interface, BlockingAsyncStager):
    """Saves a state below a directory: `dcp.save(state, storage_writer=StorageWriter(...))`.

    Each rank writes one object, of a name that no other save uses, from the memory of its tensors;
    one that is not contiguous or on another device is copied, one at a time. The coordinator seals
    `.metadata` last, under the condition that the directory has the checkpoint that it had when
    the save began, or none. So an interrupted save left no checkpoint, can be repeated, and of two
    saves to one directory at the same time one fails. Objects of replaced and interrupted saves
    are deleted by the next save that succeeds there.

    `where` is a store, or an address as in `sanderling.connect`, also `None`; with an address
    each process connects itself. With `overwrite`, a checkpoint that is there already is replaced;
    else `Exists` is raised on every rank before anything is written. With `wait_durable`, the save
    ends when the store of the durable directory has the whole checkpoint, or raises `TimeoutError`
    after `durable_timeout` seconds: it is sealed nevertheless.
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
        self._rank = 0
        self._expected: int | None = None
        self._leftovers: list[str] = []
        self.save_id = uuid.uuid4().hex
        if path is not None:
            self._go_to(path)

    # What torch calls, in this order.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins another save, in another directory if one is named."""
        if checkpoint_id is not None:
            self._go_to(checkpoint_id)
        self.save_id = uuid.uuid4().hex
        self._expected = None
        self._leftovers = []

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Looks at what the directory has. Raises `Exists` if it may not be replaced."""
        if not kwargs.get("use_collectives", True):
            raise ValueError(
                "use_collectives=False writes metadata of each rank on its own: an interrupted "
                "save could be taken for a checkpoint. Save with use_collectives=True"
            )
        # Another save with this writer has other names.
        self.save_id = uuid.uuid4().hex
        self._rank = kwargs.get("rank") or 0
        if is_coordinator:
            self._prepare()

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
        """Seals the metadata, which makes it a checkpoint, and deletes what it replaces."""
        metadata.storage_data = {each.index: each.storage_data for one in results for each in one}
        metadata.storage_meta = self.storage_meta()
        store, path = self._store(), self._directory()
        place = join(path, METADATA)
        content = layout.encode(metadata)
        if self._expected is None:
            store.put(place, content, if_absent=True)
        else:
            store.put(place, content, if_object=self._expected)
        self._delete_leftovers()
        if self._wait_durable:
            store.wait_durable(path, timeout=self._durable_timeout)

    def storage_meta(self) -> StorageMeta | None:
        """Returns what torch's planner and logs show of this save."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    # How it does so.

    def _connect_to(self, address: str) -> None:
        if address != self._stores.address:
            self._stores = Stores(address)

    def _store(self) -> Store:
        return self._stores.get()

    def _prepare(self) -> None:
        store, path = self._store(), self._directory()
        store.mkdir(path, parents=True)
        try:
            self._expected = store.stat(join(path, METADATA)).object
        except NotFound:
            self._expected = None
        if self._expected is not None and not self._overwrite:
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
        self._leftovers = [entry.name for entry in store.list(path) if is_ours(entry.name)]

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
        name = f"rank-{self._rank}.{self.save_id[:12]}.{attempt}"
        results, offset = [], 0
        with self._store().open(join(self._directory(), name), "xb") as file:
            for item in items:
                data, sizes, dtype = resolved(item, planner)
                for step in steps(data):
                    file.write(step)
                piece = Piece(name, offset, len(data), sizes, dtype)
                offset += len(data)
                results.append(WriteResult(item.index, len(data), piece))
        return results

    def _delete_leftovers(self) -> None:
        """Deletes objects of earlier saves. What cannot go yet is left for the next save."""
        store, path = self._store(), self._directory()
        for name in self._leftovers:
            place = join(path, name)
            try:
                found = store.durability(place)
                if found is None or found.is_durable:
                    store.delete(place)
            except SanderlingError:
                continue


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
