"""Reading tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from sanderling import _sanderling
from sanderling.arrow import description
from sanderling.arrow.blocks import batches_of, ranges_of
from sanderling.arrow.description import Description, Group
from sanderling.arrow.errors import TableError
from sanderling.arrow.pruning import columns_of, kept_rows
from sanderling.errors import IsADirectory, NotADirectory, NotFound
from sanderling.store import Store

WINDOW_ROWS_MIN = 15 << 10
"""Fewer rows at once would cost more in calls than in bytes."""

WINDOW_ROWS_MAX = 15 << 14

Span = tuple[int, int]
"""Rows from the first to before the last."""


def open_table(store: Store, path: str) -> StoredTable:
    """Opens a table as it is now; replaced meanwhile, it is still the one that was opened.

    Raises `NotFound`, and `TableError` when what is there is no table.
    """
    try:
        stat, data = description.read(store, path)
    except (NotFound, NotADirectory, IsADirectory) as error:
        if not store.exists(path):
            raise
        raise TableError(f"{path} is no table: it has no {description.NAME}") from error
    return StoredTable(store, path, description.decode(path, data), stat.object)


class StoredTable:
    """One version of a table."""

    def __init__(self, store: Store, path: str, description: Description, version: int) -> None:
        self.version = version
        """Another number after every replacement."""
        self._store = store
        self._path = path.rstrip("/")
        self._description = description
        self._readers: dict[str, _sanderling.Reader] = {}
        self._dictionaries: dict[int, pa.Array] = {}

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return self._description.schema

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._description.rows

    @property
    def groups(self) -> list[list[str]]:
        """The names of the columns that are stored together."""
        names = self.schema.names
        return [[names[column] for column in each.columns] for each in self._description.groups]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Reads the table, or some of its columns, as a whole."""
        wanted = self._wanted(columns)
        reading = _Reading(self, self._needed(wanted))
        return reading.window((0, self.num_rows)).select_columns(wanted, self.schema)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        batch_rows: int | None = None,
        rows: Sequence[int] | None = None,
    ) -> pa.RecordBatchReader:
        """Reads the rows that a filter lets pass, batch by batch; of `rows`, from the first to
        before the last, if they are given."""
        start, stop, _ = slice(*(rows or (0, self.num_rows))).indices(self.num_rows)
        among = [(start, stop)] if start < stop else []
        if batch_rows is not None and batch_rows < 1:
            raise ValueError(f"batches of {batch_rows} rows")
        wanted = self._wanted(columns)
        schema = pa.schema([self.schema.field(at) for at in wanted], self.schema.metadata)
        if filter is None:
            tests: list[int] = []
            spans = among
        else:
            filter = _expression(filter)
            tests = columns_of(filter, self.schema)
            spans = kept_rows(self._description, filter, tests, among)
        first = self._needed(tests)
        rest = [each for each in self._needed(wanted) if each not in first]
        steps = _steps(spans, first + rest)
        head, tail = _Reading(self, first), _Reading(self, rest)

        def passing(span: Span) -> pa.Table | None:
            if filter is None:
                return tail.window(span).select_columns(wanted, self.schema)
            tested = head.window(span)
            mask = _mask(tested.select_columns(tests, self.schema), filter)
            if not mask.true_count:
                return None
            found = tested.joined(tail.window(span)).select_columns(wanted, self.schema)
            return found if mask.true_count == len(mask) else found.filter(mask)

        def batches() -> Iterator[pa.RecordBatch]:
            for found in _ahead(passing, steps):
                if found is not None:
                    yield from found.to_batches(max_chunksize=batch_rows)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _wanted(self, columns: Sequence[str] | None) -> list[int]:
        if columns is None:
            return list(range(len(self.schema)))
        wanted = []
        for name in columns:
            found = self.schema.get_all_field_indices(name)
            if len(found) != 1:
                known = ", ".join(self.schema.names)
                raise TableError(
                    f"{self._path}: {len(found)} columns are called {name!r}; there are: {known}"
                )
            wanted.append(found[0])
        return wanted

    def _needed(self, columns: Sequence[int]) -> list[Group]:
        groups = self._description.groups
        return [each for each in groups if not set(columns).isdisjoint(each.columns)]

    def open(self, groups: Sequence[Group]) -> list[_sanderling.Reader]:
        """Opens the objects of groups, all at once."""
        missing = [each for each in groups if each.object not in self._readers]
        names = [f"{self._path}/{each.object}" for each in missing]
        opened = self._store._client.readers(names) if names else []
        for group, reader in zip(missing, opened, strict=True):
            if isinstance(reader, Exception):
                raise reader
            if reader.bytes != group.bytes:
                raise TableError(
                    f"{self._path}/{group.object} has {reader.bytes} bytes where {group.bytes}"
                    " were written: it is not the table's"
                )
            self._readers[group.object] = reader
        return [self._readers[each.object] for each in groups]

    def fetch(
        self, wanted: list[tuple[_sanderling.Reader, list[tuple[int, int]]]]
    ) -> list[list[Any]]:
        """Reads ranges of many objects in one call."""
        total = sum(length for _, ranges in wanted for _, length in ranges)
        client = self._store._client
        found: list[list[Any]] = []
        for each in self._store._run("read", total, client.read_many, wanted):
            if isinstance(each, Exception):
                raise each
            found.append(each)
        return found

    def dictionary(self, column: int) -> pa.Array | None:
        """Returns the dictionary of a column that has one."""
        name = self._description.dictionaries.get(column)
        if name is None:
            return None
        if column not in self._dictionaries:
            data = self._store.get(f"{self._path}/{name}")
            try:
                table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
                values = table["values"].combine_chunks()
            except (pa.ArrowException, KeyError, OSError, EOFError) as error:
                raise TableError(f"{self._path}/{name} is no dictionary: {error}") from error
            self._dictionaries[column] = values
        return self._dictionaries[column]


