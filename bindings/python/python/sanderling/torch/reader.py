"""Reads checkpoints of `torch.distributed.checkpoint` from the store."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader as Interface
from torch.futures import Future

from sanderling.errors import NotFound
from sanderling.store import Store
from sanderling.torch import layout
from sanderling.torch.layout import METADATA, Piece
from sanderling.torch.places import AtDirectory, File, join, place, split

BATCH_BYTES = 8 << 20
"""Small tensors that lie side by side are fetched together, up to so many bytes."""

SMALL_BYTES = 256 << 10
"""A tensor of fewer bytes is small."""


class StorageReader(AtDirectory, Interface):
    """Loads a state from a directory: `dcp.load(state, storage_reader=StorageReader(...))`.

    Tensors are read into their own memory, and only the parts that a rank has: the number of
    ranks and how they share tensors may be others than at the save. One that is not contiguous, on
    another device, or of another type is read beside it and copied.

    `where` is a store, or an address as in `sanderling.connect`, also `None`. It may also be the
    URL of a durable directory's store, such as `file:///archive` or `s3://bucket/results`: then
    the copy is read, by fsspec, and no cluster is needed. Loading unpickles what was saved, as
    torch does: load only what you would run.
    """

    def __init__(
        self,
        where: Store | str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._where = where
        self._pieces: dict[Any, Piece] = {}
        if path is not None:
            self._go_to(path)

    # What torch calls, in this order.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins another load, from another directory if one is named."""
        if checkpoint_id is not None:
            self._go_to(checkpoint_id)
        self._pieces = {}

    # Without `**kwargs`: metadata of single ranks is not written.
    def read_metadata(self) -> Metadata:  # type: ignore[override]
        """Returns what the checkpoint has. Raises `NotFound` where no save was completed."""
        path = join(self._directory(), METADATA)
        try:
            content = place(self._where).read(path)
        except FileNotFoundError:
            raise NotFound(
                f"{self._directory()} has no checkpoint: no save there was completed; "
                "sanderling.torch.latest finds the newest that was"
            ) from None
        metadata = layout.decode(content, self._directory())
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Remembers where everything is."""
        self._pieces = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Returns the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what this rank has of each tensor."""
        by_name: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_name.setdefault(self._pieces[item.storage_index].name, []).append(item)
        where = place(self._where)
        for name, items in by_name.items():
            file = where.open(join(self._directory(), name))
            try:
                self._read_file(file, items, planner)
            finally:
                file.close()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    # How it does so.

    def _go_to(self, path: str | os.PathLike[str]) -> None:
        found = split(path)
        if found is None:
            self._path = os.fspath(path)
            return
        address, self._path = found
        given = self._where
        is_there = isinstance(given, Store) and given.address == address
        if address is not None and not is_there:
            self._where = address

    def _read_file(self, file: File, items: list[ReadItem], planner: LoadPlanner) -> None:
        for batch in batches(items, self._pieces):
            first = self._pieces[batch[0].storage_index]
            if len(batch) == 1:
                self._read_one(file, batch[0], first, planner)
                continue
            last = self._pieces[batch[-1].storage_index]
            content = bytearray(last.offset + last.bytes - first.offset)
            file.readinto(first.offset, memoryview(content))
            fetched = Fetched(memoryview(content), first.offset)
            for item in batch:
                self._read_one(fetched, item, self._pieces[item.storage_index], planner)

    def _read_one(self, file: File, item: ReadItem, piece: Piece, planner: LoadPlanner) -> None:
        if item.type == LoadItemType.BYTE_IO:
            content = bytearray(piece.bytes)
            file.readinto(piece.offset, memoryview(content))
            planner.load_bytes(item, io.BytesIO(content))
            return
        target = planner.resolve_tensor(item).detach()
        if target.size() != item.lengths:
            raise ValueError(
                f"{item.storage_index.fqn} has the shape {tuple(target.size())} in this state and "
                f"{tuple(item.lengths)} in the checkpoint: load it into a state of the same shapes"
            )
        assert piece.dtype is not None
        spans = layout.spans(piece, tuple(item.storage_offsets), tuple(item.lengths))
        if spans.strides is None and target.dtype == piece.dtype and layout.is_plain(target):
            fill(file, spans.ranges, layout.view(target))
        else:
            total = sum(length for _, length in spans.ranges)
            beside = torch.empty(total // piece.dtype.itemsize, dtype=piece.dtype)
            fill(file, spans.ranges, layout.view(beside))
            strides = spans.strides or layout.row_strides(tuple(item.lengths))
            target.copy_(beside.as_strided(item.lengths, strides))
        planner.commit_tensor(item, target)


class Fetched:
    """Bytes of a file that were fetched together."""

    def __init__(self, content: memoryview, offset: int) -> None:
        self._content = content
        self._offset = offset

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer."""
        at = offset - self._offset
        buffer[:] = self._content[at : at + len(buffer)]

    def close(self) -> None:
        """Nothing is held beside the bytes."""


def fill(file: File, ranges: list[tuple[int, int]], buffer: memoryview) -> None:
    """Reads ranges of a file into a buffer, one after the other."""
    at = 0
    for offset, length in ranges:
        file.readinto(offset, buffer[at : at + length])
        at += length


def batches(items: list[ReadItem], pieces: dict[Any, Piece]) -> Iterator[list[ReadItem]]:
    """Yields items in the order of their bytes: small ones that lie side by side together."""
    batch: list[ReadItem] = []
    for item in sorted(items, key=lambda each: pieces[each.storage_index].offset):
        piece = pieces[item.storage_index]
        if batch:
            start = pieces[batch[0].storage_index].offset
            last = pieces[batch[-1].storage_index]
            # Several parts of one piece may be wanted.
            is_near = piece.offset in (last.offset, last.offset + last.bytes)
            is_short = piece.offset + piece.bytes - start <= BATCH_BYTES
            if not (piece.bytes < SMALL_BYTES and is_near and is_short):
                yield batch
                batch = []
        batch.append(item)
        if piece.bytes >= SMALL_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch
