"""Tables in the store, uncompressed, in groups of columns.

    from sanderling import arrow

    arrow.put_table(store, "/sales", table)
    arrow.get_table(store, "/sales", columns=["price"])
    for batch in arrow.scan(store, "/sales", ["price"], filter=pc.field("day") == 7): ...

Each group of columns is one object, an Arrow IPC stream. A projection reads only its groups, a
filter only the batches that may hold rows it lets pass, and a reader on the same host maps them: no
value is decoded or copied (after A. Trivedi, P. Stuedi, J. Pfefferle, A. Schuepbach, B. Metzler,
"Albis: High-Performance File Format for Big Data Systems", USENIX ATC 2018, sections 3 and 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sanderling.extras import missing

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise missing(__name__, "arrow", error) from None

from sanderling.arrow.errors import TableError
from sanderling.arrow.read import StoredTable, open_table
from sanderling.arrow.write import put_table
from sanderling.store import Store

__all__ = ["StoredTable", "TableError", "get_table", "open_table", "put_table", "scan"]


def get_table(store: Store, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a table, or some of its columns, in their order.

    On the same host its values lie in the datanodes' memory, which is not used again while the
    table or a part of it lives; what is more than half of a datanode's memory is copied.
    Raises `NotFound`, `TableError` and `DataUnavailable`.
    """
    return open_table(store, path).read(columns)


def scan(
    store: Store,
    path: str,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    batch_rows: int | None = None,
) -> pa.RecordBatchReader:
    """Reads a table batch by batch, only the rows that a filter lets pass.

    `filter` is an expression of `pyarrow.compute`, or what `pyarrow.parquet` takes as filters. Its
    columns need not be among `columns`. A batch has at most `batch_rows` rows. Others read from it
    as from every stream of Arrow: `polars.from_arrow(scan(...))`, `scan(...).read_pandas()`,
    DuckDB's `FROM reader`.
    """
    return open_table(store, path).scan(columns, filter, batch_rows)
