"""Every row of the comparison."""

from rows import streams
from rows.row import Row

ROWS: list[Row] = sorted([*streams.ROWS], key=lambda row: row.number)