class _Window:
    """Columns of some rows, by their number in the table."""

    def __init__(self, rows: int, columns: dict[int, pa.ChunkedArray]) -> None:
        self._rows = rows
        self._columns = columns

    def joined(self, other: _Window) -> _Window:
        return _Window(self._rows, self._columns | other._columns)

    def select_columns(self, wanted: Sequence[int], schema: pa.Schema) -> pa.Table:
        fields = pa.schema([schema.field(at) for at in wanted], schema.metadata)
        if not wanted:
            # A table without columns has rows all the same.
            rows = pa.table({"rows": pa.nulls(self._rows)})
            return rows.select([]).replace_schema_metadata(schema.metadata)
        return pa.Table.from_arrays([self._columns[at] for at in wanted], schema=fields)


class _Reading:
    """Reads some groups of a table, window by window, each batch once."""

    def __init__(self, table: StoredTable, groups: list[Group]) -> None:
        self._table = table
        self._groups = groups
        self._readers = table.open(groups)
        self._starts = [_starts(each) for each in groups]
        self._schemas = [_schema(table, each) for each in groups]
        self._held: list[dict[int, pa.RecordBatch]] = [{} for _ in groups]

    def window(self, span: Span) -> _Window:
        """Reads some rows; a batch that goes on behind them is kept for the next."""
        start, stop = span
        asked = []
        plans = []
        for at, group in enumerate(self._groups):
            starts, held = self._starts[at], self._held[at]
            first = bisect_right(starts, start) - 1
            last = bisect_right(starts, stop - 1) if stop > start else first
            numbers = [n for n in range(max(first, 0), last) if starts[n + 1] > starts[n]]
            new = [number for number in numbers if number not in held]
            places = [group.places[number] for number in new]
            plans.append((numbers, new, places))
            if places:
                asked.append((self._readers[at], ranges_of(places)))
        buffers = iter(self._table.fetch(asked) if asked else [])
        columns: dict[int, pa.ChunkedArray] = {}
        for at, group in enumerate(self._groups):
            numbers, new, places = plans[at]
            held = self._held[at]
            if places:
                held |= zip(new, self._decoded(at, places, next(buffers)), strict=True)
            chunks = [self._cut(at, number, span) for number in numbers]
            self._held[at] = {
                number: held[number] for number in numbers if self._starts[at][number + 1] > stop
            }
            for position, column in enumerate(group.columns):
                columns[column] = self._column(column, [each.column(position) for each in chunks])
        return _Window(stop - start, columns)

    def _decoded(self, at: int, places: list[Any], buffers: list[Any]) -> list[pa.RecordBatch]:
        try:
            return batches_of(places, buffers, self._schemas[at])
        except (pa.ArrowException, OSError, EOFError) as error:
            name = f"{self._table._path}/{self._groups[at].object}"
            raise TableError(f"{name} is damaged or foreign: {error}") from error

    def _cut(self, at: int, number: int, span: Span) -> pa.RecordBatch:
        batch, first = self._held[at][number], self._starts[at][number]
        begin, end = max(span[0] - first, 0), min(span[1] - first, batch.num_rows)
        return batch if end - begin == batch.num_rows else batch.slice(begin, end - begin)

    def _column(self, column: int, chunks: list[pa.Array]) -> pa.ChunkedArray:
        kind = self._table.schema.field(column).type
        dictionary = self._table.dictionary(column)
        if dictionary is not None:
            chunks = [
                pa.DictionaryArray.from_arrays(each, dictionary, ordered=kind.ordered)
                for each in chunks
            ]
        return pa.chunked_array(chunks, kind)


