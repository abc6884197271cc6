"""Writing tables."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from sanderling.arrow import description
from sanderling.arrow.blocks import ALIGNMENT, BLOCK_BYTES, StreamWriter
from sanderling.arrow.description import Description, Group
from sanderling.arrow.errors import TableError
from sanderling.errors import BadRequest, Changed, DataUnavailable, Exists, Full, NotFound
from sanderling.metadata import Stat
from sanderling.store import Store

KEEP_SECONDS = 60.0
"""How long readers that opened a replaced table can still read it, by default."""

LEFT_SECONDS = 3600.0
"""Age from which on an object that belongs to no table is what a writer left that died."""

WINDOW_BYTES = 64 << 20
"""Bytes of a stream of batches that are held before they are written."""

WRITERS_MAX = 4
"""Groups that are written at once: enough to overlap encoding with writing."""

ROUND_ROWS = 15
"""Batches have 15, 30, 60, ... rows where that wastes little: then those of narrow columns begin
where those of wide ones do, and of 1 MiB as many values of any width are 94 % or more."""

STEP_ROWS = 512
"""Other batches have a multiple of these, so that bitmaps end at a multiple of 64 bytes."""


_REFUSED = (BadRequest, Full, TypeError, ValueError)
"""Errors of a description that was not published."""


def put_table(
    store: Store,
    path: str,
    table: Any,
    *,
    groups: Sequence[Sequence[str]] | None = None,
    batch_rows: int | None = None,
    storage_class: str | None = None,
    ttl: float | None = None,
    keep_seconds: float = KEEP_SECONDS,
    attributes: Mapping[str, str] | None = None,
) -> Stat:
    """Writes a table to the directory `path`, at once: readers see the older one or all of this.

    `table` is anything that Arrow takes: a Table, RecordBatch or RecordBatchReader, a data frame of
    pandas or Polars, or what else has `__arrow_c_stream__`; a stream is not held in memory as a
    whole. `groups` names columns that are stored together; all others are on their own, except
    in a table of less than a block, which is one group. `batch_rows` bounds the rows of a batch:
    the fewer, the more a filter skips. `ttl` is in seconds. A reader of the older table can read it
    for `keep_seconds` more. A table that has lost bytes is replaced as any other; if its
    description has, what is left of it goes with a later `put_table`, an hour after it was written.
    `attributes` are small texts kept with the table, to be had as
    `store.stat(f"{path}/_schema").attributes`.

    Raises `TableError` for columns that cannot be kept, and the store's errors; then nothing of it
    appears. Only after an error that leaves open whether the table was published, such as a timeout
    at that moment, it may be there whole; what is not published by then is deleted by a later
    `put_table`, an hour after it was written.
    """
    schema, windows, size = _source(table)
    physical, dictionaries, windows = _without_dictionaries(schema, windows)
    version = uuid.uuid4().hex[:16]
    options: dict[str, Any] = {"storage_class": storage_class, "ttl": ttl}
    columns = _grouped(schema, groups, size)
    names = {column: f"{version}-dictionary-{column}.arrow" for column in dictionaries}
    parts = [
        _Part(store, path, f"{version}-{number}.arrow", schema, physical, each, batch_rows, options)
        for number, each in enumerate(columns)
    ]
    store.mkdir(path, parents=True)
    publication: _Publication | None = None
    try:
        rows = _write(parts, windows)
        for column, values in dictionaries.items():
            name = f"{path.rstrip('/')}/{names[column]}"
            store.put(name, _values_stream(values()), **options)
        made = Description(schema, rows, [part.group for part in parts], names)
        publication = _Publication(store, path, made)
        stat, older = publication.make({**options, "attributes": attributes})
    except BaseException:
        if publication is None or not publication.may_appear:
            for part in parts:
                part.abort()
            for name in names.values():
                with contextlib.suppress(Exception):
                    store.delete(f"{path.rstrip('/')}/{name}")
        raise
    _retire(store, path, older, made, keep_seconds)
    return stat


class _Part:
    """One group of columns while it is written."""

    def __init__(
        self,
        store: Store,
        path: str,
        name: str,
        logical: pa.Schema,
        schema: pa.Schema,
        columns: list[int],
        batch_rows: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self._store = store
        self._path = f"{path.rstrip('/')}/{name}"
        self._options = options
        self._columns = columns
        self._schema = pa.schema([schema.field(column) for column in columns])
        self._batch_rows = batch_rows
        self._rows = 0
        self._pending: pa.Table | None = None
        self._file: Any = None
        self._stream: StreamWriter | None = None
        # The bounds of a dictionary's indices are not those of its values.
        bounded = [each for each in columns if description.is_bounded(logical.field(each).type)]
        self.group = Group(name, columns, 0, [], {column: [] for column in bounded})

    def add(self, window: pa.Table) -> None:
        """Writes the full batches of what is there so far."""
        if self._stream is None:
            self._file = self._store.open(self._path, "wb", **self._options)
            self._stream = StreamWriter(self._file, self._schema)
        table = window.select(self._columns)
        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        self._pending = self._cut(table, is_last=False)

    def finish(self) -> None:
        """Writes the rest and seals the object."""
        if self._pending is None or self._stream is None:
            raise ValueError("a table is added first, be it empty")
        self._cut(self._pending, is_last=True)
        self._stream.close()
        self.group.places = self._stream.places
        self.group.bytes = self._stream.bytes

    def abort(self) -> None:
        """Leaves nothing of it."""
        with contextlib.suppress(Exception):
            if self._file is not None:
                self._file.abort()
        with contextlib.suppress(Exception):
            self._store.delete(self._path)

    def _cut(self, table: pa.Table, is_last: bool) -> pa.Table:
        start = 0
        while start < table.num_rows:
            batch = self._next(table, start, is_last)
            if batch is None:
                break
            self._append(batch)
            start += batch.num_rows
        return table.slice(start)

    def _next(self, table: pa.Table, start: int, is_last: bool) -> pa.RecordBatch | None:
        """Returns the rows that fill a block best; `None` when more rows may come to fill it."""
        assert self._stream is not None
        room, left = self._stream.room, table.num_rows - start
        limit = self._batch_rows or left
        count = min(self._rows or _rows_by_width(table, room), limit)
        is_shrunk = False
        while True:
            if count > left and not is_last:
                return None
            batch = _batch(table.slice(start, min(count, left)))
            size = pa.ipc.get_record_batch_size(batch) + _slack(batch)
            rows = batch.num_rows
            if size > room and rows > 1:
                is_shrunk = True
                count = min(_round(int(rows * room / size * 0.99)), rows - 1)
            elif size < room * 0.8 and rows < min(limit, left) and not is_shrunk:
                larger = min(_round(int(rows * room / max(size, 1) * 0.97)), limit)
                if larger <= rows:
                    return batch
                count = larger
            else:
                return batch
            self._rows = count

    def _append(self, batch: pa.RecordBatch) -> None:
        assert self._stream is not None
        self._stream.append(batch)
        for column, bounds in self.group.bounds.items():
            values = batch.column(self._columns.index(column))
            bounds.append(description.bounds_of(values))


def _write(parts: list[_Part], windows: Iterable[pa.Table]) -> int:
    rows = 0
    with ThreadPoolExecutor(min(WRITERS_MAX, len(parts)) or 1) as pool:
        for window in windows:
            rows += window.num_rows
            list(pool.map(lambda part, window=window: part.add(window), parts))
        list(pool.map(_Part.finish, parts))
    return rows


def _source(table: Any) -> tuple[pa.Schema, Iterable[pa.Table], int | None]:
    """Returns the schema, the rows in pieces, at least one, and their bytes if they are known."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif type(table).__module__.split(".")[0] == "pandas":
        # Keeps the index, which a stream of pandas does not.
        table = pa.Table.from_pandas(table)
    elif not isinstance(table, (pa.Table, pa.RecordBatchReader)):
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(f"{type(table).__name__} is nothing that Arrow takes for a table")
        table = pa.RecordBatchReader.from_stream(table)
    if isinstance(table, pa.Table):
        return table.schema, [table], table.nbytes
    return table.schema, _windows(table), None


