"""The TPC-DS tables, generated once, and DuckDB, which has the queries and their results."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dialect
from results import Rows, from_json, to_json

# What DuckDB needs at most, beside Spark.
DUCKDB_MEMORY = "2GiB"
# Changes whenever results that were kept before would be others.
ORACLE_VERSION = 1


class MissingTool(Exception):
    """A program or package is not installed; the text has the command that installs it."""


@dataclass(frozen=True)
class Query:
    """One query with its right result."""

    number: int
    text: str
    """In Spark's SQL."""
    wanted: Rows

    @property
    def name(self) -> str:
        """Returns how tables and pages call it."""
        return f"q{self.number}"


def generate(scale: float, cache: Path) -> Path:
    """Returns the directory of the tables' Parquet files, made by tpcgen-cli if need be.

    Raises `MissingTool` when tpcgen-cli is not there or fails.
    """
    directory = cache / f"scale-{scale:g}"
    if (directory / "complete").exists():
        return directory
    program = Path(sysconfig.get_path("scripts")) / "tpcgen-cli"
    if not program.exists():
        raise MissingTool("tpcgen-cli is not installed: scripts/venv.sh spark41")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [str(program), "tpcds", "parquet", "--scale-factor", f"{scale:g}"]
    command += ["--output-dir", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingTool(f"tpcgen-cli failed: {done.stderr.strip()[-500:]}")
    (directory / "complete").touch()
    return directory


def queries(numbers: list[int], tables: Path) -> list[Query]:
    """Returns queries in Spark's SQL, each with DuckDB's result.

    DuckDB's results are kept beside the tables. A number that TPC-DS has no query for is a
    `ValueError`.
    """
    oracle: Any = None
    made = []
    for number in numbers:
        if not 1 <= number <= 99:
            raise ValueError(f"TPC-DS has no query {number}: they are 1 to 99")
        kept = tables / "results" / f"{number}.json"
        found = _kept(kept)
        if found is None:
            oracle = oracle or _oracle(tables)
            found = _query(oracle, number)
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(found))
        made.append(Query(number, found["text"], from_json(found["rows"])))
    return made


def used(asked: list[Query], tables: Path) -> list[str]:
    """Returns the files of the tables that queries name: Spark looks into each at its start."""
    words = {word for query in asked for word in re.findall(r"\w+", query.text.lower())}
    return [str(table) for table in sorted(tables.glob("*.parquet")) if table.stem in words]


def _kept(path: Path) -> dict[str, Any] | None:
    """Returns what was kept, unless this program would now make it otherwise."""
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return found if found["version"] == [ORACLE_VERSION, dialect.VERSION] else None


def _query(oracle: Any, number: int) -> dict[str, Any]:
    """Lets DuckDB answer a query."""
    sql = "SELECT query FROM tpcds_queries() WHERE query_nr = ?"
    text = oracle.execute(sql, [number]).fetchone()[0]
    columns = len(oracle.execute(f"DESCRIBE {text.strip().rstrip(';')}").fetchall())
    text = dialect.with_total_order(dialect.without_rounding(text), columns)
    found = oracle.execute(text).fetchall()
    return {
        "version": [ORACLE_VERSION, dialect.VERSION],
        "text": dialect.for_spark(text),
        "rows": to_json(found),
    }


def _oracle(tables: Path) -> Any:
    """Opens DuckDB over the tables, with nulls in the order in which Spark has them."""
    try:
        import duckdb
        import duckdb_extension_tpcds
    except ImportError as error:
        raise MissingTool(f"{error}: scripts/venv.sh spark41") from error
    folder = Path(duckdb_extension_tpcds.__file__).parent / "extensions"
    extension = folder / f"v{duckdb.__version__}" / "tpcds.duckdb_extension"
    if not extension.exists():
        raise MissingTool(f"duckdb-extension-tpcds has nothing for DuckDB {duckdb.__version__}")
    made = duckdb.connect(config={"threads": 2, "memory_limit": DUCKDB_MEMORY})
    made.execute(f"LOAD '{extension}'")
    made.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
    for table in sorted(tables.glob("*.parquet")):
        path = str(table).replace("'", "''")
        made.execute(f"CREATE VIEW {table.stem} AS SELECT * FROM read_parquet('{path}')")
    return made
