"""Results of queries: how they are kept, and what counts as the same result."""

from __future__ import annotations

import datetime
import decimal
import math
from collections import defaultdict
from typing import Any

Value = float | str | None
Rows = list[list[Value]]

# DuckDB's averages and quotients of decimals are doubles, Spark's are decimals with at least six
# digits behind the point: half of the last digit may differ, and a relative error of sums that
# are made in another order.
ABSOLUTE = 1e-6
RELATIVE = 1e-6


def to_json(rows: list[Any]) -> Rows:
    """Returns rows of DuckDB's or Spark's with numbers as doubles and all else as text."""
    return [[_plain(value) for value in row] for row in rows]


def from_json(rows: Any) -> Rows:
    """Checks and returns rows as `to_json` made them."""
    if not all(isinstance(row, list) for row in rows):
        raise ValueError("rows are lists of values")
    return rows


def difference(wanted: Rows, found: Rows) -> str:
    """Returns how two results differ, whatever the order of their rows; empty when they do not."""
    if len(wanted) != len(found):
        return f"{len(found)} rows, {len(wanted)} wanted"
    left, right = _by_words(wanted), _by_words(found)
    for words, numbers in left.items():
        others = right.get(words)
        if others is None or len(others) != len(numbers):
            seen = len(others or [])
            return f"{seen} rows with {_shown(words)}, {len(numbers)} wanted"
        missing = _unmatched(numbers, others)
        if missing is not None:
            return f"no row with {_shown(words)} has {missing}; there are {others[:3]}"
    return ""


def _plain(value: Any) -> Value:
    if value is None or isinstance(value, str):
        return value.rstrip() if value is not None else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    raise TypeError(f"a result holds a {type(value).__name__}")


def _by_words(rows: Rows) -> dict[tuple[Value, ...], list[list[float]]]:
    """Returns the numbers of rows by what is no number in them, nulls and places included."""
    found: dict[tuple[Value, ...], list[list[float]]] = defaultdict(list)
    for row in rows:
        words = tuple("#" if isinstance(value, float) else value for value in row)
        found[words].append([value for value in row if isinstance(value, float)])
    return found


def _unmatched(wanted: list[list[float]], found: list[list[float]]) -> list[float] | None:
    """Returns a row of numbers that has no equal among the others; each is taken once."""
    left = sorted(found)
    for numbers in sorted(wanted):
        # In order the equal one is first, but where the first numbers differ by rounding.
        at = next((at for at, other in enumerate(left) if _equal(numbers, other)), None)
        if at is None:
            return numbers
        left.pop(at)
    return None


def _equal(left: list[float], right: list[float]) -> bool:
    return all(
        (math.isnan(one) and math.isnan(other))
        or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for one, other in zip(left, right, strict=True)
    )


def _shown(words: tuple[Value, ...]) -> str:
    return ", ".join("null" if word is None else str(word) for word in words)
