"""A table's description: its schema, the places of its batches, and the bounds of their values."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sanderling.arrow.blocks import Place
from sanderling.arrow.errors import TableError
from sanderling.errors import DataUnavailable, NotFound

if TYPE_CHECKING:
    from sanderling._sanderling import Buffer
    from sanderling.metadata import Stat
    from sanderling.store import Store

NAME = "_schema"
"""The object that makes a directory a table."""

VERSION = 1

OPENINGS_MAX = 20
"""How often a description is opened that is replaced between its opening and its reading. Each
opening is a race of two requests with one replacement."""

_MAGIC = b"SANDERLINGTABLE\n"
_HEAD = struct.Struct("<II")
"""Bytes and CRC-32 of what follows."""

BOUND_BYTES_MAX = 256
"""Longer strings are not kept as bounds: they would make the description as long as the data."""

_BOUNDED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


@dataclass
class Bounds:
    """What one batch holds of one column."""

    low: Any
    """A scalar; None when nothing is known or all values are null."""
    high: Any
    nulls: int


@dataclass
class Group:
    """Columns that are stored together."""

    object: str
    """The name in the table's directory."""
    columns: list[int]
    bytes: int
    places: list[Place]
    bounds: dict[int, list[Bounds]] = field(default_factory=dict)
    """By column: what each batch holds."""


@dataclass
class Description:
    """A table, without its values."""

    schema: pa.Schema
    rows: int
    groups: list[Group]
    dictionaries: dict[int, str]
    """By column: the name of the object with its dictionary."""

    def objects(self) -> set[str]:
        """Returns the names of everything that belongs to this version of the table."""
        return {each.object for each in self.groups} | set(self.dictionaries.values())

    def encode(self) -> bytes:
        """Returns the bytes of the object that describes the table."""
        parts = [self.schema.serialize().to_pybytes()]
        groups = []
        for group in self.groups:
            index = _index(self.schema, group)
            parts.append(_stream(index))
            groups.append(
                {
                    "object": group.object,
                    "columns": group.columns,
                    "bytes": group.bytes,
                    "bounded": sorted(group.bounds),
                }
            )
        head = {
            "version": VERSION,
            "rows": self.rows,
            "groups": groups,
            "dictionaries": {str(column): name for column, name in self.dictionaries.items()},
            "parts": [len(part) for part in parts],
        }
        text = json.dumps(head).encode()
        body = struct.pack("<I", len(text)) + text + b"".join(parts)
        return _MAGIC + _HEAD.pack(len(body), zlib.crc32(body)) + body


def read(store: Store, path: str) -> tuple[Stat, Buffer]:
    """Returns the description's object as it is now, and its bytes.

    Raises `NotFound` if the directory has none, `DataUnavailable` if its bytes are lost, and
    `TableError` if it is replaced at every one of `OPENINGS_MAX` attempts.
    """
    stat, data = find(store, path)
    if isinstance(data, DataUnavailable):
        raise data
    return stat, data


def find(store: Store, path: str) -> tuple[Stat, Buffer | DataUnavailable]:
    """Returns the description's object as it is now, and its bytes, or the error if they are lost:
    the object can be replaced all the same.

    Raises `NotFound` and `TableError` as `read` does.
    """
    for _ in range(OPENINGS_MAX):
        reader = store.open(f"{path.rstrip('/')}/{NAME}")
        # What was opened is gone: there is a newer one.
        with contextlib.suppress(NotFound), reader:
            try:
                return reader.stat, reader.view()
            except DataUnavailable as error:
                return reader.stat, error
    raise TableError(f"{path} was replaced at each of {OPENINGS_MAX} attempts to open it")


