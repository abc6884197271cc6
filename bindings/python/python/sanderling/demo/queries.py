"""TPC-DS queries in DuckDB: over the store, and over the local files as the oracle."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.demo.data import MissingTool, table_path

FLOAT_TOLERANCE = 1e-9
"""Relative. Averages and deviations are sums of floats whose order depends on the threads; all
else, sums of decimals too, must be equal."""

THREADS = 2

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Query:
    """One query and its right result."""

    number: int
    text: str
    wanted: Rows


@dataclass(frozen=True)
class Answer:
    """One execution over the store."""

    query: int
    began: float
    """By `time.monotonic`."""
    seconds: float
    is_right: bool
    problem: str
    """Why it is not right."""


def prepare(tables: list[Path], count: int) -> list[Query]:
    """Runs the first `count` queries over the local files."""
    connection = _connection()
    _views(connection, {table.stem: str(table) for table in tables})
    texts = connection.execute("SELECT query_nr, query FROM tpcds_queries() ORDER BY 1").fetchall()
    return [
        Query(number, text, _sorted(connection.execute(text).fetchall()))
        for number, text in texts[:count]
    ]


class Session:
    """A DuckDB connection whose tables are objects of the store."""

    def __init__(self, filesystem: Any, tables: list[Path]) -> None:
        self._connection = _connection()
        # Otherwise DuckDB would answer from its own memory and the store would stand idle.
        self._connection.execute("SET enable_external_file_cache = false")
        self._connection.execute("SET parquet_metadata_cache = false")
        self._connection.register_filesystem(filesystem)
        _views(
            self._connection,
            {table.stem: f"sanderling://{table_path(table)}" for table in tables},
        )

    def run(self, query: Query) -> Answer:
        """Runs a query and compares its result."""
        began = time.monotonic()
        try:
            rows = self._connection.execute(query.text).fetchall()
        except Exception as error:  # noqa: BLE001 - any failure is a wrong answer
            problem = f"{type(error).__name__}: {error}"
            # DuckDB sees Ctrl-C itself and makes its own error of it. Nothing else interrupts.
            if "interrupt" in problem.lower():
                raise KeyboardInterrupt from error
            return Answer(query.number, began, time.monotonic() - began, False, problem)
        seconds = time.monotonic() - began
        problem = difference(query.wanted, _sorted(rows))
        return Answer(query.number, began, seconds, not problem, problem)


def difference(wanted: Rows, found: Rows) -> str:
    """Returns how two sorted results differ; empty when they do not."""
    if len(wanted) != len(found):
        return f"{len(found)} rows, {len(wanted)} wanted"
    for row, (left, right) in enumerate(zip(wanted, found, strict=True)):
        if len(left) != len(right) or not all(map(_is_equal, left, right)):
            return f"row {row}: {right!r}, {left!r} wanted"
    return ""


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=FLOAT_TOLERANCE)
    return type(left) is type(right) and left == right


def _sorted(rows: Rows) -> Rows:
    # Equal keys of ORDER BY may come in any order. Floats are rounded in the key alone, so that two
    # results that differ within the tolerance are sorted alike.
    def key(row: tuple[Any, ...]) -> list[str]:
        return [f"{value:.6g}" if isinstance(value, float) else repr(value) for value in row]

    return sorted(rows, key=key)


def _connection() -> Any:
    try:
        import duckdb
        import duckdb_extension_tpcds
    except ImportError as error:
        raise MissingTool(f"{error}: pip install 'sanderling[demo]'") from error
    folder = Path(duckdb_extension_tpcds.__file__).parent / "extensions"
    extension = folder / f"v{duckdb.__version__}" / "tpcds.duckdb_extension"
    if not extension.exists():
        version = duckdb.__version__
        raise MissingTool(f"duckdb-extension-tpcds has no extension for DuckDB {version}")
    connection = duckdb.connect(config={"threads": THREADS})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET enable_progress_bar = false")
    return connection


def _views(connection: Any, tables: dict[str, str]) -> None:
    for name, path in tables.items():
        escaped = path.replace("'", "''")
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{escaped}')")
