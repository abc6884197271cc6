"""Which rows a filter cannot let pass, by what is known of each batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
import pyarrow.fs

from sanderling.arrow.description import Bounds, Description, Group
from sanderling.arrow.errors import TableError


def columns_of(filter: Any, schema: pa.Schema) -> list[int]:
    """Returns the columns without which a filter has no meaning."""
    empty = schema.empty_table()
    try:
        empty.filter(filter)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError) as error:
        raise TableError(f"the filter does not fit the table's schema: {error}") from error
    return [at for at in range(len(schema)) if not _can_do_without(empty, at, filter)]


def _can_do_without(empty: pa.Table, column: int, filter: Any) -> bool:
    try:
        empty.remove_column(column).filter(filter)
    except (pa.ArrowInvalid, KeyError):
        return False
    return True


def kept_rows(
    description: Description, filter: Any, columns: list[int], spans: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns what is left of the spans of rows: where the filter may let something pass.

    Arrow decides by the same rules as for the statistics of Parquet files: each batch becomes a
    fragment with an expression that holds for all its rows.
    """
    for group in description.groups:
        tested = [at for at in columns if at in group.bounds]
        if tested:
            spans = _both(spans, _spans(description.schema, group, filter, tested))
    return spans


def _spans(
    schema: pa.Schema, group: Group, filter: Any, tested: list[int]
) -> list[tuple[int, int]]:
    format, nowhere = dataset.IpcFileFormat(), pyarrow.fs.LocalFileSystem()
    fragments = []
    for number, place in enumerate(group.places):
        known = None
        for column in tested:
            name = schema.field(column).name
            each = _known(name, group.bounds[column][number], place.rows)
            known = each if known is None or each is None else known & each
        fragments.append(format.make_fragment(str(number), nowhere, partition_expression=known))
    if not fragments:
        return []
    batches = dataset.FileSystemDataset(fragments, schema, format, nowhere)
    kept = {int(each.path) for each in batches.get_fragments(filter=filter)}
    spans: list[tuple[int, int]] = []
    start = 0
    for number, place in enumerate(group.places):
        stop = start + place.rows
        if number in kept and stop > start:
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
        start = stop
    return spans


def _known(name: str, bounds: Bounds, rows: int) -> Any:
    """Returns what holds for all values of a batch, or `None`."""
    value = pc.field(name)
    if bounds.nulls == rows:
        return value.is_null()
    if bounds.low is None or not bounds.low.is_valid:
        return None
    within = (value >= bounds.low) & (value <= bounds.high)
    return within | value.is_null() if bounds.nulls else within


def _both(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns the rows that are in both."""
    both = []
    at, other = 0, 0
    while at < len(left) and other < len(right):
        start = max(left[at][0], right[other][0])
        stop = min(left[at][1], right[other][1])
        if start < stop:
            both.append((start, stop))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return both
