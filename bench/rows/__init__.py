"""Every row of the comparison."""

from rows import disk, drains, metadata, objects, small, streams
from rows.row import Row

ROWS: list[Row] = sorted(
    [*streams.ROWS, *small.ROWS, *objects.ROWS, *metadata.ROWS, *drains.ROWS, *disk.ROWS],
    key=lambda row: row.number,
)