def _schema(table: StoredTable, group: Group) -> pa.Schema:
    fields = []
    for column in group.columns:
        each = table.schema.field(column)
        is_coded = pa.types.is_dictionary(each.type)
        fields.append(pa.field(each.name, each.type.index_type) if is_coded else each)
    return pa.schema(fields)


def _starts(group: Group) -> list[int]:
    starts = [0]
    for place in group.places:
        starts.append(starts[-1] + place.rows)
    return starts


def _steps(spans: list[Span], groups: list[Group]) -> list[Span]:
    """Cuts the rows into windows of about a block of the widest columns."""
    rows = [max((place.rows for place in each.places), default=0) for each in groups]
    step = min(max(min(rows, default=0), WINDOW_ROWS_MIN), WINDOW_ROWS_MAX)
    steps = []
    for start, stop in spans:
        # At multiples of the step: where batches begin, too, if they can.
        while start < stop:
            end = min(stop, start - start % step + step)
            steps.append((start, end))
            start = end
    return steps


def _expression(filter: Any) -> Any:
    if isinstance(filter, pc.Expression):
        return filter
    from pyarrow.parquet import filters_to_expression

    return filters_to_expression(filter)


def _mask(table: pa.Table, filter: Any) -> pa.Array:
    """Returns for each row whether it passes; a test that is null lets nothing pass."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([filter], ["passes"]))
    plan = acero.Declaration.from_sequence([source, project])
    passes = plan.to_table(use_threads=False)["passes"]
    return passes.combine_chunks()


def _ahead(
    work: Callable[[Span], pa.Table | None], steps: list[Span]
) -> Iterator[pa.Table | None]:
    """Yields each step's work, the next one under way while the caller works on this."""
    with ThreadPoolExecutor(1, thread_name_prefix="sanderling-scan") as pool:
        following: Future[pa.Table | None] | None = None
        try:
            for at in range(len(steps)):
                current = following or pool.submit(work, steps[at])
                following = pool.submit(work, steps[at + 1]) if at + 1 < len(steps) else None
                yield current.result()
        finally:
            if following is not None:
                following.cancel()