def _windows(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    size, is_first = 0, True
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size >= WINDOW_BYTES:
            yield pa.Table.from_batches(batches, reader.schema)
            batches, size, is_first = [], 0, False
    if batches or is_first:
        yield pa.Table.from_batches(batches, reader.schema)


def _without_dictionaries(
    schema: pa.Schema, windows: Iterable[pa.Table]
) -> tuple[pa.Schema, dict[int, Any], Iterable[pa.Table]]:
    """Returns columns of dictionaries as their indices, and the dictionaries apart."""
    for each in schema:
        if not pa.types.is_dictionary(each.type) and _holds_dictionary(each.type):
            raise TableError(f"column {each.name!r} holds dictionaries inside: decode it first")
    columns = [at for at, each in enumerate(schema) if pa.types.is_dictionary(each.type)]
    if not columns:
        return schema, {}, windows
    # One dictionary for all batches is known only when all batches are.
    whole = pa.concat_tables(windows).unify_dictionaries()
    physical = schema
    dictionaries = {}
    for column in columns:
        name, values = schema.field(column).name, whole.column(column)
        indices = pa.chunked_array(
            [each.indices for each in values.chunks], schema.field(column).type.index_type
        )
        first = values.chunk(0).dictionary if values.num_chunks else None
        kind = schema.field(column).type.value_type
        kept = pa.array([], kind) if first is None else first
        dictionaries[column] = lambda kept=kept: kept
        physical = physical.set(column, pa.field(name, indices.type, metadata=None))
        whole = whole.set_column(column, physical.field(column), indices)
    return physical, dictionaries, [whole]


def _holds_dictionary(kind: pa.DataType) -> bool:
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(_holds_dictionary(each) for each in inner)


def _values_stream(values: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"values": values})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _grouped(
    schema: pa.Schema, groups: Sequence[Sequence[str]] | None, size: int | None
) -> list[list[int]]:
    if groups is None and size is not None and size < BLOCK_BYTES:
        return [list(range(len(schema)))] if len(schema) else []
    grouped: list[list[int]] = []
    taken: set[int] = set()
    for names in groups or []:
        columns = [_column(schema, name) for name in names]
        if not columns or taken.intersection(columns) or len(set(columns)) < len(columns):
            raise TableError(f"group {list(names)} is empty or has a column of another group")
        taken.update(columns)
        grouped.append(columns)
    grouped += [[column] for column in range(len(schema)) if column not in taken]
    return grouped


