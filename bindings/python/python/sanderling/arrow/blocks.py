"""Arrow IPC streams whose messages each lie in one block of the store.

A reader on the same host sees a block where it lies, in one piece; a message that crosses two
blocks would have to be copied together. So every message ends in the block in which it begins, and
the rest of a block belongs to its last message. Bodies and their buffers begin at multiples of 64
bytes, as the Arrow columnar format recommends ("Buffer Alignment and Padding"). What is written is
an IPC stream as any other ("Encapsulated message format"): padding lies within the messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sanderling.arrow.errors import TableError

BLOCK_BYTES = 1 << 20
"""Bytes of a full block of the store."""

ALIGNMENT = 64

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<Ii")
_END = _PREFIX.pack(_CONTINUATION, 0)


@dataclass
class Place:
    """Where one record batch lies in its object."""

    rows: int
    offset: int
    bytes: int


class StreamWriter:
    """Writes an IPC stream to a file, block by block."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file
        self._block = bytearray(BLOCK_BYTES)
        self._flushed = 0
        self.places: list[Place] = []
        head = bytearray(schema.serialize())
        # Without a body, the schema's message ends with its metadata.
        head += bytes(-len(head) % ALIGNMENT)
        _PREFIX.pack_into(head, 0, _CONTINUATION, len(head) - _PREFIX.size)
        self._fill = 0
        self._last = 0
        self.room = BLOCK_BYTES - len(head)
        """Bytes that a message may have to fit any block of this stream."""
        if self.room < BLOCK_BYTES // 2:
            raise TableError(f"a schema of {len(head)} bytes is too large for a group of columns")
        self._put(head)

    @property
    def bytes(self) -> int:
        """Bytes so far."""
        return self._flushed + self._fill

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds a batch; one that does not fit a block takes several whole ones."""
        message = _Message(batch)
        if self._fill and self._fill + message.bytes > BLOCK_BYTES:
            self._end_block()
        if message.bytes > BLOCK_BYTES:
            message.extend(-message.bytes % BLOCK_BYTES)
            self.places.append(Place(batch.num_rows, self.bytes, message.bytes))
            self._file.write(message.whole())
            self._flushed += message.bytes
            return
        self.places.append(Place(batch.num_rows, self.bytes, message.bytes))
        self._last = self._fill
        message.copy_into(memoryview(self._block)[self._fill :])
        self._fill += message.bytes
        if self._fill == BLOCK_BYTES:
            self._end_block()

    def close(self) -> None:
        """Ends the stream and the file."""
        self._file.write(bytes(memoryview(self._block)[: self._fill]) + _END)
        self._flushed += self._fill + len(_END)
        self._fill = 0
        self._file.close()

    def _put(self, data: bytearray) -> None:
        self._block[self._fill : self._fill + len(data)] = data
        self._fill += len(data)

    def _end_block(self) -> None:
        """Gives the rest of the block to its last message, and writes it whole, so that it lies in
        one piece."""
        rest = BLOCK_BYTES - self._fill
        if rest:
            self._block[self._fill :] = bytes(rest)
            _extend(memoryview(self._block)[self._last :], rest)
            if self.places:
                self.places[-1].bytes += rest
        self._file.write(self._block)
        self._flushed += BLOCK_BYTES
        self._fill = 0


class _Message:
    """A record batch as an encapsulated message with aligned buffers."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        whole = memoryview(batch.serialize()).cast("B")
        _, length = _PREFIX.unpack_from(whole, 0)
        body = _PREFIX.size + length
        head = bytearray(whole[:body])
        head += bytes(-len(head) % ALIGNMENT)
        _PREFIX.pack_into(head, 0, _CONTINUATION, len(head) - _PREFIX.size)
        self._body = whole[body:]
        self._pieces: list[tuple[int, int, int]] = []
        """(to, from, bytes) of each buffer in the body."""
        end = 0
        for at in _buffer_positions(head):
            offset, size = struct.unpack_from("<qq", head, at)
            struct.pack_into("<qq", head, at, end, size)
            if size:
                self._pieces.append((end, offset, size))
            end += size + (-size % ALIGNMENT)
        if end:
            struct.pack_into("<q", head, _length_position(head), end)
        self._head = head
        self._body_bytes = end

    @property
    def bytes(self) -> int:
        return len(self._head) + self._body_bytes

    def extend(self, count: int) -> None:
        """Adds so many bytes at the end."""
        _extend(memoryview(self._head), count)
        self._body_bytes += count

    def copy_into(self, target: memoryview) -> None:
        start = len(self._head)
        target[:start] = self._head
        end = 0
        for to, source, size in self._pieces:
            # What an older message left between the buffers.
            target[start + end : start + to] = bytes(to - end)
            target[start + to : start + to + size] = self._body[source : source + size]
            end = to + size
        target[start + end : self.bytes] = bytes(self.bytes - start - end)

    def whole(self) -> bytearray:
        data = bytearray(self.bytes)
        self.copy_into(memoryview(data))
        return data