def decode(path: str, data: Any) -> Description:
    """Reads a description.

    Raises `TableError` when the bytes are something else, damaged, or of another version.
    """
    data = memoryview(data)
    start = len(_MAGIC) + _HEAD.size
    if bytes(data[: len(_MAGIC)]) != _MAGIC or len(data) < start:
        raise TableError(f"{path} is no table: its description does not begin as one")
    length, checksum = _HEAD.unpack_from(data, len(_MAGIC))
    body = data[start:]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise TableError(f"{path}: the table's description is damaged; write the table again")
    (size,) = struct.unpack_from("<I", body, 0)
    head = json.loads(bytes(body[4 : 4 + size]))
    if head["version"] != VERSION:
        raise TableError(
            f"{path} is a table of version {head['version']}, this package knows {VERSION}:"
            " use the package that wrote it"
        )
    try:
        return _decode(head, body[4 + size :])
    except (pa.ArrowException, LookupError, TypeError, ValueError, struct.error) as error:
        raise TableError(f"{path}: the table's description makes no sense: {error}") from error


def _decode(head: dict[str, Any], rest: memoryview) -> Description:
    parts = []
    for length in head["parts"]:
        parts.append(rest[:length])
        rest = rest[length:]
    schema = pa.ipc.read_schema(pa.py_buffer(parts[0]))
    groups = [
        _group(raw, pa.ipc.open_stream(pa.py_buffer(part)).read_all())
        for raw, part in zip(head["groups"], parts[1:], strict=True)
    ]
    dictionaries = {int(column): name for column, name in head["dictionaries"].items()}
    for group in groups:
        if sum(place.rows for place in group.places) != head["rows"]:
            raise ValueError(f"{group.object} has not {head['rows']} rows")
    columns = sorted(column for group in groups for column in group.columns)
    if columns != list(range(len(schema))):
        raise ValueError("a column is missing or stored twice")
    return Description(schema, head["rows"], groups, dictionaries)


def _index(schema: pa.Schema, group: Group) -> pa.Table:
    columns: dict[str, Any] = {
        "rows": pa.array([place.rows for place in group.places], pa.int64()),
        "offset": pa.array([place.offset for place in group.places], pa.int64()),
        "bytes": pa.array([place.bytes for place in group.places], pa.int64()),
    }
    for column, bounds in group.bounds.items():
        kind = schema.field(column).type
        columns[f"low-{column}"] = _scalars([each.low for each in bounds], kind)
        columns[f"high-{column}"] = _scalars([each.high for each in bounds], kind)
        columns[f"nulls-{column}"] = pa.array([each.nulls for each in bounds], pa.int64())
    return pa.table(columns)


def _group(raw: dict[str, Any], index: pa.Table) -> Group:
    numbers = [index[name].to_pylist() for name in ("rows", "offset", "bytes")]
    places = [Place(*each) for each in zip(*numbers, strict=True)]
    bounds = {}
    for column in raw["bounded"]:
        low, high = index[f"low-{column}"], index[f"high-{column}"]
        nulls = index[f"nulls-{column}"].to_pylist()
        bounds[column] = [
            Bounds(low[row], high[row], nulls[row]) for row in range(len(places))
        ]
    return Group(raw["object"], raw["columns"], raw["bytes"], places, bounds)


def _scalars(values: list[Any], kind: pa.DataType) -> pa.Array:
    null = pa.scalar(None, kind)
    arrays = [pa.array([], kind)]
    for value in values:
        arrays.append(pa.repeat(null if value is None else value, 1))
    return pa.concat_arrays(arrays)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def is_bounded(kind: pa.DataType) -> bool:
    """Returns whether least and greatest values of a type are kept."""
    return any(test(kind) for test in _BOUNDED)


def bounds_of(values: pa.Array) -> Bounds:
    """Returns what an array holds. Without NaN: comparisons with it hold nothing and their
    opposites everything, so that bounds with it would be wrong.
    """
    nothing = Bounds(None, None, values.null_count)
    if values.null_count == len(values):
        return nothing
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return nothing
    try:
        found = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        return nothing
    low, high = found["min"], found["max"]
    if isinstance(low.as_py(), (str, bytes)):
        if max(len(low.as_buffer()), len(high.as_buffer())) > BOUND_BYTES_MAX:
            return nothing
    return Bounds(low, high, values.null_count)