def _column(schema: pa.Schema, name: str) -> int:
    found = schema.get_all_field_indices(name)
    if len(found) != 1:
        known = ", ".join(schema.names)
        raise TableError(f"{len(found)} columns are called {name!r}; there are: {known}")
    return int(found[0])


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _slack(batch: pa.RecordBatch) -> int:
    """Returns a bound of what aligning its head and its buffers adds."""
    buffers = sum(len(column.buffers()) for column in batch.columns)
    return ALIGNMENT * (buffers + 1)


def _rows_by_width(table: pa.Table, room: int) -> int:
    width = max(table.nbytes / max(table.num_rows, 1), 0.125)
    return _round(int(room * 0.995 / width))


def _round(rows: int) -> int:
    even = ROUND_ROWS
    while even * 2 <= rows:
        even *= 2
    if even >= rows * 0.9:
        return even
    return max(rows - rows % STEP_ROWS if rows > STEP_ROWS else rows, 1)


class _Publication:
    """Makes a description the table's."""

    def __init__(self, store: Store, path: str, made: Description) -> None:
        self._store = store
        self._path = path
        self._name = f"{path.rstrip('/')}/{description.NAME}"
        self._data = made.encode()
        self.may_appear = False
        """Whether the description is there or may still come: then its groups must stay."""

    def make(self, options: Mapping[str, Any]) -> tuple[Stat, Description | None]:
        """Replaces exactly the description that is returned: of writers that end at the same time
        each replaces another's.
        """
        older: Description | None = None
        while True:
            current = self._current()
            if current is not None and current[1] == self._data:
                # An earlier attempt succeeded, and its answer was lost.
                return current[0], older
            older = None
            if current is not None and current[1] is not None:
                with contextlib.suppress(TableError):
                    older = description.decode(self._path, current[1])
            # Another writer's table is in between: one more of them has been published.
            with contextlib.suppress(Changed, Exists):
                return self._replace(current and current[0].object, options), older

    def _replace(self, older: int | None, options: Mapping[str, Any]) -> Stat:
        """Puts the description in the place of the object `older`, or of none."""
        condition: dict[str, Any] = {"if_absent": True} if older is None else {"if_object": older}
        self.may_appear = True
        try:
            return self._store.put(self._name, self._data, **condition, **options)
        except (Changed, Exists):
            raise
        except Exception as error:
            try:
                current = self._current()
            except Exception:
                raise error from None
            if current is not None and current[1] == self._data:
                return current[0]
            # A request that is still on its way cannot replace another object than the older one.
            is_too_late = current is not None and current[0].object != older
            self.may_appear = not (is_too_late or isinstance(error, _REFUSED))
            raise

    def _current(self) -> tuple[Stat, Any] | None:
        """Returns the object of the description that is there now, and its bytes; None for bytes
        that are lost, as that table is.
        """
        try:
            stat, data = description.find(self._store, self._path)
        except NotFound:
            return None
        return stat, None if isinstance(data, DataUnavailable) else data


def _retire(
    store: Store, path: str, older: Description | None, made: Description, keep_seconds: float
) -> None:
    """Lets the replaced table go when its readers have had time, and what writers that died left
    behind."""
    ours = made.objects()
    theirs = older.objects() if older else set()
    now = time.time()
    for entry in store.list(path):
        if entry.name in ours or not entry.name.endswith(".arrow"):
            continue
        is_left = now - entry.modified_at.timestamp() > LEFT_SECONDS
        if entry.name in theirs or is_left:
            with contextlib.suppress(NotFound):
                store.set_ttl(f"{path.rstrip('/')}/{entry.name}", keep_seconds)