def _extend(message: memoryview, count: int) -> None:
    """Adds bytes at the end of a message: to its body, else to its metadata."""
    at = _length_position(message)
    if not at:
        _, size = _PREFIX.unpack_from(message, 0)
        _PREFIX.pack_into(message, 0, _CONTINUATION, size + count)
        return
    (length,) = struct.unpack_from("<q", message, at)
    struct.pack_into("<q", message, at, length + count)


def _field(message: Any, table: int, index: int) -> int:
    """Returns where a field of a FlatBuffers table is, 0 if it has the default."""
    (back,) = struct.unpack_from("<i", message, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", message, vtable)
    if 4 + 2 * index >= size:
        return 0
    (offset,) = struct.unpack_from("<H", message, vtable + 4 + 2 * index)
    return table + offset if offset else 0


def _follow(message: Any, at: int) -> int:
    (offset,) = struct.unpack_from("<I", message, at)
    return at + int(offset)


def _length_position(message: Any) -> int:
    """Returns where a message has the length of its body (Message.fbs: bodyLength); 0 when it has
    none: FlatBuffers leaves out what is zero.
    """
    return _field(message, _follow(message, _PREFIX.size), 3)


def _buffer_positions(message: Any) -> list[int]:
    """Returns where a record batch has the places of its buffers (Message.fbs: buffers)."""
    header = _follow(message, _field(message, _follow(message, _PREFIX.size), 2))
    buffers = _field(message, header, 2)
    if not buffers:
        return []
    vector = _follow(message, buffers)
    (count,) = struct.unpack_from("<I", message, vector)
    return [vector + 4 + 16 * index for index in range(count)]


def ranges_of(places: Sequence[Place]) -> list[tuple[int, int]]:
    """Joins neighbours of one block, so that a block is requested once."""
    ranges: list[tuple[int, int]] = []
    for place in places:
        if ranges:
            offset, length = ranges[-1]
            block = offset // BLOCK_BYTES
            is_next = place.offset == offset + length
            if is_next and (place.offset + place.bytes - 1) // BLOCK_BYTES == block:
                ranges[-1] = (offset, length + place.bytes)
                continue
        ranges.append((place.offset, place.bytes))
    return ranges


def batches_of(
    places: Sequence[Place], buffers: Iterable[Any], schema: pa.Schema
) -> list[pa.RecordBatch]:
    """Reads batches from what was read of `ranges_of` the same places, without copying."""
    ranges = zip(ranges_of(places), buffers, strict=True)
    start, end, block = 0, 0, pa.py_buffer(b"")
    found = []
    for place in places:
        if place.offset >= end or end == 0:
            (start, length), buffer = next(ranges)
            end, block = start + length, pa.py_buffer(buffer)
        message = pa.ipc.read_message(block.slice(place.offset - start, place.bytes))
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows != place.rows:
            raise TableError(f"a batch has {batch.num_rows} rows where {place.rows} were written")
        found.append(batch)
    return found
