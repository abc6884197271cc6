"""How a checkpoint is laid out: objects of tensors' bytes, and the metadata that names them.

An object has the bytes of one rank's tensors, one after the other, as they are in memory: row by
row, in this machine's byte order. `.metadata` is a line with the format's version and the time, and
a pickle of torch's `Metadata`, whose `storage_data` has a `Piece` for each tensor, shard or other
value.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

METADATA = ".metadata"
"""The object whose presence makes a directory a checkpoint."""

MAGIC = b"sanderling.torch 1 "
"""The metadata begins with it. Nanoseconds since 1970 and the end of a line follow."""

HEAD_BYTES = 64
"""The first line is shorter."""

RUN_BYTES_MIN = 16 << 10
"""Parts of a piece that are shorter are read with the bytes between them."""

RUNS_MAX = 4096
"""Parts of a piece that are fetched on their own."""


@dataclass(frozen=True)
class Piece:
    """Where the bytes of one tensor, shard or other value are."""

    name: str
    """The object, relative to the checkpoint's directory."""
    offset: int
    bytes: int
    sizes: tuple[int, ...] | None = None
    """The shape; `None` of what is no tensor."""
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Spans:
    """Which bytes of a piece hold a part of it, and how the part lies in them."""

    ranges: list[tuple[int, int]]
    """(offset in the object, bytes), in their order."""
    strides: tuple[int, ...] | None
    """Of the part in the bytes of all ranges, in elements; `None` if they are the part itself."""


def encode(metadata: Metadata, after: int = 0) -> bytes:
    """Returns the content of `.metadata`. Its time is later than `after`, whatever the clock."""
    moment = max(time.time_ns(), after + 1)
    return MAGIC + f"{moment}\n".encode() + pickle.dumps(metadata)


def sealed_at(head: bytes) -> int | None:
    """Returns when metadata that begins so was made; `None` of another format."""
    line = head.partition(b"\n")[0]
    moment = line.removeprefix(MAGIC)
    return int(moment) if line.startswith(MAGIC) and moment.isdigit() else None


def decode(content: Any, place: str) -> Metadata:
    """Reads the content of `.metadata`. Raises `ValueError` for another format."""
    content = bytes(content)
    if sealed_at(content[:HEAD_BYTES]) is None:
        raise ValueError(
            f"{place} is no checkpoint of this format ({MAGIC.decode().strip()}): "
            "read it with the reader that belongs to its writer"
        )
    metadata = pickle.loads(content[content.index(b"\n") + 1 :])
    assert isinstance(metadata, Metadata)
    return metadata


def refuse_layout(fqn: str, tensor: torch.Tensor) -> None:
    """Raises `ValueError` for a tensor whose bytes alone are not its value."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = "a meta tensor" if tensor.is_meta else str(tensor.layout)
        kind = "quantized" if tensor.is_quantized else kind
        raise ValueError(
            f"{fqn} is {kind}: only dense tensors with bytes of their own can be saved; "
            "convert it (to_dense(), dequantize()) in the state first"
        )


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor on the CPU, row by row. A copy only of one that is not so already."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether the memory of a tensor is its value, row by row."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def view(tensor: torch.Tensor) -> memoryview:
    """Returns the memory of a tensor for which `is_plain` holds."""
    if tensor.numel() == 0:
        return memoryview(bytearray())
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())


def spans(piece: Piece, offsets: tuple[int, ...], lengths: tuple[int, ...]) -> Spans:
    """Returns which bytes of a piece hold the part at `offsets` of so many elements."""
    assert piece.sizes is not None and piece.dtype is not None
    size = piece.dtype.itemsize
    strides = row_strides(piece.sizes)
    first = sum(at * stride for at, stride in zip(offsets, strides))
    count = product(lengths)
    if count == 0:
        return Spans([], None)
    # The dimensions from `whole` on are taken as a whole; one above may be cut.
    whole = len(lengths)
    while whole > 0 and lengths[whole - 1] == piece.sizes[whole - 1]:
        whole -= 1
    inner = max(whole - 1, 0)
    run = product(lengths[inner:])
    runs = count // run
    if runs == 1:
        return Spans([(piece.offset + first * size, count * size)], None)
    if run * size >= RUN_BYTES_MIN and runs <= RUNS_MAX:
        starts = run_starts(lengths[:inner], strides[:inner])
        offset = piece.offset + first * size
        return Spans([(offset + at * size, run * size) for at in starts], None)
    last = first + sum((length - 1) * stride for length, stride in zip(lengths, strides))
    return Spans([(piece.offset + first * size, (last - first + 1) * size)], strides)


def run_starts(lengths: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Returns where each run begins, in elements from the first one."""
    starts = [0]
    for length, stride in zip(lengths, strides):
        starts = [start + at * stride for start in starts for at in range(length)]
    return starts


def row_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a tensor that lies row by row, in elements."""
    strides = [1] * len(sizes)
    for at in range(len(sizes) - 2, -1, -1):
        strides[at] = strides[at + 1] * sizes[at + 1]
    return tuple(strides)


def product(lengths: tuple[int, ...]) -> int:
    """Returns how many elements so many in each dimension are."""
    total = 1
    for length in lengths:
        total *= length
    return total
